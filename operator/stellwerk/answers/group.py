"""One group's explanation, as it is answered: its members, what it waits for, what would help.

`explain.pod_groups` makes it, `stellwerk explain podgroup` prints it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk.answers.answer import PortAnswer
from stellwerk.answers.reading import ClusterReading

ROOM_NOT_KEPT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember(PortAnswer):
    """A pod of the group."""

    pod: str
    node: str
    """Empty: it has none yet."""
    queue: str | None = None
    message: str | None = None
    """The message of its condition PodScheduled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCondition(PortAnswer):
    """A condition of the PodGroup."""

    type: str | None
    status: str | None
    reason: str | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForecast(PortAnswer):
    """The outcome of a decision on the group now."""

    placed: bool
    placements: int
    """Sets of nodes that were tried."""
    attempts: int
    placement: str
    nodes: Mapping[str, str]
    """Node by pod."""
    message: str | None = None
    missing: str | None = None
    """The number of members without a node, and why the first has none; absent: all get one."""
    lacking: str | None = None
    """The devices or amounts that the first member without a node asks for, in words; absent: all
    members get a node."""
    reasons: Mapping[str, str] | None = None
    """Reasons against each pod without a node; of one that no plugin rejects, what the others
    lack."""
    victims: Sequence[str] | None = None
    decided_by: str | None = None
    """Text on what decides for the victims against kube-scheduler's order; absent: nothing does."""
    room_is_kept_on: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreNodes(PortAnswer):
    """Further nodes that would make the group fit."""

    nodes: int
    like: str
    """A node of the same shape."""
    allocatable: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExplanation(PortAnswer):
    """A group of pods: its members, the reason for which it waits, and nodes that would do."""

    pod_group: str
    api: str
    state: str
    min_count: int
    exist: int
    placed: int
    running: int
    succeeded: int
    members: Sequence[GroupMember]
    waits_for: str | None = None
    remarks: Sequence[str] | None = None
    """Things that may be mistakes."""
    room_is_kept_seconds: int | None = ROOM_NOT_KEPT
    """The time for which room is kept; null: while it is the first of its queue; absent: it is
    not."""
    given_back_after_seconds: int | None = None
    """Seconds after which bound pods are deleted if too few could be bound."""
    queue: str | None = None
    topology: Sequence[str] | None = None
    problems: Sequence[str] | None = None
    conditions: Sequence[GroupCondition] | None = None
    compatibility: str | None = None
    """The Kubernetes release that decisions on it follow."""
    would_happen: GroupForecast | None = None
    would_fit: Sequence[MoreNodes] | None = None
    error: str | None = None
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""
