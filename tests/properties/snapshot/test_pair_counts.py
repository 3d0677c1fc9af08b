"""Counts that follow every change equal counts made from scratch.

Long-lived plugins on a long-lived snapshot are compared with new ones on a snapshot rebuilt from
the same objects, after each step of a random history.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.backend.cache import Cache
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.plugins.pod_topology_spread import PodTopologySpread
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from tests.support import pairwise_strategies as strategies
from tests.support.plugin_runs import filtered, make_plugin

Step = tuple[str, str, JsonObject | None]

NODE_NAMES = [f"n{index}" for index in range(5)]
POD_NAMES = [f"p{index}" for index in range(8)]
FEW_ROWS = "stellwerk.snapshot.counted_terms._MAX_ROWS_IN_DICT"
MAX_TERMS = "stellwerk.snapshot.pod_counts._MAX_TERMS"
FEW_TERMS = "stellwerk.plugins.inter_pod_affinity._MAX_TERMS_ONE_BY_ONE"
MAX_TERMS_AT_ONCE = (
    "stellwerk.snapshot.existing_terms.MAX_TERMS_AT_ONCE",
    "stellwerk.backend.cache.MAX_TERMS_AT_ONCE",
)
STEP = "stellwerk.snapshot.existing_terms._TERMS_PER_STEP"

put_node = st.sampled_from(NODE_NAMES).flatmap(
    lambda name: st.tuples(st.just("node"), st.just(name), strategies.nodes(name))
)
drop_node = st.tuples(st.just("node"), st.sampled_from(NODE_NAMES), st.none())
put_pod = st.tuples(st.sampled_from(POD_NAMES), st.sampled_from(NODE_NAMES)).flatmap(
    lambda names: st.tuples(
        st.just("pod"),
        st.just(names[0]),
        st.one_of(strategies.pods(*names, strategies.no_affinity), strategies.pods(*names)),
    )
)
drop_pod = st.tuples(st.just("pod"), st.sampled_from(POD_NAMES), st.none())
put_namespace = st.tuples(
    st.just("namespace"),
    st.sampled_from(strategies.NAMESPACES),
    st.one_of(st.none(), strategies.namespace_labels),
)
taint_node = st.tuples(
    st.just("taint"),
    st.sampled_from(NODE_NAMES),
    st.sampled_from([{"taints": []}, {"taints": [{"key": "spot", "effect": "NoExecute"}]}]),
)
steps = st.one_of(
    taint_node,
    taint_node,
    put_pod,
    put_pod,
    put_pod,
    put_node,
    put_node,
    drop_pod,
    drop_node,
    put_namespace,
)


class Objects:
    """What the API would list after the steps so far."""

    def __init__(self) -> None:
        self.nodes: dict[str, JsonObject] = {}
        self.pods: dict[str, JsonObject] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}

    def apply(self, cache: Cache, step: Step) -> None:
        """Make a step here and in a cache."""
        kind, name, obj = step
        if kind == "taint":
            if name not in self.nodes:
                return
            kind, obj = "node", {**self.nodes[name], "spec": obj}
        kept: dict[str, Any] = getattr(self, f"{kind}s")
        before = kept.pop(name, None)
        if obj is not None:
            kept[name] = obj
        if kind == "namespace":
            cache.set_namespace(name, obj)
        elif kind == "node":
            if obj is not None:
                cache.set_node(parse_node(obj))
            else:
                cache.remove_node(name)
        elif obj is not None:
            if before is not None and before["metadata"]["namespace"] != namespace_of(obj):
                cache.remove_pod(uid_of(before))
            cache.set_pod(parse_pod(obj))
        elif before is not None:
            cache.remove_pod(uid_of(before))

    def rebuilt(self) -> Cache:
        """Return a new cache of the same objects."""
        cache = Cache()
        for name, labels in self.namespaces.items():
            cache.set_namespace(name, labels)
        for node in self.nodes.values():
            cache.set_node(parse_node(node))
        for pod in self.pods.values():
            cache.set_pod(parse_pod(pod))
        cache.update_snapshot()
        return cache


def namespace_of(pod: JsonObject) -> str:
    return str(pod["metadata"]["namespace"])


def uid_of(pod: JsonObject) -> str:
    return str(pod["metadata"]["uid"])


class Decider:
    """Both plugins on one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.plugins = (
            make_plugin(PodTopologySpread, snapshot),
            make_plugin(InterPodAffinity, snapshot),
        )

    def answers(self, pod: PodInfo) -> Iterator[object]:
        """Everything that the plugins say about the pod, by node name."""
        alive = NodeView(self.snapshot).take(self.snapshot.visit_order)
        for plugin in self.plugins:
            state = CycleState()
            skipped = plugin.pre_filter(state, pod, NodeView(self.snapshot)).status.skip
            yield skipped or {
                name: status.reasons for name, status in filtered(plugin, state, pod, alive).items()
            }
            skipped = plugin.pre_score(state, pod, alive).skip
            yield skipped or {
                node.name: score
                for node, score in zip(
                    alive.nodes(), plugin.score(state, pod, alive).tolist(), strict=True
                )
                if node is not None
            }


@pytest.mark.parametrize("few_rows", [0, 64], ids=["dense columns", "sparse columns"])
@given(
    history=st.lists(steps, min_size=1, max_size=25),
    pending=st.lists(
        st.one_of(
            strategies.pending_pods(strategies.no_affinity),
            strategies.pending_pods(constraints=strategies.no_constraints),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_answers_equal_those_of_a_rebuild(
    few_rows: int, history: list[Step], pending: list[JsonObject]
) -> None:
    pods = [parse_pod(pod) for pod in pending]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FEW_ROWS, few_rows)
        patch.setattr(MAX_TERMS, 4)  # Terms are dropped and asked for again.
        cache, objects = Cache(), Objects()
        decider = Decider(cache.snapshot)
        for step in history:
            objects.apply(cache, step)
            cache.update_snapshot()
            rebuilt = Decider(objects.rebuilt().snapshot)
            for pod in pods:
                assert list(decider.answers(pod)) == list(rebuilt.answers(pod))


@given(
    history=st.lists(steps, min_size=1, max_size=25),
    pending=strategies.pending_pods(constraints=strategies.no_constraints),
    steps_ahead=st.integers(0, 3),
)
def test_terms_that_are_entered_in_steps_and_added_up_count_the_same(
    history: list[Step], pending: JsonObject, steps_ahead: int
) -> None:
    pod = parse_pod(pending)
    with pytest.MonkeyPatch.context() as patch:
        for name in MAX_TERMS_AT_ONCE:
            patch.setattr(name, 0)
        patch.setattr(STEP, 1)
        cache, objects = Cache(), Objects()
        decider = Decider(cache.snapshot)
        for step in history:
            objects.apply(cache, step)
            ahead = cache.index_terms()
            for _ in range(steps_ahead):
                next(ahead, None)
            cache.update_snapshot()
            for _ in ahead:  # as if events had come between two steps
                pass
            patch.setattr(FEW_TERMS, 0)
            answers = list(decider.answers(pod))
            patch.setattr(FEW_TERMS, 8)
            assert answers == list(Decider(objects.rebuilt().snapshot).answers(pod))
        for name, obj in list(objects.pods.items()):
            objects.apply(cache, ("pod", name, None))
            assert cache.pod(uid_of(obj)) is None
        cache.update_snapshot()
        for _ in cache.index_terms():
            pass
        assert cache.snapshot.pair_counts.held() == (0, 0)


@given(history=st.lists(steps, min_size=1, max_size=25))
def test_nothing_is_kept_for_pods_that_are_gone(history: list[Step]) -> None:
    cache, objects = Cache(), Objects()
    for step in history:
        objects.apply(cache, step)
        cache.update_snapshot()
    for name, pod in list(objects.pods.items()):
        objects.apply(cache, ("pod", name, None))
        assert cache.pod(uid_of(pod)) is None
    cache.update_snapshot()
    assert cache.snapshot.pair_counts.held() == (0, 0)
