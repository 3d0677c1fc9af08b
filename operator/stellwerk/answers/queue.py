"""The pods that wait, as the operator's port lists them, and how many waited over the last hour.

`explain.lists.queue` makes the page, `explain.queue_facts` the history.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from stellwerk.answers.answer import PortAnswer, Time
from stellwerk.answers.words import age, counted

_MAX_UNSERVED_REASONS: Final = 10
"""Reasons why pods are unserved that stand below the table; there is one for each name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingPod(PortAnswer):
    """A pod that waits."""

    pod: str
    queue: str
    scheduler_name: str
    priority: int
    since: Time
    attempts: int
    rejected_by: Sequence[str] | None = None
    error: str | None = None
    """The error that its last attempt ended in, with the plugin that raised; absent: in none."""
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnservedPod(PortAnswer):
    """A waiting pod that no scheduler serves."""

    pod: str
    scheduler_name: str
    priority: int
    reason: str
    """The reason for which no profile serves it, with the served name that may be meant."""
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage(PortAnswer):
    """Pods that wait, in the order in which each queue tries them."""

    TITLES: ClassVar = ("POD", "QUEUE", "FOR", "PRIORITY", "ATTEMPTS", "REJECTED BY")
    NONE: ClassVar = "No pod waits."

    counts: Mapping[str, int]
    """Pods by queue."""
    total: int
    items: Sequence[PendingPod]
    unserved: Sequence[UnservedPod] | None = None
    """Pods that wait and that no scheduler serves, on the first page; they are in no queue."""
    unserved_total: int | None = None
    """The number of such pods; absent: none."""
    served: Sequence[str] | None = None
    """The schedulerNames that are served; absent: every pod that waits has a scheduler."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of each pod, those last that no scheduler serves."""
        for each in self.items:
            yield (
                each.pod,
                each.queue,
                age(each.since),
                f"{each.priority}",
                f"{each.attempts}",
                ", ".join(each.rejected_by or ()) or each.error or "",
            )
        for lost in self.unserved or ():
            yield lost.pod, "unserved", "", f"{lost.priority}", "", ""

    def count(self) -> int:
        """The pods that wait, on this page or not."""
        return self.total + (self.unserved_total or 0)

    def remarks(self) -> Iterator[str]:
        """Reasons for which no scheduler serves some of the pods, and the names that are served."""
        reasons = Counter(each.reason for each in self.unserved or ())
        for reason, count in reasons.most_common(_MAX_UNSERVED_REASONS):
            yield f"{counted(count, 'pod')} unserved: {reason}"
        if reasons:
            yield f"Served schedulerNames: {', '.join(self.served or ()) or 'none'}"

    def names(self) -> Iterator[str]:
        """The pods in a queue."""
        return (each.pod for each in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample(PortAnswer):
    """The queues at one moment."""

    at: Time
    active: int
    backoff: int
    unschedulable: int
    gated: int
    scheduled: int
    """Pods that have got a node since the process started, over the profiles that serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHistoryPage(PortAnswer):
    """The number of pods that waited over the last hour, oldest first."""

    every_seconds: float
    items: Sequence[QueueSample]
