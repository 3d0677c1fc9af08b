"""Answers of extenders, as an input of decisions: in node names, statuses and scores.

`scheduler.extenders` implements the protocol over HTTP; a replay hands in what was recorded.
Invariant: an answer is data of its own, which no later change of the World alters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stellwerk.framework.interface import PostFilterResult
from stellwerk.framework.types import Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn


@dataclass(frozen=True, slots=True)
class ExtenderFilterResult:
    """The nodes that the extenders of a profile leave of those that its filters pass."""

    node_names: Sequence[str]
    """In the order in which the last extender named them."""
    statuses: Mapping[str, Status] = field(default_factory=dict)
    """By node name, why it was taken away, where a reason was given."""


class Extenders(Protocol):
    """A profile's extenders: what they answer is an input of decisions."""

    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        """Return whether the node nominated to the pod passes; a failure counts as no."""
        ...

    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        """Return which of the feasible nodes remain.

        Raises:
            SchedulerError: an extender that is not ignorable failed.
        """
        ...

    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        """Return (n,) int64, what is added to the total of each node."""
        ...

    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        """Return the candidates that remain, perhaps with other victims."""
        ...

    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        """Bind the pod; None if that is left to the profile's plugins."""
        ...
