"""SelectorSpread scores as kube-scheduler 1.18 did."""

from typing import Any

import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.selector_spread import SelectorSpread
from stellwerk.snapshot.snapshot import NodeView
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin

LABELS = {"app": "web"}
SERVICE = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": LABELS}}
FLAT = [make_node("a"), make_node("b"), make_node("c")]
ZONED = [make_node("a", zone="z1"), make_node("b", zone="z1"), make_node("c", zone="z2")]


def normalized(
    pod: PodInfo, nodes: list[dict[str, Any]], on: list[str], *, service: bool = True
) -> list[int]:
    """Scores in the order of the nodes, pods of the group being on the nodes of `on`."""
    pods = [make_pod(f"p{index}", labels=LABELS, node_name=name) for index, name in enumerate(on)]
    cache, objects = make_cache(nodes, pods), IndexedObjectStore()
    if service:
        objects.set("Service", SERVICE)
    plugin = make_plugin(SelectorSpread, cache.snapshot, objects=objects)
    state, view = CycleState(), NodeView(cache.snapshot)
    assert plugin.pre_score(state, pod, view).ok
    scores: list[int] = plugin.normalize(state, pod, plugin.score(state, pod, view)).tolist()
    return scores


WEB = pod_info("new", labels=LABELS)


@pytest.mark.parametrize(
    ("nodes", "on", "expected"),
    [
        pytest.param(FLAT, [], [100, 100, 100], id="nothing is anywhere"),
        pytest.param(FLAT, ["a", "a", "b"], [0, 50, 100], id="fewer pods on the node are better"),
        pytest.param(
            ZONED, ["a"], [0, 33, 100], id="two thirds of the score are the zone's, truncated"
        ),
        pytest.param(
            ZONED, ["a", "b", "c", "c"], [16, 16, 0], id="zones alike leave the node's third"
        ),
        pytest.param(
            [*ZONED, make_node("d")],
            ["a"],
            [0, 33, 100, 100],
            id="nodes without a zone stand alone",
        ),
    ],
)
def test_scores(nodes: list[dict[str, Any]], on: list[str], expected: list[int]) -> None:
    assert normalized(WEB, nodes, on) == expected


def test_without_a_service_or_controller_all_nodes_are_alike() -> None:
    assert normalized(WEB, FLAT, ["a", "b"], service=False) == [100, 100, 100]


def test_a_pod_with_spread_constraints_of_its_own_is_not_scored() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": LABELS},
    }
    pod = parse_pod(make_pod("new", labels=LABELS, topologySpreadConstraints=[constraint]))
    assert normalized(pod, FLAT, ["a"]) == [0, 0, 0]
