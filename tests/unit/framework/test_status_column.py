"""The statuses of many nodes as one column: a sequence that counts cheaply."""

import numpy as np

from stellwerk.framework.diagnosis import reason_counts
from stellwerk.framework.status import OK, Code, Status, unresolvable, unschedulable
from stellwerk.framework.status_column import StatusColumn

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
