"""The lines of the files in a data directory: what was stored or deleted, at which version.

A line is a checksum of what follows, and a JSON object; `r` is the version, `c` the resource, `k`
the key and `o` the object, which a deletion lacks. Written and read by `data_directory`.
Invariant: a line that was not written to its end differs from one that was changed afterwards.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.registry.entries import Entry

FORMAT: Final = "stellwerk-cluster/1"
_CHECKSUM_LETTERS: Final = 8


class DamagedFileError(ConfigurationError):
    """A file of a data directory that says something else than what was written into it."""


@dataclass(slots=True)
class Torn:
    """The end of a file that was being written when its process ended."""

    offset: int | None = None
    """Where it begins; None: the file is whole."""


def put_line(storage_name: str, entry: Entry) -> bytes:
    """The record of an object as it is from now on."""
    head = _head(storage_name, entry)
    return _line(b'%b,"o":%b}' % (head, entry.data))


def drop_line(storage_name: str, entry: Entry) -> bytes:
    """The record of an object that is no more."""
    return _line(_head(storage_name, entry) + b"}")


def mark_line(mark: str, revision: int) -> bytes:
    """A record about the file itself: its format at the beginning, its end."""
    return _line(orjson.dumps({"r": revision, "mark": mark}))


def _head(storage_name: str, entry: Entry) -> bytes:
    return b'{"r":%d,"c":%b,"k":%b' % (
        entry.revision,
        orjson.dumps(storage_name),
        orjson.dumps(entry.key),
    )


def _line(content: bytes) -> bytes:
    return b"%08x %b\n" % (zlib.crc32(content), content)


def read_records(file: Path, torn: Torn) -> Iterator[JsonObject]:
    """The records of a file; `torn` says afterwards whether its end is missing.

    Raises:
        DamagedFileError: the file is of another format, or damaged before its end.
        OSError: the file cannot be read.
    """
    offset, first = 0, True
    with file.open("rb") as lines:
        for line in lines:
            record = _record(line)
            if record is None:
                if any(_record(each) is not None for each in lines):
                    raise DamagedFileError(
                        f"{file} is damaged at byte {offset}: what is written there has another "
                        "checksum, and more follows. Put back a copy of the directory, or move "
                        "it away"
                    )
                torn.offset = offset
                return
            if first and record.get("mark") != FORMAT:
                raise DamagedFileError(f"{file} is not in the format {FORMAT}")
            first = False
            offset += len(line)
            yield record


def _record(line: bytes) -> JsonObject | None:
    """The record of a line, or None if the line is not as it was written."""
    checksum, _, content = line.partition(b" ")
    content = content.removesuffix(b"\n")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(content):
        return None
    record: JsonObject = orjson.loads(content)
    return record
