"""Sources of node usage: what of an answer counts, and what is left out for itself alone."""

import asyncio
from base64 import b64encode
from typing import Any

import pytest

from stellwerk_kube.errors import SecretRefusedError
from stellwerk_kube.json_values import JsonObject
from stellwerk_plugins.load.sources import (
    MetricProvider,
    MetricsServer,
    Prometheus,
    UsageArgs,
    source_of,
)
from tests.support.builders import make_cache, make_node
from tests.support.plugin_runs import PluginHandle


def handle_of(*names: str) -> Any:
    nodes = [make_node(name, cpu="8", memory="8Gi") for name in names]
    for node in nodes:
        node["status"]["capacity"] = node["status"]["allocatable"]
    return PluginHandle(make_cache(nodes).snapshot)


class Cluster:
    """An API server that answers each path with what it was given."""

    def __init__(self, **answers: JsonObject) -> None:
        self.answers = answers

    async def get(self, path: str) -> JsonObject:
        return self.answers[path.rpartition("/")[2]]


class Web:
    """A Prometheus whose every answer is the same; remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked, self.pauses = answer, list[dict[str, Any]](), 0

    async def get(self, url: str, *, take: Any, **asked: Any) -> Any:
        self.asked.append({"url": url, **asked})
        return take(self.answer)

    async def pause(self) -> None:
        self.pauses += 1


def item(name: Any, **fields: Any) -> JsonObject:
    usage = {"cpu": "4", "memory": "2Gi"}
    return {
        "metadata": {"name": name},
        "timestamp": "2026-01-01T00:00:00Z",
        "usage": usage,
    } | fields


def usage_of(items: Any) -> dict[str, float | None]:
    source: Any = MetricsServer(handle_of("a", "b"))
    answer = asyncio.run(source.read(Cluster(nodes={"items": items}), Web(None)))
    fields = source.checked(answer)
    return dict(zip(fields["nodes"], fields["cpuLast"], strict=True))


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        pytest.param([item("a"), item("b")], {"a": 50.0, "b": 50.0}, id="percent of the capacity"),
        pytest.param([item("c"), item("b")], {"b": 50.0}, id="a node of another cluster"),
        pytest.param(
            [item("a", usage={"cpu": "many"}), item("b")],
            {"a": None, "b": 50.0},
            id="an amount that is none",
        ),
        pytest.param(
            [item("a", timestamp="yesterday"), item("b", timestamp=None)],
            {"a": 50.0, "b": 50.0},
            id="a time that is none",
        ),
        pytest.param(
            [None, "a", {}, {"metadata": 7}, item(["a"]), item("a", usage=[1])],
            {"a": None},
            id="items of another form",
        ),
        pytest.param("none", {}, id="no list"),
    ],
)
def test_what_makes_no_sense_of_one_node_costs_no_other_its_measurement(
    items: Any, expected: dict[str, float | None]
) -> None:
    assert usage_of(items) == expected


def test_a_reading_of_many_nodes_lets_pods_be_decided_meanwhile() -> None:
    names = [f"n{number}" for number in range(1000)]
    source: Any = MetricsServer(handle_of(*names))
    web = Web(None)
    answer = asyncio.run(source.read(Cluster(nodes={"items": [*map(item, names)]}), web))
    assert len(source.checked(answer)["nodes"]) == 1000
    assert web.pauses == 10


def provider(**fields: Any) -> MetricProvider:
    given = {"type": "Prometheus", "address": "http://user:word@prometheus:9090", **fields}
    return MetricProvider.model_validate(given)


def token_for(*hosts: str) -> JsonObject:
    """A Secret with a token, whose owner lets it go to these addresses."""
    annotations = {"scheduling.stellwerk.dev/hosts": " ".join(hosts)}
    data = {"token": b64encode(b"secret\n").decode()}
    return {"metadata": {"annotations": annotations}, "data": data}


@pytest.mark.parametrize("hosts", [(), ("http://prometheus",), ("http://word@prometheus:9090",)])
def test_a_token_goes_to_no_address_that_its_secret_does_not_name(hosts: tuple[str, ...]) -> None:
    source = Prometheus(handle_of("a"), provider(secretRef={"namespace": "x", "name": "token"}))
    web, cluster = Web({}), Cluster(token=token_for(*hosts))
    with pytest.raises(SecretRefusedError, match="has to name http://prometheus:9090"):
        asyncio.run(source.read(cluster, web))  # type: ignore[arg-type]
    assert not web.asked


def test_prometheus_is_asked_four_times_with_the_token_of_the_secret() -> None:
    source = Prometheus(handle_of("a"), provider(secretRef={"namespace": "x", "name": "token"}))
    series = [
        {"metric": {"instance": "a:9100"}, "value": [0, "0.25"]},
        {"metric": {"instance": "a"}, "value": [0, "many"]},
        {"metric": {}, "value": [0, "0.5"]},
        {"metric": {"instance": "b"}},
        7,
    ]
    web: Any = Web({"status": "success", "data": {"result": series}})
    secret: Any = Cluster(token=token_for("http://prometheus:9090"))
    fields = source.checked(asyncio.run(source.read(secret, web)))
    assert (fields["nodes"], fields["cpuMean"], fields["memoryDeviation"]) == (
        ["a"],
        [25.0],
        [25.0],
    )
    assert [asked["token"] for asked in web.asked] == ["secret"] * 4
    assert "word" not in source.name


@pytest.mark.parametrize("answer", [{"status": "error", "error": "no such function"}, [], None])
def test_a_query_that_fails_says_so(answer: Any) -> None:
    source, nothing = Prometheus(handle_of("a"), provider()), Cluster()
    web: Any = Web(answer)
    with pytest.raises(ValueError, match="the query failed"):
        asyncio.run(source.read(nothing, web))  # type: ignore[arg-type]


def test_readings_of_one_address_that_ask_something_else_have_names_of_their_own() -> None:
    def name(**fields: Any) -> str:
        return Prometheus(handle_of(), provider(**fields)).name

    assert name() == "Prometheus http://prometheus:9090"
    other = {"queries": {"cpuMean": "up"}}
    assert name(**other) == name(**other)
    assert len({name(), name(**other), name(secretRef={"namespace": "x", "name": "y"})}) == 3


def test_a_provider_that_is_not_read_here_says_what_to_do() -> None:
    args = UsageArgs.model_validate({"metricProvider": {"type": "SignalFx"}})
    source: Any = source_of(handle_of(), args)
    with pytest.raises(ValueError, match="have a load-watcher read it"):
        asyncio.run(source.read(Cluster(), Web(None)))
