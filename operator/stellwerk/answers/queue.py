"""The pods that wait, as the operator's port lists them, and how many waited over the last hour.

`explain.lists.queue` makes the page, `explain.queue_facts` the history.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from typing_extensions import override

from stellwerk.answers.answer import PortAnswer, Time
from stellwerk.answers.reading import ClusterReading
from stellwerk.answers.words import age, controller_name, counted

BY_CONTROLLER: Final = "controller"
"""The value of `by` that asks for pods by controller and reason."""
QUEUE_COLUMNS: Final[Mapping[str, str]] = {
    "name": "Name",
    "reason": "Rejected by",
    "pods": "Pods",
    "namespace": "Namespace",
    "profile": "Profile",
    "queue": "Queue",
    "priority": "Priority",
    "attempts": "Attempts",
    "waits": "Waits for",
    "age": "Age",
}
"""Columns of the pods that wait, each of which the list can be sorted by: key → title.

The reason stands second: on a narrow screen the others are out of sight.
"""

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
    """Its last entry into a queue: each attempt changes it."""
    waits_since: Time | None = None
    """Its first entry into a queue of this replica."""
    created: Time | None = None
    attempts: int
    rejected_by: Sequence[str] | None = None
    error: str | None = None
    """The error that its last attempt ended in, with the plugin that raised; absent: in none."""
    controller: str | None = None
    """KIND/NAME of the controller that a user made, or PodGroup/NAME; absent: it has none."""
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingGroup(PortAnswer):
    """Pods of one controller that wait for the same reason, or one pod without a controller."""

    namespace: str
    controller: str | None = None
    """KIND/NAME; absent: it is one pod, which no controller made."""
    pods: int
    longest_waiting: str
    """NAMESPACE/NAME of the pod that waits longest."""
    queues: Mapping[str, int]
    """Pods by queue."""
    rejected_by: Sequence[str] | None = None
    error: str | None = None
    message: str | None = None
    """The message of the condition PodScheduled of the pod that waits longest."""
    profiles: Sequence[str]
    """The schedulerNames of the pods."""
    priority: int
    """The highest one."""
    attempts: int
    """Those of the pod that was tried most often."""
    waits_since: Time
    """The first entry into a queue of the pod that waits longest."""
    created: Time | None = None
    """The creation of the oldest pod; absent: not known."""


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

    TITLES: ClassVar[Sequence[str]] = ("POD", "QUEUE", "FOR", "PRIORITY", "ATTEMPTS", "REJECTED BY")
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
    groups: Sequence[PendingGroup] | None = None
    """The pods by controller and reason; absent: they are listed one by one."""
    groups_total: int | None = None
    """The number of groups, on this page or not."""

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
class QueueGroups(QueuePage):
    """Pods in rows, of which each is a controller's pods that wait for the same reason."""

    TITLES: ClassVar[Sequence[str]] = ("POD OR CONTROLLER", "PODS", "QUEUE", "FOR", "REJECTED BY")

    @override
    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of each group, those last that no scheduler serves."""
        for each in self.groups or ():
            controller = each.controller if each.pods > 1 else None
            is_in_one = len(each.queues) == 1
            yield (
                controller_name(each.namespace, controller) if controller else each.longest_waiting,
                f"{each.pods:,}",
                ", ".join(n if is_in_one else f"{count:,} {n}" for n, count in each.queues.items()),
                age(each.waits_since),
                ", ".join(each.rejected_by or ()) or each.error or "",
            )
        for name, pods in self._lost().items():
            shown = pods[0] if len(pods) == 1 else f"schedulerName {name}"
            yield shown, f"{len(pods):,}", "unserved", "", ""

    @override
    def count(self) -> int:
        """The groups that there are, on this page or not."""
        return (self.groups_total or 0) + len(self._lost())

    @override
    def remarks(self) -> Iterator[str]:
        """The number of the pods, and what stands below the list of pods."""
        if any(each.pods > 1 for each in self.groups or ()):
            yield f"{counted(self.total, 'pod')} in all; -o wide lists each"
        yield from QueuePage.remarks(self)

    def _lost(self) -> Mapping[str, Sequence[str]]:
        """Pods that no scheduler serves, by the name of the scheduler that they ask for."""
        lost: dict[str, list[str]] = {}
        for pod in self.unserved or ():
            lost.setdefault(pod.scheduler_name, []).append(pod.pod)
        return lost


@dataclass(frozen=True, slots=True, kw_only=True)
class UnboundPod(PortAnswer):
    """A pod without a node in a cluster that was read, and what turns it away now."""

    pod: str
    scheduler_name: str
    controller: str | None = None
    """KIND/NAME of the controller that a user made, a Deployment and not its ReplicaSet; absent:
    no controller made it."""
    priority: int
    rejected_by: Sequence[str] | None = None
    """The plugins that turn it away; absent: none does, or the pod was not decided."""
    message: str
    """The text of the condition that the pod would get, or why it was not decided."""
    labels: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnboundPods(PortAnswer):
    """The pods without a node in a cluster that was read, by schedulerName and controller."""

    TITLES: ClassVar = ("POD OR CONTROLLER", "PODS", "SCHEDULER", "REJECTED BY")
    NONE: ClassVar = "No pod waits."

    total: int
    items: Sequence[UnboundPod]
    left_out: int | None = None
    """Waiting pods that were not decided, because there are too many kinds of them."""
    read: ClusterReading | None = None
    """The reading that the answer was decided on."""

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of each controller's pods that wait for the same reason, and of other pods."""
        alike: dict[tuple[str, ...], list[UnboundPod]] = {}
        for each in self.items:
            namespace = each.pod.partition("/")[0]
            made_by = controller_name(namespace, each.controller) if each.controller else each.pod
            rejected = ", ".join(each.rejected_by or ()) or each.message
            alike.setdefault((made_by, each.scheduler_name, rejected), []).append(each)
        for (made_by, scheduler, rejected), pods in alike.items():
            name = pods[0].pod if len(pods) == 1 else made_by
            yield name, f"{len(pods):,}", scheduler, rejected

    def count(self) -> int:
        """The rows that there are: a page has all pods."""
        return 0

    def remarks(self) -> Iterator[str]:
        """The number of pods, and of those that were not decided."""
        if self.items:
            yield f"{counted(len(self.items), 'pod')} without a node"
        if self.left_out:
            yield f"{counted(self.left_out, 'pod')} not decided: there are too many kinds of them"

    def names(self) -> Iterator[str]:
        """The pods."""
        return (each.pod for each in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSample(PortAnswer):
    """The queues at one moment, and what happened in the period that ends then.

    Where a period is a minute, the queues are those of its fullest moment.
    """

    at: Time
    seconds: float | None = None
    """The length of the period."""
    active: int
    backoff: int
    unschedulable: int
    gated: int
    scheduled: int
    """Pods that have got a node since the process started, over the profiles that serve."""
    bound: int = 0
    """Pods that were bound in the period."""
    failed: int = 0
    """Attempts in the period that ended without a node."""
    p50_seconds: float | None = None
    """Half of the pods that were bound in the period took no longer, from their first entry into
    the queue to the binding; absent: none was bound. It is estimated from the buckets of
    `scheduler_pod_scheduling_sli_duration_seconds`."""
    p99_seconds: float | None = None
    """The time within which 99 of 100 of them were bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueHistoryPage(PortAnswer):
    """The queues, throughput and latency over time, oldest first."""

    every_seconds: float
    items: Sequence[QueueSample]
    began: Time | None = None
    """The moment at which this replica began to lead, before which nothing is kept."""
    kept_seconds: float | None = None
    """The time for which points are kept at the longest."""
