"""Stored versions of objects, and the changes from one version to the next.

Made by `store`, read by all that read the store. Invariant: what is stored of an object is its
bytes, which never change. Entries cache the object that was parsed from them, and changes their
line of a watch stream; a cache holds what comes from `limit_bytes` of stored bytes, and drops the
oldest beyond, but for the latest alone.
"""

from __future__ import annotations

from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import orjson
from typing_extensions import override

from stellwerk_cluster.apimachinery.json_text import go_json
from stellwerk_cluster.apimachinery.objects import EMPTY, Key, labels_of, pick
from stellwerk_cluster.apimachinery.selectors import Selectable

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from stellwerk_kube.json_values import JsonObject

_EVENT_BYTES: Final = 300
"""Bytes that an event takes beside the versions it holds."""
_MAX_SHARED_LABEL_SETS: Final = 4096
"""Sets of labels that objects share. Above it, all are forgotten, and shared anew."""
ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
_label_sets: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
_NO_LINES: Final[Mapping[Hashable, bytes]] = MappingProxyType({})


class Cached(Protocol):
    """Something that was derived from stored bytes, and can be derived again."""

    __slots__ = ()

    def release(self) -> None:
        """Drop what was derived."""
        ...


class ByteBoundedCache:
    """The latest derived values, bounded by the size of the bytes they come from; oldest first."""

    def __init__(self, limit_bytes: int) -> None:
        """Hold what comes from at most `limit_bytes` of stored bytes."""
        self._limit_bytes = limit_bytes
        self._held: deque[tuple[Cached, int]] = deque()
        self._bytes = 0

    def keep(self, holder: Cached, size_bytes: int) -> None:
        """Count a value that was just derived, and release the oldest beyond the limit."""
        self._held.append((holder, size_bytes))
        self._bytes += size_bytes
        while self._bytes > self._limit_bytes and len(self._held) > 1:
            oldest, size = self._held.popleft()
            oldest.release()
            self._bytes -= size


class Entry(Selectable, Cached):
    """One version of one object: its bytes, and the facts by which it is found."""

    __slots__ = ("_cache", "_obj", "data", "key", "labels", "node_name", "revision")

    def __init__(
        self, key: Key, obj: JsonObject, revision: int, cache: ByteBoundedCache | None = None
    ) -> None:
        """Keep the bytes of the object; without `cache`, its parsed form stays.

        Raises:
            TypeError: the object is not JSON.
        """
        self.key = key
        # orjson writes into a buffer with room to spare, and what it gives holds on to the room.
        self.data = bytes(memoryview(go_json(obj)))
        """The object as JSON."""
        self.revision = revision
        self.labels = _shared_labels(labels_of(obj))
        node_name = pick(obj, ("spec", "nodeName"))
        self.node_name = "" if node_name is None else str(node_name)
        self._obj: JsonObject | None = None
        self._cache = cache

    @property
    @override
    def obj(self) -> JsonObject:
        """The object, parsed anew unless that was a short while ago; readers share it."""
        if self._obj is None:
            self._obj = orjson.loads(self.data)
            if self._cache is not None:
                self._cache.keep(self, len(self.data))
        return self._obj

    @property
    def uid(self) -> str:
        """The uid of the object."""
        uid: str = self.obj["metadata"]["uid"]
        return uid

    @property
    def altered(self) -> bool:
        """Whether a reader has changed the parsed object, which it must not."""
        return self._obj is not None and go_json(self._obj) != self.data

    @override
    def release(self) -> None:
        self._obj = None


def _shared_labels(labels: dict[str, str]) -> dict[str, str]:
    """Equal labels as one dictionary: the pods of a template have the same."""
    if not labels:
        return EMPTY
    if len(_label_sets) >= _MAX_SHARED_LABEL_SETS:
        _label_sets.clear()
    return _label_sets.setdefault(tuple(labels.items()), dict(labels))


class StoreEvent(Cached):
    """One change: the object before it and after it."""

    __slots__ = ("_cache", "_lines", "entry", "previous", "type")

    def __init__(
        self,
        type_: str,
        entry: Entry,
        previous: Entry | None,
        cache: ByteBoundedCache | None = None,
    ) -> None:
        """`entry` of a deletion is the last state, at the version of the deletion."""
        self.type = type_
        self.entry = entry
        self.previous = previous
        self._lines = _NO_LINES
        self._cache = cache

    @property
    def revision(self) -> int:
        """The version this change made."""
        return self.entry.revision

    @property
    def line(self) -> bytes:
        """The event as one line of a watch stream."""
        return self.line_as(None, lambda: event_line(self.type, self.entry.data))

    def line_as(self, representation: Hashable, make: Callable[[], bytes]) -> bytes:
        """The line in a representation: the same bytes for all watchers that ask soon."""
        line = self._lines.get(representation)
        if line is None:
            line = make()
            if self._cache is not None:
                self._lines = {**self._lines, representation: line}
                self._cache.keep(self, len(line))
        return line

    @property
    def past_bytes(self) -> int:
        """The bytes that only the event keeps: itself, and versions that are no longer present."""
        previous = 0 if self.previous is None else len(self.previous.data)
        return _EVENT_BYTES + previous + (len(self.entry.data) if self.type == DELETED else 0)

    @override
    def release(self) -> None:
        self._lines = _NO_LINES


def event_line(type_: str, data: bytes) -> bytes:
    """A line of a watch stream."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), data)
