"""A decision is made on a World, says how it came about, and changes nothing."""

from typing import TYPE_CHECKING, Any

import pytest

from stellwerk.backend.queued_pod import ActiveItem, Place, QueuedPod
from stellwerk.framework.interface import Candidate, PostFilterResult
from stellwerk.framework.types import CycleState, PluginFailure, unresolvable, unschedulable
from stellwerk.world.decide import (
    EXTENDER,
    Decision,
    Effects,
    apply,
    choose,
    decide,
    find_candidates,
    find_nodes,
    reject,
    score,
)
from stellwerk.world.extenders import ExtenderFilterResult
from stellwerk.world.pod_status import (
    CLEAR_NOMINATION,
    LEAVE_NOMINATION,
    UNSCHEDULABLE,
    NominatingInfo,
)
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod
from tests.support.invariants import described

if TYPE_CHECKING:
    from stellwerk.snapshot.columns import IntColumn


SMALL, LARGE = make_node("small", cpu="1"), make_node("large", cpu="4")


def case(pod: JsonObject, *nodes: JsonObject, **objects: Any) -> Case:
    return Case({"id": "case", "pod": pod, "nodes": list(nodes), **objects})


def decided(loaded: Case, **options: Any) -> Decision:
    return decide(loaded.world, loaded.pod, loaded.profile, **options)


def full(*, priority: int) -> Case:
    """A pod that fits on none of three nodes, each with one pod of priority 1."""
    names = ["n1", "n2", "n3"]
    return case(
        make_pod("p", cpu="1", priority=priority),
        *(make_node(name, cpu="1") for name in names),
        pods=[make_pod(f"v-{name}", cpu="1", priority=1, node_name=name) for name in names],
    )


# --- a node -------------------------------------------------------------------------------------


def test_the_only_node_that_takes_the_pod_is_chosen_without_scores() -> None:
    decision = decided(case(make_pod("p", cpu="2"), SMALL, LARGE))
    assert (decision.node_name, decision.feasible, decision.scores) == ("large", 1, None)
    assert decision.draws == []


def test_thorough_decisions_have_scores_all_the_same() -> None:
    decision = decided(case(make_pod("p", cpu="2"), SMALL, LARGE), thorough=True)
    assert decision.node_name == "large"
    assert decision.scores is not None


def test_node_rank_breaks_ties_by_the_order_in_which_nodes_are_visited() -> None:
    nodes = [make_node(name, zone=zone) for name, zone in (("z", "1"), ("b", "1"), ("a", "2"))]
    for without, chosen in (((), "z"), (("z",), "b"), (("z", "b"), "a")):
        loaded = case(make_pod("p", cpu="1"), *nodes, profile={"tieBreak": "NodeRank"}, pods=[])
        for name in without:
            loaded.world.cache.remove_node(name)
        # A new node gets the row of the first that left, and the last rank all the same.
        loaded.world.cache.update_snapshot()
        loaded.world.cache.set_node(parse_node(make_node("new", zone="1")))
        loaded.world.cache.update_snapshot()
        decision = decided(loaded)
        assert (decision.node_name, decision.draws) == (chosen, [])


def test_the_nominated_node_comes_before_better_ones() -> None:
    decision = decided(case(make_pod("p", cpu="1", nominated_node_name="small"), SMALL, LARGE))
    assert (decision.node_name, decision.search.found.evaluated) == ("small", 1)


def test_a_draw_among_equals_is_recorded_and_names_the_node() -> None:
    nodes = [make_node(f"n{number}") for number in range(7)]
    loaded = case(make_pod("p"), *nodes)
    decision = decided(loaded)
    ((drawn, among),) = decision.draws
    assert among == 7
    assert decision.node_name == f"n{drawn}"
    again = decided(loaded)
    assert len(again.draws) == 1, "each decision has draws of its own"
    assert len(decision.draws) == 1


# --- no node ------------------------------------------------------------------------------------


def test_a_rejection_says_which_plugins_and_why() -> None:
    decision = decided(case(make_pod("p", cpu="9", preemptionPolicy="Never"), SMALL, LARGE))
    assert decision.node_name == ""
    failure = decision.failure
    assert failure is not None
    assert failure.rejected
    assert failure.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    assert failure.unschedulable_plugins == {"NodeResourcesFit"}
    assert failure.nomination is LEAVE_NOMINATION


def test_a_nomination_has_its_victims_and_what_was_drawn_among_the_best() -> None:
    decision = decided(full(priority=1000))
    assert decision.candidate is not None
    assert [victim.name for victim in decision.candidate.victims] == [
        f"v-{decision.candidate.node_name}"
    ]
    assert decision.failure is not None
    assert decision.failure.nomination == NominatingInfo(decision.candidate.node_name)
    assert [among for _, among in decision.draws] == [3, 3], "where to begin, and which is taken"


def test_where_preemption_does_not_help_the_nomination_is_cleared() -> None:
    decision = decided(full(priority=0))
    assert decision.candidate is None
    assert decision.failure is not None
    assert decision.failure.nomination is CLEAR_NOMINATION


@pytest.mark.parametrize("priority", [0, 1000])
def test_a_decision_leaves_the_world_as_it_was(priority: int) -> None:
    loaded = full(priority=priority)
    before = described(loaded.world.cache.snapshot)
    decided(loaded)
    assert described(loaded.world.cache.update_snapshot()) == before
    assert not loaded.world.preempting
    assert not loaded.world.nominator.by_node
    assert len(loaded.world.queue.entries) == 0


# --- what extenders answer is an input ----------------------------------------------------------


def test_extenders_decide_among_the_best_with_their_scores() -> None:
    loaded = case(make_pod("p"), *(make_node(name) for name in ("n1", "n2", "n3")))
    search = find_nodes(loaded.world, loaded.pod, loaded.profile)
    scores = score(search)
    assert scores is not None
    names = search.snapshot.names(scores.nodes.row_numbers())
    extra: IntColumn = scores.total * 0
    extra[names.index("n2")] = 1
    assert choose(search, scores, extra).node_name == "n2"


def test_nodes_that_extenders_take_away_are_counted_with_their_reasons() -> None:
    loaded = case(make_pod("p"), *(make_node(name) for name in ("n1", "n2", "n3")))
    search = find_nodes(loaded.world, loaded.pod, loaded.profile, CycleState())
    offered = search.node_names()
    statuses = {"n1": unschedulable("", "not today"), "n2": unresolvable("", "never")}
    search.narrow(ExtenderFilterResult([], statuses), len(offered))
    decision = reject(search, find_candidates(search))
    assert decision.failure is not None
    assert "1 never, 1 not today" in decision.failure.message
    assert EXTENDER in decision.failure.unschedulable_plugins


def test_the_candidates_that_extenders_leave_are_what_is_chosen_among() -> None:
    loaded = full(priority=1000)
    search = find_nodes(loaded.world, loaded.pod, loaded.profile)
    no_node = find_candidates(search)
    found = no_node.post_filter
    assert found is not None
    left = tuple(each for each in found.candidates if each.node_name == "n2")
    no_node.post_filter = PostFilterResult(found.status, left, found.best)
    decision = reject(search, no_node)
    assert isinstance(decision.candidate, Candidate)
    assert decision.candidate.node_name == "n2"


# --- old nominations, and what counts as preemption ---------------------------------------------

NO_POST_FILTER = {"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}


@pytest.mark.parametrize(
    ("nodes", "profile"),
    [
        pytest.param([], {}, id="the last node was deleted"),
        pytest.param([SMALL], NO_POST_FILTER, id="the profile has no PostFilter plugin"),
    ],
)
def test_an_old_nomination_is_cleared(nodes: list[JsonObject], profile: JsonObject) -> None:
    pod = make_pod("p", cpu="9", nominated_node_name="small")
    decision = decided(case(pod, *nodes, profile=profile))
    assert decision.failure is not None
    assert decision.failure.nomination == CLEAR_NOMINATION


@pytest.mark.parametrize(
    ("profile", "asked"),
    [
        pytest.param({}, True, id="it was asked"),
        pytest.param(NO_POST_FILTER, False, id="the profile has none"),
    ],
)
def test_only_what_comes_to_preemption_counts(profile: JsonObject, *, asked: bool) -> None:
    state = CycleState()
    decided(case(make_pod("p", cpu="9"), SMALL, profile=profile), state=state)
    assert state.preemption_asked is asked


# --- a plugin at Filter, and not at PreFilter ---------------------------------------------------


def at_filter_alone(plugin: str) -> JsonObject:
    named = [{"name": plugin}]
    return {"plugins": {"preFilter": {"disabled": named}, "filter": {"enabled": named}}}


@pytest.mark.parametrize(
    "plugin",
    [
        "NodeResourcesFit",
        "NodePorts",
        "VolumeRestrictions",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
    ],
)
def test_a_filter_without_the_state_that_it_needs_is_an_error(plugin: str) -> None:
    with pytest.raises(PluginFailure, match=f'running Filter plugin "{plugin}"'):
        decided(case(make_pod("p"), LARGE, profile=at_filter_alone(plugin)))


@pytest.mark.parametrize("plugin", ["NodeAffinity", "NodeVolumeLimits", "VolumeZone"])
def test_a_filter_that_finds_out_by_itself_needs_no_state(plugin: str) -> None:
    decision = decided(case(make_pod("p"), LARGE, profile=at_filter_alone(plugin)))
    assert decision.node_name == "large"


class Attempt(Case):
    """A case whose pod is popped from the queue of its World."""

    def __init__(self, pod: JsonObject, *pods: JsonObject) -> None:
        super().__init__(
            {"id": "case", "pod": pod, "nodes": [make_node("n1", cpu="1")], "pods": list(pods)}
        )
        self.world.profiles.serve([self.profile], {})
        self.world.queue.add(self.pod, 0.0)
        entry = self.world.queue.entries.get(self.pod.uid)
        assert entry is not None
        popped = self.world.queue.pop(ActiveItem(entry.sort_key, entry.sequence, entry))
        assert popped is not None
        self.queued: QueuedPod = popped

    def decide(self) -> Decision:
        return decide(self.world, self.pod, self.profile)

    def apply(self) -> Effects:
        return apply(self.world, self.queued, self.decide())

    @property
    def place(self) -> Place | None:
        return self.world.queue.place(self.pod.uid)


def victim(name: str, *, terminating: bool = False) -> JsonObject:
    pod = make_pod(name, cpu="500m", priority=1, node_name="n1")
    if terminating:
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    return pod


def test_a_node_is_assumed_and_the_binding_is_left_to_do() -> None:
    attempt = Attempt(make_pod("p", cpu="1"))
    effects = attempt.apply()
    assert effects == Effects(attempt.world.cache.assumed_pods[attempt.pod.uid])
    assert attempt.place is Place.IN_FLIGHT


def test_a_pod_that_is_assumed_already_is_requeued_as_an_error() -> None:
    attempt = Attempt(make_pod("p", cpu="100m"))
    attempt.world.cache.assume_pod(attempt.pod.with_node("n1"))
    effects = attempt.apply()
    assert effects.bind is None
    assert effects.failure is not None
    assert not effects.failure.rejected
    assert attempt.place is Place.ERROR_BACKOFF


def test_a_rejection_is_requeued_with_a_condition_and_an_event_to_write() -> None:
    attempt = Attempt(make_pod("p", cpu="9"))
    effects = attempt.apply()
    assert attempt.place is Place.UNSCHEDULABLE
    assert effects.evict is None
    assert effects.patch is not None
    assert (effects.patch.reason, effects.patch.message) == (UNSCHEDULABLE, effects.event)
    assert effects.event.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_of_a_pod_that_is_gone_meanwhile_only_the_event_is_left() -> None:
    attempt = Attempt(make_pod("p", cpu="9"))
    decision = attempt.decide()
    attempt.world.queue.delete(attempt.pod.uid)
    effects = apply(attempt.world, attempt.queued, decision)
    assert (effects.patch, attempt.place) == (None, None)
    assert effects.event


def test_a_preemptor_is_nominated_and_gated_until_its_victims_are_evicted() -> None:
    attempt = Attempt(make_pod("p", cpu="1", priority=1000), victim("v1"), victim("v2"))
    effects = attempt.apply()
    assert effects.evict is not None
    assert {each.name for each in effects.evict.victims} == {"v1", "v2"}
    assert attempt.world.preempting == {attempt.pod.uid}
    assert [pod.uid for pod in attempt.world.nominator.pods_for_node("n1")] == [attempt.pod.uid]


@pytest.mark.parametrize(
    ("others", "evicted"),
    [
        pytest.param([victim("v1")], {"v1"}, id="the others are evicted"),
        pytest.param([], set(), id="with no other the node is only nominated"),
    ],
)
def test_a_victim_that_is_terminating_already_is_left_alone(
    others: list[JsonObject], evicted: set[str]
) -> None:
    attempt = Attempt(
        make_pod("p", cpu="1", priority=1000), victim("going", terminating=True), *others
    )
    evict = attempt.apply().evict
    assert {each.name for each in (evict.victims if evict else ())} == evicted
    assert bool(attempt.world.preempting) == bool(evicted)
    assert attempt.world.nominator.by_node.keys() == {"n1"}
