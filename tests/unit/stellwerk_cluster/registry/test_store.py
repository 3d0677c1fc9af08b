from typing import Any

from stellwerk_cluster.registry.store import ADDED, DELETED, MODIFIED, Entry, Store, Watcher


def make(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "default", "name": name}, "spec": spec}


def names(entries: list[Entry]) -> list[str]:
    return [entry.key[1] for entry in entries]


def test_every_write_takes_the_next_version_of_one_counter() -> None:
    store = Store()
    first = store.create("pods", make("a"))
    second = store.create("nodes", make("n"))
    third = store.replace("pods", make("a", x=1), first)
    assert first.revision < second.revision < third.revision == store.revision
    assert third.obj["metadata"]["resourceVersion"] == str(third.revision)


def test_entries_come_sorted_by_namespace_and_name() -> None:
    store = Store()
    for name in ("b", "c", "a"):
        store.create("pods", make(name))
    store.create("pods", {"metadata": {"namespace": "another", "name": "z"}})
    assert names(store.collection("pods").entries()) == ["z", "a", "b", "c"]
    assert names(store.collection("pods").entries("default")) == ["a", "b", "c"]


def test_a_watcher_sees_changes_in_order_and_is_woken_once_per_batch() -> None:
    store = Store()
    woken = []
    watcher = Watcher(lambda: woken.append(True))
    store.collection("pods").watchers.append(watcher)
    entry = store.create("pods", make("a"))
    changed = store.replace("pods", make("a", x=1), entry)
    store.remove("pods", changed)
    assert [event.type for event in watcher.drain()] == [ADDED, MODIFIED, DELETED]
    assert woken == [True]


def test_a_watcher_that_does_not_read_is_cut_off_at_its_limit() -> None:
    store = Store()
    watcher = Watcher(lambda: None, limit=2)
    store.collection("pods").watchers.append(watcher)
    for name in ("a", "b", "c"):
        store.create("pods", make(name))
    assert watcher.overflowed
    assert len(watcher.drain()) == 2


def test_an_old_state_can_be_told_from_the_changes_since() -> None:
    store = Store()
    kept = store.create("pods", make("kept"))
    gone = store.create("pods", make("gone"))
    revision = store.revision
    store.remove("pods", gone)
    store.replace("pods", make("kept", x=1), kept)
    store.create("pods", make("new"))
    was = store.collection("pods").differences_from(revision)
    assert was["default", "gone"] is gone
    assert was["default", "kept"] is kept
    assert was["default", "new"] is None


def test_changes_beyond_the_window_are_forgotten() -> None:
    store = Store(window=2)
    revisions = [store.create("pods", make(name)).revision for name in ("a", "b", "c")]
    collection = store.collection("pods")
    assert collection.forgotten == revisions[0]
    assert [event.revision for event in collection.since(revisions[0])] == revisions[1:]


def test_the_bytes_of_an_object_are_made_once() -> None:
    store = Store()
    entry = store.create("pods", make("a"))
    assert entry.data is entry.data


def test_a_store_that_goes_back_shows_what_was_and_tells_listeners() -> None:
    store = Store()
    kept = store.create("pods", make("kept"))
    gone = store.create("pods", make("gone"))
    before = store.revision
    told: list[tuple[str, str]] = []
    store.listeners.append(lambda _, event: told.append((event.type, event.entry.key[1])))
    store.replace("pods", make("kept", x=1), kept)
    store.remove("pods", gone)
    store.create("pods", make("new"))
    told.clear()
    store.rewind(before)
    assert store.revision == before
    assert [entry.obj for entry in store.collection("pods").entries()] == [gone.obj, kept.obj]
    assert sorted(told) == [(ADDED, "gone"), (DELETED, "new"), (MODIFIED, "kept")]
    assert store.collection("pods").forgotten == before


def test_a_store_that_forgets_keeps_its_objects() -> None:
    store = Store()
    store.create("pods", make("a"))
    store.forget()
    pods = store.collection("pods")
    assert (names(pods.entries()), pods.since(0), pods.forgotten) == (["a"], [], store.revision)
