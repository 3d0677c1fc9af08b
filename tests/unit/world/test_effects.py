"""What follows from a decision: the World at once, the rest as data."""

import pytest

from stellwerk.backend.queued_pod import ActiveItem, Place, QueuedPod
from stellwerk.cases.decide import Case
from stellwerk.models.json_values import JsonObject
from stellwerk.world.decide import Decision, decide
from stellwerk.world.effects import Effects, apply
from stellwerk.world.pod_status import UNSCHEDULABLE
from tests.support.builders import make_node, make_pod


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
