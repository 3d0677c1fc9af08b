"""DefaultPreemption: finds pods of lower priority whose deletion makes room for a pod.

The runtime calls it when no node fits; what it finds is carried out by `scheduler.preemption`, and
until the last victim is terminating, the pod stays gated. Invariant: candidates, their
victims and the texts are kube-scheduler's, unless arguments order victims of equal priority.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.framework.diagnosis import Diagnosis, fit_error
from stellwerk.framework.events import ClusterEventWithHint
from stellwerk.framework.interface import (
    AdmitsVictims,
    Candidate,
    EnqueueExtensions,
    OrdersVictims,
    PostFilterResult,
    PreEnqueuePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import (
    OK,
    Code,
    CycleState,
    Status,
    StatusColumn,
    error,
    unresolvable,
    unschedulable,
)
from stellwerk.framework.victim_order import VictimOrder
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import PREEMPT_NEVER
from stellwerk.plugins.default_preemption.dry_run import (
    NO_VICTIMS,
    DryRun,
    DryRunResults,
    VictimRule,
)
from stellwerk.plugins.shared.disruption_budgets import DisruptionBudgets
from stellwerk.plugins.shared.victims import (
    CRITERIA,
    best_candidates,
    best_in_order,
    by_importance,
    deciding_criteria,
    is_leaving_as_victim,
)
from stellwerk.profiles.spec.plugin_args import DefaultPreemptionArgs
from stellwerk.snapshot.columns import Mask, RowColumn
from stellwerk_kube.compatibility import ReleaseRule

_NAME: Final = "DefaultPreemption"
_MIN_BATCH: Final = 32
"""Nodes that are dry-run together at least: fewer are hardly cheaper."""
_NOT_HELPFUL: Final = unresolvable("", "Preemption is not helpful for scheduling")
_UNDER_WAY: Final = unresolvable(_NAME, "waiting for the preemption for this pod to be finished")
_GROUP_UNDER_WAY: Final = unresolvable(
    _NAME, "waiting for the preemption for this pod group to be finished"
)


@dataclass(frozen=True, slots=True)
class EveryCandidate:
    """Written into the cycle state, it asks for every candidate, in the order of the nodes.

    `decide` and explanations do: they report what there is, where the scheduler stops at enough.
    """


@dataclass(frozen=True, slots=True)
class _Findings:
    """The outcome of the dry run of some nodes."""

    candidates: Sequence[Candidate]
    """Those without budget violations first."""
    statuses: dict[int, Status]
    """By row, why the node is no candidate."""


class DefaultPreemption(AdmitsVictims, OrdersVictims, PreEnqueuePlugin, EnqueueExtensions):
    """Dry-runs the nodes that deletions may help, and gates the pod while its victims terminate."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[DefaultPreemptionArgs]] = DefaultPreemptionArgs

    def __init__(self, handle: Handle, args: DefaultPreemptionArgs) -> None:
        self._handle = handle
        self._args = args
        self._budgets = DisruptionBudgets(handle.objects, handle.compatibility)
        self._results = DryRunResults(handle)
        self._rule = VictimRule(args, handle.objects)
        self.reads_time = args.min_run_seconds > 0
        """As `Framework.reads_time`."""
        self._names_placement = ReleaseRule.NAME_PREEMPTION_PLACEMENT in handle.compatibility
        self._groups_preempt = ReleaseRule.GROUP_PREEMPTS_ONCE in handle.compatibility

    # --- PreEnqueue -----------------------------------------------------------------------------

    @override
    def pre_enqueue(self, pod: PodInfo) -> Status:
        if pod.uid not in self._handle.preempting:
            return OK
        return _GROUP_UNDER_WAY if pod.group is not None and self._groups_preempt else _UNDER_WAY

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        # The preemption executor has PreEnqueue run again when the preemption comes to its end.
        # (kube-scheduler asks at every pod's deletion: costly with hundreds of preempting pods.)
        return ()

    # --- PostFilter -----------------------------------------------------------------------------

    @override
    def admits_victim(self, namespace: str, victim: PodInfo) -> bool:
        return self._rule.admits(namespace, victim)

    @override
    def victim_order(self) -> VictimOrder:
        args = self._args
        return VictimOrder(
            args.min_run_seconds, args.spare_daemon_set_pods, args.order_by_deletion_cost
        )

    @override
    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        state.preemption_asked = True
        obstacle = self._why_not_eligible(state, pod, diagnosis)
        if obstacle:
            return PostFilterResult(unschedulable(_NAME, f"preemption: {obstacle}"))
        resolvable = diagnosis.statuses.where(Code.UNSCHEDULABLE)
        order = self._handle.victim_order(state)
        found = self._find(state, pod, diagnosis.row_numbers()[resolvable], order)
        found = replace(found, candidates=self._groups_whole(pod, found.candidates))
        if found.candidates:
            told_of = _told_of if self._names_placement else None
            candidates = tuple(found.candidates)
            if not order.differs:
                return PostFilterResult(OK, candidates, best_candidates, told_of)
            return PostFilterResult(
                OK,
                candidates,
                partial(best_in_order, order),
                told_of,
                decided_by=partial(self._decided_by, state, pod, order),
            )
        failures = [status for status in found.statuses.values() if status.code is Code.ERROR]
        if failures:
            return PostFilterResult(error(_NAME, f"preemption: {_aggregate(failures)}"))
        message = _nothing_found(diagnosis, resolvable, found)
        return PostFilterResult(
            unschedulable(_NAME, f"preemption: {message}"), clear_nomination=True
        )

    def _why_not_eligible(self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis) -> str:
        """Empty if the pod may preempt others (`PodEligibleToPreemptOthers`)."""
        if state.preemption_obstacle is not None:
            return state.preemption_obstacle
        if pod.spec.preemption_policy == PREEMPT_NEVER:
            return "not eligible due to preemptionPolicy=Never."
        row = self._handle.snapshot.row_of.get(pod.nominated_node_name)
        if row is None or _code_at(row, diagnosis) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        victims = self._handle.snapshot.pods[row].values()
        if any(other.priority < pod.priority and is_leaving_as_victim(other) for other in victims):
            return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _find(
        self, state: CycleState, pod: PodInfo, rows: RowColumn, order: VictimOrder
    ) -> _Findings:
        """Dry-run nodes, from a random one on, until there are enough candidates.

        Where an order spares pods, further nodes are tried until the victims of one are no such
        pods, as they are until one violates no budget.
        """
        wanted = len(rows)
        if state.get(_NAME, EveryCandidate) is None and wanted:
            wanted = self._enough(len(rows))
            rows = np.roll(rows, -self._handle.random(len(rows)))
        snapshot = self._handle.snapshot
        # The others are no candidates, and thousands of pods that fit nowhere find no other.
        rows = rows[snapshot.priorities.below(pod.spec.priority, snapshot.size)[rows]]
        if not len(rows):
            return _Findings((), {})
        state.victims_searched = True
        if state.without_victims:
            return _Findings((), {})
        dry_run = DryRun(self._handle, state, pod, self._budgets, self._results, self._rule, order)
        has_good = not order.differs
        row_of = snapshot.row_of
        nominated = {row_of.get(name) for name in self._handle.nominations.by_node}
        harmless: list[Candidate] = []
        harmful: list[Candidate] = []
        statuses: dict[int, Status] = {}
        looked_at = 0
        while looked_at < len(rows):
            missing = wanted - len(harmless) - len(harmful)
            count = max(missing, _MIN_BATCH)
            batch = _next_batch(dry_run, rows[looked_at:], count, nominated)
            looked_at += len(batch)
            for row, outcome in zip(batch.tolist(), dry_run.run(batch), strict=True):
                if isinstance(outcome, Status):
                    statuses[row] = outcome
                    continue
                (harmful if outcome.pdb_violations else harmless).append(outcome)
                if not has_good and not outcome.pdb_violations:
                    has_good = not any(map(order.spares, outcome.victims))
                if harmless and has_good and len(harmless) + len(harmful) >= wanted:
                    return _Findings([*harmless, *harmful], statuses)
        return _Findings([*harmless, *harmful[:wanted]], statuses)

    def _groups_whole(self, pod: PodInfo, found: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates with the groups of their victims, where groups are evicted as a whole.

        None of them is there whose victims' group is as important as the pod.
        """
        groups = self._handle.pod_groups
        whole = []
        for candidate in found:
            if not [victim for victim in candidate.victims if victim.group is not None]:
                whole.append(candidate)  # a thousand of them: no more work than this for each
                continue
            others: dict[str, PodInfo] = {}
            spared = False
            for victim in candidate.victims:
                unit = groups.evicted_with(victim)
                if unit is not None:
                    spared |= unit.priority >= pod.priority
                    spared |= not all(
                        self._rule.admits(pod.namespace, each) for each in unit.others
                    )
                    others |= {each.uid: each for each in unit.others}
            known = {victim.uid for victim in candidate.victims}
            added = [each for uid, each in others.items() if uid not in known]
            if spared:
                continue
            if added:
                victims = tuple(by_importance([*candidate.victims, *added]))
                over = candidate.pdb_violations + sum(self._budgets.violating(added))
                whole.append(Candidate(candidate.node_name, victims, over))
            else:
                whole.append(candidate)
        return whole

    def _decided_by(
        self,
        state: CycleState,
        pod: PodInfo,
        order: VictimOrder,
        chosen: Candidate,
        candidates: Sequence[Candidate],
    ) -> str:
        """The text on what decided against kube-scheduler's order; empty: nothing did.

        The chosen node is tried once more in kube-scheduler's order: pods that would go by it and
        do not are spared.
        """
        texts = []
        if all(chosen is not each for each in best_candidates(candidates)):
            kube_schedulers = {name for name, _ in CRITERIA}
            texts = [
                f"of the nodes, it has the {name}"
                for name in deciding_criteria(candidates, order)
                if name not in kube_schedulers
            ]
        snapshot = self._handle.snapshot
        row = snapshot.row_of[chosen.node_name]
        plain = DryRun(self._handle, state, pod, self._budgets, rule=self._rule)
        (outcome,) = plain.run(np.array([row], np.intp))
        if isinstance(outcome, Candidate):
            going = {victim.uid for victim in chosen.victims}
            spared = [each for each in outcome.victims if each.uid not in going]
            texts += order.most_spared(spared)
        lower = (each for each in snapshot.pods[row].values() if each.priority < pod.priority)
        texts += order.misread(lower)
        return "; ".join(texts)

    def _enough(self, nodes: int) -> int:
        """The number of candidates that is enough to choose from (`calculateNumCandidates`)."""
        share = nodes * self._args.min_candidate_nodes_percentage // 100
        return min(max(share, self._args.min_candidate_nodes_absolute), nodes)


def _told_of(candidate: Candidate) -> str:
    """The message of v1.37 on a candidate that is taken (#140180), always in the plural."""
    return (
        f"preemption: found a potential placement for pod on node {candidate.node_name}, "
        f"preempting {len(candidate.victims)} victims"
    )


def _nothing_found(diagnosis: Diagnosis, resolvable: Mask, found: _Findings) -> str:
    """The numbers of nodes that cannot be cleared, by reason; `resolvable` are those tried."""
    different = [_NOT_HELPFUL, NO_VICTIMS]
    codes = resolvable.astype(np.int32)
    if found.statuses:
        code_of = {status: code for code, status in enumerate(different)}
        for position in np.flatnonzero(resolvable).tolist():
            status = found.statuses.get(diagnosis.rows[position], NO_VICTIMS)
            codes[position] = code_of.setdefault(status, len(code_of))
        different = list(code_of)
    return fit_error(Diagnosis(diagnosis.rows, StatusColumn(different, codes)))


def _next_batch(
    dry_run: DryRun, rows: RowColumn, count: int, nominated: Collection[int | None]
) -> RowColumn:
    """The first rows, until so many of them are likely candidates.

    Nodes known to be none cost nothing, and those nominated to other pods are seldom any.
    """
    likely = 0
    for index, row in enumerate(rows.tolist()):
        likely += row not in nominated and dry_run.may_be_cleared(row)
        if likely == count:
            return rows[: index + 1]
    return rows


def _code_at(row: int, diagnosis: Diagnosis) -> Code:
    """The code of a node's status; a node that was not looked at cannot be resolved."""
    if row not in diagnosis.rows:
        return Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    return diagnosis.statuses[diagnosis.rows.index(row)].code


def _aggregate(failures: Sequence[Status]) -> str:
    """Several errors as one text, each once."""
    messages = list(dict.fromkeys(status.message for status in failures))
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
