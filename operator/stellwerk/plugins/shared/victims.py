"""Victims of preemption: the order of pods by importance, and of sets of victims by their loss.

Used by the preemption plugins, by groups, and by queueing hints while victims leave. Invariant:
without a VictimOrder both are kube-scheduler's orders, exactly (`MoreImportantPod` and
`pickOneNodeForPreemption`, v1.36); the condition that preemption writes is what tells victims from
other pods that terminate.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

from stellwerk.framework.interface import Candidate
from stellwerk.framework.victim_order import KUBE_SCHEDULERS_ORDER, VictimOrder, is_daemon_pod
from stellwerk.models.pod import PodInfo

NOT_STARTED: Final = float("inf")
_PRIORITY_OFFSET: Final = 1 << 31
"""Makes every priority at least 0: more victims of negative priority never look like less."""

Loss: TypeAlias = Callable[[Candidate], float]


def started_at(pod: PodInfo) -> float:
    """Seconds since the epoch; a pod that has not started yet comes after all others."""
    return NOT_STARTED if pod.started_seconds is None else pod.started_seconds


def importance(pod: PodInfo) -> tuple[int, float]:
    """A sort key: the most important pod first, by higher priority, then by earlier start."""
    return -pod.priority, started_at(pod)


def by_importance(
    pods: Iterable[PodInfo], order: VictimOrder = KUBE_SCHEDULERS_ORDER
) -> list[PodInfo]:
    """The most important pod first: the last to be evicted."""
    if not order.differs:
        return sorted(pods, key=importance)
    return sorted(pods, key=lambda pod: (-pod.priority, order.standing((pod,)), started_at(pod)))


def priority_sum(pods: Iterable[PodInfo]) -> int:
    """The sum of priorities, each raised above 0."""
    return sum(pod.priority + _PRIORITY_OFFSET for pod in pods)


def _earliest_start_of_highest(candidate: Candidate) -> float:
    highest = candidate.victims[0].priority
    return min(started_at(pod) for pod in candidate.victims if pod.priority == highest)


CRITERIA: Final[Sequence[tuple[str, Loss]]] = (
    ("fewest PodDisruptionBudget violations", lambda candidate: candidate.pdb_violations),
    ("lowest highest victim priority", lambda candidate: candidate.victims[0].priority),
    ("lowest sum of victim priorities", lambda candidate: priority_sum(candidate.victims)),
    ("fewest victims", lambda candidate: len(candidate.victims)),
    (
        "latest start of the highest-priority victims",
        lambda candidate: -_earliest_start_of_highest(candidate),
    ),
)
"""(name, what is to be as low as possible), the one that decides first."""
_HIGHEST_PRIORITY: Final = 2
"""Position behind the criterion on the highest priority: no order among equals goes before it."""


def criteria_of(order: VictimOrder) -> Sequence[tuple[str, Loss]]:
    """kube-scheduler's criteria, and those of an order where they count.

    Nodes whose highest victims have the same priority are compared by the number of victims that
    are spared, before the sums of priorities are: these differ with each further victim, and would
    leave nothing to decide. Costs are compared last but the start, and of the highest alone.
    """
    own: list[tuple[str, Loss]] = []
    if order.spares_daemon_pods:
        own.append(
            (
                "fewest pods of DaemonSets (spareDaemonSetPods)",
                lambda candidate: sum(map(is_daemon_pod, candidate.victims)),
            )
        )
    if order.min_run_seconds:
        seconds = order.min_run_seconds
        own.append(
            (
                f"fewest pods that have run for less than {seconds} s (minRunSeconds)",
                lambda candidate: sum(map(order.is_young, candidate.victims)),
            )
        )
    costs: list[tuple[str, Loss]] = []
    if order.reads_costs:
        costs.append(
            (
                "lowest deletion cost of the highest-priority victims (orderByDeletionCost)",
                highest_cost,
            )
        )
    *others, start = CRITERIA[_HIGHEST_PRIORITY:]
    return [*CRITERIA[:_HIGHEST_PRIORITY], *own, *others, *costs, start]


def highest_cost(candidate: Candidate) -> int:
    """The highest deletion cost among the victims of the highest priority."""
    highest = candidate.victims[0].priority
    return max(pod.deletion_cost for pod in candidate.victims if pod.priority == highest)


def best_in_order(order: VictimOrder, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """`best_candidates` by the criteria of an order; not kept, because time changes the order."""
    criteria = criteria_of(order)
    losses = [tuple(loss(each) for _, loss in criteria) for each in candidates]
    lowest = min(losses, default=())
    return [each for each, own in zip(candidates, losses, strict=True) if own == lowest]


def best_candidates(candidates: Sequence[Candidate]) -> Sequence[Candidate]:
    """The candidates whose victims are the smallest loss; all that tie after every criterion."""
    if len(candidates) <= 1:
        return candidates
    losses = [_losses(candidate) for candidate in candidates]
    lowest = min(losses)
    return [candidate for candidate, each in zip(candidates, losses, strict=True) if each == lowest]


def _losses(candidate: Candidate) -> tuple[float, ...]:
    if not candidate.known_losses:
        candidate.known_losses.append(tuple([loss(candidate) for _, loss in CRITERIA]))
    return candidate.known_losses[0]


def deciding_criteria(
    candidates: Sequence[Candidate], order: VictimOrder = KUBE_SCHEDULERS_ORDER
) -> list[str]:
    """The criteria after which candidates dropped out, in order; none: there was no choice."""
    best, decided = candidates, list[str]()
    for name, loss in criteria_of(order):
        lowest = min((loss(candidate) for candidate in best), default=0.0)
        remaining = [candidate for candidate in best if loss(candidate) == lowest]
        if len(remaining) < len(best):
            best = remaining
            decided.append(name)
    return decided


PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"
"""The reason of the condition that marks a victim."""


def is_leaving_as_victim(pod: PodInfo) -> bool:
    """Whether the pod is terminating because it was preempted (`podTerminatingByPreemption`)."""
    if not pod.terminating:
        return False
    for condition in pod.conditions:
        if condition.get("type") == "DisruptionTarget":
            return (
                condition.get("status") == "True"
                and condition.get("reason") == PREEMPTION_BY_SCHEDULER
            )
    return False
