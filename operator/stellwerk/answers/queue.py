"""The pods that wait, as the operator's port lists them, and how many waited over the last hour.

`explain.lists.queue` makes the page, `explain.queue_facts` the history.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer, Time


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
    """Why no profile serves it, with the served name that may be meant."""
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage(PortAnswer):
    """Pods that wait, in the order in which each queue tries them."""

    counts: Mapping[str, int]
    """Pods by queue."""
    total: int
    items: Sequence[PendingPod]
    unserved: Sequence[UnservedPod] | None = None
    """Pods that wait and that no scheduler serves, on the first page; they are in no queue."""
    unserved_total: int | None = None
    """How many there are; absent: none."""
    served: Sequence[str] | None = None
    """The schedulerNames that are served; absent: every pod that waits has a scheduler."""


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
