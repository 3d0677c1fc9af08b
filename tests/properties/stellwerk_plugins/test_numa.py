"""NUMA alignment and scores on all nodes at once equal those of one node at a time."""

from itertools import combinations
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
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

    kinds = st.sampled_from([{}, {"restartPolicy": "Always"}])
    init_containers = [container() | draw(kinds) for _ in range(draw(st.integers(0, 2)))]
    overhead = draw(st.sampled_from([{}, {"cpu": "1"}, {"memory": "2"}]))
    return {
        "metadata": {"name": "web"},
        "spec": {
            "initContainers": init_containers,
            "containers": [container() for _ in range(draw(st.integers(1, 3)))],
            "overhead": overhead,
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
        for name, amount in resources.overhead.items():
            total[name] = total.get(name, 0) + amount
        return None if place(total) is not None else "cannot align pod"
    for part in resources.init_containers:
        if place(dict(part.requests)) is None:
            return f"cannot align {'sidecar' if part.sidecar else 'init'} container"
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


# --- scores -------------------------------------------------------------------------------------

STRATEGIES: Final = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")
available = st.one_of(st.integers(0, 9), st.sampled_from([10**6, 2**46 + 1, 2**53 + 1])).map(str)


@st.composite
def scored_topologies(draw: st.DrawFn) -> JsonObject:
    topology = draw(topologies())
    names = [zone["name"] for zone in topology["zones"]]
    for zone in topology["zones"]:
        zone["resources"] = [
            {"name": name, "available": draw(available)}
            for name in draw(st.sampled_from([RESOURCES[:2], RESOURCES]))
        ]
        far = st.sampled_from(draw(st.sampled_from([[10], [20], [20], [10, 12, 20, 32, 255]])))
        zone["costs"] = [
            {"name": name, "value": 10 if name == zone["name"] else draw(far)}
            for name in names
            if draw(st.integers(0, 9)) or name == zone["name"]
        ]
    most = draw(st.sampled_from(["2", "8", "200"]))
    topology["attributes"].append({"name": "topologyManagerMaxNUMANodes", "value": most})
    return topology


def units_of(amount: int) -> int:
    return -(-amount // 10**9)


def zone_score(
    strategy: str, have: dict[str, int], request: dict[str, int], weights: dict[str, int]
) -> int:
    """The score of one zone for one request, in the words of the documentation."""
    if strategy == "BalancedAllocation":
        shares = [
            units_of(amount) / float(units_of(have[name])) if have.get(name) else 1.0
            for name, amount in request.items()
        ]
        if any(share > 1 for share in shares):
            return 0
        mean = sum(shares[1:], shares[0]) / len(shares)
        squares = compensation = 0.0
        for share in shares:
            apart = share - mean
            compensation += apart
            squares += apart * apart
        variance = (squares - compensation * compensation / len(shares)) / max(len(shares) - 1, 1)
        return int((1 - variance) * 100)
    total = weight_sum = 0
    for name, amount in request.items():
        weight = max(1, weights.get(name, 1))
        free, want = units_of(have.get(name, 0)), units_of(amount)
        if free and have[name] >= amount:
            total += (free - want if strategy == "LeastAllocated" else want) * 100 // free * weight
        weight_sum += weight
    return total // weight_sum


def score_by_zones(
    strategy: str, pod: PodInfo, topology: JsonObject, weights: dict[str, int]
) -> int:
    """The score of one node by what each of its zones has left."""
    attributes = {each["name"]: each["value"] for each in topology["attributes"]}
    if attributes["topologyManagerPolicy"] != "single-numa-node":
        return 0
    zones = [
        {each["name"]: int(each["available"]) * 10**9 for each in zone["resources"]}
        for zone in topology["zones"]
    ]
    asked = requests_of(pod, attributes["topologyManagerScope"])
    lowest = [
        min(
            filter(None, (zone_score(strategy, have, request, weights) for have in zones)),
            default=0,
        )
        for request in asked
        if request
    ]
    return int(sum(lowest) / len(lowest)) if lowest else 100


def requests_of(pod: PodInfo, scope: str) -> list[dict[str, int]]:
    resources = pod.spec.resources
    if scope == "container":
        parts = [*resources.init_containers, *resources.containers]
        return [dict(part.requests) for part in parts]
    total: dict[str, int] = {}
    for part in resources.containers:
        for name, amount in part.requests.items():
            total[name] = total.get(name, 0) + amount
    for part in resources.init_containers:
        for name, amount in part.requests.items():
            total[name] = max(total.get(name, 0), amount)
    for name, amount in resources.overhead.items():
        total[name] = total.get(name, 0) + amount
    return [total]


def score_by_number(pod: PodInfo, topology: JsonObject) -> int:
    """The score of one node by how few zones hold each request, and how near they are."""
    attributes = {each["name"]: each["value"] for each in topology["attributes"]}
    zones = sorted(topology["zones"], key=lambda zone: int(zone["name"].removeprefix("node-")))
    left = [
        {each["name"]: int(each["available"]) * 10**9 for each in zone["resources"]}
        for zone in zones
    ]
    cost = [{each["name"]: each["value"] for each in zone["costs"]} for zone in zones]

    def distance(chosen: tuple[int, ...]) -> int:
        return sum(cost[one].get(zones[other]["name"], 255) for one in chosen for other in chosen)

    def holds(chosen: tuple[int, ...], request: dict[str, int]) -> bool:
        return all(name in left[zone] for name in request for zone in chosen) and all(
            sum(left[zone][name] for zone in chosen) >= amount for name, amount in request.items()
        )

    most, optimal = 0, True
    for request in requests_of(pod, attributes["topologyManagerScope"]):
        if not any(name in have for name in request for have in left):
            continue
        for count in range(1, len(zones) + 1):
            sets = list(combinations(range(len(zones)), count))
            fitting = [each for each in sets if holds(each, request)]
            if fitting:
                break
        else:
            return 0
        chosen = min(fitting, key=distance)
        optimal &= distance(chosen) == min(map(distance, sets))
        most = max(most, count)
        for name, amount in request.items():
            for zone in chosen:
                taken = min(left[zone][name], amount)
                left[zone][name] -= taken
                amount -= taken  # noqa: PLW2901 what is still to be taken
    step = 100 // max(2, int(attributes["topologyManagerMaxNUMANodes"]))
    score = 100 - most * step + (step // 2 if optimal else 0) if most else 100
    return min(100, max(0, score))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(scored_topologies(), min_size=1, max_size=5),
    pods(),
    st.sampled_from(STRATEGIES),
    st.dictionaries(st.sampled_from(RESOURCES), st.integers(-1, 5)),
)
def test_all_nodes_at_once_are_scored_as_each_alone(
    given: list[Any], pod: JsonObject, strategy: str, weights: dict[str, int]
) -> None:
    cache = make_cache([make_node(f"n{index}") for index in range(len(given))])
    objects = IndexedObjectStore()
    for index, topology in enumerate(given):
        objects.set("NodeResourceTopology", {"metadata": {"name": f"n{index}"}, **topology})
    resources = [{"name": name, "weight": weight} for name, weight in weights.items()]
    args = {"scoringStrategy": {"type": strategy, "resources": resources}}
    plugin = make_plugin(NodeResourceTopologyMatch, cache.snapshot, args, objects=objects)
    cache.update_snapshot()
    parsed = parse_pod(pod)
    scores = plugin.score(CycleState(), parsed, NodeView(cache.snapshot))
    for index, topology in enumerate(given):
        expected = 100
        if parsed.qos_class == "Guaranteed" and strategy == "LeastNUMANodes":
            expected = score_by_number(parsed, topology)
        elif parsed.qos_class == "Guaranteed":
            expected = score_by_zones(strategy, parsed, topology, weights)
        assert scores[cache.snapshot.row_of[f"n{index}"]] == expected
