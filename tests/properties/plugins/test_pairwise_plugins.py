"""PodTopologySpread and InterPodAffinity equal their plain references, on whatever view."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.backend.cache import Cache
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.extension_points import NORMALIZE_SCORE
from stellwerk.framework.interface import ScorePlugin
from stellwerk.framework.types import CycleState, Status
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.pod_affinity import parse_spread_constraints
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.plugins.pod_topology_spread import PodTopologySpread
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo, parse_node
from tests.properties.plugins.pairwise_reference import (
    World,
    affinity_rejections,
    affinity_scores,
    spread_rejections,
    spread_scores,
)
from tests.support import pairwise_strategies as strategies
from tests.support.builders import make_node
from tests.support.plugin_runs import filtered, make_plugin


@dataclass
class Drawn:
    """A cluster in the cache and as a plain world, and a pod to place."""

    cache: Cache
    world: World
    pod: PodInfo
    picked: list[NodeInfo]
    """Some of the nodes, in some order."""
    changes: dict[str, list[tuple[PodInfo, int]]]

    def views(self) -> list[tuple[NodeView, Mapping[str, Sequence[tuple[PodInfo, int]]]]]:
        """Return all rows, the picked ones, and those with the changes as overlay."""
        snapshot = self.cache.snapshot
        rows = np.array([snapshot.row_of[node.name] for node in self.picked], dtype=np.intp)
        changed = NodeView(snapshot, rows).with_overlay()
        assert changed.overlay is not None
        for position, node in enumerate(self.picked):
            for pod, change in self.changes.get(node.name, ()):
                changed.overlay.change_pods([(position, pod)], change)
        return [(NodeView(snapshot), {}), (NodeView(snapshot, rows), {}), (changed, self.changes)]


@st.composite
def clusters(
    draw: st.DrawFn,
    affinity: st.SearchStrategy[JsonObject],
    constraints: st.SearchStrategy[list[JsonObject]],
) -> Drawn:
    """Draw up to six nodes with pods on them, a pod to place, and changes of each node."""
    names = [f"n{index}" for index in range(draw(st.integers(1, 6)))]
    nodes = [draw(strategies.nodes(name)) for name in names]
    placed = [
        draw(strategies.pods(f"bound-{index}", draw(st.sampled_from(names)), affinity))
        for index in range(draw(st.integers(0, 8)))
    ]
    namespaces = {
        namespace: draw(strategies.namespace_labels)
        for namespace in strategies.NAMESPACES
        if draw(st.booleans())
    }
    cache = Cache()
    # A node that came and went leaves a free row behind.
    cache.set_node(parse_node(make_node("gone")))
    for node in nodes:
        cache.set_node(parse_node(node))
    for namespace, labels in namespaces.items():
        cache.set_namespace(namespace, labels)
    cache.update_snapshot()
    cache.remove_node("gone")
    for pod in placed:
        cache.set_pod(parse_pod(pod))
    cache.update_snapshot()
    infos = [parse_node(node) for node in nodes]
    on_node = {name: list(cache.pods_on(name).values()) for name in names}
    picked = draw(st.lists(st.sampled_from(infos), unique_by=lambda node: node.name))
    changes = {
        node.name: draw(_changes(node.name, on_node[node.name], affinity)) for node in picked
    }
    pending = parse_pod(draw(strategies.pending_pods(affinity, constraints)))
    return Drawn(cache, World(infos, on_node, namespaces), pending, picked, changes)


@st.composite
def _changes(
    draw: st.DrawFn, node: str, present: list[PodInfo], affinity: st.SearchStrategy[JsonObject]
) -> list[tuple[PodInfo, int]]:
    added = [
        (parse_pod(draw(strategies.pods(f"added-{node}-{index}", None, affinity))), 1)
        for index in range(draw(st.integers(0, 2)))
    ]
    gone = draw(st.lists(st.sampled_from(present), unique_by=id)) if present else []
    return [*added, *((pod, -1) for pod in gone)]


spreading = clusters(strategies.no_affinity, strategies.spread_constraints)
attracting = clusters(strategies.affinities, strategies.no_constraints)
neither = clusters(strategies.no_affinity, strategies.no_constraints)


@given(spreading)
def test_spread_rejects_what_the_reference_rejects(cluster: Drawn) -> None:
    plugin = make_plugin(PodTopologySpread, cluster.cache.snapshot)
    state = CycleState()
    everything = NodeView(cluster.cache.snapshot)
    skipped = plugin.pre_filter(state, cluster.pod, everything).status.skip
    assert skipped == (not any(item.hard for item in cluster.pod.spec.spread_constraints))
    for view, changes in cluster.views() if not skipped else ():
        expected = spread_rejections(cluster.world, cluster.pod, changes)
        assert _reasons(filtered(plugin, state, cluster.pod, view)) == _in(view, expected)


@given(attracting)
def test_affinity_rejects_what_the_reference_rejects(cluster: Drawn) -> None:
    plugin = make_plugin(InterPodAffinity, cluster.cache.snapshot)
    state = CycleState()
    everything = NodeView(cluster.cache.snapshot)
    skipped = plugin.pre_filter(state, cluster.pod, everything).status.skip
    assert skipped == (affinity_rejections(cluster.world, cluster.pod, {}) is None)
    for view, changes in cluster.views() if not skipped else ():
        expected = affinity_rejections(cluster.world, cluster.pod, changes) or {}
        assert _reasons(filtered(plugin, state, cluster.pod, view)) == _in(view, expected)


@given(spreading)
def test_spread_scores_as_the_reference(cluster: Drawn) -> None:
    soft = [item for item in cluster.pod.spec.spread_constraints if not item.hard]
    plugin = make_plugin(PodTopologySpread, cluster.cache.snapshot)
    for feasible in (cluster.world.nodes, cluster.picked):
        expected = spread_scores(cluster.world, cluster.pod, soft, feasible, require_all=True)
        assert _scores(plugin, cluster, feasible) == (expected if soft else None)


@given(neither, st.sampled_from([{"app": "a"}, {"app": "b"}, {}]))
def test_spread_by_system_defaults_scores_as_the_reference(
    cluster: Drawn, selector: dict[str, str]
) -> None:
    objects = IndexedObjectStore()
    service = {"metadata": {"name": "s", "namespace": cluster.pod.namespace}}
    objects.set("Service", {**service, "spec": {"selector": selector}})
    selected = bool(selector) and selector.items() <= cluster.pod.labels.items()
    plugin = make_plugin(PodTopologySpread, cluster.cache.snapshot, objects=objects)
    soft = parse_spread_constraints(
        [
            {
                "maxSkew": max_skew,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector},
            }
            for key, max_skew in ((strategies.HOSTNAME, 3), (strategies.ZONE, 5))
        ],
        {},
    )
    for feasible in (cluster.world.nodes, cluster.picked):
        expected = spread_scores(cluster.world, cluster.pod, soft, feasible, require_all=False)
        assert _scores(plugin, cluster, feasible) == (expected if selected else None)


@given(attracting, st.sampled_from([0, 1, 7]), st.booleans())
def test_affinity_scores_as_the_reference(cluster: Drawn, hard_weight: int, ignore: bool) -> None:  # noqa: FBT001 drawn
    args = {"hardPodAffinityWeight": hard_weight, "ignorePreferredTermsOfExistingPods": ignore}
    plugin = make_plugin(InterPodAffinity, cluster.cache.snapshot, args)
    for feasible in (cluster.world.nodes, cluster.picked):
        expected = affinity_scores(
            cluster.world, cluster.pod, feasible, hard_weight=hard_weight, ignore_existing=ignore
        )
        assert _scores(plugin, cluster, feasible) == expected


def _reasons(statuses: Mapping[str, Status]) -> dict[str, str]:
    return {name: status.reasons[0] for name, status in statuses.items()}


def _in(view: NodeView, rejections: Mapping[str, str]) -> dict[str, str]:
    names = {node.name for node in view.nodes() if node is not None}
    return {name: reason for name, reason in rejections.items() if name in names}


def _scores(
    plugin: ScorePlugin, cluster: Drawn, feasible: Sequence[NodeInfo]
) -> dict[str, tuple[int, int]] | None:
    snapshot = cluster.cache.snapshot
    rows = np.array([snapshot.row_of[node.name] for node in feasible], dtype=np.intp)
    view, state = NodeView(snapshot, rows), CycleState()
    assert isinstance(plugin, PodTopologySpread | InterPodAffinity)
    assert NORMALIZE_SCORE.implemented_by(plugin)
    if plugin.pre_score(state, cluster.pod, view).skip:
        return None
    raw = plugin.score(state, cluster.pod, view)
    normalized = plugin.normalize(state, cluster.pod, raw.copy())
    names = [node.name for node in feasible]
    return dict(zip(names, zip(raw.tolist(), normalized.tolist(), strict=True), strict=True))
