"""CrossNodePreemption: make room on a node by taking pods of lower priority off several.

Off by default; a profile lists it after DefaultPreemption. It helps where no single node can be
cleared because the pods in the way run elsewhere in the topology domain: required anti-affinity,
theirs or the pod's own, or a hard spread constraint. Each set of victims is tried on the real
snapshot with the pods taken out for the moment (a `Trial`), by the same filters that the next
attempt will meet. DefaultPreemption's arguments say who may be evicted, and in which order pods of
equal priority are (`Handle.admits_victim`, `Handle.victim_order`). Invariant: a set is proposed
only if the pod fits somewhere without it, has at most `maxVictims` pods, and violates no disruption
budget unless the profile says so.

`BlockingPods` are the pods in the way, `VictimSearch` looks for the set of them that is the least
loss, and the plugin proposes it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Final, TypeAlias

import numpy as np
from typing_extensions import override

from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.interface import Candidate, PostFilterPlugin, PostFilterResult
from stellwerk.framework.services import Handle
from stellwerk.framework.types import Code, CycleState, Status, unresolvable, unschedulable
from stellwerk.framework.victim_order import KUBE_SCHEDULERS_ORDER, VictimOrder, is_daemon_pod
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import PodMatcher
from stellwerk.models.pod_group import PodGroupKey
from stellwerk.models.scheduling_spec import PREEMPT_NEVER
from stellwerk.plugins.shared.disruption_budgets import DisruptionBudgets
from stellwerk.plugins.shared.victims import by_importance, is_leaving_as_victim, priority_sum
from stellwerk.profiles.spec.plugin_args import CrossNodePreemptionArgs
from stellwerk.snapshot.columns import Mask, RowColumn
from stellwerk.snapshot.pair_terms import (
    SpreadSelection,
    matches_as_existing,
    matches_as_incoming,
)
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.snapshot.trial import Trial
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule

Domain: TypeAlias = tuple[str, str]
"""Topology key and value."""
Meant: TypeAlias = Callable[[PodInfo], bool]


@dataclass(frozen=True, slots=True)
class _Rule:
    """Something by which an existing pod keeps the incoming one out of a whole domain."""

    topology_key: str
    blocks: Meant


class BlockingPods:
    """The pods of lower priority in the way of one pending pod, wherever they run.

    Any other pod that is not on a node cannot, by leaving, end a rejection there that is due to
    resources, ports, volumes, required anti-affinity or a hard spread constraint of the pod's own
    spec. Constraints that a profile adds as defaults are not looked at, nor is the anti-affinity of
    nominated pods, which counts only while some placed pod has a term, too.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        pod: PodInfo,
        group: PodGroupKey | None = None,
        release: Compatibility = AS_RECORDED,
        admits: Callable[[str, PodInfo], bool] = lambda _, __: True,
    ) -> None:
        """`group`: the one that the pod is decided with, whose members are left alone.

        `admits` says which other pods may be evicted for one of a namespace.
        """
        self._admits = admits
        self._snapshot = snapshot
        self._release = release
        self._pod = pod
        self._group = group
        self._by_domain: dict[Domain, dict[str, PodInfo]] = {}
        rules = list(self._own_rules())
        for row in snapshot.row_of.values():
            for other in self.lower(row):
                self._place(row, other, rules)

    @property
    def anywhere(self) -> bool:
        """Whether some pod blocks more than the node it runs on."""
        return bool(self._by_domain)

    def for_row(self, row: int) -> dict[str, PodInfo]:
        """By uid, every pod whose leaving could help on this node."""
        found = {other.uid: other for other in self.lower(row)}
        labels = self._snapshot.node_at(row).labels
        for (key, value), pods in self._by_domain.items():
            if labels.get(key) == value:
                found |= pods
        return found

    def lower(self, row: int) -> Iterator[PodInfo]:
        """The pods on a node that may be evicted; no member of the pod's group is."""
        priority, group, namespace = self._pod.priority, self._group, self._pod.namespace
        for pod in self._snapshot.pods[row].values():
            is_lower = pod.priority < priority and (group is None or pod.group != group)
            if is_lower and self._admits(namespace, pod):
                yield pod

    def _place(self, row: int, other: PodInfo, rules: Iterable[_Rule]) -> None:
        """Note the domains out of which this pod keeps the incoming one."""
        labels = self._snapshot.node_at(row).labels
        namespaces = self._snapshot.pair_counts.namespaces
        keys = {rule.topology_key for rule in rules if rule.blocks(other)}
        for term in other.spec.pod_affinity.required_anti:
            if matches_as_existing(term.matcher, self._pod.label_set, namespaces):
                keys.add(term.topology_key)
        for key in keys & labels.keys():
            self._by_domain.setdefault((key, labels[key]), {})[other.uid] = other

    def _own_rules(self) -> Iterator[_Rule]:
        """The pods that the pending pod itself asks to be kept away from."""
        spec = self._pod.spec
        for term in spec.pod_affinity.required_anti:
            yield _Rule(term.topology_key, self._repelled_by(term.matcher))
        for constraint in spec.spread_constraints:
            if constraint.hard and constraint.selector is not None:
                selection = SpreadSelection.of(
                    self._pod.namespace, constraint.selector, self._release
                )
                yield _Rule(constraint.topology_key, self._counted_by(selection))

    def _repelled_by(self, matcher: PodMatcher) -> Meant:
        namespaces = self._snapshot.pair_counts.namespaces
        reads_once = ReleaseRule.READ_NAMESPACES_ONCE in self._release
        return lambda other: matches_as_incoming(
            matcher, other.label_set, namespaces, reads_once=reads_once
        )

    def _counted_by(self, selection: SpreadSelection) -> Meant:
        namespaces = self._snapshot.pair_counts.namespaces
        return lambda other: (
            not other.terminating and selection.matches(other.label_set, namespaces)
        )


EXHAUSTIVE_POOL: Final = 8
"""Up to so many pods every set is considered."""

VictimLoss: TypeAlias = tuple[int, ...]
"""Budget violations, highest priority, pods of DaemonSets and young pods that an order spares,
sum of priorities above 0, number of victims, highest deletion cost of the highest priority."""
Victims: TypeAlias = tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class VictimSet:
    """Victims, the most important first, with what their going costs."""

    victims: Victims
    loss: VictimLoss

    @property
    def pdb_violations(self) -> int:
        """The number of budgets that their going overdraws, pod by pod."""
        return self.loss[0]


@dataclass(frozen=True, slots=True)
class PreemptionTarget:
    """Nodes for which the same pods are in the way."""

    rows: RowColumn
    pool: Sequence[PodInfo]
    """The most important first."""


@dataclass(frozen=True, slots=True)
class VictimSearchLimits:
    """The limits of a set of victims, and of the search for it."""

    max_victims: int
    may_violate_budgets: bool
    time_is_up: Callable[[], bool]


class VictimSearch:
    """The search for the set of victims that is the smallest loss, for one pod.

    A set is judged by asking the whole profile whether the pod would find a node without it, so an
    answer holds for every node at once. Among few pods (`EXHAUSTIVE_POOL`) no better set exists
    than the one found; among more, none exists unless taking more pods away can make a node worse,
    or the time was up (`cut_short`).
    """

    def __init__(
        self,
        fits_without: Callable[[Victims], Mask],
        violations: Callable[[Sequence[PodInfo]], int],
        limits: VictimSearchLimits,
        order: VictimOrder = KUBE_SCHEDULERS_ORDER,
    ) -> None:
        """`fits_without` returns (N,) bool: the rows that take the pod when these are gone."""
        self._order = order
        self._fits_without = fits_without
        self._violations = violations
        self._limits = limits
        self._known: dict[frozenset[str], Mask] = {}
        self.best: VictimSet | None = None
        self.best_rows: list[int] = []
        """The rows that the best set makes room on."""
        self.cut_short = False

    def run(self, targets: Iterable[PreemptionTarget]) -> None:
        """Look for the best set over all targets; what may cost least comes first."""
        doubtful = []
        for target in sorted(targets, key=_least_loss):
            if self._out_of_time():
                return
            if not self._fitting(tuple(target.pool), target.rows):
                doubtful.append(target)
            elif len(target.pool) > EXHAUSTIVE_POOL:
                self._branch(target, (), tuple(target.pool))
            else:
                self._try_all(target)
        for target in doubtful:
            # Fewer absences help where more do not only with spread constraints over two keys.
            if len(target.pool) <= EXHAUSTIVE_POOL:
                self._try_all(target)

    # --- every set ------------------------------------------------------------------------------

    def _try_all(self, target: PreemptionTarget) -> None:
        """Every set of the pool, the smallest loss first, until one makes room."""
        for candidate in sorted(self._sets(target.pool), key=lambda each: each.loss):
            if not self._improves(candidate) or self._out_of_time():
                return
            rows = self._fitting(candidate.victims, target.rows)
            if rows:
                self._keep(candidate, rows)
                return

    def _sets(self, pool: Sequence[PodInfo]) -> Iterator[VictimSet]:
        for size in range(1, min(len(pool), self._limits.max_victims) + 1):
            for victims in combinations(pool, size):
                candidate = self._valued(victims)
                if self._allowed(candidate):
                    yield candidate

    # --- branch and bound -----------------------------------------------------------------------

    def _branch(self, target: PreemptionTarget, chosen: Victims, undecided: Victims) -> None:
        """Sets of `chosen` and some of `undecided`; the most important stay if they can."""
        if self._out_of_time():
            return
        if chosen:
            so_far = self._valued(chosen)
            # Every further victim only adds to the loss.
            if not self._allowed(so_far) or not self._improves(so_far):
                return
            rows = self._fitting(chosen, target.rows)
            if rows:
                self._keep(so_far, rows)
                return
        if not undecided or not self._fitting((*chosen, *undecided), target.rows):
            return
        self._branch(target, chosen, undecided[1:])
        self._branch(target, (*chosen, undecided[0]), undecided[1:])

    # --- judging a set --------------------------------------------------------------------------

    def _valued(self, victims: Victims) -> VictimSet:
        """The set with its loss, which no further victim makes smaller."""
        order, highest = self._order, max(pod.priority for pod in victims)
        costs = (pod.deletion_cost for pod in victims if pod.priority == highest)
        loss = (
            self._violations(victims),
            highest,
            sum(map(is_daemon_pod, victims)) if order.spares_daemon_pods else 0,
            sum(map(order.is_young, victims)),
            priority_sum(victims),
            len(victims),
            max(costs) if order.reads_costs else 0,
        )
        return VictimSet(victims, loss)

    def _allowed(self, candidate: VictimSet) -> bool:
        limits = self._limits
        return len(candidate.victims) <= limits.max_victims and (
            limits.may_violate_budgets or not candidate.pdb_violations
        )

    def _improves(self, candidate: VictimSet) -> bool:
        return self.best is None or candidate.loss < self.best.loss

    def _fitting(self, victims: Victims, rows: RowColumn) -> list[int]:
        """Those of the rows that take the pod when the victims are gone."""
        key = frozenset(pod.uid for pod in victims)
        fits = self._known.get(key)
        if fits is None:
            fits = self._known[key] = self._fits_without(victims)
        return [row for row in rows.tolist() if fits[row]]

    def _keep(self, candidate: VictimSet, rows: list[int]) -> None:
        self.best = VictimSet(tuple(by_importance(candidate.victims)), candidate.loss)
        self.best_rows = rows

    def _out_of_time(self) -> bool:
        self.cut_short = self.cut_short or self._limits.time_is_up()
        return self.cut_short


def _least_loss(target: PreemptionTarget) -> tuple[int, int]:
    """A sort key: the cheapest single victim of a target, then the length of its search."""
    return (min(pod.priority for pod in target.pool), len(target.pool))


_NAME: Final = "CrossNodePreemption"
_SEARCHES_PER_MILLISECOND: Final = 10
"""Sets that are tried at most, so that a search ends where no clock runs (`decide`), too."""
_PREFIX: Final = "cross-node preemption: "


class CrossNodePreemption(PostFilterPlugin):
    """Searches the pods in the way for the set whose deletion costs least."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[CrossNodePreemptionArgs]] = CrossNodePreemptionArgs

    def __init__(self, handle: Handle, args: CrossNodePreemptionArgs) -> None:
        self._handle = handle
        self._args = args
        self._budgets = DisruptionBudgets(handle.objects, handle.compatibility)

    @override
    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        if pod.spec.preemption_policy == PREEMPT_NEVER:
            return _no("not eligible due to preemptionPolicy=Never.")
        handle = self._handle
        blocking = BlockingPods(
            handle.snapshot, pod, state.group, handle.compatibility, handle.admits_victim
        )
        if self._waits_for_victims(pod, blocking):
            # Ends the chain: the nomination that DefaultPreemption would clear still stands.
            reason = "not eligible due to terminating pods that are in the way of the nomination."
            return PostFilterResult(unresolvable(_NAME, _PREFIX + reason))
        if not blocking.anywhere:
            return _no("no pod of lower priority on another node is in the way.")
        state.victims_searched = True
        if state.without_victims:
            return _no("not searched: the time went to other pods.")
        order = handle.victim_order(state)
        search = self._search(pod, blocking, diagnosis, order)
        if search.best is None:
            return _no(self._why_nothing(search))
        return self._proposal(search.best, search.best_rows, blocking, order)

    def _waits_for_victims(self, pod: PodInfo, blocking: BlockingPods) -> bool:
        """Whether pods preempted for the node that the pod is nominated to are still going."""
        row = self._handle.snapshot.row_of.get(pod.nominated_node_name)
        return row is not None and any(
            is_leaving_as_victim(other) for other in blocking.for_row(row).values()
        )

    def _search(
        self, pod: PodInfo, blocking: BlockingPods, diagnosis: Diagnosis, order: VictimOrder
    ) -> VictimSearch:
        handle, args = self._handle, self._args
        deadline_seconds = handle.now_seconds() + args.timeout_milliseconds / 1000
        most = args.timeout_milliseconds * _SEARCHES_PER_MILLISECOND
        tried = 0

        def fits_without(victims: Victims) -> Mask:
            nonlocal tried
            tried += 1
            with Trial(handle.snapshot) as trial:
                trial.remove_pods(victims)
                return handle.feasible(pod)

        search = VictimSearch(
            fits_without,
            lambda victims: sum(self._budgets.violating(by_importance(victims))),
            VictimSearchLimits(
                args.max_victims,
                args.ignore_pod_disruption_budgets,
                lambda: tried >= most or handle.now_seconds() >= deadline_seconds,
            ),
            order,
        )
        search.run(_targets(blocking, diagnosis, order))
        return search

    def _proposal(
        self, best: VictimSet, rows: Sequence[int], blocking: BlockingPods, order: VictimOrder
    ) -> PostFilterResult:
        """One candidate per node that the victims make room on; they are equally good."""
        candidates = tuple(
            Candidate(name, best.victims, best.pdb_violations)
            for name in self._handle.snapshot.names(rows)
        )
        victims = ", ".join(f"{victim.key} on {victim.node_name}" for victim in best.victims)
        status = Status(Code.SUCCESS, (f"{_PREFIX}{victims} will leave.",), _NAME)
        if not order.differs:
            return PostFilterResult(status, candidates, lambda remaining: remaining)

        def decided_by(chosen: Candidate, _: Sequence[Candidate]) -> str:
            going = {victim.uid for victim in chosen.victims}
            in_the_way = blocking.for_row(self._handle.snapshot.row_of[chosen.node_name])
            others = [pod for uid, pod in in_the_way.items() if uid not in going]
            counts = order.count_behind(
                [(pod,) for pod in chosen.victims], [(pod,) for pod in others]
            )
            return "; ".join([*order.put_behind(counts), *order.misread(in_the_way.values())])

        return PostFilterResult(
            status, candidates, lambda remaining: remaining, decided_by=decided_by
        )

    def _why_nothing(self, search: VictimSearch) -> str:
        budgets = (
            "" if self._args.ignore_pod_disruption_budgets else " that disruption budgets allow"
        )
        text = f"found no set of at most {self._args.max_victims} victims{budgets}"
        if search.cut_short:
            return f"{text} within {self._args.timeout_milliseconds} ms."
        return f"{text}."


def _no(reason: str) -> PostFilterResult:
    return PostFilterResult(unschedulable(_NAME, _PREFIX + reason))


def _targets(
    blocking: BlockingPods, diagnosis: Diagnosis, order: VictimOrder
) -> list[PreemptionTarget]:
    """The nodes on which pods in the way are all that is wrong, by these pods."""
    rows_of: dict[frozenset[str], list[int]] = {}
    pods: dict[str, PodInfo] = {}
    for row, status in zip(diagnosis.rows, diagnosis.statuses, strict=True):
        if status.code is Code.UNSCHEDULABLE:
            pool = blocking.for_row(row)
            if pool:
                pods |= pool
                rows_of.setdefault(frozenset(pool), []).append(row)
    return [
        PreemptionTarget(np.array(rows, np.intp), by_importance((pods[uid] for uid in uids), order))
        for uids, rows in rows_of.items()
    ]
