"""The devices of each node and what pods leave free of them.

GpuShare filters and reserves with it, the GPU scores read it. Invariant: what is free in a row
follows from the row's node and pods alone; pods whose devices are not known take what best fit
gives them, in the order of their uids, after those that name theirs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override

from stellwerk.models.gpu import DEVICES, WHOLE, GpuRequest, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.book import Book
from stellwerk.snapshot.columns import IntColumn, grown
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import NodeInfo

MAX_DEVICES_OF_A_NODE: Final = 64
"""Devices of a node that are used. Further ones are not."""
_FIRST_WIDTH: Final = 8


class HeldDevices(NamedTuple):
    """The devices that one pod holds on its node."""

    request: GpuRequest
    devices: tuple[int, ...]
    """Their numbers; empty: not known."""

    @property
    def kind(self) -> int:
        """0 for a share of a device, else the number of devices."""
        return kind_of(self.request)


class GpuDevices(Book):
    """Free thousandths by row and device, and how many GPU pods of each kind a row has."""

    def __init__(self) -> None:
        self._free_milli: IntColumn = np.zeros((0, _FIRST_WIDTH), np.int64)
        self._devices: IntColumn = np.zeros(0, np.int64)
        self._kinds: dict[int, IntColumn] = {}
        self._held: dict[int, dict[str, HeldDevices]] = {}
        """By row and uid; a row's own dict is never changed, so that forks may share it."""

    # --- what plugins read ----------------------------------------------------------------------

    def free_milli(self, nodes: NodeView) -> IntColumn:
        """(n, D) int64, what is free of each device; 0 where the node has no such device."""
        free: IntColumn = self._free_milli[nodes.rows]
        if nodes.overlay is None:
            return free
        changes: dict[int, dict[str, HeldDevices]] = {}
        rows = nodes.row_numbers()
        for position, pod, change in nodes.overlay.changes():
            row = int(rows[position])
            held = changes.setdefault(position, dict(self._held.get(row, {})))
            _count(held, pod, change)
        if changes:
            free = free.copy()
            for position, held in changes.items():
                free[position] = self._left(int(rows[position]), held)
        return free

    def device_count(self, nodes: NodeView) -> IntColumn:
        """(n,) int64, how many devices each node has."""
        return nodes.gather(self._devices)

    def kind_counts(self, nodes: NodeView) -> Mapping[int, IntColumn]:
        """(n,) int64 by kind: how many pods of it each node has; overlays aside."""
        return {kind: nodes.gather(column) for kind, column in self._kinds.items()}

    def in_row(self, row: int) -> Sequence[int]:
        """The free part of each device of a row."""
        free: list[int] = self._free_milli[row, : int(self._devices[row])].tolist()
        return free

    # --- what the snapshot writes ---------------------------------------------------------------

    @override
    def write_node(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        devices = min(node.allocatable.get(DEVICES, 0), MAX_DEVICES_OF_A_NODE)
        if before is None:
            self._held.pop(row, None)
        if devices > self._free_milli.shape[1]:
            wider = np.zeros((len(self._free_milli), MAX_DEVICES_OF_A_NODE), np.int64)
            wider[:, : self._free_milli.shape[1]] = self._free_milli
            self._free_milli = wider
        self._devices[row] = devices
        self._recount(row)

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        self._held.pop(row, None)
        self._devices[row] = 0
        self._recount(row)

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        held = dict(self._held.get(row, {}))
        if _count(held, pod, change):
            self._held[row] = held
            self._recount(row)

    @override
    def grow(self, capacity: int) -> None:
        more = capacity - len(self._devices)
        self._free_milli = np.pad(self._free_milli, ((0, more), (0, 0)))
        self._devices = grown(self._devices, capacity)
        self._kinds = {kind: grown(column, capacity) for kind, column in self._kinds.items()}

    @override
    def fork(self) -> "GpuDevices":
        fork = GpuDevices()
        fork._free_milli, fork._devices = self._free_milli.copy(), self._devices.copy()
        fork._kinds = {kind: column.copy() for kind, column in self._kinds.items()}
        fork._held = self._held.copy()
        return fork

    def _recount(self, row: int) -> None:
        held = self._held.get(row, {})
        self._free_milli[row] = self._left(row, held)
        counts = Counter(each.kind for each in held.values())
        for kind in counts.keys() - self._kinds.keys():
            self._kinds[kind] = np.zeros(len(self._devices), np.int64)
        for kind, column in self._kinds.items():
            column[row] = counts[kind]

    def _left(self, row: int, held: Mapping[str, HeldDevices]) -> list[int]:
        """(D,) what pods leave free of a row's devices."""
        devices, width = int(self._devices[row]), self._free_milli.shape[1]
        free = [WHOLE] * devices + [0] * (width - devices)
        unknown = []
        for uid, (request, numbers) in held.items():
            if not numbers:
                unknown.append((uid, request))
            for number in numbers:
                if number < devices:
                    free[number] = max(0, free[number] - request.milli)
        for _, request in sorted(unknown, key=lambda each: each[0]):
            for number in best_fit(free, request):
                free[number] -= request.milli
        return free


def kind_of(request: GpuRequest) -> int:
    """0 for a share of a device, else the number of devices."""
    return 0 if request.shares else request.devices


def best_fit(free: Sequence[int], request: GpuRequest) -> tuple[int, ...]:
    """The numbers of the fullest devices that still fit, lowest first; empty: too few do."""
    fitting = [number for number, milli in enumerate(free) if milli >= request.milli]
    if len(fitting) < request.devices:
        return ()
    fitting.sort(key=lambda number: free[number])
    return tuple(sorted(fitting[: request.devices]))


def _count(held: dict[str, HeldDevices], pod: PodInfo, change: int) -> bool:
    """Whether a pod put on a row (+1) or taken off (−1) changes what the row's pods hold."""
    request = gpu_request(pod.amounts.requests)
    if request is None:
        return False
    if change > 0:
        held[pod.uid] = HeldDevices(request, pod.gpu_devices)
        return True
    return held.pop(pod.uid, None) is not None
