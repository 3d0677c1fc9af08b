"""The pods that got a node, as the operator's port lists them, here or from observed schedulers.

`explain.lists.decisions` makes the page.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from stellwerk.answers.answer import PortAnswer, Time
from stellwerk.answers.observed import ObservedComparison
from stellwerk.answers.words import age

_MIN_TIED: Final = 2
"""Nodes with the best total that make a tie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedPod(PortAnswer):
    """A pod that got a node."""

    pod: str
    node: str
    scheduler_name: str
    decided_at: Time
    attempts: int
    feasible: int
    nodes: int
    tied: int
    compatibility: str | None = None
    """The Kubernetes release that the decision followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsPage(PortAnswer):
    """Pods that got a node, the last one first."""

    TITLES: ClassVar[Sequence[str]] = ("POD", "NODE", "AGE", "FEASIBLE", "TIED", "ATTEMPTS")
    NONE: ClassVar[str] = "No pod has been placed yet."

    total: int
    items: Sequence[DecidedPod]
    observed: Sequence[ObservedComparison] | None = None
    """Bindings of observed schedulers, the newest first, as many as the page has entries; absent:
    none is observed, or this is not the first page."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of each pod."""
        for each in self.items:
            yield (
                each.pod,
                each.node,
                age(each.decided_at),
                f"{each.feasible}/{each.nodes}",
                "" if each.tied < _MIN_TIED else f"{each.tied}",
                f"{each.attempts}",
            )

    def count(self) -> int:
        """The decisions that there are, on this page or not."""
        return self.total

    def remarks(self) -> Iterator[str]:
        """No line stands below the table."""
        return iter(())

    def names(self) -> Iterator[str]:
        """The pods."""
        return (each.pod for each in self.items)
