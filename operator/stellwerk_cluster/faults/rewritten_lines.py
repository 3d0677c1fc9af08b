"""Lines of a watch as no API server writes them: objects that are older, twice, huge or made up.

`watch_lines` asks for them. Pure. Invariant: a line that is no event with an object comes back as
it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_kube.json_values import JsonObject

_PADDING: Final = "stellwerk.dev/padding"
_NO_OBJECT: Final = b'{"type":"ADDED","object":{"metadata":{"namespace":"default"}}}\n'
"""The event that is repeated where a list is empty."""


def older(line: bytes, by: int) -> bytes:
    """Return the event with an object that says an older resourceVersion."""

    def change(obj: JsonObject) -> None:
        metadata = obj["metadata"]
        metadata["resourceVersion"] = str(max(int(metadata["resourceVersion"]) - by, 1))

    return _rewritten(line, change)


def twin(line: bytes) -> bytes:
    """Return the event of another object with the same name."""

    def change(obj: JsonObject) -> None:
        obj["metadata"]["uid"] = f"{obj['metadata']['uid']}-twin"

    return _rewritten(line, change)


def padded(line: bytes, size: int) -> bytes:
    """Return the event in a line of at least so many bytes."""

    def change(obj: JsonObject) -> None:
        annotations = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = annotations | {_PADDING: "x" * max(size - len(line), 0)}

    return _rewritten(line, change)


def of_kind(line: bytes, kind: str) -> bytes:
    """Return the event of an object that says another kind."""

    def change(obj: JsonObject) -> None:
        obj["kind"] = kind

    return _rewritten(line, change)


def made_up(line: bytes | None, number: int) -> bytes:
    """Return an event of an object that does not exist, like the one of a line, with a number."""

    def change(obj: JsonObject) -> None:
        obj["metadata"] |= {"name": f"made-up-{number}", "uid": f"made-up-{number}"}
        obj["metadata"].setdefault("resourceVersion", "1")

    return _rewritten(line or _NO_OBJECT, change)


def _rewritten(line: bytes, change: Callable[[JsonObject], None]) -> bytes:
    try:
        event = orjson.loads(line)
        change(event["object"])
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError):
        return line
    return orjson.dumps(event) + b"\n"
