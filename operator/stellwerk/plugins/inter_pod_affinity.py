"""InterPodAffinity: places pods beside those that affinity names, away from anti-affinity's.

It looks both ways: at what the incoming pod asks of existing pods, and at what they ask of it.
Invariant: verdicts and scores are those of kube-scheduler v1.36; of the queueing hints, at the end
of the module, a change that makes the pod schedulable is answered with Queue. kube-scheduler v1.36
answers QueueSkip to some of them: a pod that matches one of several anti-affinity terms is deleted,
a node leaves a domain where existing pods have anti-affinity to the pod, a namespace begins to
match a namespaceSelector.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

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
    FilterPlugin,
    NormalizeScorePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ProposePlugin,
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
from stellwerk.models.pod_affinity import AffinityTerm, PodAffinity
from stellwerk.plugins.pairwise.overlay_deltas import DeltaTracker, OverlayDeltas
from stellwerk.plugins.pairwise.spread_constraints import topology_labels
from stellwerk.plugins.shared.hints import changed_node, had_node
from stellwerk.profiles.spec.plugin_args import InterPodAffinityArgs
from stellwerk.snapshot.columns import IntColumn, Mask, VerdictColumn
from stellwerk.snapshot.counted_terms import CountedTerm
from stellwerk.snapshot.existing_terms import TermGroup, TermsByKey
from stellwerk.snapshot.pair_terms import (
    AffinitySelection,
    PodTerm,
    matches_as_existing,
    matches_as_incoming,
)
from stellwerk.snapshot.pod_counts import PairCounts
from stellwerk.snapshot.snapshot import NodeView
from stellwerk.snapshot.topology import Topology
from stellwerk_kube.compatibility import Compatibility, ReleaseRule

if TYPE_CHECKING:
    from stellwerk.models.scheduling_spec import SchedulingSpec

_NAME: Final = "InterPodAffinity"
_MAX_REMEMBERED_SPECS: Final = 2048
"""Specs whose terms are remembered; with unique specs, those of bound pods would pile up."""
_MAX_TERMS_ONE_BY_ONE: Final = 8
"""Terms of existing pods with one topology key whose sums by domain are kept term by term."""

# The first reason to fail, in kube-scheduler's order, has the highest code.
_EXISTING_ANTI: Final = 1
_ANTI: Final = 2
_AFFINITY: Final = 3
_ALL_TERMS: Final = -1
"""In an overlay's deltas: pods that match all required affinity terms.

Pods that match an anti-affinity term are filed under its index, existing pods' anti-affinity under
its topology key.
"""

_STATUSES: Final = {
    _EXISTING_ANTI: unschedulable(
        _NAME, "node(s) didn't satisfy existing pods anti-affinity rules"
    ),
    _ANTI: unschedulable(_NAME, "node(s) didn't match pod anti-affinity rules"),
    _AFFINITY: unresolvable(_NAME, "node(s) didn't match pod affinity rules"),
}


@dataclass(slots=True, eq=False)
class _OwnTerms:
    """The terms of one spec, ready to be counted."""

    affinity: PodTerm | None
    """Pods that match every required affinity term; None: there is no such term."""
    affinity_keys: tuple[str, ...]
    anti: tuple[tuple[PodTerm, str], ...]
    """(pods that match, topology key) of each required anti-affinity term."""
    preferred: tuple[tuple[PodTerm, str, int], ...]
    """(pods that match, topology key, weight); the weight of anti-affinity is negative."""

    @property
    def terms(self) -> Iterator[PodTerm]:
        """All pending pods."""
        if self.affinity is not None:
            yield self.affinity
        for term, _ in self.anti:
            yield term
        for term, _, _ in self.preferred:
            yield term


@dataclass(slots=True)
class _Table:
    """Pods by domain of a topology."""

    topology: Topology
    totals: IntColumn
    """(D,) int64, at least 0; read only."""


@dataclass(slots=True)
class _FilterState:
    affinity: tuple[_Table, ...]
    """Pods that match all required terms, for each term's topology."""
    first_of_its_kind: bool
    """Whether the pod matches its own required affinity terms."""
    anti: tuple[_Table, ...]
    existing_anti: dict[str, _Table]
    """Existing pods whose anti-affinity matches the pod, by topology key."""
    tracker: DeltaTracker


@dataclass(slots=True)
class _ScoreState:
    tables: tuple[_Table, ...]
    """Sums of weights by domain, one per topology key."""


class InterPodAffinity(
    PreFilterPlugin,
    FilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    NormalizeScorePlugin,
    EnqueueExtensions,
    ProposePlugin,
    EqualPodsPlugin,
):
    """Filters by required terms and scores by preferred ones, of the pod and of existing pods."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[BaseModel] | None] = InterPodAffinityArgs
    filter_reuse: ClassVar[Reuse] = Reuse.NEVER
    score_reuse: ClassVar[Reuse] = Reuse.NEVER

    def __init__(self, handle: Handle, args: InterPodAffinityArgs | None = None) -> None:
        self._counts: PairCounts = handle.snapshot.pair_counts
        self._labels = handle.snapshot.labels
        self._topology = handle.snapshot.topology
        self._args = args or InterPodAffinityArgs()
        self._rules = handle.compatibility
        self._own: WeakKeyDictionary[SchedulingSpec, _OwnTerms] = WeakKeyDictionary()

    @override
    def after_equal_pod(self, pod: PodInfo) -> EqualPods:
        affinity = pod.spec.pod_affinity
        if affinity.required or affinity.required_anti:
            return EqualPods.ANYTHING
        # Preferred terms count pods in whole domains, and those of equal pods count for this one.
        return EqualPods.ROW if affinity.empty else EqualPods.SCORES

    # --- filter ---------------------------------------------------------------------------------

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        affinity = pod.spec.pod_affinity
        if affinity.empty and not self._counts.pods_with_terms:
            return SKIP_FILTER
        existing_anti = self._summed(
            ((self._counts.existing_terms(pod.label_set).required_anti, 1),)
        )
        if not existing_anti and not affinity.required and not affinity.required_anti:
            return SKIP_FILTER
        own = self._own_terms(pod)
        state.write(
            _NAME,
            _FilterState(
                affinity=(
                    tuple(self._table(own.affinity, key) for key in own.affinity_keys)
                    if own.affinity
                    else ()
                ),
                first_of_its_kind=own.affinity is not None
                and own.affinity.selection.matches(pod.label_set, self._counts.namespaces),
                anti=tuple(self._table(term, key) for term, key in own.anti),
                existing_anti=existing_anti,
                tracker=DeltaTracker(self._measure(pod, own)),
            ),
        )
        return GO_ON

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        found = state.read(_NAME, _FilterState)
        deltas = found.tracker.deltas(nodes)
        codes: VerdictColumn = np.zeros(len(nodes), np.int32)
        for code, masks in (
            (_AFFINITY, _unmet_affinity(found, nodes, deltas)),
            (_ANTI, _violated_anti(found, nodes, deltas)),
            (_EXISTING_ANTI, self._rejected_by_existing(found, nodes, deltas)),
        ):
            for fails in masks:
                np.maximum(codes, np.multiply(fails, code, dtype=np.int32), out=codes)
        return FilterResult(codes, _STATUSES.__getitem__)

    def _rejected_by_existing(
        self, found: _FilterState, nodes: NodeView, deltas: OverlayDeltas | None
    ) -> Sequence[Mask]:
        """The rows where an existing pod's anti-affinity rejects the pod."""
        tables = found.existing_anti
        if deltas is None:
            return [_some(table, nodes, None) for table in tables.values()]
        # Anti-affinity of an overlay's pod may name a topology that no existing pod's term does.
        for key in deltas.changed():
            if isinstance(key, str) and key not in tables:
                topology = self._topology(key)
                tables[key] = _Table(topology, np.zeros(topology.size, np.int64))
        return [_some(table, nodes, deltas.of(key)) for key, table in tables.items()]

    def _measure(
        self, pod: PodInfo, own: _OwnTerms
    ) -> Callable[[PodInfo], Sequence[tuple[Hashable, int]]]:
        """The counts of the filter that another pod changes."""
        namespaces = self._counts.namespaces

        def measure(other: PodInfo) -> Sequence[tuple[Hashable, int]]:
            amounts: list[tuple[Hashable, int]] = []
            if own.affinity and own.affinity.selection.matches(other.label_set, namespaces):
                amounts.append((_ALL_TERMS, 1))
            amounts += (
                (index, 1)
                for index, (term, _) in enumerate(own.anti)
                if term.selection.matches(other.label_set, namespaces)
            )
            amounts += (
                (term.topology_key, 1)
                for term in other.spec.pod_affinity.required_anti
                if matches_as_existing(term.matcher, pod.label_set, namespaces)
            )
            return amounts

        return measure

    # --- score ----------------------------------------------------------------------------------

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        affinity = pod.spec.pod_affinity
        if affinity.empty and not self._counts.pods_with_terms:
            return SKIP
        prefers = bool(affinity.preferred or affinity.preferred_anti)
        if self._args.ignore_preferred_terms_of_existing_pods and not prefers:
            return SKIP
        own = self._own_terms(pod).preferred if prefers else ()
        matches = self._counts.existing_terms(pod.label_set)
        hard_weight = self._args.hard_pod_affinity_weight
        existing = [(matches.preferred, 1)]
        if hard_weight:
            existing.append((matches.required, hard_weight))
        tables = self._summed(existing, own)
        if not tables:
            return SKIP
        state.write(f"{_NAME}/score", _ScoreState(tuple(tables.values())))
        return OK

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        scores: IntColumn = np.zeros(len(nodes), np.int64)
        for table in state.read(f"{_NAME}/score", _ScoreState).tables:
            scores += table.topology.at_rows(table.totals, nodes, missing=0)
        return scores

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        if len(scores) == 0:
            return scores
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return np.zeros_like(scores)
        # In this order of operations, on floats: truncation then agrees with kube-scheduler.
        normalized = MAX_NODE_SCORE * ((scores - lowest) / (highest - lowest))
        return normalized.astype(np.int64)

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        if row is not None:
            yield from topology_labels(pod, nodes.snapshot, nodes.snapshot.node_at(row))
            return
        if pod.spec.pod_affinity.required:
            yield EditPod("drop the required pod affinity", _without_affinity)
        if pod.spec.pod_affinity.required_anti:
            yield EditPod("drop the required pod anti-affinity", _without_anti_affinity)

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return affinity_hints(self._counts, self._rules)

    # --- terms ----------------------------------------------------------------------------------

    def _own_terms(self, pod: PodInfo) -> _OwnTerms:
        own = self._own.get(pod.spec)
        if own is None or not self._counts.keep(own.terms):
            if len(self._own) >= _MAX_REMEMBERED_SPECS:
                self._own.clear()
            own = self._own[pod.spec] = _prepare(pod.spec.pod_affinity, self._counts, self._rules)
        return own

    def _table(self, term: CountedTerm, topology_key: str) -> _Table:
        topology = self._topology(topology_key)
        return _Table(topology, term.by_domain(topology).totals)

    def _summed(
        self,
        existing: Iterable[tuple[TermsByKey, int]],
        own: Iterable[tuple[CountedTerm, str, int]] = (),
    ) -> dict[str, _Table]:
        """Per topology key the sums of weight × pods; keys without any counted pod are left out.

        Args:
            existing: terms of existing pods, and what their own weights are multiplied with.
            own: terms of the pod, each with its topology key and weight.
        """
        tables: dict[str, _Table] = {}

        def add(key: str, totals: IntColumn, weight: int) -> None:
            weighted = totals * weight if weight != 1 else totals
            if key in tables:
                tables[key].totals = tables[key].totals + weighted
            else:
                tables[key] = _Table(self._topology(key), weighted)

        for term, key, weight in own:
            if term.counts_in(self._topology(key)):
                add(key, self._table(term, key).totals, weight)
        for groups, weight in existing:
            for key in self._labels.known(groups.keys()):
                for totals, own_weight in self._totals(groups[key], self._topology(key)):
                    add(key, totals, weight * own_weight)
        return tables

    def _totals(self, group: TermGroup, topology: Topology) -> Iterator[tuple[IntColumn, int]]:
        """(D,) counted pods with the weight of each, of the terms of a group, or of all at once."""
        if len(group.terms) <= _MAX_TERMS_ONE_BY_ONE:
            for term in group.terms:
                if term.counts_in(topology):
                    yield term.by_domain(topology).totals, term.weight or 1
            return
        totals = topology.sums(group.counts(len(topology.has)), None)
        # Weights may cancel each other out; then the first term decides.
        if totals.any() or any(term.counts_in(topology) for term in group.terms):
            yield totals, 1


def _prepare(affinity: PodAffinity, counts: PairCounts, rules: Compatibility) -> _OwnTerms:
    def counted(*terms: AffinityTerm) -> PodTerm:
        return counts.term(AffinitySelection.of((term.matcher for term in terms), rules))

    preferred = [(item.term, item.weight) for item in affinity.preferred]
    preferred += [(item.term, -item.weight) for item in affinity.preferred_anti]
    required = affinity.required
    return _OwnTerms(
        affinity=counted(*required) if required else None,
        affinity_keys=tuple(dict.fromkeys(term.topology_key for term in required)),
        anti=tuple((counted(term), term.topology_key) for term in affinity.required_anti),
        preferred=tuple((counted(term), term.topology_key, weight) for term, weight in preferred),
    )


def _unmet_affinity(
    found: _FilterState, nodes: NodeView, deltas: OverlayDeltas | None
) -> Sequence[Mask]:
    """The rows where a required affinity term is not fulfilled (`satisfyPodAffinity`)."""
    delta = None if deltas is None else deltas.of(_ALL_TERMS)
    unmet = [_none(table, nodes, delta) for table in found.affinity]
    if not unmet or not found.first_of_its_kind:
        return unmet
    # The first pod of a group that wants to be together may go wherever all labels are.
    first: Mask = np.ones(len(nodes), np.bool_)
    for table in found.affinity:
        anywhere = table.totals.sum()
        if delta is not None:
            anywhere = anywhere + delta * nodes.gather(table.topology.has)
        first &= anywhere == 0
    if not first.any():
        return unmet
    return [
        np.where(first, ~nodes.gather(table.topology.has), fails)
        for table, fails in zip(found.affinity, unmet, strict=True)
    ]


def _violated_anti(
    found: _FilterState, nodes: NodeView, deltas: OverlayDeltas | None
) -> Sequence[Mask]:
    """The rows with a pod that the pod's own anti-affinity means."""
    return [
        _some(table, nodes, None if deltas is None else deltas.of(index))
        for index, table in enumerate(found.anti)
    ]


def _some(table: _Table, nodes: NodeView, delta: IntColumn | None) -> Mask:
    """(n,) bool, where the node's domain has counted pods."""
    topology = table.topology
    if delta is None:
        return topology.at_rows(table.totals > 0, nodes, missing=False)
    found: Mask = topology.at_rows(table.totals, nodes, missing=0) + delta > 0
    return found & nodes.gather(topology.has)


def _none(table: _Table, nodes: NodeView, delta: IntColumn | None) -> Mask:
    """(n,) bool, where the node's domain has no counted pod, or the node lacks the label."""
    topology = table.topology
    if delta is None:
        return topology.at_rows(table.totals <= 0, nodes, missing=True)
    lacking: Mask = topology.at_rows(table.totals, nodes, missing=0) + delta <= 0
    return lacking | ~nodes.gather(topology.has)


def _without_affinity(pod: PodInfo) -> PodInfo:
    return _with_affinity(pod, replace(pod.spec.pod_affinity, required=()))


def _without_anti_affinity(pod: PodInfo) -> PodInfo:
    return _with_affinity(pod, replace(pod.spec.pod_affinity, required_anti=()))


def _with_affinity(pod: PodInfo, affinity: PodAffinity) -> PodInfo:
    return replace(pod, spec=replace(pod.spec, pod_affinity=affinity))


_MAX_COMPARED_TERMS: Final = 256
"""Anti-affinity terms of a pod that is gone with which rejected pods are compared. If it had more,
they are woken without: an attempt costs less."""


def affinity_hints(counts: PairCounts, rules: Compatibility) -> Sequence[ClusterEventWithHint]:
    """The plugin's registrations."""
    hints = _AffinityHints(counts, rules)
    scope = HintScope.SPEC_AND_LABELS
    return (
        ClusterEventWithHint(Resource.POD, Action.ADD, hints.after_pod_add, scope),
        ClusterEventWithHint(Resource.POD, Action.DELETE, hints.after_pod_delete, scope),
        ClusterEventWithHint(
            Resource.POD, Action.UPDATE_POD_LABEL, hints.after_pod_update, HintScope.POD
        ),
        ClusterEventWithHint(
            Resource.NODE,
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL,
            hints.after_node_change,
            scope,
        ),
        ClusterEventWithHint(
            Resource.NAMESPACE, Action.ADD | Action.UPDATE, hints.after_namespace_change, scope
        ),
    )


class _AffinityHints:
    """The hint functions, which read the labels of namespaces and the terms of existing pods.

    A pod that matches its own required affinity may go anywhere while no other pod matches it. So
    it is also woken when a match goes: by deletion, by its labels, or with the label of its node.
    (kube-scheduler v1.36 leaves it to the next flush.)
    """

    def __init__(self, counts: PairCounts, rules: Compatibility) -> None:
        self._counts = counts
        self._reads_once = ReleaseRule.READ_NAMESPACES_ONCE in rules

    def after_pod_add(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the new pod fulfils the pod's affinity."""
        if not isinstance(change.new, PodInfo):
            return QUEUE
        return queue_if(had_node(change.new) and self._fulfils(change.new, pod))

    def after_pod_delete(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the pod had anti-affinity to the deleted one, or the deleted one to it.

        Also whether the deleted one was of the pod's kind: the pod may be the first of it now.
        """
        gone = change.old
        if not isinstance(gone, PodInfo):
            return QUEUE
        if not had_node(gone):
            return QUEUE_SKIP
        if len(gone.spec.pod_affinity.required_anti) > _MAX_COMPARED_TERMS:
            # An attempt in vain costs less than so many terms, which each rejected pod is asked of.
            return QUEUE
        return queue_if(
            (self._fulfils(gone, pod) and self._fulfils(pod, pod))
            or any(self._matches(term, gone) for term in pod.spec.pod_affinity.required_anti)
            or any(
                matches_as_existing(term.matcher, pod.label_set, self._counts.namespaces)
                for term in gone.spec.pod_affinity.required_anti
            )
        )

    def after_pod_update(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether a pod's new labels fulfil the affinity or no longer violate the anti-affinity.

        Also whether the pod's kind has lost a member, and the pod may be the first of it now.
        """
        old, new = change.old, change.new
        if not isinstance(old, PodInfo) or not isinstance(new, PodInfo) or new.uid == pod.uid:
            return QUEUE
        if not (had_node(old) and had_node(new)):
            return QUEUE_SKIP
        fulfilled, fulfils = self._fulfils(old, pod), self._fulfils(new, pod)
        return queue_if(
            (fulfils and not fulfilled)
            or (fulfilled and not fulfils and self._fulfils(pod, pod))
            or any(
                self._matches(term, old) and not self._matches(term, new)
                for term in pod.spec.pod_affinity.required_anti
            )
        )

    def after_node_change(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether a node enters a domain of the affinity, or leaves one of an anti-affinity.

        A node that leaves a domain of the affinity helps a pod that may be the first of its kind.
        """
        old, new = changed_node(change)
        if old is None and new is None:
            return QUEUE
        affinity = {term.topology_key for term in pod.spec.pod_affinity.required}
        left = {term.topology_key for term in pod.spec.pod_affinity.required_anti}
        left |= self._counts.existing_terms(pod.label_set).required_anti.keys()
        if new is not None and old is None:
            # A node without the topology key takes any pod with anti-affinity.
            return queue_if(bool(left) or not affinity.isdisjoint(new.labels))
        if affinity and self._fulfils(pod, pod):
            left |= affinity
        before = {} if old is None else old.labels
        after = {} if new is None else new.labels
        moved = {key for key in left | affinity if before.get(key) != after.get(key)}
        return queue_if(
            any(key in before for key in moved & left)
            or any(key in after for key in moved & affinity)
        )

    def after_namespace_change(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether terms that read the labels of the namespace may concern the pod now.

        They are the pod's own, or those of pods that have kept it away from them.
        """
        affinity = pod.spec.pod_affinity
        if any(
            term.matcher.namespace_selector is not None
            for term in (*affinity.required, *affinity.required_anti)
        ):
            return QUEUE
        return queue_if(bool(self._counts.pods_with_terms) and _is_of(change, pod.namespace))

    def _fulfils(self, other: PodInfo, pod: PodInfo) -> bool:
        """Whether another pod matches all of the pod's required affinity terms."""
        terms = pod.spec.pod_affinity.required
        return bool(terms) and all(self._matches(term, other) for term in terms)

    def _matches(self, term: AffinityTerm, other: PodInfo) -> bool:
        return matches_as_incoming(
            term.matcher,
            other.label_set,
            self._counts.namespaces,
            reads_once=self._reads_once,
        )


def _is_of(change: ClusterChange, namespace: str) -> bool:
    """Whether a namespace of this name has changed."""
    changed = change.new
    metadata = changed.get("metadata") if isinstance(changed, dict) else None
    return metadata is None or metadata.get("name") == namespace
