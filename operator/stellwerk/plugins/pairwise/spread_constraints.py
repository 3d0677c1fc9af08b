"""The spread constraints of a pod, ready to be counted: its own, or the profile's defaults.

PodTopologySpread asks at every extension point; InterPodAffinity proposes the same labels
(`topology_labels`), so that what both ask for is one change. Invariant: constraints of one spec are
prepared once, and their terms are counted for as long as they are asked for.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from stellwerk.framework.changes import Change, SetLabels
from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import SpreadConstraint
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.plugins.pairwise.default_selector import DefaultSelectors
from stellwerk.plugins.pairwise.node_eligibility import Restriction, restriction
from stellwerk.profiles.spec.plugin_args import DefaultConstraint, PodTopologySpreadArgs
from stellwerk.snapshot.pair_terms import PodTerm, SpreadSelection
from stellwerk.snapshot.pod_counts import PairCounts
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.node import HOSTNAME_LABEL, ZONE_LABEL, NodeInfo
from stellwerk_kube.selectors import LabelSelector, Requirement

_NOTHING: Final = LabelSelector((Requirement("", "In"),))
"""Stands for a constraint without selector: no pod has a label among no values."""
_KEPT_SPECS: Final = 2048
"""Specs that are remembered; with unique specs, those of bound pods would pile up."""
_MAX_SELECTORS: Final = 64
"""Default selectors remembered per spec."""


@dataclass(slots=True, eq=False)
class TopologySpreadConstraint:
    """One constraint of one spec."""

    max_skew: int
    topology_key: str
    min_domains: int
    namespace: str
    selector: LabelSelector
    term: PodTerm
    needed: Restriction
    """The conditions on which a node counts."""
    needs_names: bool
    """Whether `needed` also has the pod's own node names."""

    def needed_for(self, pod: PodInfo) -> Restriction:
        """The conditions on which a node counts for this pod of the spec."""
        if not self.needs_names or pod.node_names is None:
            return self.needed
        return replace(self.needed, node_names=pod.node_names)

    def matches(self, pod: PodInfo) -> bool:
        """Whether the selector matches the pod; an empty one matches all, in every release."""
        return pod.namespace == self.namespace and self.selector.matches(pod.labels)


@dataclass(frozen=True, slots=True)
class Constraints:
    """The topology spread constraints of a pod."""

    hard: tuple[TopologySpreadConstraint, ...] = ()
    soft: tuple[TopologySpreadConstraint, ...] = ()
    require_all_topologies: bool = True
    """Whether nodes that lack one of the soft constraints' labels are left out of scoring."""

    @property
    def terms(self) -> Iterator[PodTerm]:
        """The selections of pods to be counted for them."""
        return (constraint.term for constraint in (*self.hard, *self.soft))


_NONE: Final = Constraints()
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
"""The whenUnsatisfiable of a constraint that scores and does not filter."""

_SYSTEM_DEFAULTS: Final = tuple(
    SpreadConstraint(
        max_skew=max_skew,
        topology_key=key,
        when_unsatisfiable=SCHEDULE_ANYWAY,
        selector=None,
        min_domains=None,
        honor_node_affinity=True,
        honor_node_taints=False,
    )
    for key, max_skew in ((HOSTNAME_LABEL, 3), (ZONE_LABEL, 5))
)


class SpreadConstraints:
    """Prepares and remembers the constraints of pods."""

    def __init__(
        self,
        args: PodTopologySpreadArgs,
        counts: PairCounts,
        objects: ObjectStore,
        rules: Compatibility = AS_RECORDED,
        *,
        gives_way: bool = False,
    ) -> None:
        """`gives_way`: every DoNotSchedule constraint is taken for a ScheduleAnyway one."""
        self._gives_way = gives_way
        self._counts = counts
        self._rules = rules
        self._system = args.defaulting_type == "System"
        self._defaults = (
            _SYSTEM_DEFAULTS if self._system else tuple(map(_parsed, args.default_constraints))
        )
        self.hard_defaults = any(constraint.hard for constraint in self._defaults)
        """Whether pods without constraints of their own may be filtered."""
        self._selectors = DefaultSelectors(objects)
        self._own: WeakKeyDictionary[SchedulingSpec, Constraints] = WeakKeyDictionary()
        self._defaulted: WeakKeyDictionary[
            SchedulingSpec, dict[tuple[str, LabelSelector], Constraints]
        ] = WeakKeyDictionary()

    def of(self, pod: PodInfo) -> Constraints:
        """The pod's constraints."""
        if pod.spec.spread_constraints:
            found = self._own.get(pod.spec)
            if found is None or not self._counts.keep(found.terms):
                _make_room(self._own)
                found = self._own[pod.spec] = self._prepare(pod, pod.spec.spread_constraints, None)
            return found
        if not self._defaults:
            return _NONE
        selector = self._selectors.of(pod)
        return _NONE if selector is None else self._with_selector(pod, selector)

    def _with_selector(self, pod: PodInfo, selector: LabelSelector) -> Constraints:
        if pod.spec not in self._defaulted:
            _make_room(self._defaulted)
        by_selector = self._defaulted.setdefault(pod.spec, {})
        key = (pod.namespace, selector)
        found = by_selector.get(key)
        if found is None or not self._counts.keep(found.terms):
            if len(by_selector) >= _MAX_SELECTORS:
                by_selector.clear()
            found = by_selector[key] = self._prepare(pod, self._defaults, selector)
        return found

    def _prepare(
        self,
        pod: PodInfo,
        constraints: Iterable[SpreadConstraint],
        selector: LabelSelector | None,
    ) -> Constraints:
        listed = tuple(constraints)
        if self._gives_way:
            listed = tuple(replace(each, when_unsatisfiable=SCHEDULE_ANYWAY) for each in listed)
        hard = [constraint for constraint in listed if constraint.hard]
        soft = [constraint for constraint in listed if not constraint.hard]
        # kube-scheduler's own defaults let nodes without a zone take part in spreading by hostname.
        require_all = selector is None or not self._system
        hard_keys = frozenset(constraint.topology_key for constraint in hard)
        soft_keys = frozenset(constraint.topology_key for constraint in soft if require_all)
        return Constraints(
            tuple(self._constraint(pod, item, selector, hard_keys) for item in hard),
            tuple(self._constraint(pod, item, selector, soft_keys) for item in soft),
            require_all,
        )

    def _constraint(
        self,
        pod: PodInfo,
        constraint: SpreadConstraint,
        default_selector: LabelSelector | None,
        topology_keys: frozenset[str],
    ) -> TopologySpreadConstraint:
        selector = constraint.selector if default_selector is None else default_selector
        if selector is None:
            selector = _NOTHING
        return TopologySpreadConstraint(
            max_skew=constraint.max_skew,
            topology_key=constraint.topology_key,
            min_domains=constraint.min_domains or 1,
            namespace=pod.namespace,
            selector=selector,
            term=self._counts.term(SpreadSelection.of(pod.namespace, selector, self._rules)),
            needed=replace(restriction(pod, constraint, topology_keys), node_names=None),
            needs_names=constraint.honor_node_affinity,
        )


def _make_room(remembered: WeakKeyDictionary[SchedulingSpec, Any]) -> None:
    if len(remembered) >= _KEPT_SPECS:
        remembered.clear()


def _parsed(constraint: DefaultConstraint) -> SpreadConstraint:
    """A default constraint; matchLabelKeys are void: the selector is derived from the pod."""
    return SpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        selector=None,
        min_domains=constraint.min_domains,
        honor_node_affinity=constraint.node_affinity_policy != "Ignore",
        honor_node_taints=constraint.node_taints_policy == "Honor",
    )


_MAX_TRIED_VALUES: Final = 4
"""Values of a label that are tried."""


def topology_labels(pod: PodInfo, snapshot: Snapshot, node: NodeInfo) -> Iterator[Change]:
    """The labels that the pod's hard constraints and affinity go by, with values of other nodes."""
    spec = pod.spec
    keys = [each.topology_key for each in spec.spread_constraints if each.hard]
    keys += [term.topology_key for term in spec.pod_affinity.required]
    for key in dict.fromkeys(keys):
        if key not in node.labels:
            for value in snapshot.label(key).values[:_MAX_TRIED_VALUES]:
                yield SetLabels(node.name, ((key, value),))
