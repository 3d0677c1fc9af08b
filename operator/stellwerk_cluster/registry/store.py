"""Objects, versions and watch events in memory.

One `Store` holds a `Collection` per resource; every write takes the next number of one global
counter. Written by the verbs only. HTTP, the rules of kinds and asyncio are no part of it: a plain
callback wakes the reader of a watcher whose buffer is no longer empty. Invariants: versions grow
strictly; the events of a collection are in order of version and reach back to `compacted`; an
object is serialised once per change, and lists and watchers share those bytes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.objects import Key, key_of, with_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stellwerk.models.json_values import JsonObject

EVENT_WINDOW: Final = 65_536
"""Events kept per collection: a watch from before them is answered with 410."""

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"


class Entry:
    """One version of one object, with the bytes that lists and watchers send."""

    __slots__ = ("_data", "key", "obj", "revision")

    def __init__(self, key: Key, obj: JsonObject, revision: int) -> None:
        """Keep the object; it is serialised when first asked for."""
        self.key = key
        self.obj = obj
        self.revision = revision
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        """The object as JSON."""
        if self._data is None:
            self._data = orjson.dumps(self.obj)
        return self._data

    def release(self) -> None:
        """Let the bytes go: a newer version exists, so few will ask for this one again."""
        self._data = None


class StoreEvent:
    """One change: the object before it and after it."""

    __slots__ = ("entry", "previous", "type")

    def __init__(self, type_: str, entry: Entry, previous: Entry | None) -> None:
        """`entry` of a deletion is the last state, at the version of the deletion."""
        self.type = type_
        self.entry = entry
        self.previous = previous

    @property
    def revision(self) -> int:
        """The version this change made."""
        return self.entry.revision

    @property
    def line(self) -> bytes:
        """The event as one line of a watch stream, around the shared bytes of the object."""
        return event_line(self.type, self.entry.data)


def event_line(type_: str, data: bytes) -> bytes:
    """A line of a watch stream."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), data)


class Watcher:
    """The buffer between the store and one reader of changes."""

    __slots__ = ("_limit", "_wake", "buffer", "overflowed")

    def __init__(self, wake: Callable[[], None], limit: int = EVENT_WINDOW) -> None:
        """Call `wake` when the buffer stops being empty; beyond `limit` events, cut off."""
        self._wake = wake
        self._limit = limit
        self.buffer: deque[StoreEvent] = deque()
        self.overflowed = False

    def offer(self, event: StoreEvent) -> None:
        """Put an event into the buffer."""
        if len(self.buffer) >= self._limit:
            self.overflowed = True
            self._wake()
            return
        self.buffer.append(event)
        if len(self.buffer) == 1:
            self._wake()

    def drain(self) -> list[StoreEvent]:
        """Take all events out of the buffer."""
        events = list(self.buffer)
        self.buffer.clear()
        return events


class Collection:
    """All objects of one resource, and their latest changes."""

    def __init__(self, window: int) -> None:
        """An empty collection that keeps at most `window` events."""
        self._entries: dict[Key, Entry] = {}
        self._keys: list[Key] = []
        self._window = window
        self.events: deque[StoreEvent] = deque()
        self.forgotten = 0
        """Changes up to this version are forgotten: no watch can begin before it."""
        self.compacted = 0
        """Lists can no longer show versions before this one."""
        self.watchers: list[Watcher] = []
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
        start = ("", "") if namespace is None else (namespace, "")
        if after is not None:
            start = max(start, (after[0], after[1] + "\0"))
        for position in range(bisect_left(self._keys, start), len(self._keys)):
            key = self._keys[position]
            if namespace is not None and key[0] != namespace:
                return
            yield key

    def entries(self, namespace: str | None = None) -> list[Entry]:
        """All objects in order of their keys, of one namespace or (None) of all."""
        if namespace is None:
            return [self._entries[key] for key in self._keys]
        return [self._entries[key] for key in self.keys(namespace)]

    def apply(self, event: StoreEvent) -> None:
        """Make a change, and hand it to watchers and listeners."""
        entry = event.entry
        if event.type == DELETED:
            del self._entries[entry.key]
            del self._keys[bisect_left(self._keys, entry.key)]
        else:
            if event.type == ADDED:
                insort(self._keys, entry.key)
            self._entries[entry.key] = entry
        if event.previous is not None:
            event.previous.release()
        self.events.append(event)
        if len(self.events) > self._window:
            self.forgotten = self.events.popleft().revision
            self.compacted = max(self.compacted, self.forgotten)
        for watcher in self.watchers:
            watcher.offer(event)
        for listener in self.listeners:
            listener(event)

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
        self.forgotten = self.compacted = revision

    def rewind(self, revision: int) -> list[StoreEvent]:
        """Go back to a version without telling watchers; returns what that changed."""
        changes = []
        for key, was in self.differences_from(revision).items():
            present = self._entries.pop(key, None)
            if was is not None:
                self._entries[key] = was
            if present is None and was is not None:
                changes.append(StoreEvent(ADDED, was, None))
            elif present is not None:
                type_ = DELETED if was is None else MODIFIED
                changes.append(StoreEvent(type_, was or present, present))
        self._keys = sorted(self._entries)
        self.forget(revision)
        return changes


class Store:
    """All collections and the counter of versions."""

    def __init__(self, *, window: int = EVENT_WINDOW) -> None:
        """An empty store."""
        self.revision = 1
        self._window = window
        self._compacted = 0
        self._collections: dict[str, Collection] = {}
        self.listeners: list[Callable[[str, StoreEvent], None]] = []
        """Called at once with (resource, change) for every change, in process: indices."""

    def collection(self, storage_name: str) -> Collection:
        """The collection of a resource, empty if nothing was ever written to it."""
        found = self._collections.get(storage_name)
        if found is None:
            found = self._collections[storage_name] = Collection(self._window)
            found.compact(self._compacted)
        return found

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

    def compact(self, revision: int) -> None:
        """Show no versions before this one any more, in any collection."""
        self._compacted = max(self._compacted, revision)
        for collection in self._collections.values():
            collection.compact(revision)

    def forget(self) -> None:
        """Lose the history of all collections, as a server that starts anew; objects stay."""
        self._compacted = self.revision
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
                for listener in (*collection.listeners, *self._wrapped(storage_name)):
                    listener(change)

    def _wrapped(self, storage_name: str) -> list[Callable[[StoreEvent], None]]:
        return [partial(listener, storage_name) for listener in self.listeners]

    def _write(
        self, type_: str, storage_name: str, obj: JsonObject, previous: Entry | None
    ) -> Entry:
        self.revision += 1
        stamped = with_value(obj, ("metadata", "resourceVersion"), str(self.revision))
        entry = Entry(previous.key if previous else key_of(stamped), stamped, self.revision)
        event = StoreEvent(type_, entry, previous)
        self.collection(storage_name).apply(event)
        for listener in self.listeners:
            listener(storage_name, event)
        return entry
