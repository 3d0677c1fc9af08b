"""Sources of node usage: metrics.k8s.io, Prometheus and load-watcher, behind one protocol.

Each answers in load-watcher's form, from which `checked_usage` takes what counts. Invariant: a
source only reads; how often, how long and how much is the framework's to bound.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator
from typing_extensions import override

from stellwerk.plugin_api import (
    ClusterClient,
    ConfigModel,
    Handle,
    JsonObject,
    NumberSource,
    Secret,
    Web,
    invalid,
    read_secret,
    resource_amount,
)
from stellwerk_plugins.load.node_usage import KIND, MAX_USAGE_NODES, Usage, checked_usage

LOAD_PERIOD_SECONDS: Final = 30.0
"""Pause between two readings of what the nodes use."""
_NODES_PER_STEP: Final = 100
"""Nodes that are checked before the event loop runs other tasks."""
_METRICS_PATH: Final = "/apis/metrics.k8s.io/v1beta1/nodes"
_USER_INFO: Final = re.compile(r"^(https?://)[^/?#]*@")
Url = Annotated[str, Field(max_length=2048, pattern=r"^https?://[^/\s]+")]


class TokenReference(ConfigModel):
    """A key of a Secret that holds a bearer token.

    The Secret's annotation scheduling.stellwerk.dev/hosts has to name the address of the provider.
    """

    namespace: Annotated[str, Field(min_length=1, max_length=63)]
    name: Annotated[str, Field(min_length=1, max_length=253)]
    key: Annotated[str, Field(min_length=1, max_length=253)] = "token"


class PrometheusQueries(ConfigModel):
    """Instant queries whose results are ratios, by node; an empty one is not asked."""

    cpu_mean: str = "avg_over_time(instance:node_cpu:ratio[15m])"
    cpu_deviation: str = "stddev_over_time(instance:node_cpu:ratio[15m])"
    memory_mean: str = "avg_over_time(instance:node_memory_utilisation:ratio[15m])"
    memory_deviation: str = "stddev_over_time(instance:node_memory_utilisation:ratio[15m])"
    node_label: Annotated[str, Field(min_length=1, max_length=253)] = "instance"
    """The label whose value is the node's name, perhaps with a port."""


class MetricProvider(ConfigModel):
    """The source of nodes' usage where there is no load-watcher."""

    type: Literal["KubernetesMetricsServer", "Prometheus", "SignalFx"] = "KubernetesMetricsServer"
    address: Annotated[str, Field(max_length=2048)] = ""
    token: Annotated[
        Secret[Annotated[str, Field(max_length=8192)]], Field(default_factory=lambda: Secret(""))
    ]
    """A bearer token, readable to all who read profiles: name a Secret instead."""
    insecure_skip_verify: bool | None = None
    secret_ref: TokenReference | None = None
    """Stellwerk's own field: a Secret with the bearer token."""
    queries: PrometheusQueries = PrometheusQueries()
    """Stellwerk's own field: the queries that Prometheus gets."""

    @model_validator(mode="after")
    def _is_usable(self) -> "MetricProvider":
        if self.type == "Prometheus" and not re.match(r"^https?://[^/\s]+", self.address):
            raise invalid(
                "address", "the address of a Prometheus is required, http://… or https://…"
            )
        if self.token and self.secret_ref is not None:
            raise invalid("secretRef", "not allowed together with token")
        return self

    @property
    def verifies(self) -> bool:
        """Whether certificates are checked; upstream's default is not to, of a Prometheus."""
        if self.insecure_skip_verify is None:
            return self.type != "Prometheus"
        return not self.insecure_skip_verify


class UsageArgs(ConfigModel):
    """The arguments that tell where usage comes from."""

    watcher_address: Annotated[str, Field(max_length=2048)] = ""
    """A load-watcher service; it goes before `metricProvider`."""
    metric_provider: MetricProvider = MetricProvider.model_validate({})
    max_age_seconds: Annotated[int, Field(ge=0, le=86_400)] = 300
    """Stellwerk's own field: older measurements count as missing; 0: any age counts, as
    upstream."""

    @model_validator(mode="after")
    def _has_a_source(self) -> "UsageArgs":
        address = self.watcher_address
        if address and not re.match(r"^https?://[^/\s]+", address):
            raise invalid(
                "watcherAddress", f'"{address}" is not the address of a service, http://…'
            )
        return self


class _Checked(dict[str, Any]):
    """An answer of which nothing is left but what counts."""


def _checked(answer: object) -> _Checked:
    return _Checked(checked_usage(answer))


class _Source(NumberSource):
    """A source whose answers are checked as they are read, a few nodes at a time."""

    kind = KIND
    period_seconds = LOAD_PERIOD_SECONDS

    def __init__(self, name: str) -> None:
        self.name = name

    @override
    def checked(self, answer: object) -> JsonObject:
        return answer if isinstance(answer, _Checked) else checked_usage(answer)


async def _gathered(
    web: Web, end_seconds: float, nodes: Iterable[tuple[str, list[JsonObject], float | None]]
) -> _Checked:
    """The usage of nodes; after each few of them the event loop does other work."""
    usage = Usage(end_seconds)
    for number, (name, metrics, measured_seconds) in enumerate(nodes, 1):
        usage.add(name, metrics, measured_seconds)
        if not number % _NODES_PER_STEP:
            await web.pause()
    return _Checked(usage.fields())


class LoadWatcher(_Source):
    """A load-watcher service."""

    def __init__(self, address: str) -> None:
        super().__init__(f"load-watcher {_shown(address)}")
        self._url = f"{address.rstrip('/')}/watcher"

    @override
    async def read(self, client: ClusterClient, web: Web) -> object:
        return await web.get(self._url, take=_checked)


class MetricsServer(_Source):
    """The API group metrics.k8s.io, whose usage becomes percent of the nodes' capacity."""

    def __init__(self, handle: Handle) -> None:
        super().__init__("metrics.k8s.io")
        self._handle = handle

    @override
    async def read(self, client: ClusterClient, web: Web) -> object:
        listed = (await client.get(_METRICS_PATH)).get("items")
        items = listed if isinstance(listed, list) else ()
        return await _gathered(web, self._handle.now().timestamp(), self._measured(items))

    def _measured(
        self, items: Iterable[object]
    ) -> Iterator[tuple[str, list[JsonObject], float | None]]:
        """The metrics of the nodes that there are; what makes no sense is left out."""
        snapshot = self._handle.snapshot
        for item in items:
            metadata = item.get("metadata") if isinstance(item, Mapping) else None
            name = metadata.get("name") if isinstance(metadata, Mapping) else None
            row = snapshot.row_of.get(name) if isinstance(name, str) else None
            if name and row is not None and isinstance(item, Mapping):
                metrics = _metrics_of(item.get("usage"), snapshot.node_at(row).capacity)
                yield name, metrics, _seconds(item.get("timestamp"))


def _metrics_of(usage: object, capacity: Mapping[str, int]) -> list[JsonObject]:
    given = usage if isinstance(usage, Mapping) else {}
    metrics = []
    for resource, type_ in (("cpu", "CPU"), ("memory", "Memory")):
        most, text = capacity.get(resource), given.get(resource)
        if not most or text is None:
            continue
        try:
            value = 100 * resource_amount(resource, text) / most
        except (TypeError, ValueError, AttributeError, ArithmeticError):
            continue
        metrics.append({"type": type_, "operator": "Latest", "value": value})
    return metrics


def _seconds(timestamp: object) -> float | None:
    """Since the epoch; None: it is no time."""
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp()  # noqa: TID251 plugin_api alone
    except (ValueError, OverflowError):
        return None


class Prometheus(_Source):
    """The HTTP API of a Prometheus: four instant queries, whose results are ratios."""

    def __init__(self, handle: Handle, provider: MetricProvider) -> None:
        self.profile_name = handle.profile_name
        super().__init__(f"Prometheus {_shown(provider.address)}{_mark_of(provider)}")
        self._handle = handle
        self._provider = provider
        self._url = f"{provider.address.rstrip('/')}/api/v1/query"

    @override
    async def read(self, client: ClusterClient, web: Web) -> object:
        token, queries = await self._token(client), self._provider.queries
        by_node: dict[str, list[JsonObject]] = {}
        for query, type_, operator in (
            (queries.cpu_mean, "CPU", "AVG"),
            (queries.cpu_deviation, "CPU", "STD"),
            (queries.memory_mean, "Memory", "AVG"),
            (queries.memory_deviation, "Memory", "STD"),
        ):
            if not query:
                continue
            answer = await web.get(
                self._url,
                query={"query": query},
                token=token,
                verify=self._provider.verifies,
                take=partial(_results, label=queries.node_label),
            )
            for name, ratio in answer if isinstance(answer, list) else ():
                metric = {"type": type_, "operator": operator, "value": 100 * ratio}
                by_node.setdefault(self._node(name), []).append(metric)
            await web.pause()
        found = ((name, metrics, None) for name, metrics in by_node.items())
        return await _gathered(web, self._handle.now().timestamp(), found)

    async def _token(self, client: ClusterClient) -> str:
        reference = self._provider.secret_ref
        if reference is None:
            return self._provider.token.reveal()
        content = await read_secret(client.get, reference.namespace, reference.name, (self._url,))
        if reference.key not in content:
            raise ValueError(
                f"secret {reference.namespace}/{reference.name} has no {reference.key}"
            )
        return content[reference.key].decode().strip()

    def _node(self, name: str) -> str:
        """The node that a label's value names; exporters write host:port."""
        if name in self._handle.snapshot.row_of:
            return name
        return name.rpartition(":")[0] or name


def _results(answer: object, label: str) -> list[tuple[str, float]]:
    """Names and ratios, of so many at most."""
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        error = answer.get("error") if isinstance(answer, Mapping) else answer
        raise ValueError(f"the query failed: {str(error)[:200]}")
    data = answer.get("data")
    listed = data.get("result") if isinstance(data, Mapping) else None
    found = []
    for each in listed[:MAX_USAGE_NODES] if isinstance(listed, list) else ():
        try:
            name, value = each["metric"][label], float(each["value"][1])
        except (KeyError, IndexError, TypeError, ValueError, OverflowError):
            continue
        if name:
            found.append((str(name), value))
    return found


def _mark_of(provider: MetricProvider) -> str:
    """Tells readings of one address apart that ask something else, or with another Secret."""
    fields = provider.model_dump(mode="json", include={"queries", "secret_ref"})
    if fields == MetricProvider.model_validate({}).model_dump(mode="json", include=set(fields)):
        return ""
    return f" ({sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:6]})"


class NoSource(_Source):
    """A provider that Stellwerk does not read."""

    @override
    async def read(self, client: ClusterClient, web: Web) -> object:
        raise ValueError(
            f"{self.name} is not read here: have a load-watcher read it (watcherAddress)"
        )


def source_of(handle: Handle, args: UsageArgs) -> NumberSource:
    """The source that the arguments name."""
    if args.watcher_address:
        return LoadWatcher(args.watcher_address)
    provider = args.metric_provider
    if provider.type == "Prometheus":
        return Prometheus(handle, provider)
    return (
        MetricsServer(handle)
        if provider.type == "KubernetesMetricsServer"
        else NoSource(provider.type)
    )


def _shown(address: str) -> str:
    """An address without user and password."""
    return _USER_INFO.sub(r"\1", address)
