"""The cluster as columns: one long-lived object that cycles read and only the cache writes.

Plugins see it through a NodeView. Rows are stable slots: capacity doubles, `alive` marks those in
use, and the node's uid tells a re-used row. What is counted by other keys than resources is kept by
books. Invariant: after `Cache.update_snapshot` every column and book equals a rebuild from the
cache's nodes and pods; the change logs name every row that differs from any earlier state.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from stellwerk.models.node import NodeInfo, zone_key
from stellwerk.models.pod import PodInfo
from stellwerk.models.taints import Taint
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.changes import CHANGES_KEPT, ChangeLog
from stellwerk.snapshot.columns import (
    MAX_REQUESTED,
    Element,
    IdColumn,
    IntColumn,
    LabelColumn,
    Mask,
    RowColumn,
    grown,
)
from stellwerk.snapshot.images import Images
from stellwerk.snapshot.node_labels import NodeLabels
from stellwerk.snapshot.pair_counts import PairCounts
from stellwerk.snapshot.pod_books import HostPorts, Priorities, VolumeUsers
from stellwerk.snapshot.resource_rows import ResourceRows
from stellwerk.snapshot.seen_pods import SeenPods
from stellwerk.snapshot.topology import Topology
from stellwerk.snapshot.usage import NATIVE_RESOURCES, Usage

_FIRST_CAPACITY: Final = 16
_SPARSE: Final = 4
"""Columns for resources are made anew when not one in so many is in use."""
_NOTHING: Final[Mapping[str, int]] = {}

BookT = TypeVar("BookT", bound=Book)


class Snapshot:
    """Nodes and their usage as columns of N rows, and the books of what else is kept per row."""

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
        self._resources = ResourceRows()
        self._extended: list[Mapping[str, int]] = []
        """(N,) what pods request of resources that are not native, by name."""
        self._allocatable: IntColumn = np.zeros((len(NATIVE_RESOURCES), self._capacity), np.int64)
        self._requested: IntColumn = np.zeros_like(self._allocatable)
        self._nonzero_requested: IntColumn = np.zeros((2, self._capacity), np.int64)
        self._alive: Mask = np.zeros(self._capacity, np.bool_)
        self._unschedulable: Mask = np.zeros(self._capacity, np.bool_)
        self._taint_set: IdColumn = np.zeros(self._capacity, np.int32)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        """Every distinct spec.taints by id; id 0 is no taints, as are ids to be used again."""
        self._taint_set_ids: dict[tuple[Taint, ...], int] = {(): 0}
        self._free_taint_sets: list[int] = []
        self._free: list[int] = []
        self.node_changes = ChangeLog()
        """Rows whose node object changed (or appeared, or left)."""
        self.usage_changes = ChangeLog()
        """Rows whose node object or pods changed."""
        self.record_changes = ChangeLog()
        """Rows with newer records of the same pods, of which nothing that is counted changed."""
        self._visit_order: RowColumn | None = None
        self._rows: tuple[Sequence[int], RowColumn] | None = None
        self.open_trials = 0
        """While there is one, only its changes are written."""
        self.seen_pods = SeenPods()
        """Which pods there were; counted only while a plugin asks, and in no column or book."""
        self._books: dict[type[Book], Book] = {}
        self._filled: list[Book] = []
        """Books that follow every change."""
        self._pod_books: list[Book] = []
        """Those of them that count pods."""
        self.unfilled: list[Book] = []
        """Books registered since the last update: they have not seen the rows yet."""
        self._open_own_books()
        self.fill_books()
        self._publish()

    # --- what a cycle reads ---------------------------------------------------------------------

    def _publish(self) -> None:
        """Refresh the read-only views after capacity or size changed."""
        size, rows = self.size, self._resources.used
        self.resource_row: Mapping[str, int] = self._resources.row_of
        """The resources that have a row; ask `resource_index`, which makes one where needed."""
        self.allocatable: IntColumn = _read_only(self._allocatable[:rows, :size])
        """(R, N) int64, in each resource's unit, at least 0; a resource the node lacks is 0."""
        self.requested: IntColumn = _read_only(self._requested[:rows, :size])
        """(R, N) int64, what bound and assumed pods request; row "pods" is their number."""
        self.nonzero_requested: IntColumn = _read_only(self._nonzero_requested[:, :size])
        """(2, N) int64, cpu millicores and memory bytes; silent containers count with defaults."""
        self.alive: Mask = _read_only(self._alive[:size])
        """(N,) bool, True where the row holds a node."""
        self.unschedulable: Mask = _read_only(self._unschedulable[:size])
        """(N,) bool, spec.unschedulable."""
        self.taint_set: IdColumn = _read_only(self._taint_set[:size])
        """(N,) int32, index into taint_sets."""

    def _open_own_books(self) -> None:
        self.labels = self.book(NodeLabels)
        self.images = self.book(Images)
        self.host_ports = self.book(HostPorts)
        self.volume_users = self.book(VolumeUsers)
        self.pair_counts = self.book(PairCounts)
        self.priorities = self.book(Priorities)

    def book(self, kind: type[BookT]) -> BookT:
        """The book of that class, registered when first asked for.

        A new one is filled from the rows by the next `Cache.update_snapshot`, before a cycle reads,
        and stays registered.
        """
        book = self._books.get(kind)
        if not isinstance(book, kind):
            book = kind()
            self._books[kind] = book
            self.unfilled.append(book)
        return book

    def label(self, key: str) -> LabelColumn:
        """The column of a label key, made when first asked for and kept up to date from then on."""
        return self.labels.column(key)

    def topology(self, key: str) -> Topology:
        """The domains of a topology key; good until a node's labels change."""
        return self.labels.topology(key)

    @property
    def visit_order(self) -> RowColumn:
        """(alive,) rows in the order of kube-scheduler's node tree: a node of each zone in turn."""
        if self._visit_order is None:
            zones: dict[str, list[int]] = {}
            for row in self.row_of.values():
                zones.setdefault(zone_key(self.node_at(row).labels), []).append(row)
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

    @property
    def rows(self) -> tuple[Sequence[int], RowColumn]:
        """The rows that hold a node in the order in which they came, also as (alive,) intp."""
        if self._rows is None:
            rows = tuple(self.row_of.values())
            self._rows = rows, _read_only(np.array(rows, np.intp))
        return self._rows

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

    def usage(self, row: int) -> Usage:
        """What the row's pods request; counted from them where a column is cut off."""
        amounts: list[int] = self._requested[: len(NATIVE_RESOURCES), row].tolist()
        cpu_millis, memory_bytes = self._nonzero_requested[:, row].tolist()
        if max(*amounts, cpu_millis, memory_bytes) < MAX_REQUESTED:
            return Usage(amounts, cpu_millis, memory_bytes, self._extended[row])
        usage = Usage.none()
        for pod in self.pods[row].values():
            usage.count(pod, 1)
        return usage

    def resource_index(self, resource: str) -> int | None:
        """The row of a resource in the (R, N) columns; None: no node offers it."""
        row = self.resource_row.get(resource)
        if row is None and self._resources.is_offered(resource):
            return self._add_resources([resource])[resource]
        return row

    def make_rows(self, resources: Iterable[str]) -> None:
        """Make the rows of all that some node offers in one look at the nodes."""
        rows, offered = self._resources.row_of, self._resources.is_offered
        missing = [each for each in resources if each not in rows and offered(each)]
        if missing:
            self._add_resources(missing)

    def requested_extended(self, row: int) -> Mapping[str, int]:
        """What the row's pods request of resources that are not native, offered or not."""
        return self._extended[row]

    def fork(self) -> "Snapshot":
        """A snapshot that shows the same, for another cache; neither shows the other's changes.

        Columns, maps and books are copied; nodes, pods and the specs that they share are not. The
        change logs begin with the fork: earlier positions get the answer "too long ago".
        """
        fork = Snapshot()
        fork._capacity, fork.size, fork.node_count = self._capacity, self.size, self.node_count
        fork.row_of, fork._free = self.row_of.copy(), self._free.copy()
        fork.nodes, fork.pods = self.nodes.copy(), self.pods.copy()
        fork._resources, fork._extended = self._resources.fork(), self._extended.copy()
        fork._allocatable, fork._requested = self._allocatable.copy(), self._requested.copy()
        fork._nonzero_requested = self._nonzero_requested.copy()
        fork._alive, fork._unschedulable = self._alive.copy(), self._unschedulable.copy()
        fork._taint_set, fork.taint_sets = self._taint_set.copy(), self.taint_sets.copy()
        fork._taint_set_ids = self._taint_set_ids.copy()
        fork._free_taint_sets = self._free_taint_sets.copy()
        fork.node_changes = ChangeLog(self.node_changes.position, self.node_changes.keep)
        fork.usage_changes = ChangeLog(self.usage_changes.position, self.usage_changes.keep)
        fork.record_changes = ChangeLog(self.record_changes.position, self.record_changes.keep)
        fork._books = {kind: book.fork() for kind, book in self._books.items()}
        fork._filled = [fork._books[type(book)] for book in self._filled]
        fork._pod_books = [fork._books[type(book)] for book in self._pod_books]
        fork.unfilled = [fork._books[type(book)] for book in self.unfilled]
        fork.seen_pods = self.seen_pods.fork()
        fork._open_own_books()
        fork._publish()
        return fork

    # --- what the cache writes, between cycles, and a trial -------------------------------------

    def fill_books(self) -> None:
        """Let the books that were registered since the last call see the rows there are."""
        for book in self.unfilled:
            book.grow(self._capacity)
            for row, node in enumerate(self.nodes):
                if node is not None:
                    book.write_node(row, None, node)
                    for pod in self.pods[row].values():
                        book.count_pod(row, pod, 1)
        self._filled += self.unfilled
        self._pod_books += (
            book for book in self.unfilled if type(book).count_pod is not Book.count_pod
        )
        self.unfilled.clear()

    def write_node(self, node: NodeInfo, pods: Mapping[str, PodInfo]) -> int:
        """Write a node's own columns, in its row or a free one; returns the row."""
        row = self.row_of.get(node.name)
        if row is None:
            row = self._take_row(node.name)
        before = self.nodes[row]
        self.nodes[row], self.pods[row] = node, pods
        self._write_allocatable(row, before, node)
        self._unschedulable[row] = node.unschedulable
        self._write_taints(row, node.taints)
        if before is not None and zone_key(before.labels) != zone_key(node.labels):
            self._visit_order = None
        for book in self._filled:
            book.write_node(row, before, node)
        self.node_changes.append(row)
        self.usage_changes.append(row)
        return row

    def remove_node(self, name: str) -> None:
        """Free the node's row; its pods must have been taken out of the row before."""
        row = self.row_of.pop(name)
        node = self.node_at(row)
        for book in self._filled:
            book.free(row, node)
        self.nodes[row], self.pods[row] = None, {}
        self._alive[row] = False
        self._unschedulable[row] = False
        self._free_resources(row, node.allocatable, {})
        self._allocatable[:, row] = 0
        self._requested[:, row] = 0
        self._extended[row] = _NOTHING
        self._nonzero_requested[:, row] = 0
        self._write_taints(row, ())
        self._free.append(row)
        self.node_count -= 1
        self._visit_order = self._rows = None
        self.node_changes.append(row)
        self.usage_changes.append(row)

    def write_usage(self, row: int, usage: Usage) -> None:
        """Write what the row's pods request."""
        self._requested[: len(NATIVE_RESOURCES), row] = [
            min(amount, MAX_REQUESTED) for amount in usage.amounts
        ]
        if usage.extended or self._extended[row]:
            self._write_extended(row, usage.extended)
        self._nonzero_requested[0, row] = min(usage.nonzero_cpu_millis, MAX_REQUESTED)
        self._nonzero_requested[1, row] = min(usage.nonzero_memory_bytes, MAX_REQUESTED)
        self.usage_changes.append(row)

    def write_records(self, node_name: str, pods: Mapping[str, PodInfo]) -> None:
        """Show newer records of the same pods, of which nothing that is counted changed."""
        row = self.row_of.get(node_name)
        if row is not None:
            self.pods[row] = pods
            self.record_changes.append(row)

    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        """Add (+1) or take out (−1) a pod in every book."""
        for book in self._pod_books:
            book.count_pod(row, pod, change)

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
            self._extended.append(_NOTHING)
        self.row_of[name] = row
        self._alive[row] = True
        self.node_count += 1
        self._visit_order = self._rows = None
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
        for log in (self.node_changes, self.usage_changes, self.record_changes):
            # Readers lag behind by all rows when the cluster is listed.
            log.keep = max(CHANGES_KEPT, 2 * capacity)
        for book in self._filled:
            book.grow(capacity)

    def _write_allocatable(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        offer = node.allocatable
        self._free_resources(row, {} if before is None else before.allocatable, offer)
        self._allocatable[:, row] = 0
        for resource, index in self.resource_row.items():
            amount = offer.get(resource)
            if amount:
                self._allocatable[index, row] = amount

    def _free_resources(
        self, row: int, before: Mapping[str, int], after: Mapping[str, int]
    ) -> None:
        """Another offer of a node: rows of resources that no node offers now are zeroed."""
        freed = self._resources.change_node(row, before, after)
        if not freed:
            return
        if _SPARSE * len(self.resource_row) < len(self._allocatable):
            rows = self._resources.compact()
            self._allocatable, self._requested = self._allocatable[rows], self._requested[rows]
            self._publish()
        else:
            self._allocatable[freed] = 0
            self._requested[freed] = 0

    def _add_resources(self, resources: Iterable[str]) -> Mapping[str, int]:
        """Rows for resources that have none and that some node offers."""
        added = {resource: self._resources.take(resource) for resource in resources}
        rows = self._resources.used
        if rows > len(self._allocatable):
            rows = max(rows, 2 * len(self._allocatable))
            self._allocatable = _with_rows(self._allocatable, rows)
            self._requested = _with_rows(self._requested, rows)
        for row, node in enumerate(self.nodes):
            if node is not None:
                for resource in added.keys() & node.allocatable.keys():
                    self._allocatable[added[resource], row] = node.allocatable[resource]
        for row, extended in enumerate(self._extended):
            for resource in added.keys() & extended.keys() if extended else ():
                self._requested[added[resource], row] = min(extended[resource], MAX_REQUESTED)
        self._publish()
        return added

    def _write_extended(self, row: int, extended: Mapping[str, int]) -> None:
        self._extended[row] = dict(extended) if extended else _NOTHING
        for resource, index in self.resource_row.items():
            if index >= len(NATIVE_RESOURCES):
                self._requested[index, row] = min(extended.get(resource, 0), MAX_REQUESTED)

    def _write_taints(self, row: int, taints: tuple[Taint, ...]) -> None:
        """Intern the taints; a set that no row has any more makes room for another."""
        before = int(self._taint_set[row])
        if self.taint_sets[before] == taints:
            return
        found = self._taint_set_ids.get(taints)
        if found is None:
            found = self._free_taint_sets.pop() if self._free_taint_sets else len(self.taint_sets)
            self._taint_set_ids[taints] = found
            self.taint_sets[found : found + 1] = [taints]
        self._taint_set[row] = found
        if before and before not in self._taint_set[: self.size]:
            del self._taint_set_ids[self.taint_sets[before]]
            self.taint_sets[before] = ()
            self._free_taint_sets.append(before)


def _with_rows(columns: IntColumn, rows: int) -> IntColumn:
    """A copy with more resources; memory for them is taken where one is written."""
    larger = np.zeros((rows, columns.shape[1]), np.int64)
    larger[: len(columns)] = columns
    return larger


def _read_only(view: npt.NDArray[Element]) -> npt.NDArray[Element]:
    view.setflags(write=False)
    return view
