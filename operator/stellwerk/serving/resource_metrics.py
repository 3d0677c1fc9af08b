"""The text of /metrics/resources: what each pod requests, as kube-scheduler publishes it.

`app` passes the pods in at each scrape. Invariant: nothing is kept between two scrapes. A piece of
the text has a limited number of pods, and other work runs between two pieces.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from stellwerk.models.pod import PodInfo
from stellwerk_kube.resource_amounts import CPU, MEMORY
from stellwerk_kube.untrusted_text import printable

PODS_PER_CHUNK: Final = 500
"""Pods whose lines are made at a time: the answer of a large cluster has hundreds of MiB."""
_UNITS: Final = {CPU: "cores", MEMORY: "bytes", "ephemeral-storage": "bytes", "storage": "bytes"}
_FAMILIES: Final = (
    ("kube_pod_resource_request", "Resources requested by pods, as the scheduler counts them."),
    (
        "kube_pod_resource_limit",
        "Resources that pods are limited to, as the scheduler counts them.",
    ),
)
_OVERHEAD_FAMILIES: Final = (
    ("kube_pod_overhead_cpu_cores", CPU, "CPU that the pod's RuntimeClass adds to its requests."),
    (
        "kube_pod_overhead_memory_bytes",
        MEMORY,
        "Memory that the pod's RuntimeClass adds to its requests.",
    ),
)


def resource_metrics(pods: Iterable[PodInfo]) -> Iterator[bytes]:
    """Every pod's requests, limits and overhead in Prometheus' text format, in pieces."""
    pods = list(pods)
    for family, text in _FAMILIES:
        yield _head(family, text)
        yield from _pieces(pods, partial(_requested, family))
    for family, resource, text in _OVERHEAD_FAMILIES:
        yield _head(family, text)
        yield from _pieces(pods, partial(_overhead, family, resource))


def _pieces(pods: list[PodInfo], samples: Callable[[PodInfo], Iterator[str]]) -> Iterator[bytes]:
    for start in range(0, len(pods), PODS_PER_CHUNK):
        lines = [line for pod in pods[start : start + PODS_PER_CHUNK] for line in samples(pod)]
        yield "".join(lines).encode()


def _requested(family: str, pod: PodInfo) -> Iterator[str]:
    amounts = pod.amounts
    of = amounts.requests if family == "kube_pod_resource_request" else amounts.limits
    return _samples(family, pod, of)


def _overhead(family: str, resource: str, pod: PodInfo) -> Iterator[str]:
    if resource in pod.amounts.overhead:
        yield (
            f'{family}{{namespace="{label(pod.namespace)}",pod="{label(pod.name)}",'
            f'uid="{label(pod.uid)}"}} '
            f"{_value(resource, pod.amounts.overhead[resource])}\n"
        )


def _head(family: str, text: str) -> bytes:
    return f"# HELP {family} {text}\n# TYPE {family} gauge\n".encode()


def _samples(family: str, pod: PodInfo, amounts: Mapping[str, int]) -> Iterator[str]:
    beginning = (
        f'{family}{{namespace="{label(pod.namespace)}",pod="{label(pod.name)}",'
        f'node="{label(pod.node_name)}",scheduler="{label(pod.spec.scheduler_name)}",'
        f'priority="{pod.priority}"'
    )
    for resource, amount in sorted(amounts.items()):
        if not amount:
            continue
        yield (
            f'{beginning},resource="{label(resource)}",unit="{_unit(resource)}"}} '
            f"{_value(resource, amount)}\n"
        )


def label(value: str) -> str:
    """A label's value as the text format quotes it: no text of a pod ends it or begins a line."""
    if value.isprintable() and '"' not in value and "\\" not in value:
        return value
    return printable(value).replace("\\", "\\\\").replace('"', '\\"')


def _unit(resource: str) -> str:
    """The unit as kube-scheduler labels it; an extended resource has none."""
    if resource.startswith("hugepages-"):
        return "bytes"
    if resource.startswith("attachable-volumes-"):
        return "integer"
    return _UNITS.get(resource, "")


def _value(resource: str, amount: int) -> str:
    """The amount in cores, bytes or units, with all its digits."""
    return str(amount / 1000 if resource == CPU else amount)
