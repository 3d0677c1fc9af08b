"""Objects, versions and watch events in memory.

One `Store` holds a `Collection` per resource; every write takes the next number of one global
counter. Written by the verbs only. HTTP, the rules of kinds and asyncio are no part of it: a plain
callback wakes the reader of a watcher whose buffer is no longer empty. Invariants: versions grow
strictly; the events of a collection are in order of version and reach back to `forgotten`; what is
stored of an object is its bytes, which never change, and lists and watchers share them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from stellwerk_cluster.apimachinery.objects import Key, key_of, path_of, with_value
from stellwerk_cluster.registry.entries import (
    ADDED,
    DELETED,
    MODIFIED,
    ByteBoundedCache,
    Entry,
    StoreEvent,
)
from stellwerk_cluster.registry.watchers import Watchers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stellwerk_kube.json_values import JsonObject

MAX_KEPT_EVENTS: Final = 65_536
"""Events kept per collection: a watch from before them is answered with 410."""
MAX_KEPT_EVENT_BYTES: Final = 64 << 20
"""Bytes of versions that are no longer present, kept per collection for the sake of its events."""
_AFTER_SLASH: Final = chr(ord("/") + 1)
"""Ends the paths of a namespace."""
_MAX_PARSED_BYTES: Final = 2 << 20
"""Bytes of the stored objects whose parsed form is kept."""
_MAX_LINES_BYTES: Final = 1 << 20
"""Bytes of the lines of watches that are kept for further watchers."""


class ChangeLog(Protocol):
    """A log in which changes are written down as they happen."""

    def record(self, storage_name: str, event: StoreEvent) -> None:
        """Write down one change.

        Raises:
            StatusError: it cannot be written; the change must not happen (500).
        """
        ...


class Collection:
    """All objects of one resource, and their latest changes."""

    def __init__(self, window: int, window_bytes: int) -> None:
        """An empty collection that keeps so many events, and so many bytes for their sake."""
        self._entries: dict[Key, Entry] = {}
        self._keys: list[Key] = []
        self._on_node: dict[str, dict[Key, None]] = {}
        self._window = window
        self._window_bytes = window_bytes
        self._event_bytes = 0
        self.events: deque[StoreEvent] = deque()
        self.forgotten = 0
        """Changes up to this version are forgotten: no watch can begin before it."""
        self.compacted = 0
        """Lists can no longer show versions before this one."""
        self.watchers = Watchers()
        self.listeners: list[Callable[[StoreEvent], None]] = []
        """Called at once with every change, in process: indices and controllers."""

    def __len__(self) -> int:
        """Number of objects."""
        return len(self._entries)

    def get(self, key: Key) -> Entry | None:
        """The present version of an object."""
        return self._entries.get(key)

    def keys(self, namespace: str | None, after: Key | None = None) -> Iterator[Key]:
        """Keys in order, of one namespace or (None) of all, beginning behind `after`."""
        start, end = self._range(namespace, after)
        for position in range(start, end):
            yield self._keys[position]

    def _range(self, namespace: str | None, after: Key | None) -> tuple[int, int]:
        """The positions at which the keys of a namespace begin and end."""
        start, end = "", len(self._keys)
        if namespace is not None:
            start = f"{namespace}/"
            end = bisect_left(self._keys, namespace + _AFTER_SLASH, key=path_of)
        if after is not None:
            start = max(start, path_of(after) + "\0")
        return min(bisect_left(self._keys, start, key=path_of), end), end

    def entries(self, namespace: str | None = None) -> list[Entry]:
        """All objects in order of their keys, of one namespace or (None) of all."""
        if namespace is None:
            return [self._entries[key] for key in self._keys]
        return [self._entries[key] for key in self.keys(namespace)]

    def on_node(self, node_name: str) -> list[Entry]:
        """The objects whose spec.nodeName is this one, in order of their keys."""
        return [self._entries[key] for key in sorted(self._on_node.get(node_name, ()), key=path_of)]

    def count(self, namespace: str | None, after: Key | None = None) -> int:
        """The number of keys that `keys` would give."""
        start, end = self._range(namespace, after)
        return end - start

    def put(self, entry: Entry) -> None:
        """Hold a version of an object in place of the one before, if any."""
        was = self._entries.get(entry.key)
        if was is None:
            insort(self._keys, entry.key, key=path_of)
        elif was.node_name != entry.node_name:
            self._off_node(was)
        if entry.node_name:
            self._on_node.setdefault(entry.node_name, {})[entry.key] = None
        self._entries[entry.key] = entry

    def drop(self, key: Key) -> None:
        """Hold no such object any more."""
        self._off_node(self._entries.pop(key))
        del self._keys[bisect_left(self._keys, path_of(key), key=path_of)]

    def _off_node(self, entry: Entry) -> None:
        here = self._on_node.get(entry.node_name)
        if here is not None:
            here.pop(entry.key, None)
            if not here:
                del self._on_node[entry.node_name]

    def apply(self, event: StoreEvent) -> None:
        """Make a change, and hand it to watchers and listeners."""
        if event.type == DELETED:
            self.drop(event.entry.key)
        else:
            self.put(event.entry)
        self._remember(event)
        self.watchers.offer(event)
        for listener in self.listeners:
            listener(event)

    def _remember(self, event: StoreEvent) -> None:
        self.events.append(event)
        self._event_bytes += event.past_bytes
        while len(self.events) > self._window or self._event_bytes > self._window_bytes:
            oldest = self.events.popleft()
            self._event_bytes -= oldest.past_bytes
            self.forgotten = oldest.revision
            self.compacted = max(self.compacted, self.forgotten)

    def compact(self, revision: int) -> None:
        """Show no versions before this one any more; watches still go back as far as the window."""
        self.compacted = max(self.compacted, revision)

    def since(self, revision: int) -> list[StoreEvent]:
        """The changes after a version, in order. The caller has compared it with `forgotten`."""
        found: deque[StoreEvent] = deque()
        for event in reversed(self.events):
            if event.revision <= revision:
                break
            found.appendleft(event)
        return list(found)

    def differences_from(self, revision: int) -> dict[Key, Entry | None]:
        """For each object changed since a version: what it was then (None: it did not exist)."""
        was: dict[Key, Entry | None] = {}
        for event in reversed(self.events):
            if event.revision <= revision:
                break
            was[event.entry.key] = event.previous
        return was

    def forget(self, revision: int) -> None:
        """Lose the changes up to a version; watches begin after it at the earliest."""
        self.events.clear()
        self._event_bytes = 0
        self.forgotten = self.compacted = revision

    def rewind(self, revision: int) -> list[StoreEvent]:
        """Go back to a version without telling watchers; returns what that changed."""
        changes = []
        for key, was in self.differences_from(revision).items():
            present = self._entries.get(key)
            if was is not None:
                self.put(was)
            elif present is not None:
                self.drop(key)
            if present is None and was is not None:
                changes.append(StoreEvent(ADDED, was, None))
            elif present is not None:
                type_ = DELETED if was is None else MODIFIED
                changes.append(StoreEvent(type_, was or present, present))
        self.forget(revision)
        return changes


class _Unmade(NamedTuple):
    """Objects of a resource that were not asked for yet."""

    first_revision: int
    make: Callable[[], Iterable[JsonObject]]


class Store:
    """All collections and the counter of versions."""

    def __init__(
        self, *, window: int = MAX_KEPT_EVENTS, window_bytes: int = MAX_KEPT_EVENT_BYTES
    ) -> None:
        """An empty store, whose collections keep so many events and bytes of their past."""
        self.revision = 1
        self._window = window
        self._window_bytes = window_bytes
        self._compacted = self._forgotten = 0
        self._collections: dict[str, Collection] = {}
        self._unmade: dict[str, _Unmade] = {}
        self._parsed = ByteBoundedCache(_MAX_PARSED_BYTES)
        self._lines = ByteBoundedCache(_MAX_LINES_BYTES)
        self.journal: ChangeLog | None = None
        """The log to which changes are written before they happen; None: they are kept in memory
        only."""
        self.listeners: list[Callable[[str, StoreEvent], None]] = []
        """Called at once with (resource, change) for every change, in process: indices."""

    def collection(self, storage_name: str) -> Collection:
        """The collection of a resource, empty if nothing was ever written to it."""
        found = self._collections.get(storage_name)
        if found is None:
            found = Collection(self._window, self._window_bytes)
            self._collections[storage_name] = found
            found.forget(self._forgotten)
            found.compact(self._compacted)
            self._fill(storage_name, found)
        return found

    def fill_later(
        self, storage_name: str, count: int, make: Callable[[], Iterable[JsonObject]]
    ) -> None:
        """Store `count` new objects of a resource, made when its collection is first asked for.

        Their versions are taken now.
        """
        self._unmade[storage_name] = _Unmade(self.revision + 1, make)
        self.revision += count
        if storage_name in self._collections:
            self._fill(storage_name, self._collections[storage_name])

    def _fill(self, storage_name: str, collection: Collection) -> None:
        """Make the objects that were left for later, as if they had been written then."""
        unmade = self._unmade.pop(storage_name, None)
        if unmade is None:
            return
        for revision, obj in enumerate(unmade.make(), unmade.first_revision):
            stamped = with_value(obj, ("metadata", "resourceVersion"), str(revision))
            entry = Entry(key_of(stamped), stamped, revision, self._parsed)
            event = StoreEvent(ADDED, entry, None, self._lines)
            collection.apply(event)
            for listener in self.listeners:
                listener(storage_name, event)

    def names(self) -> Iterable[str]:
        """The resources that were ever used."""
        return tuple(self._collections)

    def create(self, storage_name: str, obj: JsonObject) -> Entry:
        """Store a new object and set its version; the caller has checked that the key is free."""
        return self._write(ADDED, storage_name, obj, None)

    def replace(self, storage_name: str, obj: JsonObject, previous: Entry) -> Entry:
        """Store a new version of an object. Sets its resourceVersion."""
        return self._write(MODIFIED, storage_name, obj, previous)

    def remove(
        self, storage_name: str, entry: Entry, last_state: JsonObject | None = None
    ) -> Entry:
        """Remove an object; the answer is its last state at the version of the removal."""
        return self._write(DELETED, storage_name, last_state or entry.obj, entry)

    def restore(self, storage_name: str, obj: JsonObject, revision: int) -> None:
        """Hold an object that was kept elsewhere, without a change for watchers and listeners."""
        self.collection(storage_name).put(Entry(key_of(obj), obj, revision, self._parsed))

    def begin_at(self, revision: int) -> None:
        """Go on from a version, without the history before it."""
        self.revision = revision
        self.forget()

    def compact(self, revision: int) -> None:
        """Show no versions before this one any more, in any collection."""
        self._compacted = max(self._compacted, revision)
        for collection in self._collections.values():
            collection.compact(revision)

    def forget(self) -> None:
        """Lose the history of all collections, as a server that starts anew; objects stay."""
        self._compacted = self._forgotten = self.revision
        for collection in self._collections.values():
            collection.forget(self.revision)

    def rewind(self, revision: int) -> None:
        """Go back to a version, as a server that was restored from an older backup.

        No further than the history reaches. Listeners in process get the changes, watchers do not:
        their connections have ended before.
        """
        known = max(each.forgotten for each in self._collections.values())
        self.revision = max(revision, known)
        self._compacted = self.revision
        for storage_name, collection in self._collections.items():
            for change in collection.rewind(self.revision):
                if self.journal is not None:
                    self.journal.record(storage_name, change)
                for listener in (*collection.listeners, *self._wrapped(storage_name)):
                    listener(change)

    def _wrapped(self, storage_name: str) -> list[Callable[[StoreEvent], None]]:
        return [partial(listener, storage_name) for listener in self.listeners]

    def _write(
        self, type_: str, storage_name: str, obj: JsonObject, previous: Entry | None
    ) -> Entry:
        revision = self.revision + 1
        stamped = with_value(obj, ("metadata", "resourceVersion"), str(revision))
        key = previous.key if previous else key_of(stamped)
        entry = Entry(key, stamped, revision, self._parsed)
        event = StoreEvent(type_, entry, previous, self._lines)
        if self.journal is not None:
            self.journal.record(storage_name, event)
        self.revision = revision
        self.collection(storage_name).apply(event)
        for listener in self.listeners:
            listener(storage_name, event)
        return entry
