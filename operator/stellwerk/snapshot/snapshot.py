"""The cluster as columns: one long-lived object that cycles read and only the cache writes.

Plugins see some of its rows through a NodeView, perhaps with a NodeOverlay on top. Rows are stable
slots: capacity doubles, `alive` marks the rows in use, and the node's uid shows whether a row was
reused. Books hold state per row that is not an amount of a resource. Invariant: after
`Cache.update_snapshot` every column and book equals a rebuild from the cache's nodes and pods, and
the change logs name every row that differs from any earlier state.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.columns import (
    MAX_REQUESTED,
    MIN_KEPT_CHANGES,
    ChangeLog,
    Element,
    IdColumn,
    IntColumn,
    LabelColumn,
    Mask,
    RowColumn,
    ScoredAmounts,
    grown,
)
from stellwerk.snapshot.images import Images
from stellwerk.snapshot.node_labels import NodeLabels
from stellwerk.snapshot.pod_counts import (
    NATIVE_RESOURCES,
    HostPorts,
    PairCounts,
    Priorities,
    Usage,
    VolumeUsers,
)
from stellwerk.snapshot.pod_shapes import PodShapes
from stellwerk.snapshot.resource_rows import ResourceRows
from stellwerk.snapshot.topology import Topology
from stellwerk_kube.node import NodeInfo, zone_key
from stellwerk_kube.resource_amounts import CPU, MEMORY, PODS
from stellwerk_kube.taints import Taint

_FIRST_CAPACITY: Final = 16
"""Rows of a new snapshot; the capacity doubles when it is used up."""
_MIN_SHARE_OF_RESOURCE_ROWS: Final = 1 / 4
"""Share of the rows of the (R, N) columns below which they are copied without the unused rows."""
_MIN_PODS_FOR_COLUMNS: Final = 16
"""Pods of an overlay from which one operation on columns is cheaper than one on each entry."""
_NOTHING: Final[Mapping[str, int]] = {}
_NONZERO_ROWS: Final = 2
"""Rows of resources that silent containers count with: cpu and memory, the first two."""

BookT = TypeVar("BookT", bound=Book)


class Snapshot:
    """Nodes and their usage as columns of N rows, and the books of what else is kept per row."""

    def __init__(self) -> None:  # noqa: PLR0915 one line for each column
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
        self._nonzero_requested: IntColumn = np.zeros((_NONZERO_ROWS, self._capacity), np.int64)
        self._alive: Mask = np.zeros(self._capacity, np.bool_)
        self._unschedulable: Mask = np.zeros(self._capacity, np.bool_)
        self._taint_set: IdColumn = np.zeros(self._capacity, np.int32)
        self.taint_sets: list[tuple[Taint, ...]] = [()]
        """Every distinct spec.taints by id; id 0 is no taints, as are ids to be used again."""
        self._taint_set_ids: dict[tuple[Taint, ...], int] = {(): 0}
        self._free_taint_sets: list[int] = []
        self._free: list[int] = []
        self._scored: dict[int, ScoredAmounts] = {}
        """By resource row, those that were asked for since an offer changed."""
        self.node_changes = ChangeLog()
        """Rows whose node object changed (or appeared, or left)."""
        self.usage_changes = ChangeLog()
        """Rows whose node object or pods changed."""
        self.record_changes = ChangeLog()
        """Rows with newer records of the same pods, with no change in anything that is counted."""
        self._zones: list[str] = []
        """(N,) `zone_key` of each row's node; a free row's means nothing."""
        self._visit_order: RowColumn | None = None
        self._rows: tuple[Sequence[int], RowColumn] | None = None
        self.open_trials = 0
        """Number of open trials; while there is one, only its changes are written."""
        self.pod_shapes = PodShapes()
        """Shapes of the pods seen so far, counted only while a plugin asks."""
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
        self._scored.clear()
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
        """Return the book of that class, which is registered when first asked for.

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
            # The plain version is a loop over zones that takes the next node of each. Sorted by
            # (place within the zone, zone) the rows have that order, without a loop over nodes.
            zone_ids: dict[str, int] = {}
            rows, numbers = self.rows
            zones = np.array(
                [zone_ids.setdefault(self._zones[row], len(zone_ids)) for row in rows], np.intp
            )
            by_zone = np.argsort(zones, kind="stable")
            nodes_of_zone = np.bincount(zones, minlength=len(zone_ids))
            first_of_zone = np.cumsum(nodes_of_zone) - nodes_of_zone
            place = np.empty(len(rows), np.intp)  # within the zone
            place[by_zone] = np.arange(len(rows)) - first_of_zone[zones[by_zone]]
            self._visit_order = numbers[np.lexsort((zones, place))]
        return self._visit_order

    @property
    def rows(self) -> tuple[Sequence[int], RowColumn]:
        """The rows that hold a node in the order in which they came, also as (alive,) intp."""
        if self._rows is None:
            rows = tuple(self.row_of.values())
            self._rows = rows, _read_only(np.array(rows, np.intp))
        return self._rows

    def look_again(self, rows: Iterable[int]) -> None:
        """Recompute answers cached with Reuse.USAGE: a plugin knows more about the rows now."""
        for row in rows:
            self.usage_changes.append(row)

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
        """The requests of the row's pods in sum; counted from them where a column is cut off."""
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

    def scored(self, resource_row: int) -> ScoredAmounts:
        """A row of `allocatable` and of what is used, as scores compute with them; read only."""
        found = self._scored.get(resource_row)
        if found is None:
            used = self.requested[resource_row]
            has_nonzero = resource_row < _NONZERO_ROWS
            nonzero_used = self.nonzero_requested[resource_row] if has_nonzero else used
            offers = self.allocatable[resource_row]
            found = ScoredAmounts.of(offers, self.alive, used, nonzero_used)
            self._scored[resource_row] = found
        return found

    def make_rows(self, resources: Iterable[str]) -> None:
        """Make the rows of those of the resources that some node offers, in one pass over nodes."""
        rows, offered = self._resources.row_of, self._resources.is_offered
        missing = [each for each in resources if each not in rows and offered(each)]
        if missing:
            self._add_resources(missing)

    def requested_extended(self, row: int) -> Mapping[str, int]:
        """The requests of the row's pods for resources that are not native, offered or not."""
        return self._extended[row]

    def fork(self) -> "Snapshot":
        """Copy the snapshot for another cache; neither shows changes of the other.

        Columns, maps and books are copied; nodes, pods and the specs that they share are not. The
        change logs begin with the fork: earlier positions get the answer "too long ago".
        """
        fork = Snapshot()
        fork._capacity, fork.size, fork.node_count = self._capacity, self.size, self.node_count
        fork.row_of, fork._free = self.row_of.copy(), self._free.copy()
        fork.nodes, fork.pods = self.nodes.copy(), self.pods.copy()
        fork._zones = self._zones.copy()
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
        fork.pod_shapes = self.pod_shapes.fork()
        fork._open_own_books()
        fork._publish()
        return fork

    # --- what the cache writes, between cycles, and a trial -------------------------------------

    def fill_books(self) -> None:
        """Fill the books that were registered since the last call from the rows."""
        for book in self.unfilled:
            book.grow(self._capacity)
            for row, node in enumerate(self.nodes):
                if node is not None:
                    book.write_node(row, None, node)
                    for pod in self.pods[row].values():
                        book.count_pod(row, pod, 1)
        self._filled += self.unfilled
        # Books of nodes alone, such as images, are left out of `count_pod`: it runs for each pod.
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
        zone = zone_key(node.labels)
        if self._zones[row] != zone:
            self._zones[row] = zone
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
        self._scored.clear()
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
        # Most nodes have no extended resource in use, before or after.
        extended = usage.extended
        if extended or self._extended[row]:
            self._extended[row] = dict(extended) if extended else _NOTHING
            for resource, index in self.resource_row.items():
                if index >= len(NATIVE_RESOURCES):
                    self._requested[index, row] = min(extended.get(resource, 0), MAX_REQUESTED)
        nonzero_used = (
            min(usage.nonzero_cpu_millis, MAX_REQUESTED),
            min(usage.nonzero_memory_bytes, MAX_REQUESTED),
        )
        self._nonzero_requested[:, row] = nonzero_used
        for index, scored in self._scored.items():
            scored.used[row] = used = self._requested[index, row]
            in_use = nonzero_used[index] if index < _NONZERO_ROWS else used
            scored.free[row] = scored.offers[row] - in_use
        self.usage_changes.append(row)

    def write_records(self, node_name: str, pods: Mapping[str, PodInfo]) -> None:
        """Show newer records of the same pods, with no change in anything that is counted."""
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
            self._zones.append("")
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
            # A list of the cluster changes every row at once, and readers must not lose those.
            log.keep = max(MIN_KEPT_CHANGES, 2 * capacity)
        for book in self._filled:
            book.grow(capacity)

    def _write_allocatable(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        offer = node.allocatable
        # Updates of nodes mostly change labels or taints.
        if before is not None and before.allocatable == offer:
            return
        self._scored.clear()
        self._free_resources(row, {} if before is None else before.allocatable, offer)
        self._allocatable[:, row] = 0
        for resource, index in self.resource_row.items():
            amount = offer.get(resource)
            if amount:
                self._allocatable[index, row] = amount

    def _free_resources(
        self, row: int, before: Mapping[str, int], after: Mapping[str, int]
    ) -> None:
        """Change the offer of a node, and zero the rows of resources that no node offers now."""
        freed = self._resources.change_node(row, before, after)
        if not freed:
            return
        if len(self.resource_row) < _MIN_SHARE_OF_RESOURCE_ROWS * len(self._allocatable):
            rows = self._resources.compact()
            self._allocatable, self._requested = self._allocatable[rows], self._requested[rows]
            self._publish()
        else:
            self._allocatable[freed] = 0
            self._requested[freed] = 0

    def _add_resources(self, resources: Iterable[str]) -> Mapping[str, int]:
        """Make rows for resources that have none and that some node offers."""
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


class NodeOverlay:
    """Pods added to and taken from the rows of one view, and what that does to resource usage.

    The pass with nominated pods, preemption's dry run and what-if use them. Invariant: every row is
    a hypothesis of its own: a change at one position never shows at another.
    """

    def __init__(self, snapshot: Snapshot, rows: int) -> None:
        self._snapshot = snapshot
        self._requested: IntColumn = np.zeros((len(snapshot.requested), rows), np.int64)
        self._nonzero: IntColumn = np.zeros((_NONZERO_ROWS, rows), np.int64)
        self.log: list[tuple[int, PodInfo, int]] = []
        """(position, pod, +1 or −1) in the order of the calls."""
        self._net: dict[tuple[int, str], tuple[PodInfo, int]] = {}
        self._netted = 0
        """Number of entries of the log that `_net` sums up."""

    def add_pod(self, position: int, pod: PodInfo) -> None:
        """Put a pod on the node at a position of the view."""
        self._change(position, pod, 1)

    def remove_pod(self, position: int, pod: PodInfo) -> None:
        """Take a pod off the node at a position of the view."""
        self._change(position, pod, -1)

    def change_pods(self, pods: Sequence[tuple[int, PodInfo]], change: int) -> None:
        """Put many pods (+1), each on the node at its position, or take them off (−1)."""
        if len(pods) < _MIN_PODS_FOR_COLUMNS:
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
        """True if the view is all rows in order, free ones included."""
        self.size: int = self.rows.stop if isinstance(self.rows, slice) else len(self.rows)
        """n, as `len`."""
        self.only_row: int | None = None
        """The row of a view of one without overlay, for arithmetic in plain integers."""
        if self.size == 1 and overlay is None:
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
        """Return a view of these rows with a fresh overlay, through which changes are made."""
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

    def scored(self, resource: str) -> ScoredAmounts:
        """Amounts offered and used, in the form in which scores compute with them; read only."""
        row = self.snapshot.resource_index(resource)
        if row is None:
            nothing = np.zeros(len(self))
            return ScoredAmounts(
                nothing, np.ones(len(self)), nothing, nothing, offered_everywhere=False
            )
        scored = self.snapshot.scored(row)
        if self.overlay is None and self.whole:
            return scored
        offers, divisors = self.gather(scored.offers), self.gather(scored.divisors)
        if self.overlay is None:
            used, free = self.gather(scored.used), self.gather(scored.free)
        else:
            # Added up as int64: an amount that float64 rounds may be taken away again.
            used = self.requested(resource).astype(offers.dtype)
            free = offers - self.nonzero_requested(resource).astype(offers.dtype)
        return ScoredAmounts(offers, divisors, used, free, scored.offered_everywhere)

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
        """(n,) int64, one key's counts of a book at the rows of the view; no overlay."""
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
