"""The answer of /debug/dump: what the scheduler knows, and whether the API says the same.

`scheduler.observers.debugger` makes it, `stellwerk dump` and `stellwerk doctor` read it. Invariant:
a line holds names, amounts and counts, and no other text of an object.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer, Time


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDifference(PortAnswer):
    """Objects that the cache or the queue holds in another way than the API."""

    kind: str
    """missed nodes, redundant pods and so on, as docs/operations.md lists them."""
    count: int
    names: Sequence[str]
    """Nodes by name, pods as NAMESPACE/NAME; the first ones in alphabetical order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheDump(PortAnswer):
    """The scheduler's cache and queues, line by line, and how they compare with the API."""

    compared_at: Time
    comparison: str
    """The result in one sentence."""
    compared: bool
    """Whether the API could be listed."""
    differences: Sequence[CacheDifference]
    items: Sequence[str]
    """A line for each node, each pod on it, each nomination, the queues and each waiting pod."""
    stopped: str | None = None
    """The reason for which further lines are left out."""
