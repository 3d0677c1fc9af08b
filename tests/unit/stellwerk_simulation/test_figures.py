"""Curves: means by whole percents of arrived load."""

import pytest

from stellwerk_simulation.figures import CurvePoint, curve
from stellwerk_simulation.run_metrics import Event, RunResult


def result(*events: Event) -> RunResult:
    return RunResult("p", 1, 1000, events, 0, 0)


def test_a_point_is_the_mean_of_the_arrivals_at_its_percent() -> None:
    found = curve(
        result(Event(9, 8, 100.0, 10.0), Event(11, 9, 200.0, 20.0), Event(30, 30, 5.0, 1.0)), 4
    )
    assert found[1] == CurvePoint(1, 0.85, 15.0, 15.0)
    assert found[3] == CurvePoint(3, 3.0, 0.5, 1.0)


def test_a_percent_without_arrivals_takes_its_neighbours_or_none() -> None:
    found = curve(result(Event(0, 0, 10.0, 1.0), Event(20, 20, 30.0, 3.0)), 4)
    assert found[1] == CurvePoint(1, 1.0, 2.0, 2.0)
    assert found[4] is None


def test_halves_are_rounded_to_the_even_percent() -> None:
    found = curve(result(Event(5, 0, 0.0, 1.0), Event(15, 0, 0.0, 3.0)), 2)
    assert [point.fragmentation_ratio_pct for point in found if point] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("capacity", [0, 1000])
def test_a_run_without_events_has_no_points(capacity: int) -> None:
    assert curve(RunResult("p", 1, capacity, (), 0, 0), 2) == [None] * 3
