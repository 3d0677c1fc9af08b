from typing import Any

import pytest

from stellwerk_cluster.registry.entries import ADDED, DELETED, MODIFIED, Entry
from stellwerk_cluster.registry.store import Store


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


def test_namespaces_come_in_the_order_of_their_paths() -> None:
    store = Store()
    for namespace in ("a", "a-b", "a.b", "a0", "b"):
        for name in ("z", "a"):
            body = {"metadata": {"namespace": namespace, "name": name}}
            store.create("pods", {**body, "spec": {"nodeName": "n"}})
    pods = store.collection("pods")
    ordered = [entry.key for entry in pods.entries()]
    assert ordered == sorted(ordered, key="/".join)
    assert [key[0] for key in ordered[::2]] == ["a-b", "a.b", "a", "a0", "b"]
    assert [entry.key for entry in pods.on_node("n")] == ordered
    assert list(pods.keys("a")) == [("a", "a"), ("a", "z")]
    for count, key in enumerate(ordered, 1):
        assert list(pods.keys(None, after=key)) == ordered[count:]
        assert pods.count(None, after=key) == len(ordered) - count


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


def test_the_window_is_bounded_in_bytes_of_the_past() -> None:
    store = Store(window_bytes=10_000)
    entry = store.create("pods", make("a", x="x" * 1000))
    for number in range(20):
        entry = store.replace("pods", make("a", x=str(number) * 1000), entry)
    pods = store.collection("pods")
    assert sum(event.past_bytes for event in pods.events) <= 10_000
    assert pods.forgotten == pods.compacted == pods.events[0].revision - 1 > 1


def test_a_stored_object_is_its_bytes_whatever_the_writer_does_later() -> None:
    store = Store()
    obj = make("a", x=[1])
    entry = store.create("pods", obj)
    obj["spec"]["x"].append(2)
    assert entry.obj["spec"] == {"x": [1]}


def test_a_reader_that_changes_what_it_read_is_found_out() -> None:
    entry = Store().create("pods", make("a", x=[1]))
    assert not entry.altered
    entry.obj["spec"]["x"].append(2)
    assert entry.altered


def test_an_object_that_is_not_json_changes_nothing() -> None:
    store = Store()
    before = store.revision
    with pytest.raises(TypeError):
        store.create("pods", make("a", x=1 << 80))
    assert (store.revision, len(store.collection("pods"))) == (before, 0)


def test_all_watchers_share_the_line_of_a_change() -> None:
    store = Store()
    store.create("pods", make("a"))
    event = store.collection("pods").events[-1]
    assert event.line is event.line


def test_objects_are_found_by_their_node() -> None:
    store = Store()
    b = store.create("pods", make("b", nodeName="n1"))
    a = store.create("pods", make("a"))
    a = store.replace("pods", make("a", nodeName="n1"), a)
    pods = store.collection("pods")
    assert pods.on_node("n1") == [a, b]
    moved = store.replace("pods", make("b", nodeName="n2"), b)
    store.remove("pods", a)
    assert (pods.on_node("n1"), pods.on_node("n2")) == ([], [moved])


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
