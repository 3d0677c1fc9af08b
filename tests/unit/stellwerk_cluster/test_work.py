"""Queues of work: what is due, what waits after a failure, and when all is at rest."""

from collections.abc import Hashable
from itertools import pairwise

import pytest
from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.work import Worker, WorkLoop, WorkQueue
from stellwerk_kube.clock import VirtualClock


class Failing(Worker):
    """Fails so many times for each key."""

    def __init__(self, clock: VirtualClock, failures: int, error: Exception) -> None:
        self.queue = WorkQueue(clock)
        self.tried_at: list[float] = []
        self._clock = clock
        self._failures = failures
        self._error = error

    @override
    def reconcile(self, key: Hashable) -> None:
        self.tried_at.append(self._clock.monotonic())
        if len(self.tried_at) <= self._failures:
            raise self._error


def let_pass(loop: WorkLoop, clock: VirtualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1)
        loop.settle()


@pytest.mark.parametrize("error", [StatusError(409, "Conflict", "changed"), ValueError("a bug")])
def test_what_fails_is_tried_again_ever_later_and_is_not_at_rest_meanwhile(
    error: Exception,
) -> None:
    clock = VirtualClock()
    worker = Failing(clock, 3, error)
    loop = WorkLoop([worker])
    worker.queue.add("key")
    loop.settle()
    assert loop.busy == ["Failing"]
    let_pass(loop, clock, 20)
    assert worker.tried_at == [0, 1, 3, 7]
    assert loop.busy == []


def test_the_wait_never_exceeds_five_minutes() -> None:
    clock = VirtualClock()
    worker = Failing(clock, 100, ValueError())
    loop = WorkLoop([worker])
    worker.queue.add("key")
    loop.settle()
    let_pass(loop, clock, 3000)
    waits = [later - earlier for earlier, later in pairwise(worker.tried_at)]
    assert max(waits) == 300


def test_a_success_in_between_begins_anew() -> None:
    clock = VirtualClock()
    queue = WorkQueue(clock)
    queue.retry("key")
    queue.retry("key")
    queue.succeeded("key")
    queue.retry("other")
    clock.advance(1)
    assert {queue.take(), queue.take()} == {"key", "other"}


def test_a_timer_of_later_work_does_not_disturb_the_rest() -> None:
    clock = VirtualClock()
    queue = WorkQueue(clock)
    queue.add_after("key", 10)
    rest = [queue.at_rest]
    clock.advance(10)
    rest.append(queue.at_rest)
    assert queue.take() == "key"
    rest.append(queue.at_rest)
    assert rest == [True, False, True]


def test_what_is_asked_for_often_within_a_pause_is_done_once_and_counts_as_work() -> None:
    clock = VirtualClock()
    queue = WorkQueue(clock)
    for _ in range(1000):
        queue.add_within("large", 2.0)
    assert queue.take() is None
    rest = [queue.at_rest]
    assert queue.seconds_until_due() == 2
    clock.advance(2)
    assert [queue.take(), queue.take()] == ["large", None]
    rest.append(queue.at_rest)
    assert rest == [False, True]
    queue.add_within("large", 2.0)
    assert queue.seconds_until_due() == 2
