"""Annotations of a PodGroup, for settings that its API has no fields for.

`models.pod_group` parses them for groups of either API. Invariant: what cannot be used changes
nothing and is among `problems`, names that none of them has included.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk.models.name_syntax import is_label_value, is_qualified_name, suggestion

PREFIX: Final = "scheduling.stellwerk.dev/"
ROLE_LABEL: Final = f"{PREFIX}role"
"""The label by which a member says which role of its group it has."""
MIN_COUNT_BY_ROLE: Final = f"{PREFIX}min-count-by-role"
"""`launcher=1,worker=3`: so many of each role are placed or none."""
TOPOLOGY: Final = f"{PREFIX}topology"
"""Further label keys, comma separated; all members share one value of each."""
PREFERRED_TOPOLOGY: Final = f"{PREFIX}preferred-topology"
"""Label keys of which the members share one value each if they can, widest first."""
RESERVES_ROOM: Final = f"{PREFIX}reserves-room"
"""`true`: room is kept for the group while it is blocked, so that smaller pods of no higher
priority cannot delay it."""
GIVE_BACK_SECONDS: Final = f"{PREFIX}give-back-seconds"
"""After so long a group of which too few are bound gives those back."""
QUEUE: Final = f"{PREFIX}queue"
"""The queue of its namespace that the group stands in, where a profile keeps the order."""
_KNOWN: Final = (
    MIN_COUNT_BY_ROLE,
    TOPOLOGY,
    PREFERRED_TOPOLOGY,
    RESERVES_ROOM,
    GIVE_BACK_SECONDS,
    QUEUE,
)
_MAX_LEVELS: Final = 4
_MAX_ROLES: Final = 32
_MOST_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class GroupAnnotations:
    """The annotations of one group, as far as they can be used."""

    topology: tuple[str, ...]
    preferred_topology: tuple[str, ...]
    min_count_by_role: Mapping[str, int]
    give_back_seconds: int | None
    reserves_room: bool
    queue: str
    problems: tuple[str, ...]
    """Values that cannot be used, each with the reason."""


def parse_group_annotations(annotations: Mapping[str, str]) -> GroupAnnotations:
    """Read a group's annotations; those of others are passed over."""
    problems = [
        f"{name}: is not known{suggestion(name, _KNOWN)}"
        for name in annotations
        if name.startswith(PREFIX) and name not in _KNOWN
    ]
    return GroupAnnotations(
        _label_keys(annotations, TOPOLOGY, problems),
        _label_keys(annotations, PREFERRED_TOPOLOGY, problems),
        _counts(annotations, problems),
        _seconds(annotations, problems),
        _truth(annotations, problems),
        _queue(annotations, problems),
        tuple(problems),
    )


def _label_keys(
    annotations: Mapping[str, str], annotation: str, problems: list[str]
) -> tuple[str, ...]:
    keys = tuple(filter(None, map(str.strip, annotations.get(annotation, "").split(","))))
    if len(keys) > _MAX_LEVELS:
        problems.append(f"{annotation}: at most {_MAX_LEVELS} label keys, not {len(keys)}")
        return ()
    for key in keys:
        if not is_qualified_name(key):
            problems.append(f"{annotation}: {key!r:.80} is not a label key")
            return ()
    return keys


def _counts(annotations: Mapping[str, str], problems: list[str]) -> Mapping[str, int]:
    counts: dict[str, int] = {}
    for item in filter(None, map(str.strip, annotations.get(MIN_COUNT_BY_ROLE, "").split(","))):
        role, equals, number = (part.strip() for part in item.partition("="))
        if not role or not equals or not number.isdecimal() or len(number) > _MOST_DIGITS:
            problems.append(f"{MIN_COUNT_BY_ROLE}: {item!r:.80} is not ROLE=NUMBER")
            return {}
        counts[role] = int(number)
    if len(counts) > _MAX_ROLES:
        problems.append(f"{MIN_COUNT_BY_ROLE}: at most {_MAX_ROLES} roles, not {len(counts)}")
        return {}
    return counts


def _truth(annotations: Mapping[str, str], problems: list[str]) -> bool:
    value = annotations.get(RESERVES_ROOM, "").strip()
    if value not in {"", "true", "false"}:
        problems.append(f"{RESERVES_ROOM}: {value!r:.80} is neither true nor false")
    return value == "true"


def _seconds(annotations: Mapping[str, str], problems: list[str]) -> int | None:
    value = annotations.get(GIVE_BACK_SECONDS, "").strip()
    if not value:
        return None
    if not value.isdecimal() or len(value) > _MOST_DIGITS or not int(value):
        problems.append(f"{GIVE_BACK_SECONDS}: {value!r:.80} is not a number of seconds")
        return None
    return int(value)


def _queue(annotations: Mapping[str, str], problems: list[str]) -> str:
    value = annotations.get(QUEUE, "").strip()
    if is_label_value(value):
        return value
    problems.append(f"{QUEUE}: {value!r:.80} is not a name")
    return ""
