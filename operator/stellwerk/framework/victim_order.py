"""The order in which pods of equal priority are spared, where a profile's arguments ask for one.

DefaultPreemption's arguments make it, and the Handle gives it to whatever chooses victims: for a
pod on one node or on several, and for groups. It stands alone because plugins and groups share it.
Invariant: it orders pods of equal priority and forbids none. A pod that can preempt without it can
preempt with it, at once.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeAlias

from stellwerk.models.pod import PodInfo
from stellwerk_kube.deletion_cost import DELETION_COST

Unit: TypeAlias = Sequence[PodInfo]
"""Pods that are evicted together or not at all; at least one."""
Standing: TypeAlias = tuple[bool, bool, int]
"""Sort key among equal priorities, by `SparingRule`: the lowest is spared longest."""


class SparingRule(IntEnum):
    """A reason to spare a pod, in the order in which it counts: its position in a `Standing`."""

    DAEMON = 0
    """It belongs to a DaemonSet and can run nowhere else (spareDaemonSetPods)."""
    YOUNG = 1
    """It has run for too short a time (minRunSeconds)."""
    COST = 2
    """Its deletion cost is higher (orderByDeletionCost)."""


_ARGUMENTS: Final[Mapping[SparingRule, str]] = {
    SparingRule.DAEMON: "spareDaemonSetPods",
    SparingRule.YOUNG: "minRunSeconds",
    SparingRule.COST: "orderByDeletionCost",
}


@dataclass(frozen=True, slots=True)
class VictimOrder:
    """The order that arguments of DefaultPreemption ask for, as of one moment."""

    min_run_seconds: int = 0
    """Pods that have run for less are spared; 0: none is spared for that."""
    spares_daemon_pods: bool = False
    """Whether pods of DaemonSets are spared, which can run on their own node alone."""
    reads_costs: bool = False
    """Whether pods of a higher deletion cost are spared."""
    now_seconds: float = 0.0
    """The moment, in seconds since the epoch by the scheduler's clock."""

    @property
    def differs(self) -> bool:
        """Whether it may differ from kube-scheduler's order."""
        return bool(self.min_run_seconds) or self.spares_daemon_pods or self.reads_costs

    def standing(self, unit: Unit) -> Standing:
        """Return the sort key of a unit among those of equal priority.

        A group has run for as long as the member that started first, belongs to a DaemonSet if a
        member does, and costs as much as the member that costs most.
        """
        return (
            not (self.spares_daemon_pods and any(map(is_daemon_pod, unit))),
            not all(map(self.is_young, unit)),
            -max(pod.deletion_cost for pod in unit) if self.reads_costs else 0,
        )

    def is_young(self, pod: PodInfo) -> bool:
        """Whether the pod has run for less than `min_run_seconds`.

        A pod without a start time has not run at all. Nor has one whose start time is in the
        future, because the clock of its node is ahead of the scheduler's.
        """
        if not self.min_run_seconds:
            return False
        started = pod.started_seconds
        return started is None or self.now_seconds - started < self.min_run_seconds

    def spares(self, pod: PodInfo) -> bool:
        """Whether the pod is spared before those of equal priority that have any cost."""
        is_no_daemon, is_old, _ = self.standing((pod,))
        return not (is_no_daemon and is_old)

    def holds_until(self, pods: Iterable[PodInfo]) -> float:
        """Return the moment at which the order among these pods changes by itself.

        In seconds since the epoch; infinite: it does not, as long as the pods stay as they are.
        """
        ends = (
            pod.started_seconds + self.min_run_seconds
            for pod in pods
            if pod.started_seconds is not None and self.is_young(pod)
        )
        return min(ends, default=math.inf)

    def most_spared(self, pods: Iterable[PodInfo]) -> list[str]:
        """Say by which argument pods stay that kube-scheduler would evict, and how many."""
        counts = Counter(self._rule_of(pod) for pod in pods)
        return [
            f"{_ARGUMENTS[rule]} spares {self._described(rule, counts[rule])}"
            for rule in SparingRule
            if counts[rule]
        ]

    def count_behind(self, victims: Iterable[Unit], others: Iterable[Unit]) -> Counter[SparingRule]:
        """Count the units that stay and were put behind victims of equal priority, by the rule.

        Without the rule some of these units might have been evicted in place of the victims.
        """
        lowest: dict[int, Standing] = {}
        for unit in victims:
            priority, standing = unit[0].priority, self.standing(unit)
            lowest[priority] = max(lowest.get(priority, standing), standing)
        counts: Counter[SparingRule] = Counter()
        for unit in others:
            own = self.standing(unit)
            victim = lowest.get(unit[0].priority, own)
            if own < victim:
                counts[next(each for each in SparingRule if own[each] != victim[each])] += 1
        return counts

    def put_behind(self, counts: Counter[SparingRule]) -> list[str]:
        """Say what `count_behind` has counted."""
        return [
            f"{_ARGUMENTS[rule]} puts {self._described(rule, counts[rule])} behind others"
            for rule in SparingRule
            if counts[rule]
        ]

    def misread(self, pods: Iterable[PodInfo]) -> list[str]:
        """Say how many of the pods have a deletion cost that is no number and counts as 0."""
        if not self.reads_costs:
            return []
        count = sum(pod.details.deletion_cost is None for pod in pods)
        pods_have = "1 pod has" if count == 1 else f"{count:,} pods have"
        text = (
            f"{pods_have} an annotation {DELETION_COST} that is no 32-bit integer: it counts as 0"
        )
        return [text] if count else []

    def _rule_of(self, pod: PodInfo) -> SparingRule:
        is_no_daemon, is_old, _ = self.standing((pod,))
        if not is_no_daemon:
            return SparingRule.DAEMON
        return SparingRule.COST if is_old else SparingRule.YOUNG

    def _described(self, rule: SparingRule, count: int) -> str:
        pods, have = ("1 pod", "has") if count == 1 else (f"{count:,} pods", "have")
        match rule:
            case SparingRule.DAEMON:
                return f"{pods} of DaemonSets" if count > 1 else f"{pods} of a DaemonSet"
            case SparingRule.YOUNG:
                return f"{pods} that {have} run for less than {self.min_run_seconds} s"
            case SparingRule.COST:
                return f"{pods} of a higher deletion cost"


KUBE_SCHEDULERS_ORDER: Final = VictimOrder()
"""The order without any argument: by start, the latest first."""


def is_daemon_pod(pod: PodInfo) -> bool:
    """Whether the pod is a DaemonSet's and may run on no other node than its own."""
    return (
        pod.owner is not None
        and pod.owner[0] == "apps/v1 DaemonSet"
        and pod.node_names == frozenset((pod.node_name,))
    )
