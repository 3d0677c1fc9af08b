"""How many feasible nodes are enough, and which: kube-scheduler's sampling.

The filter phase asks where a profile sets percentageOfNodesToScore. Invariant: searches go on where
the last one ended, in the order of the node tree, so that every node has its turn.
"""

from typing import Final

import numpy as np

from stellwerk.framework.types import Feasibility
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import Snapshot

MIN_NODES_TO_FIND: Final = 100


class NodeSampling:
    """One profile's search order, and where its next search begins (`nextStartNodeIndex`)."""

    def __init__(self, snapshot: Snapshot, percentage: int, *, one_is_enough: bool) -> None:
        """`one_is_enough`: without scores one feasible node is as good as another."""
        self._snapshot = snapshot
        self._percentage = percentage
        self._one_is_enough = one_is_enough
        self._next_start = 0

    def narrow(self, pod: PodInfo, found: Feasibility) -> None:
        """Keep only as many feasible rows as kube-scheduler would look for, in its order."""
        nominated = found.nominated_row(pod, self._snapshot)
        if nominated is None:
            self._search(found)
            return
        # Looked at before the search begins, which takes place only if an extender refuses it.
        found.unsampled = (found.fits, found.evaluated)
        found.keep(np.array([nominated], dtype=np.intp), evaluated=1)

    def look_beyond_nominated(self, found: Feasibility) -> None:
        """Search after all, as if no node were nominated."""
        if found.unsampled is not None:
            found.fits, found.evaluated = found.unsampled
            found.rows = found.unsampled = None
            self._search(found)

    def _search(self, found: Feasibility) -> None:
        snapshot = self._snapshot
        order = snapshot.visit_order
        candidates = found.candidate_rows(snapshot)
        if candidates is not None:
            order = order[candidates[order]]
        wanted = 1 if self._one_is_enough else nodes_to_find(self._percentage, len(order))
        if wanted >= len(order):
            return
        start = self._next_start % len(order)
        order = np.concatenate([order[start:], order[:start]])
        reached = np.flatnonzero(found.fits[order])[:wanted]
        looked_at = int(reached[-1]) + 1 if len(reached) == wanted else len(order)
        found.keep(order[reached], evaluated=looked_at)
        self._next_start = (self._next_start + looked_at) % snapshot.node_count


def nodes_to_find(percentage: int | None, nodes: int) -> int:
    """How many feasible nodes are enough (`numFeasibleNodesToFind`); None: all, 0: adaptive.

    Values above 100 count as 100, negative ones as 0; below 100 nodes all are looked at.
    """
    if percentage is None or nodes < MIN_NODES_TO_FIND:
        return nodes
    if percentage <= 0:
        percentage = max(5, 50 - nodes // 125)
    return max(MIN_NODES_TO_FIND, nodes * min(percentage, 100) // 100)
