"""The history of queues, throughput and latency: what it shows, and that it stays as large."""

from itertools import count
from math import isnan

import pytest

from stellwerk.answers.queue import QueueHistoryPage
from stellwerk.explain.queue_history import AttemptTotals, QueueHistory, quantile
from stellwerk.explain.steps import finished
from stellwerk.scheduler.observers.instruments import attempt_totals
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ConfigurationError
from tests.support.answers import written
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running

KIB = 1024


async def test_it_shows_what_waited_then_and_now_and_what_happened_in_between() -> None:
    clock = VirtualClock()
    async with running(clock) as world:
        history = QueueHistory(world.operator.world, lambda: attempt_totals(world.metrics))
        world.apply(make_profile("stellwerk"))
        history.sample()
        clock.advance(60)
        world.apply(make_pod("large", cpu="4", scheduler_name="stellwerk"))
        world.apply(
            make_node("node", cpu="2"), make_pod("web", cpu="1", scheduler_name="stellwerk")
        )
        await quiet(100)
        before, now = written(history.page())["items"]
        assert (before["unschedulable"], before["scheduled"]) == (0, 0)
        assert (now["unschedulable"], now["scheduled"]) == (1, 1)
        assert before["at"] < now["at"]
        assert (now["seconds"], now["bound"], now["failed"]) == (60, 1, 1)
        assert 0 < now["p50Seconds"] <= now["p99Seconds"]
        assert "p50Seconds" not in before


async def test_reading_adds_nothing_and_old_samples_go() -> None:
    clock = VirtualClock()
    async with running(clock) as world:
        history = QueueHistory(world.operator.world, fine_points=3)
        for _ in range(10):
            history.sample()
            clock.advance(5)
        first, second = written(history.page())["items"], written(history.page())["items"]
        assert len(first) == 4
        assert [each["at"] for each in first] == [each["at"] for each in second]


def sampled(minutes: int) -> tuple[QueueHistory, VirtualClock]:
    """A history of a scheduler that binds a pod each second, in 20 ms."""
    clock, bound = VirtualClock(), count(0, 5)

    def totals() -> AttemptTotals:
        pods = next(bound)
        return AttemptTotals(bound=pods, bounds=(0.01, 0.03), latency=(0, pods, 0))

    history = QueueHistory(InProcess(clock).operator.world, totals)
    for _ in range(minutes * 12):
        clock.advance(5)
        history.sample()
    return history, clock


def page(history: QueueHistory, wanted: str = "") -> QueueHistoryPage:
    return finished(history.page(wanted))


def test_it_takes_at_most_200_kib_for_ever() -> None:
    young, old = QueueHistory(InProcess().operator.world), sampled(13 * 60)[0]
    assert young.nbytes == old.nbytes <= 200 * KIB


def test_ranges_are_five_minutes_an_hour_and_all_that_is_kept() -> None:
    history, _ = sampled(13 * 60)
    for wanted, points, seconds in (("", 600, 5), ("5m", 60, 5), ("1h", 60, 60), ("all", 720, 60)):
        found = page(history, wanted)
        assert (len(found.items), found.every_seconds) == (points + 1, seconds), wanted
        middle = found.items[points // 2]
        assert (middle.bound, middle.seconds) == (seconds, seconds), wanted
        assert middle.p50_seconds == pytest.approx(0.02)
    with pytest.raises(ConfigurationError, match="a range is one of 5m, 1h, all"):
        page(history, "1d")


def test_an_hour_of_a_young_leader_is_shown_in_fine_points() -> None:
    history, _ = sampled(2)
    assert (len(page(history, "1h").items), page(history, "1h").every_seconds) == (25, 5)


def test_a_new_leader_begins_anew_and_says_so() -> None:
    history, clock = sampled(2)
    before = page(history).began
    clock.advance(1)
    history.begin()
    after = page(history)
    assert len(after.items) == 1
    assert (after.began or "") > (before or "")


@pytest.mark.parametrize(
    ("counts", "share", "value"),
    [
        pytest.param([4, 0, 0], 0.5, 0.5, id="evenly within a bucket"),
        pytest.param([1, 1, 0], 0.99, 1.98, id="in the second bucket"),
        pytest.param([0, 0, 5], 0.5, 2.0, id="beyond the last bound"),
    ],
)
def test_a_quantile_is_that_of_prometheus(counts: list[int], share: float, value: float) -> None:
    assert quantile((1.0, 2.0), counts, share) == pytest.approx(value)


def test_nothing_has_no_quantile() -> None:
    assert isnan(quantile((1.0,), [0, 0], 0.5))
