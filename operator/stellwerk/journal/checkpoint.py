"""The objects of a cluster at the end of a part: read back from it, not kept in memory.

The writer begins a part with it. Invariant: replaying a checkpoint gives the objects that replaying
all parts so far would have given; nodes come in the order of their rows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from stellwerk.journal.entries import Decided, Entry, GroupDecided, InitialState, WatchEvent, encode
from stellwerk.journal.reader import Journal

_Key: TypeAlias = tuple[str, str]
"""(kind, uid of a pod or name)."""


def checkpoint(part: Path, layout: InitialState) -> Iterator[bytes]:
    """The lines with which the part after this one begins.

    The pods and nodes of the part and of its own checkpoint; its damage is left out.
    """
    living = _Living()
    for entry in Journal([part]):
        living.take(entry)
    for name in layout.nodes:
        line = living.lines.pop(("Node", name), None)
        if line is not None:
            yield line
    yield from living.lines.values()
    yield encode(layout)


class _Living:
    """The newest line of each object; pods in the order in which they came to count on nodes."""

    def __init__(self) -> None:
        self.lines: dict[_Key, bytes] = {}
        self._placed: set[_Key] = set()

    def take(self, entry: Entry) -> None:
        if isinstance(entry, Decided) and entry.node_name:
            self._place(("Pod", entry.uid))
        elif isinstance(entry, GroupDecided):
            for uid, _, _, node_name, _ in entry.members:
                if node_name:
                    self._place(("Pod", uid))
        elif isinstance(entry, WatchEvent):
            self._event(entry)

    def _event(self, event: WatchEvent) -> None:
        key = _key(event)
        if event.event_type == "DELETED":
            self.lines.pop(key, None)
            self._placed.discard(key)
            return
        if event.kind == "Pod" and key not in self._placed and event.obj["spec"].get("nodeName"):
            self._place(key)
        self.lines[key] = encode(WatchEvent(event.seconds, event.kind, None, event.obj))

    def _place(self, key: _Key) -> None:
        line = self.lines.pop(key, None)
        if line is not None:
            self.lines[key] = line
        self._placed.add(key)


def _key(event: WatchEvent) -> _Key:
    metadata = event.obj["metadata"]
    if event.kind == "Pod":
        return event.kind, str(metadata.get("uid") or "")
    namespace = metadata.get("namespace") or ""
    return event.kind, f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
