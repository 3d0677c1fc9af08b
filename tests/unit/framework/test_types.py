"""The statuses of many nodes as one column: a sequence that counts cheaply."""

from collections.abc import Iterator

import numpy as np
import pytest

from stellwerk.framework.diagnosis import reason_counts
from stellwerk.framework.types import (
    OK,
    Code,
    CycleState,
    FilterResult,
    Status,
    StatusColumn,
    are_no_codes,
    completes,
    no_codes,
    unresolvable,
    unschedulable,
)

FULL = unschedulable("NodeResourcesFit", "Insufficient cpu", "Too many pods")
SHUT = unresolvable("NodeUnschedulable", "node(s) were unschedulable")


def test_it_reads_as_the_statuses_one_by_one() -> None:
    statuses = [FULL, OK, SHUT, FULL]
    column = StatusColumn.of(statuses)
    assert list(column) == statuses
    assert len(column) == 4
    assert column[2] is SHUT
    assert column[-1] is FULL
    assert list(column[1:3]) == [OK, SHUT]


def test_equal_statuses_are_counted_together_and_absent_ones_not() -> None:
    twin = unschedulable("NodeResourcesFit", "Insufficient cpu", "Too many pods")
    column = StatusColumn([FULL, SHUT, twin], np.array([0, 2, 2], np.int32))
    assert column.counts() == {FULL: 3}
    assert reason_counts(column) == {"Insufficient cpu": 3, "Too many pods": 3}


def test_where_a_code_is() -> None:
    column = StatusColumn.of([FULL, OK, SHUT])
    assert column.where(Code.UNSCHEDULABLE).tolist() == [True, False, False]
    assert column.where(Code.UNSCHEDULABLE_AND_UNRESOLVABLE).tolist() == [False, False, True]


def test_no_nodes_and_all_alike() -> None:
    nothing: list[Status] = []
    empty = StatusColumn.of(nothing)
    assert list(empty) == []
    assert empty.counts() == {}
    assert empty.where(Code.UNSCHEDULABLE).tolist() == []
    assert list(StatusColumn.everywhere(SHUT, 3)) == [SHUT] * 3


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
    state.slice_seconds = 2.5
    assert not completes(state, work(), lambda: seconds)
    assert done == [0, 1, 2]
    assert state.unfinished is not None
    assert list(state.unfinished) == [None, None]
    assert done == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("slice_seconds", [None, 0.0])
def test_work_that_is_done_in_time_leaves_nothing(slice_seconds: float | None) -> None:
    state = CycleState()
    state.slice_seconds = slice_seconds
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


def test_codes_of_filters_that_refuse_no_node_are_shared_and_known_without_reading_them() -> None:
    large, small = no_codes(5000), FilterResult.everywhere(3)
    none = FilterResult.of_mask(np.zeros(4, np.bool_), unschedulable("Any", "why"))
    one = FilterResult.of_mask(np.array([False, True]), unschedulable("Any", "why"))
    assert [each.codes.tolist() for each in (small, none, one)] == [[0] * 3, [0] * 4, [0, 1]]
    assert [are_no_codes(each) for each in (large, small.codes, none.codes)] == [True] * 3
    assert not are_no_codes(one.codes)
    assert not are_no_codes(large.copy())
    with pytest.raises(ValueError, match="read-only"):
        large[0] = 1


def test_codes_that_were_shared_in_a_smaller_cluster_stay_zeros() -> None:
    before = no_codes(10)
    longer = no_codes(4 * len(before.base if before.base is not None else before))
    assert not longer.any()
    assert not before.any()
    assert are_no_codes(no_codes(10))
