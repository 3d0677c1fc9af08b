"""A fork of a World decides as the World does, and neither sees what becomes of the other."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.models.pod import PodInfo
from stellwerk.world.decide import Decision, decide
from stellwerk.world.world import World
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_pod
from tests.support.cluster_changes import Change, ClusterModel, histories, pending_pods
from tests.support.examples import examples
from tests.support.snapshot_contents import contents, layout

pending = st.lists(pending_pods(), min_size=1, max_size=2)
SEED = 7


def world_of(history: list[Change]) -> tuple[World, ClusterModel]:
    case, model = Case({"id": "case", "pod": make_pod("any")}), ClusterModel()
    world = case.world.fork(Random(SEED))
    world.profiles.serve([case.profile], {"other": "its weight is negative"})
    for change in history:
        model.make(world.cache, change)
    world.cache.update_snapshot()
    # Its profile's plugins must look at its own snapshot, which only a fork's do.
    return world.fork(Random(SEED)), model


def decided(world: World, pod: PodInfo) -> object:
    """Everything that a decision says."""
    world.cache.update_snapshot()
    profile = world.profiles.served["default-scheduler"]
    return _told(decide(world, pod, profile))


def _told(decision: Decision) -> object:
    candidate, diagnosis, scores = decision.candidate, decision.diagnosis, decision.scores
    return (
        decision.node_name,
        decision.draws,
        decision.failure.message if decision.failure else "",
        (candidate.node_name, [victim.uid for victim in candidate.victims]) if candidate else None,
        list(diagnosis.statuses) if diagnosis else None,
        scores.total.tolist() if scores else None,
    )


@settings(max_examples=examples(40))
@given(history=histories, ours=histories, theirs=histories, pods=pending)
def test_a_fork_decides_as_its_original_and_then_goes_its_own_way(
    history: list[Change], ours: list[Change], theirs: list[Change], pods: list[PodInfo]
) -> None:
    world, model = world_of(history)
    fork, forked = world.fork(Random(SEED)), model.copy()
    for pod in pods:
        assert decided(fork, pod) == decided(world, pod)
    assert fork.profiles.refusals == world.profiles.refusals
    before = [decided(fork.fork(Random(SEED)), pod) for pod in pods]
    for change in ours:
        model.make(world.cache, change)
    assert [decided(fork.fork(Random(SEED)), pod) for pod in pods] == before
    before = [decided(world.fork(Random(SEED)), pod) for pod in pods]
    for change in theirs:
        forked.make(fork.cache, change)
    assert [decided(world.fork(Random(SEED)), pod) for pod in pods] == before


@settings(max_examples=examples(40))
@given(history=histories, pods=pending)
def test_a_trial_undone_leaves_the_snapshot_and_its_decisions_as_they_were(
    history: list[Change], pods: list[PodInfo]
) -> None:
    world, _ = world_of(history)
    snapshot = world.cache.update_snapshot()
    before = contents(snapshot), layout(snapshot)
    decisions = [decided(world.fork(Random(SEED)), pod) for pod in pods]
    with world.trial() as trial:
        for pod, node_name in zip(pods, list(snapshot.row_of), strict=False):
            trial.add_pod(pod, node_name)
        for node_name in list(snapshot.row_of)[:1]:
            trial.remove_node(node_name)
    assert (contents(snapshot), layout(snapshot)) == before
    assert [decided(world.fork(Random(SEED)), pod) for pod in pods] == decisions
