"""What the objects of a cluster are at the end of a part: read back from it, not kept in memory.

The writer begins a part with it. Invariant: replaying a checkpoint gives the objects that replaying
all parts so far would have given; nodes come in the order of their rows.
"""

from collections.abc import Iterator
from pathlib import Path

from stellwerk.journal.entries import Layout, WatchEvent, encode
from stellwerk.journal.reader import Journal


def checkpoint(part: Path, layout: Layout) -> Iterator[bytes]:
    """The lines with which the part after this one begins.

    The pods and nodes of the part and of its own checkpoint; its damage is left out.
    """
    living: dict[tuple[str, str], bytes] = {}
    for entry in Journal([part]):
        if isinstance(entry, WatchEvent):
            key = _key(entry)
            living.pop(key, None)
            if entry.event_type != "DELETED":
                living[key] = encode(
                    WatchEvent(entry.seconds, entry.kind, None, entry.obj)
                )
    for name in layout.nodes:
        line = living.pop(("Node", name), None)
        if line is not None:
            yield line
    yield from living.values()
    yield encode(layout)


def _key(event: WatchEvent) -> tuple[str, str]:
    metadata = event.obj["metadata"]
    if event.kind == "Pod":
        return event.kind, str(metadata.get("uid") or "")
    namespace = metadata.get("namespace") or ""
    return event.kind, f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
