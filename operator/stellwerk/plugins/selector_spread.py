"""SelectorSpread: the spreading of kube-scheduler 1.18, off by default.

Prefers nodes and zones with few pods of the same services and controllers. Later versions spread
by PodTopologySpread's default constraints instead. Invariant: scores are those of 1.18's plugin
(`DefaultPodTopologySpread` at the time), also for pods with constraints of their own: no score.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.interface import (
    MAX_NODE_SCORE,
    EqualPods,
    EqualPodsPlugin,
    NormalizeScorePlugin,
    PreScorePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, CycleState, Status
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.pairwise.default_selector import DefaultSelectors
from stellwerk.snapshot.columns import ChangeCursor, IntColumn, RowColumn
from stellwerk.snapshot.pair_terms import PodTerm, SpreadSelection
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import zone_key

_ZONE_WEIGHT: Final = 2.0 / 3.0


@dataclass(slots=True)
class _State:
    term: PodTerm | None
    """The pods that the new one would join; None: nothing selects it."""
    zones: RowColumn
    """(n,) index of the zone of each feasible node; 0 for nodes without one."""


class SelectorSpread(PreScorePlugin, ScorePlugin, NormalizeScorePlugin, EqualPodsPlugin):
    """Scores 100 where no pod of the group is, less the more are on the node and in its zone."""

    name: ClassVar[str] = "SelectorSpread"
    aliases: ClassVar[Sequence[str]] = ("DefaultPodTopologySpread",)
    score_reuse: ClassVar[Reuse] = Reuse.NEVER

    def __init__(self, handle: Handle, _args: BaseModel | None = None) -> None:
        self._snapshot = handle.snapshot
        self._selectors = DefaultSelectors(handle.objects)
        self._zones: RowColumn = np.zeros(0, np.intp)
        """(N,) zone index of every row, 0 without zone; as of `_zones_cursor`."""
        self._zones_cursor = ChangeCursor(handle.snapshot.node_changes)

    @override
    def after_equal_pod(self, pod: PodInfo) -> EqualPods:
        return EqualPods.SCORES

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        if pod.spec.spread_constraints:
            return OK
        selector = self._selectors.of(pod)
        term = None
        if selector is not None:
            term = self._snapshot.pair_counts.term(SpreadSelection(pod.namespace, selector))
        state.write(self.name, _State(term, nodes.gather(self._zone_rows())))
        return OK

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        found = state.get(self.name, _State)
        if found is None or found.term is None:
            return np.zeros(len(nodes), np.int64)
        return nodes.gather(found.term.column.dense(self._snapshot.size))

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        found = state.get(self.name, _State)
        if found is None:
            return scores
        by_node = _percent_below_highest(scores)
        by_zone = np.bincount(found.zones, weights=scores).astype(np.int64)
        by_zone[:1] = 0
        in_zone = found.zones > 0
        if not in_zone.any():
            return by_node.astype(np.int64)
        zone_score = _percent_below_highest(by_zone)[found.zones]
        both = by_node * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * zone_score
        return np.where(in_zone, both, by_node).astype(np.int64)

    def _zone_rows(self) -> RowColumn:
        if not self._zones_cursor.current:
            self._zones_cursor.catch_up()
            index = {"": 0}
            keys = (zone_key(node.labels) if node else "" for node in self._snapshot.nodes)
            self._zones = np.array([index.setdefault(key, len(index)) for key in keys], np.intp)
        return self._zones


def _percent_below_highest(counts: IntColumn) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Float64 of the same shape: 100 where nothing is, 0 at the highest count."""
    highest = int(counts.max(initial=0))
    if not highest:
        return np.full(len(counts), float(MAX_NODE_SCORE))
    below: np.ndarray[tuple[int], np.dtype[np.float64]] = MAX_NODE_SCORE * (
        (highest - counts) / highest
    )
    return below
