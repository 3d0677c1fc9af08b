"""kube-scheduler's sampling of feasible nodes, for profiles that set percentageOfNodesToScore.

FilterPhase narrows what the filters have found; profiles without the setting have no NodeSampling.
The filters judge every row at once also then; sampling selects the rows that kube-scheduler would
have found before it stopped. Invariant: each search starts at the node after the last one of the
profile's search before (`nextStartNodeIndex`), in the order of the node tree, so that over time all
nodes are considered equally often. A new version of the profile begins at the first node.
"""

from typing import Final

import numpy as np

from stellwerk.framework.types import Feasibility
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import Snapshot

MIN_NODES_TO_FIND: Final = 100
"""Feasible nodes that are enough in a small cluster (`minFeasibleNodesToFind`, v1.36). With fewer
nodes than this, every node is considered."""


class NodeSampling:
    """The share of feasible nodes that a profile scores, and where the next search starts."""

    def __init__(self, snapshot: Snapshot, percentage: int, *, one_is_enough: bool) -> None:
        """`one_is_enough`: nothing scores, so that one feasible node is as good as another."""
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
        # kube-scheduler tries the nominated node first. It starts the search only if an extender
        # refuses that node (`look_beyond_nominated`).
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
    """Return the number of feasible nodes that is enough (`numFeasibleNodesToFind`).

    A percentage of None means all, 0 adaptive. Values above 100 count as 100, negative ones as 0;
    below 100 nodes every node is considered.
    """
    if percentage is None or nodes < MIN_NODES_TO_FIND:
        return nodes
    if percentage <= 0:
        percentage = max(5, 50 - nodes // 125)
    return max(MIN_NODES_TO_FIND, nodes * min(percentage, 100) // 100)
