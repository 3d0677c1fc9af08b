"""Backoff's length, its windows and the order in which pods leave it."""

import pytest

from stellwerk.backend.backoff_queue import Backoff, BackoffQueue, is_backing_off, set_backoff
from stellwerk.backend.queued_pod import Place, QueuedPod
from tests.support.builders import pod_info


def backing_off(
    name: str, until: float, *, place: Place = Place.BACKOFF, priority: int = 0, sequence: int = 1
) -> QueuedPod:
    pod = pod_info(name, priority=priority)
    return QueuedPod(
        pod, pod, "", 0.0, place, sort_key=(-priority,), sequence=sequence, backoff_expiration=until
    )


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        pytest.param(Backoff(), [0, 1, 2, 4, 8, 10, 10], id="the documents' vector"),
        pytest.param(Backoff(3, 7), [0, 3, 6, 7], id="cut off at the maximum"),
        pytest.param(Backoff(5, 2), [0, 2, 2], id="a maximum below the initial wins"),
        pytest.param(Backoff(1, 0), [0, 0, 0], id="a maximum of 0 turns it off"),
    ],
)
def test_backoff_doubles_up_to_its_maximum(backoff: Backoff, seconds: list[float]) -> None:
    assert [backoff.seconds(failures) for failures in range(len(seconds))] == seconds


def test_a_million_failures_do_not_overflow() -> None:
    assert Backoff().seconds(1_000_000) == 10


def test_backoff_ends_with_its_whole_second() -> None:
    entry = backing_off("a", 0)
    entry.queued_at, entry.unschedulable_count = 100.7, 1
    set_backoff(entry, Backoff())
    assert entry.backoff_expiration == 101
    assert is_backing_off(entry, 101.9)
    assert not is_backing_off(entry, 102.0)


def test_errors_in_a_row_set_the_backoff_while_there_are_any() -> None:
    entry = backing_off("a", 0)
    entry.queued_at, entry.unschedulable_count, entry.consecutive_errors = 100.0, 4, 2
    set_backoff(entry, Backoff())
    assert entry.backoff_expiration == 102


def test_within_a_window_activeqs_order_holds_for_rejected_pods_alone() -> None:
    queue = BackoffQueue()
    for number, (name, until, priority) in enumerate(
        [("later", 12, 9), ("low", 11, 0), ("high", 11, 5)], start=1
    ):
        queue.push(backing_off(name, until, priority=priority, sequence=number), 3)
        in_error = backing_off(
            f"error-{name}",
            until,
            place=Place.ERROR_BACKOFF,
            priority=priority,
            sequence=10 + number,
        )
        queue.push(in_error, 3)
    assert [entry.pod.name for entry in queue.pop_all_backoff_completed(20)] == [
        *("high", "low", "later"),
        *("error-low", "error-high", "error-later"),
    ]


def test_only_rejected_pods_are_popped_early() -> None:
    queue = BackoffQueue()
    queue.push(backing_off("in error", 5, place=Place.ERROR_BACKOFF), 1)
    assert queue.pop_backoff() is None
    queue.push(backing_off("rejected", 9), 1)
    early = queue.pop_backoff()
    assert early is not None
    assert early.pod.name == "rejected"


def test_stale_items_are_passed_over() -> None:
    queue = BackoffQueue()
    gone, moved, stays = (
        backing_off(name, 5, sequence=number)
        for number, name in enumerate(("gone", "moved", "stays"), start=1)
    )
    for entry in (gone, moved, stays):
        queue.push(entry, 3)
    gone.sequence, moved.sequence = 0, 4
    assert [entry.pod.name for entry in queue.pop_all_backoff_completed(6)] == ["stays"]
    assert list(queue.pop_all_backoff_completed(1000)) == []


def test_stale_items_do_not_pile_up() -> None:
    queue = BackoffQueue()
    for sequence in range(1, 10_000):
        entry = backing_off("a", 1000, sequence=sequence)
        queue.push(entry, 1)
        entry.sequence = 0
    assert len(queue._pod_backoff_q._items) < 200  # noqa: SLF001 memory has no public face
