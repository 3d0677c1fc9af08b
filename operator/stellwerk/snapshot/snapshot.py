"""The cluster as columns: one long-lived object that cycles read and only the cache writes.

Plugins see it through a NodeView. Rows are stable slots: capacity doubles, `alive` marks those in
use, and `node_names` and `node_uids` tell a re-used row. Invariant: after `Cache.update_snapshot`
every column equals a rebuild from the cache's nodes and pods; the two change logs name every row
that differs from any earlier state.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from stellwerk.models.node import NodeInfo, zone_key
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from stellwerk.models.taints import Taint
from stellwerk.models.volumes import UsageKey
from stellwerk.snapshot.changes import ChangeLog
from stellwerk.snapshot.columns import (
    MAX_REQUESTED,
    Element,
    IdColumn,
    IntColumn,
    LabelColumn,
    Mask,
    RowColumn,
    SparseCounts,
    grown,
)
from stellwerk.snapshot.pair_counts import PairCounts

if TYPE_CHECKING:
    from stellwerk.models.scheduling_spec import HostPort

NATIVE_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_FIRST_CAPACITY: Final = 16


class Snapshot:
    """Nodes and their usage as columns of N rows; see the module docstring for who may write."""

    def __init__(self) -> None:
        self._capacity = _FIRST_CAPACITY
        self.size = 0
        """Rows in use or once used: columns are published as [..., :size]."""
        self.node_count = 0
        """Rows that are alive."""
        self.row_of: dict[str, int] = {}
        """Node name → row, in order of arrival."""
        self.nodes: list[NodeInfo | None] = []
        """(N,) the parsed node of each row; None where the row is free."""
        self.pods: list[Mapping[str, PodInfo]] = []
        """(N,) bound and assumed pods of each row by uid, as counted in the columns."""
        self.resource_row: dict[str, int] = {
            resource: row for row, resource in enumerate(NATIVE_RESOURCES)
        }
        self._allocatable: IntColumn = np.zeros((len(NATIVE_RESOURCES), self._capacity), np.int64)
        self._requested: IntColumn = np.zeros_like(self._allocatable)
        self._nonzero_requested: IntColumn = np.zeros((2, self._capacity), np.int64)
        self._alive: Mask = np.zeros(self._capacity, np.bool_)
        self._unschedulable: Mask = np.zeros(self._capacity, np.bool_)
        self._taint_set: IdColumn = np.zeros(self._capacity, np.int32)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        """Every distinct spec.taints ever seen, by id; id 0 is no taints."""
        self._taint_set_ids: dict[tuple[Taint, ...], int] = {(): 0}
        self._labels: dict[str, LabelColumn] = {}
        self._free: list[int] = []
        self.image_rows: dict[str, dict[int, int]] = {}
        """Image name → {row: bytes}: which nodes hold it, and how large it is.

        As in kube-scheduler's cache (imageStates, v1.36), an image keeps the size that the first of
        its nodes reported until no node holds it: nodes do not disagree about it.
        """
        self.images_version = 0
        """Grows when what ImageLocality reads changes: images of a node, or the number of nodes."""
        self.host_ports: SparseCounts[HostPort] = SparseCounts()
        self.volume_users: SparseCounts[UsageKey] = SparseCounts()
        """Users of claims and disks, by PodVolume.usage_keys."""
        self.row_volumes: dict[int, Counter[UsageKey]] = {}
        """The same by row: users of each claim and disk that pods of the row use."""
        self.node_changes = ChangeLog()
        """Rows whose node object changed (or appeared, or vanished)."""
        self.usage_changes = ChangeLog()
        """Rows whose node object or pods changed."""
        self.record_changes = ChangeLog()
        """Rows with newer records of the same pods, of which nothing that is counted changed."""
        self._visit_order: RowColumn | None = None
        self.pair_counts = PairCounts(self)
        self._publish()

    # --- what a cycle reads ---------------------------------------------------------------------

    def _publish(self) -> None:
        """Refresh the read-only views after capacity or size changed."""
        size = self.size
        self.allocatable: IntColumn = _read_only(self._allocatable[:, :size])
        """(R, N) int64, in each resource's unit, at least 0; a resource the node lacks is 0."""
        self.requested: IntColumn = _read_only(self._requested[:, :size])
        """(R, N) int64, what bound and assumed pods request; row "pods" is their number."""
        self.nonzero_requested: IntColumn = _read_only(self._nonzero_requested[:, :size])
        """(2, N) int64, cpu millicores and memory bytes; silent containers count with defaults."""
        self.alive: Mask = _read_only(self._alive[:size])
        """(N,) bool, True where the row holds a node."""
        self.unschedulable: Mask = _read_only(self._unschedulable[:size])
        """(N,) bool, spec.unschedulable."""
        self.taint_set: IdColumn = _read_only(self._taint_set[:size])
        """(N,) int32, index into taint_sets."""

    def label(self, key: str) -> LabelColumn:
        """The column of a label key, made when first asked for and kept up to date from then on."""
        column = self._labels.get(key)
        if column is None:
            column = self._labels[key] = LabelColumn(self._capacity)
            for row, node in enumerate(self.nodes):
                if node is not None and key in node.labels:
                    column.set(row, node.labels[key])
        return column

    @property
    def visit_order(self) -> RowColumn:
        """(alive,) rows in the order of kube-scheduler's node tree: a node of each zone in turn."""
        if self._visit_order is None:
            zones: dict[str, list[int]] = {}
            for row in self.row_of.values():
                node = self.nodes[row]
                if node is not None:
                    zones.setdefault(zone_key(node.labels), []).append(row)
            longest = max(map(len, zones.values()), default=0)
            self._visit_order = np.array(
                [
                    rows[turn]
                    for turn in range(longest)
                    for rows in zones.values()
                    if turn < len(rows)
                ],
                dtype=np.intp,
            )
        return self._visit_order

    def names(self, rows: Iterable[int]) -> list[str]:
        """Node names of rows that are alive."""
        return [self.node_at(row).name for row in rows]

    def node_at(self, row: int) -> NodeInfo:
        """The node in a row that is alive."""
        node = self.nodes[row]
        if node is None:
            message = f"row {row} of the snapshot holds no node"
            raise LookupError(message)
        return node

    # --- what the cache writes, between cycles --------------------------------------------------

    def write_node(self, node: NodeInfo, pods: Mapping[str, PodInfo]) -> int:
        """Write a node's own columns, in its row or a free one; returns the row."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self._take_row(node.name)
        before = self.nodes[row]
        self.nodes[row], self.pods[row] = node, pods
        self._write_allocatable(row, node)
        self._unschedulable[row] = node.unschedulable
        self._taint_set[row] = self._intern_taints(node.taints)
        self._write_labels(row, before, node)
        self._write_images(row, before, node)
        self.node_changes.append(row)
        self.usage_changes.append(row)
        return row

    def remove_node(self, name: str) -> None:
        """Free the node's row; its pods must have been taken out of the row before."""
        row = self.row_of.pop(name)
        node = self.node_at(row)
        for column in self._labels.values():
            column.set(row, None)
        self._write_images(row, node, None)
        self.pair_counts.labels_changed()
        self.nodes[row], self.pods[row] = None, {}
        self._alive[row] = False
        self._allocatable[:, row] = 0
        self._requested[:, row] = 0
        self._nonzero_requested[:, row] = 0
        self._taint_set[row] = 0
        self._free.append(row)
        self.node_count -= 1
        self._visit_order = None
        self.node_changes.append(row)
        self.usage_changes.append(row)

    def write_usage(self, row: int, requested: Sequence[int], nonzero: tuple[int, int]) -> None:
        """Write a row's usage: requested amounts by resource row, and the scoring pair."""
        column = self._requested[:, row]
        column[: len(requested)] = [min(amount, MAX_REQUESTED) for amount in requested]
        self._nonzero_requested[0, row] = min(nonzero[0], MAX_REQUESTED)
        self._nonzero_requested[1, row] = min(nonzero[1], MAX_REQUESTED)
        self.usage_changes.append(row)

    def note_new_record(self, node_name: str) -> None:
        """A pod's record was replaced by a newer one; `pods` shows it already."""
        row = self.row_of.get(node_name)
        if row is not None:
            self.record_changes.append(row)
            self.record_changes.trim(self._changes_kept)

    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        """Add (+1) or take out (−1) a pod in what is counted per key: ports, disks, terms."""
        for port in pod.spec.host_ports:
            self.host_ports.add(row, port, change)
        if pod.volumes:
            for volume in pod.volumes:
                for key in volume.usage_keys(pod.namespace):
                    self._count_volume(row, key, change)
        self.pair_counts.count_pod(row, pod, change)

    def _count_volume(self, row: int, key: UsageKey, change: int) -> None:
        self.volume_users.add(row, key, change)
        used = self.row_volumes.setdefault(row, Counter())
        used[key] += change
        if not used[key]:
            del used[key]
            if not used:
                del self.row_volumes[row]

    def resource(self, name: str) -> int:
        """The row of a resource in the (R, N) columns, added when new."""
        found = self.resource_row.get(name)
        if found is None:
            found = self.resource_row[name] = len(self.resource_row)
            self._allocatable = _with_row(self._allocatable)
            self._requested = _with_row(self._requested)
            self._publish()
        return found

    def trim(self) -> None:
        """Bound the change logs; call once per update."""
        self.node_changes.trim(self._changes_kept)
        self.usage_changes.trim(self._changes_kept)

    @property
    def _changes_kept(self) -> int:
        return max(4096, 2 * self.size)

    def _take_row(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
        else:
            row = self.size
            if row == self._capacity:
                self._grow()
            self.size += 1
            self.nodes.append(None)
            self.pods.append({})
        self.row_of[name] = row
        self._alive[row] = True
        self.node_count += 1
        self.images_version += 1
        self._visit_order = None
        self._publish()
        return row

    def _grow(self) -> None:
        capacity = self._capacity = 2 * self._capacity
        self._allocatable = grown(self._allocatable, capacity)
        self._requested = grown(self._requested, capacity)
        self._nonzero_requested = grown(self._nonzero_requested, capacity)
        self._alive = grown(self._alive, capacity)
        self._unschedulable = grown(self._unschedulable, capacity)
        self._taint_set = grown(self._taint_set, capacity)
        for column in self._labels.values():
            column.grow(capacity)

    def _write_allocatable(self, row: int, node: NodeInfo) -> None:
        rows = [self.resource(resource) for resource in node.allocatable]
        self._allocatable[:, row] = 0
        self._allocatable[rows, row] = list(node.allocatable.values())

    def _intern_taints(self, taints: tuple[Taint, ...]) -> int:
        found = self._taint_set_ids.get(taints)
        if found is None:
            found = self._taint_set_ids[taints] = len(self.taint_sets)
            self.taint_sets.append(taints)
        return found

    def _write_labels(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        if before is not None and before.labels == node.labels:
            return
        for key, column in self._labels.items():
            column.set(row, node.labels.get(key))
        if before is not None and zone_key(before.labels) != zone_key(node.labels):
            self._visit_order = None
        self.pair_counts.labels_changed()

    def _write_images(self, row: int, before: NodeInfo | None, after: NodeInfo | None) -> None:
        old, new = before.images if before else {}, after.images if after else {}
        if (before is None) == (after is None) and old == new:
            return
        for image in old:
            del self.image_rows[image][row]
            if not self.image_rows[image]:
                del self.image_rows[image]
        for image, size_bytes in new.items():
            rows = self.image_rows.setdefault(image, {})
            rows[row] = next(iter(rows.values()), size_bytes)
        self.images_version += 1


def _with_row(columns: IntColumn) -> IntColumn:
    return np.vstack([columns, np.zeros((1, columns.shape[1]), columns.dtype)])


def _read_only(view: npt.NDArray[Element]) -> npt.NDArray[Element]:
    view.setflags(write=False)
    return view
