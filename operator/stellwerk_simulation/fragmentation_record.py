"""The fragmentation of the cluster after each placement of a run, worked out in blocks.

A simulation keeps one. Each placement changes one node; measuring many such states at once takes a
fraction of the time that one after the other would. Invariant: the figures are those that
`Fragmentation.column` would have had after each placement.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from stellwerk.plugins.gpu.devices import GpuDevices
from stellwerk.plugins.gpu.fragmentation import FloatColumn, Fragmentation, TypicalPods, idle_cpu
from stellwerk.snapshot.snapshot import NodeView, Snapshot

_BLOCK: Final = 256


class FragmentationRecord:
    """The states that nodes went through."""

    def __init__(self, snapshot: Snapshot, typical: TypicalPods) -> None:
        self._snapshot = snapshot
        self._measure = Fragmentation(snapshot, typical)
        self._devices = snapshot.book(GpuDevices)
        self._begun: FloatColumn = np.zeros(0)
        self._rows: list[int] = []
        self._idle_cpu: list[npt.NDArray[np.int64]] = []
        self._free_milli: list[npt.NDArray[np.int64]] = []

    def begin(self) -> None:
        """Measure the nodes as they are, before the first placement."""
        self._begun = self._measure.column().copy()

    def note(self, node_name: str) -> None:
        """A pod was placed on a node, and the snapshot shows it."""
        row = self._snapshot.row_of[node_name]
        nodes = NodeView(self._snapshot, np.array([row], np.intp))
        self._rows.append(row)
        self._idle_cpu.append(idle_cpu(nodes))
        self._free_milli.append(self._devices.free_milli(nodes))

    def totals(self) -> Iterator[float]:
        """The fragmentation of all nodes at the beginning, and after each placement."""
        column = self._begun.copy()
        yield float(column.sum())
        for start in range(0, len(self._rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = self._rows[block]
            nodes = NodeView(self._snapshot, np.array(rows, np.intp))
            values = self._measure.of(
                nodes,
                np.concatenate(self._idle_cpu[block]),
                np.concatenate(self._free_milli[block]),
            )
            for row, value in zip(rows, values.tolist(), strict=True):
                column[row] = value
                yield float(column.sum())
