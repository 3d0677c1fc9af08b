"""NUMA alignment on all nodes at once equals alignment of one node at a time."""

from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.types import CycleState
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_plugins.numa.plugin import NodeResourceTopologyMatch
from tests.support.builders import make_cache, make_node
from tests.support.plugin_runs import make_plugin

RESOURCES: Final = ("cpu", "memory", "hugepages-2Mi", "example.com/nic")
amounts = st.dictionaries(
    st.sampled_from(RESOURCES), st.integers(0, 6).map(str), min_size=1, max_size=4
)


@st.composite
def zones(draw: st.DrawFn) -> list[JsonObject]:
    numbers = draw(st.lists(st.integers(0, 5), unique=True, min_size=1, max_size=4))
    return [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": name, "available": amount} for name, amount in draw(amounts).items()
            ],
        }
        for number in numbers
    ]


@st.composite
def topologies(draw: st.DrawFn) -> JsonObject:
    scope = draw(st.sampled_from(["container", "pod"]))
    policy = draw(st.sampled_from(["single-numa-node", "single-numa-node", "none"]))
    return {
        "zones": draw(zones()),
        "attributes": [
            {"name": "topologyManagerPolicy", "value": policy},
            {"name": "topologyManagerScope", "value": scope},
        ],
    }


@st.composite
def pods(draw: st.DrawFn) -> JsonObject:
    guaranteed = draw(st.booleans())

    def container() -> JsonObject:
        requests = draw(amounts)
        if guaranteed:
            requests = {"cpu": "1", "memory": "1", **requests}
            requests = {name: max(amount, "1") for name, amount in requests.items()}
            return {"name": "c", "resources": {"requests": requests, "limits": requests}}
        return {"name": "c", "resources": {"requests": requests}}

    return {
        "metadata": {"name": "web"},
        "spec": {
            "initContainers": [container() for _ in range(draw(st.integers(0, 1)))],
            "containers": [container() for _ in range(draw(st.integers(1, 3)))],
        },
    }


def one_by_one(  # noqa: C901, PLR0912 the whole rule, from top to bottom
    pod: PodInfo, topology: JsonObject
) -> str | None:
    """The verdict about one node, in the words of the documentation."""
    attributes = {each["name"]: each["value"] for each in topology["attributes"]}
    resources = pod.spec.resources
    parts = [*resources.init_containers, *resources.containers]
    if pod.qos_class == "BestEffort" and not any("/" in r for p in parts for r in p.requests):
        return None
    if attributes["topologyManagerPolicy"] != "single-numa-node":
        return None
    free = {
        int(zone["name"].removeprefix("node-")): {
            each["name"]: int(each["available"]) * 10**9 for each in zone["resources"]
        }
        for zone in topology["zones"]
    }
    shared = {"cpu", "memory", "hugepages-2Mi"} if pod.qos_class != "Guaranteed" else set()

    def place(request: dict[str, int]) -> int | None:
        possible = set(range(64))
        for name, amount in request.items():
            if not amount:
                continue
            reporting = {number for number, have in free.items() if name in have}
            if not reporting and "/" in name:
                continue
            possible &= {
                number for number in reporting if name in shared or free[number][name] >= amount
            }
        return min(possible, default=None)

    if attributes["topologyManagerScope"] == "pod":
        total: dict[str, int] = {}
        for part in resources.containers:
            for name, amount in part.requests.items():
                total[name] = total.get(name, 0) + amount
        for part in resources.init_containers:
            for name, amount in part.requests.items():
                total[name] = max(total.get(name, 0), amount)
        return None if place(total) is not None else "cannot align pod"
    for part in resources.init_containers:
        if place(dict(part.requests)) is None:
            return "cannot align init container"
    for part in resources.containers:
        number = place(dict(part.requests))
        if number is None:
            return "cannot align container"
        for name, amount in part.requests.items():
            if name not in shared and name in free.get(number, {}):
                free[number][name] -= amount
    return None


@settings(max_examples=60, deadline=None)
@given(st.lists(topologies(), min_size=1, max_size=5), pods())
def test_all_nodes_at_once_are_judged_as_each_alone(given: list[Any], pod: JsonObject) -> None:
    offered = {"hugepages-2Mi": "99", "example.com/nic": "99"}
    cache = make_cache([make_node(f"n{index}", allocatable=offered) for index in range(len(given))])
    objects = IndexedObjectStore()
    for index, topology in enumerate(given):
        objects.set("NodeResourceTopology", {"metadata": {"name": f"n{index}"}, **topology})
    plugin = make_plugin(NodeResourceTopologyMatch, cache.snapshot, objects=objects)
    cache.update_snapshot()
    parsed = parse_pod(pod)
    result = plugin.filter(CycleState(), parsed, NodeView(cache.snapshot))
    for index, topology in enumerate(given):
        code = int(result.codes[cache.snapshot.row_of[f"n{index}"]])
        said = result.status(code).message if code else None
        assert said == one_by_one(parsed, topology)
