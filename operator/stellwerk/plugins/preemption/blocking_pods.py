"""Which pods of lower priority can stand in a pod's way on a node, wherever they run.

CrossNodePreemption asks. Invariant: a pod that is not named for a node cannot, by leaving, end a
rejection there that is due to resources, ports, volumes, required anti-affinity or a hard spread
constraint of the pod's own spec; constraints that a profile adds as defaults are not looked at,
nor is the anti-affinity of nominated pods, which counts only while some placed pod has a term, too.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import PodMatcher
from stellwerk.snapshot.pair_terms import (
    SpreadSelection,
    matches_as_existing,
    matches_as_incoming,
)
from stellwerk.snapshot.snapshot import Snapshot

Domain: TypeAlias = tuple[str, str]
"""Topology key and value."""
Meant: TypeAlias = Callable[[PodInfo], bool]


@dataclass(frozen=True, slots=True)
class _Rule:
    """Something by which an existing pod keeps the incoming one out of a whole domain."""

    topology_key: str
    blocks: Meant


class BlockingPods:
    """The pods of lower priority that block, found once for one pending pod."""

    def __init__(self, snapshot: Snapshot, pod: PodInfo) -> None:
        self._snapshot = snapshot
        self._pod = pod
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
        """The pods of lower priority on a node."""
        priority = self._pod.priority
        return (pod for pod in self._snapshot.pods[row].values() if pod.priority < priority)

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
        """What the pending pod itself asks to be kept away from."""
        spec = self._pod.spec
        for term in spec.pod_affinity.required_anti:
            yield _Rule(term.topology_key, self._repelled_by(term.matcher))
        for constraint in spec.spread_constraints:
            if constraint.hard and constraint.selector is not None:
                selection = SpreadSelection(self._pod.namespace, constraint.selector)
                yield _Rule(constraint.topology_key, self._counted_by(selection))

    def _repelled_by(self, matcher: PodMatcher) -> Meant:
        namespaces = self._snapshot.pair_counts.namespaces
        return lambda other: matches_as_incoming(matcher, other.label_set, namespaces)

    def _counted_by(self, selection: SpreadSelection) -> Meant:
        namespaces = self._snapshot.pair_counts.namespaces
        return lambda other: (
            not other.terminating and selection.matches(other.label_set, namespaces)
        )
