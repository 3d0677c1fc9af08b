"""Sources of node usage: metrics.k8s.io, Prometheus and load-watcher, behind one protocol.

Each answers in load-watcher's form, from which `checked_usage` takes what counts. Invariant: a
source only reads; how often, how long and how much is the framework's to bound.
"""

import re
from collections.abc import Mapping
from functools import partial
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
    resource_amount,
)
from stellwerk_plugins.load.node_usage import KIND, MOST_NODES, checked_usage

PERIOD_SECONDS: Final = 30.0
_METRICS_PATH: Final = "/apis/metrics.k8s.io/v1beta1/nodes"
_USER_INFO: Final = re.compile(r"^(https?://)[^/?#]*@")
Url = Annotated[str, Field(max_length=2048, pattern=r"^https?://[^/\s]+")]


class TokenReference(ConfigModel):
    """A key of a Secret that holds a bearer token."""

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
    """Of Stellwerk: a Secret with the bearer token."""
    queries: PrometheusQueries = PrometheusQueries()
    """Of Stellwerk: what Prometheus is asked."""

    @model_validator(mode="after")
    def _is_usable(self) -> "MetricProvider":
        if self.type == "Prometheus" and not re.match(r"^https?://[^/\s]+", self.address):
            raise invalid(
                "address", "the address of a Prometheus is required, http://… or https://…"
            )
        if self.token and self.secret_ref is not None:
            raise invalid("secretRef", "not allowed beside token")
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
    """Of Stellwerk: older measurements count as missing; 0: of any age, as upstream."""

    @model_validator(mode="after")
    def _has_a_source(self) -> "UsageArgs":
        address = self.watcher_address
        if address and not re.match(r"^https?://[^/\s]+", address):
            raise invalid(
                "watcherAddress", f'"{address}" is not the address of a service, http://…'
            )
        return self


class _Source(NumberSource):
    kind = KIND
    period_seconds = PERIOD_SECONDS

    def __init__(self, name: str) -> None:
        self.name = name

    @override
    def checked(self, answer: object) -> JsonObject:
        return checked_usage(answer)


class _Checked(dict[str, Any]):
    """An answer of which nothing is left but what counts."""


def _checked(answer: object) -> _Checked:
    return _Checked(checked_usage(answer))


class LoadWatcher(_Source):
    """A load-watcher service, whose answers are checked as they are read."""

    def __init__(self, address: str) -> None:
        super().__init__(f"load-watcher {_shown(address)}")
        self._url = f"{address.rstrip('/')}/watcher"

    @override
    async def read(self, client: ClusterClient, web: Web) -> object:
        return await web.get(self._url, take=_checked)

    @override
    def checked(self, answer: object) -> JsonObject:
        return answer if isinstance(answer, _Checked) else checked_usage(answer)


class MetricsServer(_Source):
    """The API group metrics.k8s.io, whose usage becomes percent of the nodes' capacity."""

    def __init__(self, handle: Handle) -> None:
        super().__init__("metrics.k8s.io")
        self._handle = handle

    @override
    async def read(self, client: ClusterClient, web: Web) -> object:
        listed = await client.get(_METRICS_PATH)
        snapshot, by_node = self._handle.snapshot, {}
        for item in listed.get("items") or ():
            name = str(item["metadata"]["name"])
            row = snapshot.row_of.get(name)
            if row is not None:
                by_node[name] = _usage_of(item, snapshot.node_at(row).capacity)
        end = int(self._handle.now().timestamp())
        return {"window": {"end": end}, "data": {"NodeMetricsMap": by_node}}


def _usage_of(item: JsonObject, capacity: Mapping[str, int]) -> JsonObject:
    usage = item.get("usage") or {}
    metrics = [
        {
            "type": type_,
            "operator": "Latest",
            "value": 100 * resource_amount(resource, usage[resource]) / capacity[resource],
        }
        for resource, type_ in (("cpu", "CPU"), ("memory", "Memory"))
        if usage.get(resource) is not None and capacity.get(resource)
    ]
    of_node: JsonObject = {"metrics": metrics}
    if isinstance(item.get("timestamp"), str):
        of_node["timestamp"] = _seconds(item["timestamp"])
    return of_node


def _seconds(timestamp: str) -> float:
    from datetime import datetime  # noqa: PLC0415

    return datetime.fromisoformat(timestamp).timestamp()


class Prometheus(_Source):
    """The HTTP API of a Prometheus: four instant queries, whose results are ratios."""

    def __init__(self, handle: Handle, provider: MetricProvider) -> None:
        super().__init__(f"Prometheus {_shown(provider.address)}")
        self._handle = handle
        self._provider = provider
        self._url = f"{provider.address.rstrip('/')}/api/v1/query"

    @override
    async def read(self, client: ClusterClient, web: Web) -> object:
        token, queries = await self._token(client), self._provider.queries
        by_node: dict[str, JsonObject] = {}
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
                by_node.setdefault(self._node(name), {"metrics": []})["metrics"].append(metric)
        end = int(self._handle.now().timestamp())
        return {"window": {"end": end}, "data": {"NodeMetricsMap": by_node}}

    async def _token(self, client: ClusterClient) -> str:
        reference = self._provider.secret_ref
        if reference is None:
            return self._provider.token.reveal()
        from base64 import b64decode  # noqa: PLC0415

        path = f"/api/v1/namespaces/{reference.namespace}/secrets/{reference.name}"
        data = (await client.get(path)).get("data") or {}
        if reference.key not in data:
            raise ValueError(
                f"secret {reference.namespace}/{reference.name} has no {reference.key}"
            )
        return b64decode(data[reference.key]).decode().strip()

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
    found = []
    for each in ((answer.get("data") or {}).get("result") or ())[:MOST_NODES]:
        name, (_, value) = each["metric"].get(label), each["value"]
        if name:
            found.append((str(name), float(value)))
    return found


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
