"""The cost of a workload's pods to the API server, by the counters of its /metrics.

`bench` takes a reading before and after each workload, also of etcd where the user names its
address. Invariant: what cannot be read is None, and never a figure. Where the API server has
several replicas, one of them answers, and its figures are a part of all.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import aclosing
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_kube.errors import ApiError, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk.client.kubernetes import KubernetesClient

_SAMPLE: Final = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_CPU: Final = "process_cpu_seconds_total"
_REQUESTS: Final = "apiserver_request_total"
_READ_BYTES: Final = "apiserver_request_body_size_bytes_sum"
_WATCHED_BYTES: Final = "apiserver_watch_events_sizes_sum"
_ETCD_SECONDS: Final = 10.0
"""Longest wait for etcd's counters."""
_MIN_REQUESTS_PER_POD: Final = 0.01
"""Requests per pod below which a kind of request is left out: renewals of leases, single reads."""


class ServerCounters(NamedTuple):
    """Counters of one process, as of a moment."""

    cpu_seconds: float
    requests: Counter[str]
    """By verb, resource and status, as in "POST pods/binding 201"."""
    body_bytes: float
    """Bytes of the bodies of requests."""
    watched_bytes: float
    """Bytes of the events that watches were sent."""


class ServerCost(NamedTuple):
    """The cost of each pod, between two readings."""

    cpu_milliseconds: float
    requests: dict[str, float]
    body_bytes: int
    watched_bytes: int


def counters_in(lines: Iterable[str]) -> ServerCounters:
    """Read the counters of a text in Prometheus' format; what is not there is 0.

    Raises:
        ValueError: a sample is no number.
    """
    totals: dict[str, float] = {}
    requests = Counter[str]()
    for line in lines:
        sample = _SAMPLE.match(line)
        if sample is None:
            continue
        name, labels, value = sample.groups()
        if name == _REQUESTS:
            of = dict(_LABEL.findall(labels or ""))
            resource = "/".join(filter(None, (of.get("resource"), of.get("subresource"))))
            kind = " ".join((of.get("verb", ""), resource, of.get("code", "")))
            requests[kind] += round(float(value))
        elif name in {_CPU, _READ_BYTES, _WATCHED_BYTES}:
            totals[name] = totals.get(name, 0.0) + float(value)
    cpu, read, watched = (totals.get(each, 0.0) for each in (_CPU, _READ_BYTES, _WATCHED_BYTES))
    return ServerCounters(cpu, requests, read, watched)


def cost_per_pod(before: ServerCounters, after: ServerCounters, pods: int) -> ServerCost:
    """Return what each of so many pods cost, at least one."""
    added = {
        kind: round((count - before.requests[kind]) / pods, 2)
        for kind, count in sorted(after.requests.items())
    }
    return ServerCost(
        round(1000 * (after.cpu_seconds - before.cpu_seconds) / pods, 2),
        {kind: count for kind, count in added.items() if count >= _MIN_REQUESTS_PER_POD},
        round((after.body_bytes - before.body_bytes) / pods),
        round((after.watched_bytes - before.watched_bytes) / pods),
    )


async def read_api_server(client: KubernetesClient) -> ServerCounters | None:
    """Read the API server's counters; None: it has none (404), or we may not read them (403)."""
    try:
        async with aclosing(client.lines("/metrics")) as lines:
            return counters_in([line.decode() async for line in lines])
    except ApiError as error:
        if error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
            return None
        raise


async def read_etcd(url: str) -> ServerCounters:
    """Read etcd's counters.

    Raises:
        ConfigurationError: nothing answers there, or no counters.
    """
    import aiohttp  # noqa: PLC0415 with the option

    timeout = aiohttp.ClientTimeout(total=_ETCD_SECONDS)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            response.raise_for_status()
            counters = counters_in((await response.text()).splitlines())
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigurationError(f"--etcd-metrics {url}: {reason}") from error
    if not counters.cpu_seconds:
        raise ConfigurationError(f"--etcd-metrics {url}: the answer has no {_CPU}")
    return counters
