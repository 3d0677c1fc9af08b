"""The zones of all nodes as columns, for the resources that pods have asked for.

Axes: P zones of a node by number (positions), N rows of the snapshot. Cpu is in millicores, all
else in whole units; what is available is rounded down, so that no request fits by rounding alone.
Invariant: a row's columns equal its topology in force less the pods counted into it.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stellwerk.plugin_api import (
    ChangeCursor,
    Handle,
    IntColumn,
    Mask,
    RowColumn,
    millis,
    units,
)
from stellwerk_plugins.numa.args import NodeResourceTopologyMatchArgs
from stellwerk_plugins.numa.fingerprint import fingerprint, require_hashes
from stellwerk_plugins.numa.requests import is_exclusive
from stellwerk_plugins.numa.topology import KIND, POD, SINGLE_NUMA_NODE, Topology, parse_topology
from stellwerk_plugins.numa.zone_book import ZoneBook

ZoneColumn = npt.NDArray[np.int64]
"""(P, N) or (P, n)."""
ZoneMask = npt.NDArray[np.bool_]
Distances: TypeAlias = tuple[tuple[int, ...], ...]
"""Between the zones of a node, by position."""

_MAX_RESOURCES: Final = 64
"""Columns of so many resources are kept, those that were asked for last."""
_LARGEST: Final = 1 << 56
"""No amount is above it, so that the sum over all zones of a node and its hundredfold are exact."""
_FEW_MATRICES: Final = 1000
_ALWAYS_OFFERED: Final = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})


class ZoneAmounts:
    """One resource in all zones."""

    def __init__(self, positions: int, rows: int) -> None:
        self.available: ZoneColumn = np.zeros((positions, rows), np.int64)
        """(P, N) int64; 0 where the zone does not report it."""
        self.reported: ZoneMask = np.zeros((positions, rows), np.bool_)
        """(P, N) bool."""
        self.offered: Mask = np.zeros(rows, np.bool_)
        """(N,) bool, whether the node's allocatable names it."""
        self.whole: ZoneColumn = np.zeros((positions, rows), np.int64)
        """(P, N) int64, what is available in whole units: cores rounded up."""
        self.whole_float: npt.NDArray[np.float64] = np.zeros((positions, rows), np.float64)
        """(P, N) float64, the same."""
        self.largest = 0
        """No whole amount is or was above it."""


class Zones:
    """The topologies of all nodes, as the arguments of one profile let them count."""

    def __init__(self, handle: Handle, args: NodeResourceTopologyMatchArgs) -> None:
        if args.over_reserves:
            require_hashes()
        self._handle = handle
        self._args = args
        self.book = handle.snapshot.book(ZoneBook)
        self.book.own_profiles.add(handle.profile_name)
        self._objects = ChangeCursor(handle.objects.changes(KIND))
        self._nodes = ChangeCursor(handle.snapshot.node_changes)
        self._pods = ChangeCursor(self.book.changes)
        self._read: dict[str, Topology] = {}
        """The objects as they were last written, by node."""
        self.faults: dict[str, tuple[str, ...]] = {}
        """Mistakes in the objects of nodes, of those that have any."""
        self._changed_names: set[str] | None = set()
        """Nodes whose objects were parsed since the last look; None: all of them."""
        self._in_force: dict[int, Topology] = {}
        self._amounts: OrderedDict[str, ZoneAmounts] = OrderedDict()
        self._checked_seconds = handle.now_seconds()
        self._waiting: set[str] = set()
        """Nodes whose newest object is not in force yet."""
        self._allocate(1, 0)

    def _allocate(self, positions: int, rows: int) -> None:
        self.present: ZoneMask = np.zeros((positions, rows), np.bool_)
        """(P, N) bool, where there is a zone."""
        self.known: Mask = np.zeros(rows, np.bool_)
        """(N,) bool, where there is an object."""
        self.fresh: Mask = np.ones(rows, np.bool_)
        """(N,) bool, where it can be relied on."""
        self.aligned: Mask = np.zeros(rows, np.bool_)
        """(N,) bool, where the kubelet wants a single zone."""
        self.as_pod: Mask = np.zeros(rows, np.bool_)
        """(N,) bool, where it aligns the pod as one."""
        self.most_zones: IntColumn = np.zeros(rows, np.int64)
        self.distance_id: IntColumn = np.zeros(rows, np.int64)
        """(N,) int64, the number of the matrix of distances between the zones."""
        self._matrices: list[Distances] = [()]
        self._matrix_ids: dict[Distances, int] = {(): 0}
        self._amounts.clear()

    # --- what plugins read ----------------------------------------------------------------------

    def amounts(self, resource: str) -> ZoneAmounts:
        """A resource's columns, made when first asked for."""
        found = self._amounts.get(resource)
        if found is None:
            while len(self._amounts) >= _MAX_RESOURCES:
                self._amounts.popitem(last=False)
            found = self._amounts[resource] = ZoneAmounts(*self.present.shape)
            self._write_amounts(list(self._handle.snapshot.row_of.values()), resource, found)
        self._amounts.move_to_end(resource)
        return found

    def topology(self, row: int) -> Topology | None:
        """The topology in force of a row; None: there is none."""
        return self._in_force.get(row)

    def distances(self, rows: RowColumn) -> Iterator[tuple[Distances, RowColumn]]:
        """Each matrix of distances between zones, with the positions in `rows` that have it."""
        ids = self.distance_id[rows]
        for number in np.unique(ids).tolist():
            yield self._matrices[number], np.flatnonzero(ids == number)

    # --- following the cluster ------------------------------------------------------------------

    def look(self) -> list[int] | None:
        """Follow objects, nodes and pods; returns the rows that changed, None: all of them."""
        snapshot = self._handle.snapshot
        if not snapshot.open_trials:
            self.book.look()
        if (
            self._objects.current
            and not (self._changed_names is None or self._changed_names)
            and self._nodes.current
            and self._pods.current
            and not self._waiting
        ):
            return []
        self.follow_objects()
        names, self._changed_names = self._changed_names, set()
        rows, of_pods = self._nodes.advance(), self._pods.advance()
        if names is None or rows is None or of_pods is None:
            changed: Iterable[int] = list(snapshot.row_of.values())
            everything = True
        else:
            row_of = snapshot.row_of
            of_objects = [row_of[name] for name in names if name in row_of]
            changed, everything = dict.fromkeys([*of_objects, *rows, *of_pods]), False
        self._settle(changed)
        positions = max(
            [self.present.shape[0], *(len(self._topology_of(row).zones) for row in changed)]
        )
        if (positions, snapshot.size) != self.present.shape:
            self._allocate(positions, snapshot.size)
            changed, everything = list(snapshot.row_of.values()), True
        for row in changed:
            self._write(row)
        for resource, amounts in self._amounts.items():
            self._write_amounts(list(changed), resource, amounts)
        return None if everything else list(changed)

    def follow_objects(self) -> None:
        """Parse the objects that have changed; what follows from them waits for the next look."""
        keys = self._objects.advance()
        if keys is None:
            self._changed_names = None
            self._read, self.faults = {}, {}
            for obj in self._handle.objects.list(KIND):
                self._read_again(str(obj["metadata"]["name"]))
            return
        for _, name in keys:
            self._read_again(name)
            if self._changed_names is not None:
                self._changed_names.add(name)

    def _read_again(self, name: str) -> None:
        self.faults.pop(name, None)
        obj = self._handle.objects.get(KIND, "", name)
        if obj is None:
            self._read.pop(name, None)
        else:
            topology = self._read[name] = parse_topology(obj)
            if topology.faults:
                self.faults[name] = topology.faults

    def _settle(self, rows: Iterable[int]) -> None:
        """Find the topology in force of rows, and from time to time of those that wait."""
        if not self._args.over_reserves:
            return
        now_seconds, snapshot = self._handle.now_seconds(), self._handle.snapshot
        for row in rows:
            self._settle_row(row)
        if now_seconds - self._checked_seconds >= self._args.cache_resync_period_seconds:
            self._checked_seconds = now_seconds
            for name in list(self._waiting):
                row_again = snapshot.row_of.get(name)
                if row_again is None:
                    self._waiting.discard(name)
                else:
                    self._settle_row(row_again)

    def _settle_row(self, row: int) -> None:
        node = self._handle.snapshot.nodes[row]
        newest = self._read.get(node.name) if node is not None else None
        if node is None or newest is None:
            self.book.counted.pop(row, None)
            return
        counted = self.book.counted.get(row)
        beside = self.book.assumed.get(row) or self.book.foreign.get(row)
        if counted is None or not beside:
            # There is nothing that the object might not have seen.
            self.book.counted[row] = newest
        elif self._has_seen_every_pod(row, newest):
            self.book.synchronise(row, newest)
            self._waiting.discard(node.name)
        else:
            self._waiting.add(node.name)

    def _has_seen_every_pod(self, row: int, topology: Topology) -> bool:
        """Whether the fingerprint is that of the pods on the row."""
        pods = self._handle.snapshot.pods[row].values()
        if not topology.fingerprint or not pods:
            return False
        method = self._args.cache.resync_method
        if method == "Autodetect":
            exclusive = topology.fingerprint_method == "with-exclusive-resources"
        else:
            exclusive = method == "OnlyExclusiveResources"
        if exclusive:
            reported = frozenset(name for zone in topology.zones for name in zone.available)
            counted = [pod for pod in pods if is_exclusive(pod, reported)]
        else:
            counted = list(pods)
        return topology.fingerprint == fingerprint((pod.namespace, pod.name) for pod in counted)

    def _topology_of(self, row: int) -> Topology:
        found = self._current(row)
        return found if found is not None else Topology()

    def _current(self, row: int) -> Topology | None:
        if self._args.over_reserves:
            return self.book.counted.get(row)
        node = self._handle.snapshot.nodes[row]
        return self._read.get(node.name) if node is not None else None

    # --- writing rows ---------------------------------------------------------------------------

    def _write(self, row: int) -> None:
        topology = self._current(row)
        if topology is None:
            self._in_force.pop(row, None)
        else:
            self._in_force[row] = topology
        shown = topology if topology is not None else Topology()
        self.known[row] = topology is not None
        self.fresh[row] = self._is_fresh(row, topology)
        self.aligned[row] = shown.policy == SINGLE_NUMA_NODE
        self.as_pod[row] = shown.scope == POD
        self.most_zones[row] = shown.most_zones
        self.distance_id[row] = self._matrix_id(shown.distances)
        self.present[:, row] = False
        self.present[: len(shown.zones), row] = True

    def _matrix_id(self, distances: Distances) -> int:
        """The number of a matrix; those that no row has any more are forgotten now and then."""
        found = self._matrix_ids.get(distances)
        if found is None:
            if len(self._matrices) > 2 * len(self.distance_id) + _FEW_MATRICES:
                self._forget_matrices()
            found = self._matrix_ids[distances] = len(self._matrices)
            self._matrices.append(distances)
        return found

    def _forget_matrices(self) -> None:
        used, self.distance_id[:] = np.unique(self.distance_id, return_inverse=True)
        self._matrices = [self._matrices[number] for number in used.tolist()]
        self._matrix_ids = {each: number for number, each in enumerate(self._matrices)}

    def _write_amounts(self, rows: Sequence[int], resource: str, amounts: ZoneAmounts) -> None:
        """Write a resource's columns at some rows, all at once."""
        if not rows:
            return
        offered, reported, available, whole = [], [], [], []
        positions = len(self.present)
        nothing, absent = [0] * positions, [False] * positions
        for row in rows:
            node, topology = self._handle.snapshot.nodes[row], self._in_force.get(row)
            offered.append(node is not None and resource in node.allocatable)
            zones = topology.zones if topology is not None else ()
            if not zones:
                reported.append(absent)
                available.append(nothing)
                whole.append(nothing)
                continue
            taken = self.book.taken(row).get(resource, 0) if self._args.over_reserves else 0
            have = [zone.available.get(resource) for zone in zones]
            left = [0 if amount is None else max(0, amount - taken) for amount in have]
            rest = positions - len(zones)
            reported.append([amount is not None for amount in have] + absent[:rest])
            available.append([whole_below(resource, amount) for amount in left] + nothing[:rest])
            whole.append([min(_LARGEST, units(amount)) for amount in left] + nothing[:rest])
        at = list(rows)
        amounts.offered[at] = True if resource in _ALWAYS_OFFERED else offered
        amounts.reported[:, at] = np.array(reported, np.bool_).T
        amounts.available[:, at] = np.array(available, np.int64).T
        amounts.whole[:, at] = np.array(whole, np.int64).T
        amounts.whole_float[:, at] = amounts.whole[:, at]
        amounts.largest = max(amounts.largest, int(amounts.whole[:, at].max()))

    def _is_fresh(self, row: int, topology: Topology | None) -> bool:
        if self._args.discard_reserved_nodes:
            return not self.book.reserved.get(row)
        if not self._args.over_reserves or topology is None:
            return True
        return not self.book.is_dirty(row, topology, self._args.cache.foreign_pods_detect)


def whole_below(resource: str, amount: int) -> int:
    """An exact amount rounded down, in millicores or whole units."""
    return min(_LARGEST, amount // (10**6 if resource == "cpu" else 10**9))


def whole_above(resource: str, amount: int) -> int:
    """An exact amount rounded up, in millicores or whole units."""
    return min(_LARGEST + 1, millis(amount) if resource == "cpu" else units(amount))
