"""Placed pods that keep a pending one off a node, on it or from anywhere in its domains.

`WouldFit` asks it. Invariant: pods of any priority count, since what is looked
for is what an operator of the cluster could do, not only what preemption may.
"""

from collections.abc import Iterator
from typing import Final

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import SpreadConstraint
from stellwerk.snapshot.pair_terms import (
    SpreadSelection,
    matches_as_existing,
    matches_as_incoming,
)
from stellwerk.snapshot.snapshot import Snapshot

_PODS_AT_ONCE: Final = 1000
_MOST_PODS: Final = 110
"""So many of one node are named."""


class PodsInTheWay:
    """Pods by the domain that they keep the pending one out of, once `gather` is through."""

    def __init__(self, snapshot: Snapshot, pod: PodInfo) -> None:
        self._snapshot = snapshot
        self._pod = pod
        self._by_domain: dict[tuple[str, str], dict[str, PodInfo]] = {}
        """(topology key, value) → pods by uid."""
        self._spread: dict[tuple[SpreadConstraint, str], list[PodInfo]] = {}
        """(constraint of the pending pod, value of its topology key) → pods that it counts."""

    def gather(self) -> Iterator[None]:
        """Look at every placed pod; comes up for air now and then."""
        looked_at = 0
        for row in self._snapshot.row_of.values():
            for other in self._snapshot.pods[row].values():
                self._place(row, other)
            looked_at += len(self._snapshot.pods[row])
            if looked_at >= _PODS_AT_ONCE:
                looked_at = 0
                yield

    def for_row(self, row: int) -> list[PodInfo]:
        """The pods that could make room by leaving: of low priority first."""
        found = dict(self._snapshot.pods[row])
        labels = self._snapshot.node_at(row).labels
        for (key, value), pods in self._by_domain.items():
            if labels.get(key) == value:
                found |= pods
        ordered = sorted(found.values(), key=lambda each: (each.priority, each.key))
        return ordered[:_MOST_PODS]

    def counted_beside(self, row: int) -> Iterator[tuple[SpreadConstraint, str, list[PodInfo]]]:
        """(constraint, domain of the row, pods that are counted there, low priorities first)."""
        labels = self._snapshot.node_at(row).labels
        for (constraint, value), pods in self._spread.items():
            if labels.get(constraint.topology_key) == value:
                yield constraint, value, sorted(pods, key=lambda each: (each.priority, each.key))

    def _place(self, row: int, other: PodInfo) -> None:
        labels = self._snapshot.node_at(row).labels
        keys = self._keys(other)
        for constraint in self._counting(other):
            key = constraint.topology_key
            keys.add(key)
            if key in labels:
                self._spread.setdefault((constraint, labels[key]), []).append(other)
        for key in keys & labels.keys():
            self._by_domain.setdefault((key, labels[key]), {})[other.uid] = other

    def _keys(self, other: PodInfo) -> set[str]:
        """The topology keys over which affinity keeps a pod and the pending one apart."""
        pod, namespaces = self._pod, self._snapshot.pair_counts.namespaces
        keys = {
            term.topology_key
            for term in other.spec.pod_affinity.required_anti
            if matches_as_existing(term.matcher, pod.label_set, namespaces)
        }
        for term in pod.spec.pod_affinity.required_anti:
            if matches_as_incoming(term.matcher, other.label_set, namespaces):
                keys.add(term.topology_key)
        return keys

    def _counting(self, other: PodInfo) -> Iterator[SpreadConstraint]:
        """The hard constraints of the pending pod that count another one."""
        pod, namespaces = self._pod, self._snapshot.pair_counts.namespaces
        for constraint in pod.spec.spread_constraints:
            if constraint.hard and constraint.selector is not None:
                selection = SpreadSelection(pod.namespace, constraint.selector)
                if selection.matches(other.label_set, namespaces):
                    yield constraint
