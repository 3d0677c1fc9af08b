"""Users' plugins of one node at a time behave like plugins of columns."""

from dataclasses import FrozenInstanceError
from typing import ClassVar

import numpy as np
import pytest
from typing_extensions import override

from stellwerk.framework.extension_points import points_of
from stellwerk.framework.interface import Plugin, Reuse
from stellwerk.framework.node_adapter import Node, NodeFilterPlugin, NodeScorePlugin
from stellwerk.framework.types import Code, CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.registry import describe
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.taints import Taint
from tests.support.builders import make_cache, make_node, make_pod, pod_info
from tests.support.plugin_runs import make_plugin, raw_scores, statuses


class MostPods(NodeFilterPlugin):
    """At most one pod of a name prefix on a node."""

    name: ClassVar[str] = "MostPods"

    @override
    def filter_node(self, pod: PodInfo, node: Node) -> str | None:
        alike = [other for other in node.pods if other.name.startswith("web")]
        return f"node(s) had {len(alike)} web pods" if alike else None


class CachedMostPods(MostPods):
    """The same, its verdicts cached until a node's pods change."""

    filter_reuse: ClassVar[Reuse] = Reuse.USAGE


class FreeMillicores(NodeScorePlugin):
    """A free millicore is a point."""

    name: ClassVar[str] = "FreeMillicores"

    @override
    def score_node(self, pod: PodInfo, node: Node) -> int:
        return node.allocatable["cpu"] - node.requested["cpu"]


def small_cluster() -> NodeView:
    nodes = [make_node("a", cpu="4"), make_node("gone"), make_node("b", cpu="2")]
    pods = [make_pod(f"web-{node}", cpu="500m", node_name=node) for node in ("a",)]
    cache = make_cache(nodes, pods)
    cache.remove_node("gone")
    cache.update_snapshot()
    return NodeView(cache.snapshot)


def test_a_reason_is_a_rejection() -> None:
    found = statuses(make_plugin(MostPods), pod_info("p"), small_cluster())
    assert found.keys() == {"a"}
    assert found["a"].code is Code.UNSCHEDULABLE
    assert found["a"].reasons == ("node(s) had 1 web pods",)
    assert found["a"].plugin == "MostPods"


def test_scores_are_those_of_the_function() -> None:
    assert raw_scores(make_plugin(FreeMillicores), pod_info("p"), small_cluster()) == {
        "a": 3500,
        "b": 2000,
    }


def test_an_overlay_shows_in_pods_and_requests() -> None:
    whole = small_cluster()
    rows = np.array([whole.snapshot.row_of[name] for name in ("b", "a")], dtype=np.intp)
    nodes = NodeView(whole.snapshot, rows).with_overlay()
    assert nodes.overlay is not None
    (resident,) = whole.snapshot.pods[rows[1]].values()
    nodes.overlay.add_pod(0, pod_info("web-new", cpu="1"))
    nodes.overlay.remove_pod(1, resident)
    assert statuses(make_plugin(MostPods), pod_info("p"), nodes).keys() == {"b"}
    assert raw_scores(make_plugin(FreeMillicores), pod_info("p"), nodes) == {"a": 4000, "b": 1000}


def test_codes_of_a_cached_column_do_not_change_their_meaning() -> None:
    nodes = make_cache(
        [make_node("one"), make_node("two")],
        [
            make_pod(f"web-{index}", node_name=name)
            for index, name in enumerate(["one", "two", "two"])
        ],
    )
    plugin, pod = make_plugin(CachedMostPods), pod_info("p")
    both = plugin.filter(CycleState(), pod, NodeView(nodes.snapshot))
    second = plugin.filter(
        CycleState(), pod, NodeView(nodes.snapshot, np.array([1], dtype=np.intp))
    )
    assert second.codes[0] == both.codes[1]
    assert second.status(int(both.codes[0])).reasons == ("node(s) had 1 web pods",)


def test_a_node_is_read_only() -> None:
    seen: list[Node] = []

    class Look(NodeFilterPlugin):
        name: ClassVar[str] = "Look"

        @override
        def filter_node(self, pod: PodInfo, node: Node) -> str | None:
            seen.append(node)
            return None

    taint = {"key": "k", "effect": "NoSchedule"}
    cache = make_cache([make_node("a", labels={"disk": "ssd"}, taints=[taint])])
    statuses(make_plugin(Look), pod_info("p"), NodeView(cache.snapshot))
    (node,) = seen
    assert node.name == "a"
    assert node.labels["disk"] == "ssd"
    assert node.taints == (Taint("k", "", "NoSchedule"),)
    with pytest.raises(TypeError):
        node.labels["disk"] = "hdd"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        node.name = "b"  # type: ignore[misc]


@pytest.mark.parametrize(("plugin", "point"), [(MostPods, "filter"), (FreeMillicores, "score")])
def test_the_registry_sees_an_ordinary_plugin(plugin: type[Plugin], point: str) -> None:
    assert points_of(make_plugin(plugin)) == {point}
    assert describe(plugin).extension_points == {point}
