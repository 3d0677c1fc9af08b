"""From the lines of a journal to its entries: every type is looked at before it is believed.

The reader calls it. Invariant: what it gives has the types that `journal.entries` names, so that
no text of a file makes a replay raise; a line of another format is refused with its number.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypeAlias

import orjson

from stellwerk.journal.entries import (
    FORMAT,
    KINDS,
    Answered,
    Asked,
    Decided,
    Entry,
    Forgotten,
    GroupBegun,
    GroupDecided,
    Head,
    InitialState,
    Nominated,
    PluginState,
    PluginStateGone,
    SnapshotWritten,
    WatchEvent,
    Yielded,
    has_default,
)
from stellwerk_kube.clock import parse_moment
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.untrusted_text import shown

READ: Final = (1, FORMAT)
"""The formats that are understood; what is new in a later one is absent from an earlier one."""
_MAX_SECONDS: Final = 1e9
"""Longest time that an entry may hold: 30 years of a monotonic clock."""
_YEARS: Final = range(1970, 9000)
"""Years in which a recording may begin: a replay adds the time that it took, and Python's last year
is 9999.
"""
_MAX_NUMBER: Final = 1 << 53
"""The highest number that JSON carries exactly."""
_MAX_SHOWN_CHARACTERS: Final = 60
"""Characters of a foreign text that a message shows."""

_Check: TypeAlias = Callable[[Any], bool]


class JournalError(ConfigurationError):
    """A journal that cannot be read, or not by this version; names the file."""


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
    made = KINDS.get(kind) if isinstance(kind, str) else None
    if made is None:
        raise ValueError(f"no entry begins with {_short(kind)}")
    checks, needed = _FORMS[made]
    if not needed <= len(rest) <= len(checks):
        raise ValueError(f"an entry {kind!r} with {len(rest)} fields")
    for (name, check), value in zip(checks, rest, strict=False):
        if not check(value):
            raise ValueError(f"{name} of an entry {kind!r} is {_short(value)}")
    return made(*rest)


def _head(described: object) -> Head:
    if not isinstance(described, Mapping):
        raise ValueError("a head without fields")  # noqa: TRY004 as any other malformed line
    if described.get("format") not in READ:
        found, by = described.get("format"), described.get("version", "an unknown version")
        raise JournalError(
            f"format {_short(found)}; this version of Stellwerk reads the formats "
            f"{' and '.join(map(str, READ))}, the journal was written by {shown(str(by))}"
        )
    started = described.get("startedAt")
    if not isinstance(started, str) or parse_moment(started).year not in _YEARS:
        raise ValueError(f"startedAt of the head is {_short(started)}")
    part, complexity = described.get("part", 1), described.get("maxPodComplexity", 0)
    if not (_is_count(part) and _is_count(complexity)):
        raise ValueError("part or maxPodComplexity of the head is not a number")
    version, hashed = str(described.get("version", "")), bool(described.get("hashed"))
    texts = [described.get(name, "") for name in ("release", "featureGates", "patches")]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("release, featureGates or patches of the head is not a string")
    return Head(version, started, part, hashed, complexity, *texts)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"


# --- what fields may hold ---------------------------------------------------------------------


def _is_text(value: object) -> bool:
    return value.__class__ is str


def _is_count(value: Any) -> bool:  # noqa: ANN401 any JSON
    return bool(value.__class__ is int and 0 <= value <= _MAX_NUMBER)


def _is_seconds(value: Any) -> bool:  # noqa: ANN401 any JSON
    return bool(value.__class__ in (float, int) and 0 <= value <= _MAX_SECONDS)


def _is_event_type(value: object) -> bool:
    return value is None or value in ("ADDED", "MODIFIED", "DELETED")


def _is_object(value: object) -> bool:
    metadata = value.get("metadata") if isinstance(value, dict) else None
    if not isinstance(metadata, dict) or not _is_text(metadata.get("name")):
        return False
    return all(_is_text(metadata.get(name) or "") for name in ("uid", "namespace"))


def _is_bool(value: object) -> bool:
    return value.__class__ is bool


def _is_any(_: object) -> bool:
    return True


def _is_map(value: object) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _each(check: _Check) -> _Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _row(*checks: _Check) -> _Check:
    def holds(value: object) -> bool:
        return (
            isinstance(value, list)
            and len(value) == len(checks)
            and all(check(each) for check, each in zip(checks, value, strict=True))
        )

    return holds


_TEXTS: Final = _each(_is_text)
_PAIRS: Final = _each(_row(_is_text, _is_text))
_DRAWS: Final = _each(_row(_is_count, _is_count))
_CHECKS: Final[Mapping[type[Entry], Mapping[str, _Check]]] = {
    WatchEvent: {"kind": _is_text, "event_type": _is_event_type, "obj": _is_object},
    SnapshotWritten: {"nodes": _is_count},
    Asked: {},
    Answered: {"answer": _is_any},
    Decided: {"attempts": _is_count, "victims": _TEXTS, "draws": _DRAWS, "answers": _each(_is_any)},
    GroupBegun: {
        "group": _row(_is_text, _is_text, _is_text),
        "members": _TEXTS,
        "scheduled": _TEXTS,
        "finished": _is_count,
        "keeps_room": _is_bool,
        "ending": lambda value: value is None or _TEXTS(value),
        "finished_by_role": lambda value: (
            isinstance(value, dict) and all(map(_is_count, value.values()))
        ),
        "known_to_end": lambda value: value is None or _TEXTS(value),
        "keeps_part": _is_bool,
        "moment_milliseconds": _is_count,
    },
    Yielded: {"steps": _is_count},
    GroupDecided: {
        "members": _each(_row(_is_text, _is_text, _is_count, _is_text, _is_text)),
        "placed": _is_bool,
        "victims": _TEXTS,
        "nodes": _is_map,
        "draws": _DRAWS,
        "overs": _each(_is_bool),
    },
    Forgotten: {},
    Nominated: {"kept_seconds": _is_seconds},
    PluginState: {"obj": _is_object},
    PluginStateGone: {},
    InitialState: {
        "nodes": _TEXTS,
        "assumed": _PAIRS,
        "nominated": _PAIRS,
        "held": _each(_row(_is_text, _is_object)),
    },
}
"""Readers of fields that are neither seconds nor texts."""


def _form(made: type[Entry]) -> tuple[list[tuple[str, _Check]], int]:
    """(field, its check) in their order, and how many of them a line has at least."""
    checks = {"seconds": _is_seconds, **_CHECKS[made]}
    named = fields(made)
    needed = sum(not has_default(each) for each in named)
    return [(each.name, checks.get(each.name, _is_text)) for each in named], needed


_FORMS: Final = {made: _form(made) for made in KINDS.values()}
