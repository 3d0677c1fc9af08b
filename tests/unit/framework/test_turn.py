"""A turn ends after its time, and what is left of the work goes on from there."""

from collections.abc import Iterator

import pytest

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.turn import completes


def test_work_is_left_where_the_time_is_over_and_goes_on_there() -> None:
    done: list[int] = []
    seconds = 0.0

    def work() -> Iterator[None]:
        nonlocal seconds
        for step in range(5):
            done.append(step)
            seconds += 1.0
            yield

    state = CycleState()
    state.turn_seconds = 2.5
    assert not completes(state, work(), lambda: seconds)
    assert done == [0, 1, 2]
    assert state.unfinished is not None
    assert list(state.unfinished) == [None, None]
    assert done == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("turn_seconds", [None, 0.0])
def test_work_that_is_done_in_time_leaves_nothing(turn_seconds: float | None) -> None:
    state = CycleState()
    state.turn_seconds = turn_seconds
    assert completes(state, iter([None, None]), lambda: 0.0)
    assert state.unfinished is None


def test_an_attempt_that_begins_anew_has_forgotten_everything() -> None:
    state = CycleState(sampled=True)
    state.write("plugin", 1)
    state.skipped_filters.add("plugin")
    state.unfinished = iter(())
    state.begin_anew()
    assert state.sampled
    assert state.get("plugin", int) is None
    assert not state.skipped_filters
    assert state.unfinished is None
