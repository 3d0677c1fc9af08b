"""What is remembered for pods in flight, and for how long."""

from stellwerk.backend.in_flight_events import InFlightEvents
from stellwerk.framework.events import Action, ClusterChange, Resource

FIRST, SECOND, THIRD = (
    ClusterChange(Resource.NODE, action)
    for action in (Action.ADD, Action.DELETE, Action.UPDATE_NODE_LABEL)
)
A, B = ("a", "default-scheduler"), ("b", "other")
"""Uid and profile."""


def test_changes_since_a_pod_was_popped_are_kept_for_it() -> None:
    events = InFlightEvents()
    events.start(A[0])
    events.record(FIRST)
    events.start(B[0])
    events.record(SECOND)
    assert events.since_popped(*A) == [FIRST, SECOND]
    assert events.since_popped(*B) == [SECOND]


def test_nothing_is_kept_while_no_pod_is_in_flight() -> None:
    events = InFlightEvents()
    events.record(FIRST)
    events.start(A[0])
    events.end(A[0])
    events.record(SECOND)
    assert dict(events.counts()) == {"PodPopped": 0}


def test_events_go_with_the_last_pod_that_needs_them() -> None:
    events = InFlightEvents()
    events.start(A[0])
    events.record(FIRST)
    events.start(B[0])
    events.record(SECOND)
    events.end(A[0])
    assert dict(events.counts()) == {"NodeDelete": 1, "PodPopped": 1}
    events.end(B[0])
    assert dict(events.counts()) == {"PodPopped": 0}


def test_events_stay_when_a_later_pod_ends_first() -> None:
    events = InFlightEvents()
    events.start(A[0])
    events.record(FIRST)
    events.start(B[0])
    events.end(B[0])
    assert events.since_popped(*A) == [FIRST]


def test_events_of_one_pod_or_profile_are_for_it_alone() -> None:
    events = InFlightEvents()
    events.start(A[0])
    events.start(B[0])
    events.record(FIRST, uid=A[0])
    events.record(SECOND, profile_name="other")
    events.record(THIRD, uid="not in flight")
    assert events.since_popped(*A) == [FIRST]
    assert events.since_popped(*B) == [SECOND]
    assert "NodeUpdateNodeLabel" not in events.counts()


def test_of_too_many_the_oldest_become_anything_may_have_happened() -> None:
    events = InFlightEvents(max_events=10)
    events.start(A[0])
    for _ in range(8):
        events.record(FIRST)
    events.start(B[0])
    for _ in range(3):
        events.record(SECOND)
    assert events.since_popped(*A) is None
    assert events.since_popped(*B) == [SECOND] * 3
    events.end(A[0])
    assert dict(events.counts()) == {"NodeDelete": 3, "PodPopped": 1}


def test_an_unknown_pod_may_have_missed_anything() -> None:
    assert InFlightEvents().since_popped(*A) is None
