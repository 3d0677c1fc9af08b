"""The log of changes, and what a cursor says of it at its edges."""

from dataclasses import dataclass

from stellwerk.snapshot.columns import ChangeCursor, Changes, CopyOnWrite, Counts, RowCursor


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


def counts(**of_key: dict[int, int]) -> Counts[str, int]:
    made: Counts[str, int] = Counts()
    for key, items in of_key.items():
        for item, count in items.items():
            made.add(key, item, count)
    return made


def test_only_what_occurs_is_kept() -> None:
    disks = counts(disk={3: 2, 5: 1})
    assert disks.of("disk") == {3: 2, 5: 1}
    disks.add("disk", 3, -2)
    assert disks.of("disk") == {5: 1}
    disks.add("disk", 5, -1)
    assert list(disks) == []
    assert disks.of("disk") == {}


def test_a_fork_shares_what_neither_side_has_changed() -> None:
    ours = counts(a={1: 1}, b={1: 1}, c={1: 1})
    theirs = ours.fork()
    ours.add("a", 1, 1)
    theirs.add("b", 2, 1)
    theirs.add("c", 1, -1)
    assert dict(ours.items()) == {"a": {1: 2}, "b": {1: 1}, "c": {1: 1}}
    assert dict(theirs.items()) == {"a": {1: 1}, "b": {1: 1, 2: 1}}
    assert ours.fork().of("a") is ours.of("a")


def test_what_is_its_own_is_not_copied_again() -> None:
    values: CopyOnWrite[str, list[int]] = CopyOnWrite()
    values.put("a", [1])
    fork = values.fork()
    changed = fork.to_change("a")
    assert changed is not values.get("a")
    assert fork.to_change("a") is changed
    fork.put("b", [2])
    assert fork.to_change("b") is fork.get("b")


def test_a_dropped_key_starts_anew_on_its_side_alone() -> None:
    ours = counts(a={1: 1})
    theirs = ours.fork()
    theirs.discard("a")
    theirs.add("a", 7, 1)
    assert (ours.of("a"), theirs.of("a")) == ({1: 1}, {7: 1})
