"""The pods that got a node, as the operator's port lists them.

`explain.lists.decisions` makes the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer, Time


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

    total: int
    items: Sequence[DecidedPod]
