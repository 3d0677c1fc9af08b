"""The log of changes, and what a cursor says of it at its edges."""

from dataclasses import dataclass

from stellwerk.snapshot.changes import ChangeCursor, Changes, RowCursor


def test_a_log_forgets_the_oldest_changes_and_says_so() -> None:
    log: Changes[int] = Changes(keep=5)
    for row in range(10):
        log.append(row)
    assert log.since(0) == list(range(10)), "twice as many may stay"
    log.append(10)
    assert log.since(5) is None
    assert log.since(6) == [6, 7, 8, 9, 10]
    assert log.since(log.position) == []
    assert log.position == 11


def log_of(*changed: int) -> Changes[int]:
    log: Changes[int] = Changes()
    for row in changed:
        log.append(row)
    return log


def test_a_new_cursor_wants_everything_even_of_an_empty_log() -> None:
    cursor = ChangeCursor(log_of())
    assert [cursor.current, cursor.advance()] == [False, None]
    assert [cursor.current, cursor.advance()] == [True, []]


def test_each_key_is_named_once_in_the_order_of_its_first_change() -> None:
    cursor = ChangeCursor(log := log_of(1, 2))
    cursor.catch_up()
    for row in (5, 3, 5, 4, 3):
        log.append(row)
    assert cursor.advance() == [5, 3, 4]


def test_what_is_asked_for_and_not_looked_at_is_asked_for_again() -> None:
    cursor = ChangeCursor(log := log_of())
    cursor.catch_up()
    log.append(7)
    assert cursor.changed() == [7]
    assert cursor.changed() == [7]
    assert not cursor.current


def test_more_changes_than_a_reader_can_use_mean_everything() -> None:
    cursor = ChangeCursor(log := log_of())
    cursor.catch_up()
    log.append(7)
    log.append(8)
    assert cursor.changed(at_most=2) == [7, 8]
    assert cursor.changed(at_most=1) is None


@dataclass
class Rows:
    size: int


def test_a_reader_of_columns_wants_every_row_after_growth() -> None:
    rows, log = Rows(2), log_of()
    cursor = RowCursor(rows, log)
    cursor.catch_up()
    rows.size = 3
    log.append(2)
    assert cursor.advance() is None
    log.append(0)
    assert cursor.advance() == [0]
