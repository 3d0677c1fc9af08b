"""NodeResourcesFit, NodeResourcesBalancedAllocation and the scores of 1.18: documented numbers."""

from typing import Any

import pytest

from stellwerk.framework.interface import ScorePlugin
from stellwerk.framework.types import Code, CycleState
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.legacy_balanced_allocation import LegacyBalancedAllocation
from stellwerk.plugins.legacy_least_allocated import LegacyLeastAllocated
from stellwerk.plugins.legacy_requested_to_capacity_ratio import LegacyRequestedToCapacityRatio
from stellwerk.plugins.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from stellwerk.plugins.node_resources_fit import NodeResourcesFit
from stellwerk.snapshot.snapshot import NodeView
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin, raw_scores, reasons_on, scores_on, statuses

GPU = "example.com/gpu"
MIB = 1 << 20


def test_reasons_come_in_kube_schedulers_order() -> None:
    node = make_node(
        "a",
        cpu="1",
        memory="1Gi",
        pods="1",
        allocatable={"ephemeral-storage": "1Gi", GPU: "1", "example.com/fpga": "0"},
    )
    bound = make_pod("old", requests={"cpu": "1", "memory": "1Gi", GPU: "1"}, node_name="a")
    pod = pod_info(
        "p",
        requests={
            GPU: "1",
            "example.com/fpga": "1",
            "ephemeral-storage": "2Gi",
            "memory": "1",
            "cpu": "1m",
        },
    )
    assert reasons_on(NodeResourcesFit, pod, [node], [bound]) == {
        "a": (
            "Too many pods",
            "Insufficient cpu",
            "Insufficient memory",
            "Insufficient ephemeral-storage",
            "Insufficient example.com/fpga",
            "Insufficient example.com/gpu",
        )
    }


@pytest.mark.parametrize(
    ("cpu", "code"),
    [
        pytest.param("3", Code.UNSCHEDULABLE, id="room could be made"),
        pytest.param("4", Code.UNSCHEDULABLE, id="the whole node, if empty"),
        pytest.param("4001m", Code.UNSCHEDULABLE_AND_UNRESOLVABLE, id="more than the node has"),
    ],
)
def test_more_than_allocatable_cannot_be_resolved(cpu: str, code: Code) -> None:
    cache = make_cache([make_node("a", cpu="4")], [make_pod("old", cpu="2", node_name="a")])
    pod = pod_info("p", cpu=cpu)
    found = statuses(make_plugin(NodeResourcesFit), pod, NodeView(cache.snapshot))
    assert found["a"].code is code
    assert found["a"].plugin == "NodeResourcesFit"


def test_one_hopeless_resource_makes_the_whole_status_hopeless() -> None:
    cache = make_cache(
        [make_node("a", cpu="4", memory="1Gi")], [make_pod("old", cpu="4", node_name="a")]
    )
    pod = pod_info("p", cpu="1", memory="2Gi")
    found = statuses(make_plugin(NodeResourcesFit), pod, NodeView(cache.snapshot))
    assert found["a"].reasons == ("Insufficient cpu", "Insufficient memory")
    assert found["a"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_a_pod_that_requests_nothing_still_counts_as_a_pod() -> None:
    nodes = [make_node("full", pods="1", cpu="0"), make_node("free", pods="2", cpu="0")]
    bound = [make_pod("x", node_name="full"), make_pod("y", node_name="free")]
    assert reasons_on(NodeResourcesFit, pod_info("p"), nodes, bound) == {"full": ("Too many pods",)}


@pytest.mark.parametrize(
    ("args", "ignored"),
    [
        pytest.param({}, set(), id="nothing ignored"),
        pytest.param({"ignoredResources": [GPU]}, {GPU}, id="one resource"),
        pytest.param(
            {"ignoredResourceGroups": ["example.com"]}, {GPU, "example.com/fpga"}, id="a group"
        ),
        pytest.param({"ignoredResources": ["cpu"]}, set(), id="native resources always count"),
    ],
)
def test_extended_resources_can_be_ignored(args: dict[str, Any], ignored: set[str]) -> None:
    wanted = {"cpu": "8", GPU: "1", "example.com/fpga": "1"}
    found = reasons_on(NodeResourcesFit, pod_info("p", requests=wanted), [make_node("a")], [], args)
    assert set(found["a"]) == {f"Insufficient {name}" for name in wanted.keys() - ignored}


def test_forty_resources_are_all_named() -> None:
    wanted = {f"example.com/r{index:02}": "1" for index in range(40)}
    enough = make_node("enough", allocatable=wanted)
    lacking = make_node(
        "lacking", allocatable={name: "1" for name in wanted if not name.endswith("7")}
    )
    full = make_node("full", pods="0", allocatable=wanted)
    pod = pod_info("p", requests=wanted)
    cache = make_cache([enough, lacking, full])
    found = statuses(make_plugin(NodeResourcesFit), pod, NodeView(cache.snapshot))
    names = [f"Insufficient example.com/r{index}" for index in ("07", "17", "27", "37")]
    assert {name: status.reasons for name, status in found.items()} == {
        "lacking": tuple(names),
        "full": ("Too many pods",),
    }
    assert found["lacking"].code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert found["full"].code is Code.UNSCHEDULABLE
    assert make_plugin(NodeResourcesFit).filter_key(CycleState(), pod) is None


def test_filter_needs_no_pre_filter() -> None:
    cache = make_cache([make_node("a", cpu="1")])
    pod = pod_info("p", cpu="2")
    result = make_plugin(NodeResourcesFit).filter(CycleState(), pod, NodeView(cache.snapshot))
    assert result.status(int(result.codes[0])).reasons == ("Insufficient cpu",)


def vector_node(cpu: str = "47800m", memory: int = 66054406144) -> dict[str, Any]:
    return make_node("a", cpu=cpu, memory=str(memory))


@pytest.mark.parametrize(
    ("cpu", "memory", "balanced", "least"),
    [("7850m", 6786383872, 93, 86), ("6950m", 7627341824, 97, 86)],
)
def test_documented_scores_of_1_18(cpu: str, memory: int, balanced: int, least: int) -> None:
    pod = pod_info("p", cpu=cpu, memory=str(memory))
    assert scores_on(LegacyBalancedAllocation, pod, [vector_node()]) == {"a": balanced}
    assert scores_on(LegacyLeastAllocated, pod, [vector_node()]) == {"a": least}
    assert scores_on(NodeResourcesFit, pod, [vector_node()]) == {"a": least}


@pytest.mark.parametrize(
    ("cpu", "memory", "score"), [(10, 20, 90), (20, 10, 90), (20, 40, 80), (20, 50, 70)]
)
def test_documented_balance_in_percent(cpu: int, memory: int, score: int) -> None:
    pod = pod_info("p", cpu=str(cpu), memory=str(memory))
    node = make_node("a", cpu="100", memory="100")
    assert scores_on(LegacyBalancedAllocation, pod, [node]) == {"a": score}


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(make_node("a", cpu="1", memory="4Gi"), id="full"),
        pytest.param(make_node("a", cpu="0", memory="4Gi"), id="no cpu at all"),
    ],
)
def test_legacy_scores_are_0_without_room(node: dict[str, Any]) -> None:
    pod = pod_info("p", cpu="1", memory="1Gi")
    assert scores_on(LegacyBalancedAllocation, pod, [node]) == {"a": 0}
    cpu_only = {"resources": [{"name": "cpu"}]}
    assert scores_on(LegacyLeastAllocated, pod, [node], args=cpu_only) == {"a": 0}


SHAPE = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
PACKING = [
    {"name": "intel.com/foo", "weight": 5},
    {"name": "memory", "weight": 1},
    {"name": "cpu", "weight": 3},
]


def packed(foo: str, used: dict[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    node = make_node("a", cpu="8", memory="1024Mi", allocatable={"intel.com/foo": foo})
    return [node], [make_pod("old", requests=used, node_name="a")]


@pytest.mark.parametrize(
    ("foo", "used", "old_scale", "v1_36"),
    [
        pytest.param(
            "4", {"intel.com/foo": "1", "memory": "256Mi", "cpu": "1"}, 5, 60, id="node 1"
        ),
        pytest.param(
            "8", {"intel.com/foo": "2", "memory": "512Mi", "cpu": "6"}, 7, 69, id="node 2"
        ),
    ],
)
def test_documented_bin_packing(foo: str, used: dict[str, str], old_scale: int, v1_36: int) -> None:
    pod = pod_info("p", requests={"intel.com/foo": "2", "memory": "256Mi", "cpu": "2"})
    nodes, bound = packed(foo, used)
    legacy = {"resources": PACKING, "shape": SHAPE}
    found = scores_on(LegacyRequestedToCapacityRatio, pod, nodes, bound, legacy)
    assert found == {"a": old_scale}
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": PACKING,
        "requestedToCapacityRatio": {"shape": SHAPE},
    }
    found = scores_on(NodeResourcesFit, pod, nodes, bound, {"scoringStrategy": strategy})
    assert found == {"a": v1_36}


@pytest.mark.parametrize(
    ("strategy", "scores"),
    [
        pytest.param({"type": "LeastAllocated"}, {"empty": 75, "half": 25}, id="least"),
        pytest.param({"type": "MostAllocated"}, {"empty": 25, "half": 75}, id="most"),
        pytest.param(
            {
                "type": "RequestedToCapacityRatio",
                "requestedToCapacityRatio": {
                    "shape": [{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]
                },
            },
            {"empty": 75, "half": 25},
            id="reversed shape",
        ),
    ],
)
def test_strategies(strategy: dict[str, Any], scores: dict[str, int]) -> None:
    nodes = [make_node(name, cpu="4", memory="4Gi") for name in ("empty", "half")]
    bound = [make_pod("old", cpu="2", memory="2Gi", node_name="half")]
    pod = pod_info("p", cpu="1", memory="1Gi")
    found = scores_on(NodeResourcesFit, pod, nodes, bound, {"scoringStrategy": strategy})
    assert found == scores


def test_scoring_counts_a_little_for_containers_that_request_nothing() -> None:
    node = make_node("a", cpu="1", memory=str(2000 * MIB))
    # 100m of 1 and 200 MiB of 2000 MiB.
    assert scores_on(NodeResourcesFit, pod_info("p"), [node]) == {"a": 90}


def test_an_extended_resource_counts_only_for_pods_that_request_it() -> None:
    nodes = [make_node("plain", cpu="4"), make_node("gpu", cpu="4", allocatable={GPU: "4"})]
    resources = [{"name": "cpu"}, {"name": GPU, "weight": 3}]
    args = {"scoringStrategy": {"type": "MostAllocated", "resources": resources}}
    without, wanting = pod_info("p", cpu="1"), pod_info("q", requests={"cpu": "1", GPU: "1"})
    assert scores_on(NodeResourcesFit, without, nodes, args=args) == {"plain": 25, "gpu": 25}
    assert scores_on(NodeResourcesFit, wanting, nodes, args=args) == {"plain": 25, "gpu": 25}


@pytest.mark.parametrize(
    ("memory_in_use", "score"),
    [
        pytest.param("2Gi", 87, id="the pod evens the node out"),
        pytest.param("0", 62, id="the pod tips the node"),
        pytest.param("1Gi", 75, id="it tips as far to the other side"),
    ],
)
def test_balance_is_scored_by_its_change(memory_in_use: str, score: int) -> None:
    node = make_node("a", cpu="4", memory="4Gi")
    bound = [make_pod("old", memory=memory_in_use, node_name="a")]
    pod = pod_info("p", cpu="2")
    assert scores_on(NodeResourcesBalancedAllocation, pod, [node], bound) == {"a": score}


def test_best_effort_pods_are_not_balanced() -> None:
    assert scores_on(NodeResourcesBalancedAllocation, pod_info("p"), [make_node("a")]) is None


@pytest.mark.parametrize(
    "plugin", [NodeResourcesFit, NodeResourcesBalancedAllocation, LegacyLeastAllocated]
)
def test_nothing_allocatable_scores_without_dividing_by_zero(plugin: type[ScorePlugin]) -> None:
    bare = make_node("a", cpu="0", memory="0")
    found = scores_on(plugin, pod_info("p", cpu="1"), [bare, make_node("b")])
    assert found is not None
    assert found["a"] == (75 if plugin is NodeResourcesBalancedAllocation else 0)


def test_amounts_of_a_resized_pod_are_not_cached_for_its_spec() -> None:
    resized = make_pod("p", cpu="1")
    resized["status"]["containerStatuses"] = [
        {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    ]
    plain, own = pod_info("p", cpu="1"), parse_pod(resized)
    assert own.spec is plain.spec
    plugin = make_plugin(NodeResourcesBalancedAllocation)
    assert plugin.score_key(CycleState(), plain) is plain.spec
    assert plugin.score_key(CycleState(), own) is None
    nodes = NodeView(make_cache([make_node("a", cpu="4", memory="4Gi")]).snapshot)
    assert raw_scores(plugin, plain, nodes) == {"a": 68}
    assert raw_scores(plugin, own, nodes) == {"a": 62}
