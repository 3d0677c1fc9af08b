"""The nodes that count for a pod when its topology spread is measured.

PodTopologySpread asks for each constraint; pods of many specs share the answers. Invariant: after
`rows` a mask equals a fresh evaluation of every node.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_affinity import SpreadConstraint
from stellwerk.plugins.shared.node_matching import (
    matching_labels,
    matching_nodes,
    named,
    untolerated_counts,
)
from stellwerk.snapshot.columns import ABSENT, Mask, RowCursor
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk.snapshot.topology import EligibleRows
from stellwerk_kube.selectors import NodeSelector
from stellwerk_kube.taints import NO_EXECUTE, NO_SCHEDULE, Toleration

_MAX_RESTRICTIONS: Final = 256
_HARD: Final = (NO_SCHEDULE, NO_EXECUTE)


@dataclass(frozen=True, slots=True)
class Restriction:
    """The conditions on which a node counts."""

    topology_keys: tuple[str, ...] = ()
    """Labels that it must have."""
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: NodeSelector | None = None
    node_names: frozenset[str] | None = None
    """The pod's metadata.name fields; None: any node."""
    tolerations: tuple[Toleration, ...] | None = None
    """Taints that they do not stand exclude a node; None: taints do not matter."""


UNRESTRICTED: Final = Restriction()


def restriction(
    pod: PodInfo, constraint: SpreadConstraint, topology_keys: frozenset[str]
) -> Restriction:
    """The conditions on which a node counts for a constraint (`matchNodeInclusionPolicies`).

    A single topology key restricts nothing here: nodes without it are in no domain anyway.
    """
    affinity = constraint.honor_node_affinity
    return Restriction(
        topology_keys=tuple(sorted(topology_keys)) if len(topology_keys) > 1 else (),
        node_selector=tuple(sorted(pod.spec.node_selector.items())) if affinity else (),
        node_affinity=pod.spec.required_node_affinity if affinity else None,
        node_names=pod.node_names if affinity else None,
        tolerations=pod.spec.tolerations if constraint.honor_node_taints else None,
    )


class _Rows(EligibleRows):
    """The rows that fulfil one restriction, followed through changes of nodes."""

    def __init__(self, snapshot: Snapshot, needed: Restriction) -> None:
        self._snapshot = snapshot
        self._needed = needed
        self._cursor = RowCursor(snapshot, snapshot.node_changes)
        self.mask: Mask = np.zeros(0, np.bool_)
        self.version = 0
        self.everywhere = False
        """Whether every node is eligible."""

    def refresh(self) -> None:
        """Evaluate the nodes that changed since the last call."""
        if self._cursor.current:
            return
        changed = self._cursor.advance()
        if changed is None:
            self.mask = self._evaluate(NodeView(self._snapshot))
            self.version += 1
        else:
            rows = np.array(changed, dtype=np.intp)
            eligible = self._evaluate(NodeView(self._snapshot, rows))
            if (self.mask[rows] != eligible).any():
                self.mask[rows] = eligible
                self.version += 1
        self.everywhere = int(np.count_nonzero(self.mask)) == self._snapshot.node_count

    def _evaluate(self, nodes: NodeView) -> Mask:
        needed = self._needed
        eligible: Mask = nodes.gather(self._snapshot.alive).copy()
        for key in needed.topology_keys:
            eligible &= nodes.label(key)[0] != ABSENT
        if needed.node_selector:
            eligible &= matching_labels(nodes, dict(needed.node_selector))
        if needed.node_affinity is not None:
            eligible &= matching_nodes(nodes, needed.node_affinity)
        if needed.node_names is not None:
            eligible &= named(nodes, needed.node_names)
        if needed.tolerations is not None:
            eligible &= untolerated_counts(nodes, needed.tolerations, _HARD) == 0
        return eligible


class NodeEligibility:
    """Eligible rows by restriction; the least recently used of many make room."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._rows: dict[Restriction, _Rows] = {}

    def rows(self, needed: Restriction) -> EligibleRows | None:
        """The rows that fulfil the restriction; None: those of all nodes."""
        if needed is UNRESTRICTED or needed == UNRESTRICTED:
            return None
        found = self._rows.pop(needed, None)
        if found is None:
            if len(self._rows) >= _MAX_RESTRICTIONS:
                del self._rows[next(iter(self._rows))]
            found = _Rows(self._snapshot, needed)
        self._rows[needed] = found
        found.refresh()
        return None if found.everywhere else found
