"""What a plugin sees of the nodes: columns gathered for some rows, perhaps with an overlay.

The plain cycle uses a view of all rows without overlay; the pass with nominated pods, preemption's
dry run and what-if use views of a few rows whose overlay adds and removes pods. Invariant: every
row is a hypothesis of its own: an overlay's change at one position never shows at another.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import CPU, MEMORY, PODS
from stellwerk.snapshot.columns import (
    Element,
    IdColumn,
    IntColumn,
    LabelColumn,
    Mask,
    RowColumn,
)
from stellwerk.snapshot.snapshot import Snapshot

_WORTH_COLUMNS: Final = 16
"""From so many pods on, operations on columns are cheaper than one on each entry."""


class NodeOverlay:
    """Pods added to and taken from the rows of one view, and what that does to resource usage."""

    def __init__(self, snapshot: Snapshot, rows: int) -> None:
        self._snapshot = snapshot
        self._requested: IntColumn = np.zeros((len(snapshot.requested), rows), np.int64)
        self._nonzero: IntColumn = np.zeros((2, rows), np.int64)
        self.log: list[tuple[int, PodInfo, int]] = []
        """(position, pod, +1 or −1) in the order of the calls."""
        self._net: dict[tuple[int, str], tuple[PodInfo, int]] = {}
        self._netted = 0
        """How much of the log `_net` sums up."""

    def add_pod(self, position: int, pod: PodInfo) -> None:
        """Put a pod on the node at a position of the view."""
        self._change(position, pod, 1)

    def remove_pod(self, position: int, pod: PodInfo) -> None:
        """Take a pod off the node at a position of the view."""
        self._change(position, pod, -1)

    def change_pods(self, pods: Sequence[tuple[int, PodInfo]], change: int) -> None:
        """Put many pods (+1), each on the node at its position, or take them off (−1)."""
        if len(pods) < _WORTH_COLUMNS:
            for position, pod in pods:
                self._change(position, pod, change)
            return
        self.log.extend([(position, pod, change) for position, pod in pods])
        positions = [position for position, _ in pods]
        amounts = [pod.amounts for _, pod in pods]
        for resource in set().union(*{id(each): each.requests for each in amounts}.values()):
            row = self._row(resource)
            if row is not None:
                requested = [each.requests.get(resource, 0) for each in amounts]
                _add_at(self._requested[row], positions, requested, change)
        self._requested[self._snapshot.resource_row[PODS]] += change * np.bincount(
            positions, minlength=self._nonzero.shape[1]
        )
        cpu_millis = [each.nonzero_cpu_millis for each in amounts]
        _add_at(self._nonzero[0], positions, cpu_millis, change)
        memory_bytes = [each.nonzero_memory_bytes for each in amounts]
        _add_at(self._nonzero[1], positions, memory_bytes, change)

    def take(self, positions: RowColumn) -> "NodeOverlay":
        """A copy of the overlay at some positions, none of them twice."""
        taken = NodeOverlay(self._snapshot, 0)
        taken._requested = self._requested[:, positions]
        taken._nonzero = self._nonzero[:, positions]
        place = {position: index for index, position in enumerate(positions.tolist())}
        taken.log = [
            (place[position], pod, change)
            for position, pod, change in self.log
            if position in place
        ]
        return taken

    def changes(self) -> Iterator[tuple[int, PodInfo, int]]:
        """(position, pod, +1 or −1) of every pod added or taken away, net."""
        for position, pod, change in self.log[self._netted :]:
            key = (position, pod.uid)
            net = self._net.pop(key, (pod, 0))[1] + change
            if net:
                self._net[key] = (pod, net)
        self._netted = len(self.log)
        for (position, _), (pod, change) in self._net.items():
            yield position, pod, change

    def requested(self, resource_row: int) -> IntColumn:
        """(n,) int64, change of the resource's usage."""
        if resource_row >= len(self._requested):
            # Made later than the overlay, hence asked for by none of its pods.
            return np.zeros(self._requested.shape[1], np.int64)
        column: IntColumn = self._requested[resource_row]
        return column

    def nonzero_requested(self, index: int) -> IntColumn:
        """(n,) int64, change of scoring usage; index 0 cpu, 1 memory."""
        column: IntColumn = self._nonzero[index]
        return column

    def _change(self, position: int, pod: PodInfo, change: int) -> None:
        self.log.append((position, pod, change))
        for resource, amount in pod.amounts.requests.items():
            row = self._row(resource)
            if row is not None:
                self._requested[row, position] += change * amount
        self._requested[self._snapshot.resource_row[PODS], position] += change
        self._nonzero[0, position] += change * pod.amounts.nonzero_cpu_millis
        self._nonzero[1, position] += change * pod.amounts.nonzero_memory_bytes

    def _row(self, resource: str) -> int | None:
        """The row of a resource; None: no node offers it, so that it can make no difference."""
        row = self._snapshot.resource_index(resource)
        if row is not None and row >= len(self._requested):
            known, rows = self._requested, len(self._snapshot.requested)
            self._requested = np.zeros((rows, known.shape[1]), np.int64)
            self._requested[: len(known)] = known
        return row


def _add_at(column: IntColumn, positions: list[int], amounts: list[int], change: int) -> None:
    """Add amounts (change 1) or subtract them (−1); a position may occur several times."""
    np.add.at(column, positions, np.array(amounts, np.int64) * change)


class NodeView:
    """n rows of a snapshot; every column it returns has shape (n,), in the order of `rows`."""

    __slots__ = ("only_row", "overlay", "rows", "size", "snapshot", "whole")

    def __init__(
        self,
        snapshot: Snapshot,
        rows: RowColumn | slice | None = None,
        overlay: NodeOverlay | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.rows: RowColumn | slice = slice(0, snapshot.size) if rows is None else rows
        """The snapshot's rows in view: an index array, or the slice of all (free ones included)."""
        self.overlay = overlay
        self.whole: bool = isinstance(self.rows, slice)
        """Whether the view is all rows in order, free ones included."""
        self.size: int = self.rows.stop if isinstance(self.rows, slice) else len(self.rows)
        """n, as `len`."""
        self.only_row: int | None = None
        """The row of a view of one, for arithmetic in plain integers; None: more or fewer."""
        if self.size == 1:
            self.only_row = 0 if isinstance(self.rows, slice) else int(self.rows[0])

    def __len__(self) -> int:
        return self.size

    def row_numbers(self) -> RowColumn:
        """(n,) the snapshot row at each position."""
        return np.arange(self.snapshot.size) if isinstance(self.rows, slice) else self.rows

    def take(self, rows: RowColumn) -> "NodeView":
        """A view of other rows of the same snapshot, without overlay."""
        return NodeView(self.snapshot, rows)

    def narrowed(self, positions: RowColumn) -> "NodeView":
        """Some positions as a view of their own, with a copy of the overlay's changes there."""
        rows = self.row_numbers()[positions]
        overlay = None if self.overlay is None else self.overlay.take(positions)
        return NodeView(self.snapshot, rows, overlay)

    def with_overlay(self) -> "NodeView":
        """The same rows with a fresh overlay; changes are then made through `overlay`."""
        return NodeView(self.snapshot, self.rows, NodeOverlay(self.snapshot, len(self)))

    def gather(self, column: npt.NDArray[Element]) -> npt.NDArray[Element]:
        """A column at the rows of the view; read only, for it may be the snapshot's own."""
        return column[self.rows]

    def allocatable(self, resource: str) -> IntColumn:
        """(n,) int64, what the node offers, at least 0; 0 where the node lacks the resource."""
        row = self.snapshot.resource_index(resource)
        if row is None:
            return np.zeros(len(self), np.int64)
        return self.gather(self.snapshot.allocatable[row])

    def requested(self, resource: str) -> IntColumn:
        """(n,) int64, what pods on the node request; of resource "pods" their number."""
        row = self.snapshot.resource_index(resource)
        if row is None:
            return np.zeros(len(self), np.int64)
        column = self.gather(self.snapshot.requested[row])
        return column if self.overlay is None else column + self.overlay.requested(row)

    def nonzero_requested(self, resource: str) -> IntColumn:
        """(n,) int64, usage for scoring.

        Cpu and memory with defaults for silent containers, others as requested.
        """
        if resource not in {CPU, MEMORY}:
            return self.requested(resource)
        index = 0 if resource == CPU else 1
        column = self.gather(self.snapshot.nonzero_requested[index])
        return column if self.overlay is None else column + self.overlay.nonzero_requested(index)

    def unschedulable(self) -> Mask:
        """(n,) bool, spec.unschedulable."""
        return self.gather(self.snapshot.unschedulable)

    def taint_set(self) -> IdColumn:
        """(n,) int32, index into snapshot.taint_sets."""
        return self.gather(self.snapshot.taint_set)

    def label(self, key: str) -> tuple[IdColumn, LabelColumn]:
        """((n,) int32 value ids with −1 for absent, the column that names the ids)."""
        column = self.snapshot.label(key)
        return self.gather(column.ids[: self.snapshot.size]), column

    def users(self, rows: Mapping[int, int]) -> IntColumn:
        """(n,) int64, one key's counts of a SparseCounts at the rows of the view; no overlay."""
        size = self.snapshot.size
        dense: IntColumn = np.zeros(size, np.int64)
        if isinstance(self.rows, slice) or len(self.rows) > len(rows):
            if rows:
                dense[list(rows)] = list(rows.values())
            return self.gather(dense)
        return np.array([rows.get(row, 0) for row in self.rows.tolist()], dtype=np.int64)

    def nodes(self) -> Iterator[NodeInfo | None]:
        """The parsed nodes in order; None at free rows.

        For adapters and texts, never in a built-in plugin's scan.
        """
        nodes = self.snapshot.nodes
        if isinstance(self.rows, slice):
            return iter(nodes[: self.snapshot.size])
        return (nodes[row] for row in self.rows.tolist())
