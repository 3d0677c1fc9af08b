"""One version of one object as it is stored, and one change from a version to the next.

Made by `store`, read by all that read the store. Invariant: what is stored of an object is its
bytes, which never change; what was parsed or rendered from them may be let go at any time.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import orjson
from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import EMPTY, Key, labels_of, pick
from stellwerk_cluster.apimachinery.selectors import Selectable
from stellwerk_cluster.registry.recent import Holder, Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from stellwerk.models.json_values import JsonObject

_EVENT_BYTES: Final = 300
"""What an event takes beside the versions it holds."""
_MOST_LABEL_SETS: Final = 4096

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"


class Entry(Selectable, Holder):
    """One version of one object: its bytes, and the facts by which it is found."""

    __slots__ = ("_obj", "_recent", "data", "key", "labels", "node_name", "revision")

    def __init__(
        self, key: Key, obj: JsonObject, revision: int, recent: Recent | None = None
    ) -> None:
        """Keep the bytes of the object; without `recent`, its parsed form stays.

        Raises:
            TypeError: the object is not JSON.
        """
        self.key = key
        # orjson writes into a buffer with room to spare, and what it gives holds on to the room.
        self.data = bytes(memoryview(orjson.dumps(obj)))
        """The object as JSON."""
        self.revision = revision
        self.labels = _shared_labels(labels_of(obj))
        node_name = pick(obj, ("spec", "nodeName"))
        self.node_name = "" if node_name is None else str(node_name)
        self._obj: JsonObject | None = None
        self._recent = recent

    @property
    @override
    def obj(self) -> JsonObject:
        """The object, parsed anew unless that was a short while ago; readers share it."""
        if self._obj is None:
            self._obj = orjson.loads(self.data)
            if self._recent is not None:
                self._recent.keep(self, len(self.data))
        return self._obj

    @property
    def uid(self) -> str:
        """The uid of the object."""
        uid: str = self.obj["metadata"]["uid"]
        return uid

    @property
    def altered(self) -> bool:
        """Whether a reader has changed the parsed object, which it must not."""
        return self._obj is not None and orjson.dumps(self._obj) != self.data

    @override
    def release(self) -> None:
        self._obj = None


_label_sets: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}


def _shared_labels(labels: dict[str, str]) -> dict[str, str]:
    """Equal labels as one dictionary: the pods of a template have the same."""
    if not labels:
        return EMPTY
    if len(_label_sets) >= _MOST_LABEL_SETS:
        _label_sets.clear()
    return _label_sets.setdefault(tuple(labels.items()), dict(labels))


_NO_LINES: Final[Mapping[Hashable, bytes]] = MappingProxyType({})


class StoreEvent(Holder):
    """One change: the object before it and after it."""

    __slots__ = ("_lines", "_recent", "entry", "previous", "type")

    def __init__(
        self, type_: str, entry: Entry, previous: Entry | None, recent: Recent | None = None
    ) -> None:
        """`entry` of a deletion is the last state, at the version of the deletion."""
        self.type = type_
        self.entry = entry
        self.previous = previous
        self._lines = _NO_LINES
        self._recent = recent

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
            if self._recent is not None:
                self._lines = {**self._lines, representation: line}
                self._recent.keep(self, len(line))
        return line

    @property
    def past_bytes(self) -> int:
        """What only the event keeps: itself, and versions that are no longer present."""
        previous = 0 if self.previous is None else len(self.previous.data)
        return _EVENT_BYTES + previous + (len(self.entry.data) if self.type == DELETED else 0)

    @override
    def release(self) -> None:
        self._lines = _NO_LINES


def event_line(type_: str, data: bytes) -> bytes:
    """A line of a watch stream."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), data)
