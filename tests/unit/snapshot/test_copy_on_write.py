"""Counts by key and item, and what forks of them share."""

from stellwerk.snapshot.copy_on_write import CopyOnWrite, Counts


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
