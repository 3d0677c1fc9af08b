"""The lines of a journal: one JSON array each, its first item the kind of entry.

The writer and the reader share it. Invariant: an entry of format N is understood by every version
that reads format N; another format is refused with its number. Entries are not frozen, for freezing
costs at each of them; nothing changes one that was put in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, TypeAlias

import orjson

from stellwerk.errors import SchedulerError
from stellwerk.models.json_values import JsonObject

FORMAT: Final = 1


class JournalError(SchedulerError):
    """A journal that cannot be read, or not by this version; names the file."""


@dataclass(slots=True)
class Head:
    """How a part of a journal begins."""

    version: str
    """Of Stellwerk."""
    started_at: str
    """RFC 3339; `seconds` of entries count from the start of the recording process."""
    part: int = 1
    hashed: bool = False
    """Whether names and label values are hashes."""
    max_pod_complexity: int = 0


@dataclass(slots=True)
class WatchEvent:
    """An event as a watch delivered it."""

    seconds: float
    kind: str
    event_type: str | None
    """kopf's: None for the items of a list."""
    obj: JsonObject


@dataclass(slots=True)
class Snapshot:
    """The columns were brought up to date here; the order of their rows depends on it."""


@dataclass(slots=True)
class Decided:
    """A decision, with whatever chance and extenders added to the state of the cluster."""

    seconds: float
    uid: str
    key: str
    scheduler_name: str
    attempts: int
    node_name: str = ""
    """Empty: none."""
    nominated: str = ""
    victims: Sequence[str] = ()
    """Uids of the pods to be evicted."""
    message: str = ""
    """Why there is no node."""
    draws: Sequence[tuple[int, int]] = ()
    answers: Sequence[Any] = ()
    """What extenders answered, call by call."""


@dataclass(slots=True)
class Forgotten:
    """An assumed pod was taken back, since it was not bound."""

    seconds: float
    uid: str


@dataclass(slots=True)
class Nominated:
    """A nomination that no decision made; an empty name takes one back."""

    seconds: float
    uid: str
    node_name: str = ""


@dataclass(slots=True)
class Layout:
    """The state of the operator where a part begins, beside the objects: the order of rows."""

    nodes: Sequence[str] = ()
    """Names, by row."""
    assumed: Sequence[tuple[str, str]] = ()
    """(uid, node) of pods that are being bound."""
    nominated: Sequence[tuple[str, str]] = ()
    """(uid, node), in the order of nomination."""


Entry: TypeAlias = Head | WatchEvent | Snapshot | Decided | Forgotten | Nominated | Layout


def encode(entry: Entry) -> bytes:
    """The line of an entry, with its line feed."""
    return orjson.dumps(_fields(entry), option=orjson.OPT_APPEND_NEWLINE)


def _fields(entry: Entry) -> list[Any]:
    if isinstance(entry, Head):
        described = {
            "format": FORMAT,
            "version": entry.version,
            "startedAt": entry.started_at,
            "part": entry.part,
            "hashed": entry.hashed,
            "maxPodComplexity": entry.max_pod_complexity,
        }
        return ["H", described]
    letter, names = _FORMS[type(entry)]
    values = [letter, *(getattr(entry, name) for name in names)]
    while values[-1] is not None and not values[-1]:
        # What is left out at the end is what the class has by default.
        values.pop()
    return values


def decode(line: bytes) -> Entry:
    """The entry of a line.

    Raises:
        JournalError: it is of another format.
        ValueError: it is no entry.
    """
    values = orjson.loads(line)
    if not isinstance(values, list) or not values:
        raise ValueError("not an entry")
    kind, *rest = values
    if kind == "H":
        return _head(rest[0] if rest else None)
    made = _MADE.get(kind)
    if made is None:
        raise ValueError(f"no entry begins with {kind!r}")
    try:
        return made(*rest)
    except TypeError as error:
        raise ValueError(f"an entry {kind!r} that is not whole") from error


def _head(described: object) -> Head:
    if not isinstance(described, Mapping):
        raise ValueError("a head without fields")  # noqa: TRY004 as any other malformed line
    if described.get("format") != FORMAT:
        found = described.get("format")
        raise JournalError(
            f"format {found!r}; this version of Stellwerk reads format {FORMAT}, "
            f"the journal was written by {described.get('version', 'an unknown version')}"
        )
    return Head(
        version=str(described.get("version", "")),
        started_at=str(described.get("startedAt", "")),
        part=int(described.get("part", 1)),
        hashed=bool(described.get("hashed")),
        max_pod_complexity=int(described.get("maxPodComplexity", 0)),
    )


_MADE: Final[Mapping[str, type[Entry]]] = {
    "E": WatchEvent,
    "S": Snapshot,
    "D": Decided,
    "F": Forgotten,
    "N": Nominated,
    "L": Layout,
}
_FORMS: Final = {
    made: (letter, [field.name for field in fields(made)]) for letter, made in _MADE.items()
}
