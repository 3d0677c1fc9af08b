"""Changes of counts by the pods of an overlay, position by position.

InterPodAffinity and PodTopologySpread judge hypotheses with it: nominated pods added to a row,
victims taken off one. Invariant: after `follow` the deltas are those of all changes of the overlay.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from stellwerk.models.pod import LabelSet, PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeOverlay, NodeView

if TYPE_CHECKING:
    from stellwerk.models.scheduling_spec import SchedulingSpec

Amounts: TypeAlias = Sequence[tuple[Hashable, int]]
"""(what is counted, by how much one pod changes it); only what changes."""

_KEPT: Final = 4


class OverlayDeltas:
    """Changes of counts of one overlay, followed step by step: preemption asks after every rank."""

    def __init__(self, overlay: NodeOverlay, rows: int) -> None:
        self._overlay = overlay
        self._rows = rows
        self._followed = 0
        self._deltas: dict[Hashable, IntColumn] = {}

    def follow(self, measure: Callable[[PodInfo], Amounts]) -> None:
        """Take in the changes since the last call."""
        log = self._overlay.log
        for position, pod, change in log[self._followed :]:
            for counted, amount in measure(pod):
                if counted not in self._deltas:
                    self._deltas[counted] = np.zeros(self._rows, np.int64)
                self._deltas[counted][position] += change * amount
        self._followed = len(log)

    def changed(self) -> Sequence[Hashable]:
        """Everything whose count changes somewhere."""
        return tuple(self._deltas)

    def of(self, counted: Hashable) -> IntColumn:
        """(n,) int64, change of the count at each position; read only."""
        delta = self._deltas.get(counted)
        return np.zeros(self._rows, np.int64) if delta is None else delta


class DeltaTracker:
    """The deltas of the overlays that one scheduling attempt looks at."""

    def __init__(self, measure: Callable[[PodInfo], Amounts]) -> None:
        self._measure = measure
        self._by_overlay: dict[NodeOverlay, OverlayDeltas] = {}
        self._known: dict[tuple[LabelSet, SchedulingSpec], Amounts] = {}

    def deltas(self, nodes: NodeView) -> OverlayDeltas | None:
        """The deltas of the view's overlay; None: it has none, or an empty one."""
        overlay = nodes.overlay
        if overlay is None or not overlay.log:
            return None
        deltas = self._by_overlay.pop(overlay, None) or OverlayDeltas(overlay, len(nodes))
        if len(self._by_overlay) >= _KEPT:
            del self._by_overlay[next(iter(self._by_overlay))]
        self._by_overlay[overlay] = deltas
        deltas.follow(self._amounts)
        return deltas

    def _amounts(self, pod: PodInfo) -> Amounts:
        """The counts that a pod changes; the many pods of one workload are judged once."""
        key = (pod.label_set, pod.spec)
        amounts = self._known.get(key)
        if amounts is None:
            amounts = self._known[key] = self._measure(pod)
        return amounts
