"""The total of each node's scores, in whichever order plugins stand and whatever they share."""

import pytest

from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, pod_info
from tests.support.preemption_cases import Arena, make_arena

USAGE_SCORES = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
NO_SCORES = {point: {"disabled": [{"name": "*"}]} for point in ("preScore", "score")}


def test_without_score_plugins_every_node_scores_1() -> None:
    arena = make_arena([make_node(name) for name in "abc"], [], profile={"plugins": NO_SCORES})
    pod, state = pod_info("p"), CycleState()
    arena.framework.filtering.find_feasible(pod, state)
    scores = arena.framework.scoring.prioritize(state, pod, NodeView(arena.cache.snapshot))
    assert scores.total.tolist() == [1, 1, 1]
    assert scores.by_plugin == ()
    assert scores.best_positions().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "order",
    [
        pytest.param(("TaintToleration", *USAGE_SCORES), id="first"),
        pytest.param((USAGE_SCORES[0], "TaintToleration", USAGE_SCORES[1]), id="between"),
        pytest.param((*USAGE_SCORES, "TaintToleration"), id="last"),
    ],
)
def test_a_score_that_all_nodes_share_counts_wherever_its_plugin_stands(
    order: tuple[str, ...],
) -> None:
    enabled = [{"name": name, "weight": 3} for name in order]
    profile = {"plugins": {"score": {"disabled": [{"name": "*"}], "enabled": enabled}}}
    arena = make_arena([make_node("a", cpu="2"), make_node("b", cpu="4")], [], profile=profile)
    pod, state = pod_info("p", cpu="1"), CycleState()
    arena.framework.filtering.find_feasible(pod, state)
    scores = arena.framework.scoring.prioritize(state, pod, NodeView(arena.cache.snapshot))
    columns = [(score.normalized * score.weight).tolist() for score in scores.by_plugin]
    assert [score.plugin for score in scores.by_plugin] == list(order)
    assert scores.total.tolist() == [sum(row) for row in zip(*columns, strict=True)]


def test_what_all_nodes_share_is_seen_to_change_with_a_node_and_with_another_pod() -> None:
    avoided = [{"key": "spot", "value": "yes", "effect": "PreferNoSchedule"}]
    tolerations = [{"key": "spot", "operator": "Exists"}]
    pods = [pod_info("t", cpu="1", tolerations=tolerations), pod_info("p", cpu="1")]
    nodes = {name: make_node(name, cpu="4") for name in ("a", "b")}
    arena = make_arena(nodes.values(), [])

    def normalized(arena: Arena, pod: PodInfo) -> dict[str, list[int]]:
        found = arena.framework.filtering.find_feasible(pod)
        view = NodeView(arena.cache.snapshot)
        scores = arena.framework.scoring.prioritize(found.state, pod, view).by_plugin
        return {each.plugin: each.normalized.tolist() for each in scores}

    for changed in (nodes["a"], make_node("b", cpu="4", taints=avoided), nodes["b"]):
        nodes[changed["metadata"]["name"]] = changed
        arena.cache.set_node(parse_node(changed))
        for number in range(4):
            arena.cache.set_pod(pod_info(f"{changed}-{number}", node_name="a"))
            arena.cache.update_snapshot()
            fresh = make_arena(nodes.values(), [])
            pods.reverse()  # so that the last before a change is the first after it, too
            for pod in pods:
                shared = "TaintToleration", "ImageLocality", "DynamicResources"
                known, anew = normalized(arena, pod), normalized(fresh, pod)
                assert [known[name] for name in shared] == [anew[name] for name in shared]
