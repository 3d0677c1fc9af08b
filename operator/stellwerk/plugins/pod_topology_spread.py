"""PodTopologySpread: keeps the pods of a group evenly spread over domains, strictly or if it can.

Filter compares each domain with the emptiest one, score prefers emptier domains; both look up
tables by domain. Invariant: verdicts and scores are those of kube-scheduler v1.36, terminating
pods not counted; so are the answers of the queueing hints, at the end of the module
(`isSchedulableAfterPodChange`, `isSchedulableAfterNodeChange`). With `giveWayAfterSeconds` the
DoNotSchedule constraints of a pod that has waited for so long are taken for ScheduleAnyway at every
point, as if the pod had been written so: which of the two they are is asked in PreFilter and
PreScore, at the moment of the attempt, and nothing is kept from one attempt to the next.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.answers.pod import PluginFacts
from stellwerk.framework.changes import Change, EditPod
from stellwerk.framework.events import (
    QUEUE,
    QUEUE_SKIP,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.framework.interface import (
    GO_ON,
    MAX_NODE_SCORE,
    SKIP_FILTER,
    EnqueueExtensions,
    EqualPods,
    EqualPodsPlugin,
    ExplainPlugin,
    FilterPlugin,
    NormalizeScorePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ProposePlugin,
    ReadsTime,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import (
    OK,
    SKIP,
    CycleState,
    FilterResult,
    Status,
    unresolvable,
    unschedulable,
)
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.pairwise.node_eligibility import NodeEligibility
from stellwerk.plugins.pairwise.overlay_deltas import DeltaTracker, OverlayDeltas
from stellwerk.plugins.pairwise.spread_constraints import (
    SCHEDULE_ANYWAY,
    Constraints,
    SpreadConstraints,
    TopologySpreadConstraint,
    topology_labels,
)
from stellwerk.plugins.shared.hints import changed_node, had_node
from stellwerk.profiles.spec.plugin_args import PodTopologySpreadArgs
from stellwerk.snapshot.columns import Element, IntColumn, Mask, VerdictColumn
from stellwerk.snapshot.counted_terms import CountedTerm, DomainCounts
from stellwerk.snapshot.snapshot import NodeView
from stellwerk.snapshot.topology import NO_DOMAIN, EligibleRows, Topology
from stellwerk_kube.node import HOSTNAME_LABEL, NodeInfo

_NAME: Final = "PodTopologySpread"
_SCORE_KEY: Final = f"{_NAME}/score"
_REASON: Final = "node(s) didn't match pod topology spread constraints"
_TOO_SKEWED: Final = 1
_NO_LABEL: Final = 2
_STATUSES: Final = {
    _TOO_SKEWED: unschedulable(_NAME, _REASON),
    _NO_LABEL: unresolvable(_NAME, f"{_REASON} (missing required label)"),
}

FloatColumn: TypeAlias = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Check:
    """One hard constraint in one attempt."""

    constraint: TopologySpreadConstraint
    counts: DomainCounts
    eligible: EligibleRows | None
    self_match: int
    """1 if the pod will count in its own domain."""


@dataclass(slots=True)
class _FilterState:
    checks: tuple[_Check, ...]
    tracker: DeltaTracker


@dataclass(slots=True)
class _Part:
    """One soft constraint in one attempt: what a domain, or a node, adds to the raw score."""

    topology: Topology
    table: FloatColumn
    """(D,) or, per node, (N,)."""
    per_node: bool
    """Whether pods are counted on the node itself: kubernetes.io/hostname."""

    def at_rows(self, table: npt.NDArray[Element], nodes: NodeView) -> npt.NDArray[Element]:
        """(n,) the entries of a table like `table`; 0 where the node lacks the label."""
        if not self.per_node:
            return self.topology.at_rows(table, nodes, missing=0)
        values = nodes.gather(table)
        if self.topology.complete:
            return values
        return np.where(nodes.gather(self.topology.has), values, table.dtype.type(0))


@dataclass(slots=True)
class _ScoreState:
    parts: tuple[_Part, ...]
    ignored: Mask | None
    """(n,) bool over the feasible rows, nodes that are not scored; None: all are."""


class PodTopologySpread(
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensions,
    ExplainPlugin,
    ProposePlugin,
    EqualPodsPlugin,
    ReadsTime,
):
    """Filters by DoNotSchedule constraints, scores by ScheduleAnyway ones."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[BaseModel] | None] = PodTopologySpreadArgs
    filter_reuse: ClassVar[Reuse] = Reuse.NEVER
    score_reuse: ClassVar[Reuse] = Reuse.NEVER

    def __init__(self, handle: Handle, args: PodTopologySpreadArgs | None = None) -> None:
        self._counts = handle.snapshot.pair_counts
        self._topology = handle.snapshot.topology
        self._eligibility = NodeEligibility(handle.snapshot)
        args = args or PodTopologySpreadArgs()
        given = (args, self._counts, handle.objects, handle.compatibility)
        self._constraints = SpreadConstraints(*given)
        self._handle = handle
        self._give_way_after_seconds = args.give_way_after_seconds
        self.reads_time = args.give_way_after_seconds > 0
        self._given_way = (
            SpreadConstraints(*given, gives_way=True) if self.reads_time else self._constraints
        )

    @override
    def after_equal_pod(self, pod: PodInfo) -> EqualPods:
        constraints = self._constraints.of(pod)
        if constraints.hard:
            return EqualPods.ANYTHING
        # Every node of the domains, and the weights of the constraints, depend on the others.
        return EqualPods.SCORES if constraints.soft else EqualPods.ROW

    # --- constraints that give way --------------------------------------------------------------

    @override
    def rejection_ends_at(self, pod: PodInfo) -> float | None:
        since = pod.unscheduled_since_seconds
        if since is None or not self._constraints.of(pod).hard:
            return None
        return since + self._give_way_after_seconds

    def _now(self, state: CycleState, pod: PodInfo) -> Constraints:
        """The pod's constraints in this attempt; all are soft once they have given way."""
        found = self._constraints.of(pod)
        if not self.reads_time or not found.hard:
            return found
        ends_at = self.rejection_ends_at(pod)
        if ends_at is None or self._handle.moment(state) < ends_at:
            return found
        return self._given_way.of(pod)

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        hard = self._constraints.of(pod).hard
        if not self.reads_time or not hard:
            return None
        ends_at, after = self.rejection_ends_at(pod), self._give_way_after_seconds
        names = ", ".join(dict.fromkeys(each.topology_key for each in hard))
        spread = f"DoNotSchedule over {names}"
        fields: dict[str, str | int | float | bool | Sequence[str]] = {"giveWayAfterSeconds": after}
        if ends_at is None:
            line = f"{spread} gives way {after} s after the pod is first refused"
            return PluginFacts(lines=(line,), fields=fields)
        left = ends_at - self._handle.moment(state)
        fields["givesWayInSeconds"] = max(0, math.ceil(left))
        if left > 0:
            line = f"{spread} gives way in {math.ceil(left)} s, to ScheduleAnyway"
        else:
            line = f"{spread} has given way {math.floor(-left)} s ago, and counts as ScheduleAnyway"
        return PluginFacts(lines=(line,), fields=fields)

    # --- filter ---------------------------------------------------------------------------------

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        if not pod.spec.spread_constraints and not self._constraints.hard_defaults:
            return SKIP_FILTER
        constraints = self._now(state, pod)
        hard = constraints.hard
        if not hard:
            if constraints is not self._constraints.of(pod):
                state.remarks = (*state.remarks, self._remark(pod))
            return SKIP_FILTER
        checks = tuple(self._check(pod, constraint) for constraint in hard)
        state.write(_NAME, _FilterState(checks, DeltaTracker(_measure(hard))))
        return GO_ON

    def _remark(self, pod: PodInfo) -> str:
        """The sentence on a decision for which hard constraints have given way."""
        hard = self._constraints.of(pod).hard
        names = ", ".join(dict.fromkeys(each.topology_key for each in hard))
        return (
            f"DoNotSchedule over {names} counted as ScheduleAnyway: the pod had waited for "
            f"{self._give_way_after_seconds} s"
        )

    def _check(self, pod: PodInfo, constraint: TopologySpreadConstraint) -> _Check:
        topology = self._topology(constraint.topology_key)
        eligible = self._eligibility.rows(constraint.needed_for(pod))
        counts = constraint.term.by_domain(topology, eligible)
        return _Check(constraint, counts, eligible, int(constraint.matches(pod)))

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        found = state.read(_NAME, _FilterState)
        deltas = found.tracker.deltas(nodes)
        verdicts: Iterator[VerdictColumn] = (
            _verdicts(check, nodes)
            if deltas is None
            else _verdicts_with_overlay(check, found.checks, nodes, deltas)
            for check in found.checks
        )
        first = next(verdicts)
        for _ in found.checks[1:]:
            if first.all():
                break  # the first reason is what counts
            first = np.where(first == 0, next(verdicts), first)
        return FilterResult(first, _STATUSES.__getitem__)

    # --- score ----------------------------------------------------------------------------------

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        constraints = self._now(state, pod)
        if not constraints.soft or not nodes.snapshot.node_count:
            return SKIP
        ignored = None
        if constraints.require_all_topologies:
            keys = [constraint.topology_key for constraint in constraints.soft]
            ignored = _lacking_any([self._topology(key) for key in keys], nodes)
        parts = tuple(
            self._per_node(constraint, nodes, ignored)
            if constraint.topology_key == HOSTNAME_LABEL
            else self._per_domain(pod, constraint, nodes, ignored)
            for constraint in constraints.soft
        )
        state.write(_SCORE_KEY, _ScoreState(parts, ignored))
        return OK

    def _per_node(
        self, constraint: TopologySpreadConstraint, nodes: NodeView, ignored: Mask | None
    ) -> _Part:
        topology = self._topology(constraint.topology_key)
        counts = constraint.term.column.dense(nodes.snapshot.size)
        scored = len(nodes) - (0 if ignored is None else int(np.count_nonzero(ignored)))
        return _Part(topology, _table(constraint, counts, scored), per_node=True)

    def _per_domain(
        self,
        pod: PodInfo,
        constraint: TopologySpreadConstraint,
        nodes: NodeView,
        ignored: Mask | None,
    ) -> _Part:
        topology = self._topology(constraint.topology_key)
        eligible = self._eligibility.rows(constraint.needed_for(pod))
        counts = constraint.term.by_domain(topology, eligible).totals
        domains = _domains_among(topology, nodes, ignored)
        if ignored is None and not topology.complete:
            # Only system defaults get here; an absent label is an empty value to them.
            counts = _with_unlabelled(topology, nodes, constraint.term, eligible)
            domains += _unlabelled_domain(topology, nodes)
        return _Part(topology, _table(constraint, counts, domains), per_node=False)

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        found = state.read(_SCORE_KEY, _ScoreState)
        first, *more = found.parts
        if more:
            score = first.at_rows(first.table, nodes)
            for part in more:
                score = score + part.at_rows(part.table, nodes)
            raw = _rounded(score)
        else:
            raw = first.at_rows(_rounded(first.table), nodes)
        if found.ignored is not None:
            lacking = _lacking_any([part.topology for part in found.parts], nodes)
            if lacking is not None:
                raw = np.where(lacking, 0, raw)
        return raw

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        ignored = state.read(_SCORE_KEY, _ScoreState).ignored
        scored = scores if ignored is None else scores[~ignored]
        if len(scored) == 0:
            return np.zeros_like(scores)
        highest, lowest = int(scored.max()), int(scored.min())
        if highest == 0:
            normalized = np.full_like(scores, MAX_NODE_SCORE)
        else:
            normalized = MAX_NODE_SCORE * (highest + lowest - scores) // highest
        if ignored is not None:
            normalized[ignored] = 0
        return normalized

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        if row is not None:
            yield from topology_labels(pod, nodes.snapshot, nodes.snapshot.node_at(row))
            return
        for index, each in enumerate(pod.spec.spread_constraints):
            if each.hard:
                words = f"make the spread over {each.topology_key} ScheduleAnyway"
                yield EditPod(words, _without_constraint(index))

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return spread_hints(self._constraints)


# --- filter -------------------------------------------------------------------------------------


def _verdicts(check: _Check, nodes: NodeView) -> VerdictColumn:
    """(n,) int32, verdict code at each position."""
    counts = check.counts
    constraint = check.constraint
    minimum = 0
    if counts.domain_count() >= constraint.min_domains:
        minimum = counts.smallest()
    too_skewed = counts.totals > constraint.max_skew - check.self_match + minimum
    return counts.topology.at_rows(too_skewed.astype(np.int32), nodes, missing=_NO_LABEL)


def _verdicts_with_overlay(
    check: _Check, checks: Sequence[_Check], nodes: NodeView, deltas: OverlayDeltas
) -> VerdictColumn:
    """(n,) int32, each position judged as if only its own overlay changes had happened."""
    counts, topology, constraint = check.counts, check.counts.topology, check.constraint
    delta = deltas.of(checks.index(check)).copy()
    for other in checks:
        # A node that lacks any of the topology keys counts for none of the constraints.
        delta[~nodes.gather(other.counts.topology.has)] = 0
    if check.eligible is not None:
        delta[~nodes.gather(check.eligible.mask)] = 0
    if not counts.topology.size:
        return np.full(len(nodes), _NO_LABEL, np.int32)
    domain = topology.domains_at(nodes)
    count = counts.totals[domain] + delta
    minimum: IntColumn = np.zeros(len(nodes), np.int64)
    if counts.domain_count() >= constraint.min_domains:
        emptiest, smallest, second = counts.two_smallest()
        others = np.where(domain == emptiest, second, smallest)
        minimum = np.where(counts.present[domain], np.minimum(others, count), smallest)
    too_skewed = count + check.self_match - minimum > constraint.max_skew
    has = nodes.gather(topology.has)
    return np.where(has, too_skewed, _NO_LABEL).astype(np.int32)


def _measure(
    constraints: Sequence[TopologySpreadConstraint],
) -> Callable[[PodInfo], Sequence[tuple[Hashable, int]]]:
    """The constraints (by index) for which a pod counts on a node."""

    def measure(other: PodInfo) -> Sequence[tuple[Hashable, int]]:
        # `updateWithPod` does not make the exceptions that counting makes: terminating pods are
        # included, and an empty selector matches everything, also where it counts nothing.
        return [
            (index, 1) for index, constraint in enumerate(constraints) if constraint.matches(other)
        ]

    return measure


# --- score --------------------------------------------------------------------------------------


def _table(constraint: TopologySpreadConstraint, counts: IntColumn, domains: int) -> FloatColumn:
    """The weight of each count in a score: the fewer domains there are, the less a pod weighs."""
    table: FloatColumn = np.multiply(counts, math.log(domains + 2))
    table += constraint.max_skew - 1
    return table


def _lacking_any(topologies: Sequence[Topology], nodes: NodeView) -> Mask | None:
    """(n,) bool, nodes that lack the label of any topology; None: no node does."""
    lacking: Mask | None = None
    for topology in topologies:
        if not topology.complete:
            lacks = ~nodes.gather(topology.has)
            lacking = lacks if lacking is None else lacking | lacks
    return lacking


def _domains_among(topology: Topology, nodes: NodeView, ignored: Mask | None) -> int:
    """In how many domains the scored nodes are."""
    if ignored is None and len(nodes) == nodes.snapshot.node_count:
        return topology.domain_count
    if topology.one_node_per_domain:
        has = nodes.gather(topology.has)
        return int(np.count_nonzero(has if ignored is None else has & ~ignored))
    domains = topology.domains_at(nodes)
    if ignored is not None:
        domains = domains[~ignored]
    return int(np.count_nonzero(np.bincount(domains, minlength=topology.size)[NO_DOMAIN + 1 :]))


def _unlabelled_domain(topology: Topology, nodes: NodeView) -> int:
    """1 if nodes without the label form a domain of their own among the scored ones.

    Without requireAllTopologies v1.36 reads an absent label as an empty value.
    """
    if bool(nodes.gather(topology.has).all()):
        return 0
    unnamed = topology.unnamed
    shared = unnamed is not None and bool(
        ((topology.domains_at(nodes) == unnamed) & nodes.gather(topology.has)).any()
    )
    return 0 if shared else 1


def _with_unlabelled(
    topology: Topology, nodes: NodeView, term: CountedTerm, eligible: EligibleRows | None
) -> IntColumn:
    """(D,) counts by domain where pods on nodes without the label count for the empty value."""
    totals = term.by_domain(topology, eligible).totals
    if topology.unnamed is None:
        return totals
    unlabelled = nodes.snapshot.alive & ~topology.has
    if eligible is not None:
        unlabelled &= eligible.mask
    totals = totals.copy()
    totals[topology.unnamed] += term.column.dense(nodes.snapshot.size)[unlabelled].sum()
    return totals


def _rounded(score: FloatColumn) -> IntColumn:
    """Rounded half away from zero, as Go does; scores are not negative."""
    whole = np.floor(score)
    return (whole + (2 * (score - whole) >= 1)).astype(np.int64)


def _without_constraint(index: int) -> Callable[[PodInfo], PodInfo]:
    def edit(pod: PodInfo) -> PodInfo:
        constraints = list(pod.spec.spread_constraints)
        constraints[index] = replace(constraints[index], when_unsatisfiable=SCHEDULE_ANYWAY)
        return replace(pod, spec=replace(pod.spec, spread_constraints=tuple(constraints)))

    return edit


_NODE_CHANGES: Final = (
    Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
)


def spread_hints(constraints: SpreadConstraints) -> Sequence[ClusterEventWithHint]:
    """The plugin's registrations."""
    hints = _SpreadHints(constraints)
    # A default constraint takes its selector from the pod's controller: not part of the spec.
    scope = HintScope.POD if constraints.hard_defaults else HintScope.SPEC_AND_LABELS
    # Of the pod, the function for nodes reads the topology keys alone.
    of_nodes = HintScope.POD if constraints.hard_defaults else HintScope.SPEC
    own_or_other = Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION
    return (
        ClusterEventWithHint(
            Resource.POD, Action.ADD | Action.DELETE, hints.after_pod_add_or_delete, scope
        ),
        ClusterEventWithHint(Resource.POD, own_or_other, hints.after_pod_update, HintScope.POD),
        # A pod counts no more once its deletion has begun. (kube-scheduler v1.36 wakes no pod.)
        ClusterEventWithHint(
            Resource.ASSIGNED_POD,
            Action.UPDATE_POD_TERMINATING,
            hints.after_pod_add_or_delete,
            scope,
        ),
        ClusterEventWithHint(Resource.NODE, _NODE_CHANGES, hints.after_node_change, of_nodes),
    )


class _SpreadHints:
    """The hint functions, which read the constraints of the rejected pod."""

    def __init__(self, constraints: SpreadConstraints) -> None:
        self._constraints = constraints

    def after_pod_add_or_delete(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the pod that was added or deleted counts."""
        other = change.new or change.old
        if not isinstance(other, PodInfo):
            return QUEUE
        if not _concerns(other, pod):
            return QUEUE_SKIP
        return queue_if(
            any(constraint.selector.matches(other.labels) for constraint in self._hard(pod))
        )

    def after_pod_update(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether a pod began or ceased to count, or the rejected pod tolerates more nodes."""
        old, new = change.old, change.new
        if not isinstance(old, PodInfo) or not isinstance(new, PodInfo):
            return QUEUE
        if not (_concerns(new, pod) and _concerns(old, pod)):
            return QUEUE_SKIP
        hard = self._hard(pod)
        tolerates_more = new.uid == pod.uid and new.spec.tolerations != old.spec.tolerations
        if tolerates_more and any(item.needed.tolerations is not None for item in hard):
            return QUEUE
        if new.labels == old.labels:
            return QUEUE_SKIP
        return queue_if(
            any(
                constraint.selector.matches(old.labels) != constraint.selector.matches(new.labels)
                for constraint in hard
            )
        )

    def after_node_change(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether a node joins or leaves the topology, or moves within it."""
        old, new = changed_node(change)
        if old is not None and new is not None and _reads_the_same(pod, old, new):
            return QUEUE_SKIP
        hard = self._hard(pod)
        before, after = _takes_part(old, hard), _takes_part(new, hard)
        if old is None or new is None or before != after:
            return queue_if(before or after)
        return queue_if(
            after
            and (
                old.taints != new.taints
                or any(
                    old.labels[constraint.topology_key] != new.labels[constraint.topology_key]
                    for constraint in hard
                )
            )
        )

    def _hard(self, pod: PodInfo) -> Sequence[TopologySpreadConstraint]:
        return self._constraints.of(pod).hard


def _concerns(other: PodInfo, pod: PodInfo) -> bool:
    """Whether another pod can count for the pod: itself, or one with a node in its namespace."""
    if other.uid == pod.uid:
        return True
    return had_node(other) and other.namespace == pod.namespace


def _reads_the_same(pod: PodInfo, old: NodeInfo, new: NodeInfo) -> bool:
    """Whether the pod has constraints of its own, and they read nothing of what changed.

    Settles most changes of a node's labels cheaply, which are compared with every rejected spec.
    """
    constraints = pod.spec.spread_constraints
    if not constraints or old.taints != new.taints:
        return False
    before, after = old.labels, new.labels
    for constraint in constraints:
        key = constraint.topology_key
        if before.get(key) != after.get(key):
            return False
    return True


def _takes_part(node: NodeInfo | None, constraints: Sequence[TopologySpreadConstraint]) -> bool:
    """Whether the node has every topology key."""
    return node is not None and all(
        constraint.topology_key in node.labels for constraint in constraints
    )
