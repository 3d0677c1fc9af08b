"""The lines of a journal: one JSON array each, its first item the kind of entry.

The writer makes them of entries, `journal.decoding` makes entries of them. Invariant: an entry of
format N is understood by every version that reads format N. Entries are not frozen, for freezing
costs at each of them; nothing changes one that was put in.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final, TypeAlias

import orjson

from stellwerk_kube.json_values import JsonObject

FORMAT: Final = 2
"""1 had no decisions on groups, nothing of devices that are being allocated, and extenders' answers
only where the decision was made."""


@dataclass(slots=True)
class Head:
    """The first entry of a part of a journal."""

    version: str
    """Stellwerk's version."""
    started_at: str
    """RFC 3339; `seconds` of entries count from the start of the recording process."""
    part: int = 1
    hashed: bool = False
    """Whether names and label values are hashes."""
    max_pod_complexity: int = 0
    release: str = ""
    """The Kubernetes release that `compatibility: auto` meant; empty: 1.36.2, with its faults."""
    feature_gates: str = ""
    """As the operator's flag."""
    patches: str = ""
    """The newest patch releases that the recorder knew, such as 1.36.5,1.37.1: what 1.36 meant.

    Empty: the recorder knew no patch releases, and 1.36 meant 1.36.2.
    """


@dataclass(slots=True)
class WatchEvent:
    """An event as a watch delivered it."""

    seconds: float
    kind: str
    event_type: str | None
    """kopf's: None for the items of a list."""
    obj: JsonObject


@dataclass(slots=True)
class SnapshotWritten:
    """The columns were brought up to date here; the order of their rows depends on it."""

    nodes: int = 0
    """The number of changed nodes that were written (`Cache.write_ahead`); 0: all."""


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
    """The reason why there is no node."""
    draws: Sequence[tuple[int, int]] = ()
    """(number, bound) of each random number. With the bound 0, the number is the wall-clock time in
    milliseconds since the epoch, which the decision has read."""
    answers: Sequence[Any] = ()
    """The answers of extenders, call by call, in format 1."""


@dataclass(slots=True)
class Asked:
    """A decision stopped here to wait for extenders, or the decision on a group's member did."""

    seconds: float
    uid: str


@dataclass(slots=True)
class Answered:
    """The answers of the extenders to the call that is waited for."""

    answer: Any


@dataclass(slots=True)
class GroupBegun:
    """A group was taken up: what was asked for it."""

    seconds: float
    scheduler_name: str
    group: Sequence[str]
    """API group, namespace and name."""
    members: Sequence[str]
    """Uids of those to be placed, in the order in which they are tried."""
    scheduled: Sequence[str] = ()
    """Uids of those that count as placed."""
    finished: int = 0
    keeps_room: bool = False
    ending: Sequence[str] | None = None
    """Uids of the pods in whose place room is kept already."""
    finished_by_role: Mapping[str, int] = field(default_factory=dict)
    """The numbers of finished members that have each role."""
    known_to_end: Sequence[str] | None = None
    """Uids of the pods in whose place room may be kept; None: of all."""
    keeps_part: bool = False
    moment_milliseconds: int = 0
    """The wall-clock time as of which it is decided, in milliseconds since the epoch; 0: no plugin
    of the profile reads it."""


@dataclass(slots=True)
class Yielded:
    """A mark: the entries that follow came between two steps of the decision on a group."""

    steps: int
    """The number of steps so far: members' decisions, and moments that were left to others."""


@dataclass(slots=True)
class GroupDecided:
    """The outcome of the decision on a group."""

    seconds: float
    members: Sequence[Sequence[Any]]
    """[uid, namespace/name, attempt, node or empty, why there is none] of each."""
    placed: bool = False
    message: str = ""
    victims: Sequence[str] = ()
    """Uids of pods to be evicted."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Node by uid, which are kept while room is made."""
    draws: Sequence[tuple[int, int]] = ()
    """Draws of all its members' decisions, in their order."""
    overs: Sequence[bool] = ()
    """Whether the time for other orders was over, each time that this was asked."""


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
    kept_seconds: float = 0.0
    """The time for which room is kept there that others may use meanwhile; 0: they may not."""


@dataclass(slots=True)
class PluginState:
    """The state that a plugin shows of an object of its own kind, from here on."""

    kind: str
    obj: JsonObject


@dataclass(slots=True)
class PluginStateGone:
    """A plugin shows an object of its own kind no more."""

    kind: str
    namespace: str
    name: str


@dataclass(slots=True)
class InitialState:
    """The state of the operator where a part begins, beside the objects: the order of rows."""

    nodes: Sequence[str] = ()
    """Names, by row."""
    assumed: Sequence[tuple[str, str]] = ()
    """(uid, node) of pods that are being bound."""
    nominated: Sequence[tuple[str, str]] = ()
    """(uid, node), in the order of nomination."""
    held: Sequence[tuple[str, JsonObject]] = ()
    """(kind, object), as in PluginState."""


Entry: TypeAlias = (
    Head
    | WatchEvent
    | SnapshotWritten
    | Asked
    | Answered
    | Decided
    | GroupBegun
    | Yielded
    | GroupDecided
    | Forgotten
    | Nominated
    | PluginState
    | PluginStateGone
    | InitialState
)


def encode(entry: Entry) -> bytes:
    """The line of an entry, with its line feed."""
    return orjson.dumps(_fields(entry), list, orjson.OPT_APPEND_NEWLINE)


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
        if entry.release:
            described |= {"release": entry.release, "featureGates": entry.feature_gates}
        if entry.patches:
            described["patches"] = entry.patches
        return ["H", described]
    letter, names, needed = _FORMS[type(entry)]
    values = [letter, *(getattr(entry, name) for name in names)]
    while len(values) > needed and values[-1] is not None and not values[-1]:
        # What is left out at the end is what the class has by default.
        values.pop()
    return values


KINDS: Final[Mapping[str, type[Entry]]] = {
    "E": WatchEvent,
    "S": SnapshotWritten,
    "Q": Asked,
    "A": Answered,
    "D": Decided,
    "G": GroupBegun,
    "T": Yielded,
    "M": GroupDecided,
    "F": Forgotten,
    "N": Nominated,
    "K": PluginState,
    "R": PluginStateGone,
    "L": InitialState,
}
"""By the letter with which their lines begin; a Head's is H."""


def has_default(named: Field[Any]) -> bool:
    """Whether a line may end before this field."""
    return named.default is not MISSING or named.default_factory is not MISSING


_FORMS: Final = {
    made: (
        letter,
        [each.name for each in fields(made)],
        1 + sum(not has_default(each) for each in fields(made)),
    )
    for letter, made in KINDS.items()
}
"""Letter, fields, and how many items a line has at least."""
