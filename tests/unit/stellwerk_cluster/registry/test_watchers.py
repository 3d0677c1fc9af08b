from typing import Any

import pytest

from stellwerk_cluster.apimachinery.selectors import Trigger
from stellwerk_cluster.registry.entries import ADDED, DELETED, MODIFIED
from stellwerk_cluster.registry.store import Store
from stellwerk_cluster.registry.watchers import Watcher


def make(name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "spec": spec}


class Reader:
    """A watcher of pods, and how often it was woken and cut off."""

    def __init__(
        self,
        store: Store,
        *,
        trigger: Trigger | None = None,
        limit: int = 100,
        limit_bytes: int = 10_000,
    ) -> None:
        self.woken = 0
        self.cut_off = 0
        self.watcher = Watcher(
            self._wake, self._cut_off, limit=limit, limit_bytes=limit_bytes, trigger=trigger
        )
        store.collection("pods").watchers.append(self.watcher)

    def _wake(self) -> None:
        self.woken += 1

    def _cut_off(self) -> None:
        self.cut_off += 1

    def seen(self) -> list[tuple[str, str]]:
        return [(event.type, event.entry.key[1]) for event in self.watcher.drain()]


def test_a_watcher_sees_changes_in_order_and_is_woken_once_per_batch() -> None:
    store = Store()
    reader = Reader(store)
    entry = store.create("pods", make("a"))
    changed = store.replace("pods", make("a", x=1), entry)
    store.remove("pods", changed)
    assert reader.seen() == [(ADDED, "a"), (MODIFIED, "a"), (DELETED, "a")]
    assert reader.woken == 1


@pytest.mark.parametrize(
    ("limit", "limit_bytes"),
    [
        pytest.param(2, 10_000, id="of events"),
        pytest.param(100, 250, id="of bytes"),
    ],
)
def test_a_watcher_that_does_not_read_is_cut_off_at_its_limit(limit: int, limit_bytes: int) -> None:
    store = Store()
    reader = Reader(store, limit=limit, limit_bytes=limit_bytes)
    for name in ("a", "b", "c", "d"):
        store.create("pods", make(name))
    assert (reader.watcher.overflowed, reader.cut_off, reader.seen()) == (True, 1, [])


def test_a_watcher_of_a_node_is_offered_what_comes_to_it_and_what_leaves_it() -> None:
    store = Store()
    reader = Reader(store, trigger=("spec.nodeName", "n1"))
    entry = store.create("pods", make("a"))
    entry = store.replace("pods", make("a", nodeName="n1"), entry)
    entry = store.replace("pods", make("a", nodeName="n2"), entry)
    store.remove("pods", entry)
    assert reader.seen() == [(MODIFIED, "a"), (MODIFIED, "a")]


def test_watchers_of_a_namespace_and_of_a_name_are_offered_nothing_else() -> None:
    store = Store()
    of_namespace = Reader(store, trigger=("metadata.namespace", "other"))
    of_name = Reader(store, trigger=("metadata.name", "a"))
    store.create("pods", make("a"))
    store.create("pods", make("b", "other"))
    assert of_namespace.seen() == [(ADDED, "b")]
    assert of_name.seen() == [(ADDED, "a")]


def test_a_removed_watcher_is_offered_nothing() -> None:
    store = Store()
    reader = Reader(store)
    store.collection("pods").watchers.remove(reader.watcher)
    store.create("pods", make("a"))
    assert (reader.seen(), list(store.collection("pods").watchers)) == ([], [])
