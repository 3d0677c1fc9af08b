"""The slots of a plan that are still open, node by node.

GpuPatternPlan keeps one. Invariant: what is open in a row fits, beside its pods and all at once, on
the devices it names and within the row's idle cpu; memory is a mean, and kept as far as means go.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stellwerk.plugins.gpu.pattern_pricing import PlannedKind, Slot
from stellwerk.snapshot.columns import IntColumn, grown


class IdleCapacity(NamedTuple):
    """The idle part of one row."""

    cpu_millis: int
    free_milli: Sequence[int]
    """Of each device."""


class OpenSlots:
    """Slots by row, and what they keep back of cpu, memory and devices."""

    def __init__(self, kinds: Sequence[PlannedKind], rows: int, devices: int) -> None:
        self._kinds = kinds
        self._slots: dict[int, list[Slot]] = {}
        self.counts: npt.NDArray[np.int16] = np.zeros((len(kinds), rows), np.int16)
        """(K, N) how many are open."""
        self.cpu_millis: IntColumn = np.zeros(rows, np.int64)
        """(N,) int64, kept back for open slots."""
        self.memory_mib: npt.NDArray[np.float64] = np.zeros(rows)
        """(N,) float64."""
        self.milli: IntColumn = np.zeros((rows, devices), np.int64)
        """(N, D) int64."""

    @property
    def rows(self) -> int:
        """The number of rows of which there is an account."""
        return len(self.cpu_millis)

    def grow(self, rows: int, devices: int) -> None:
        """Take more rows, or more devices in a row, into account."""
        more = rows - self.rows, devices - self.milli.shape[1]
        self.counts = np.pad(self.counts, ((0, 0), (0, more[0])))
        self.cpu_millis = grown(self.cpu_millis, rows)
        self.memory_mib = np.pad(self.memory_mib, (0, more[0]))
        self.milli = np.pad(self.milli, ((0, more[0]), (0, max(0, more[1]))))

    def of(self, row: int) -> Sequence[Slot]:
        """The open slots of a row."""
        return self._slots.get(row, ())

    def open(self, row: int, slot: Slot) -> None:
        """Keep room for a pod back."""
        self._slots.setdefault(row, []).append(slot)
        self._count(row, slot, 1)

    def close(self, row: int, slot: Slot) -> None:
        """Give the room free, or to its pod."""
        self._slots[row].remove(slot)
        self._count(row, slot, -1)

    def clear(self, row: int) -> None:
        """Close whatever is open in a row."""
        for slot in tuple(self.of(row)):
            self.close(row, slot)

    def best(self, row: int, kind: int, free_milli: Sequence[int]) -> Slot | None:
        """The slot for a pod of a kind whose devices have least free."""
        found = [slot for slot in self.of(row) if slot.kind == kind]
        return min(
            found, key=lambda slot: [free_milli[device] for device in slot.devices], default=None
        )

    def repair(self, row: int, room: IdleCapacity, prices: Sequence[float]) -> None:
        """Close the slots of least worth that do not fit any more, and use what that leaves."""
        closed = self._trim(row, room)
        if closed:
            self._fill(row, room, prices)

    def _count(self, row: int, slot: Slot, change: int) -> None:
        kind = self._kinds[slot.kind]
        self.counts[slot.kind, row] += change
        self.cpu_millis[row] += change * kind.cpu_millis
        self.memory_mib[row] += change * kind.memory_mib
        for device in slot.devices:
            self.milli[row, device] += change * kind.gpu_milli

    def _trim(self, row: int, room: IdleCapacity) -> bool:
        closed = False
        for device in np.flatnonzero(self.milli[row]).tolist():
            free = room.free_milli[device] if device < len(room.free_milli) else 0
            while self.milli[row, device] > free:
                there = (slot for slot in self.of(row) if device in slot.devices)
                self.close(row, min(there, key=self._total_milli))
                closed = True
        while self.cpu_millis[row] > max(0, room.cpu_millis):
            self.close(row, min(self.of(row), key=self._milli_per_cpu))
            closed = True
        return closed

    def _total_milli(self, slot: Slot) -> int:
        return self._kinds[slot.kind].total_milli

    def _milli_per_cpu(self, slot: Slot) -> float:
        kind = self._kinds[slot.kind]
        # One that takes no cpu makes no room.
        return kind.total_milli / kind.cpu_millis if kind.cpu_millis else np.inf

    def _fill(self, row: int, room: IdleCapacity, prices: Sequence[float]) -> None:
        """Open slots on single devices for the kinds of highest price that fit what is left."""
        by_price = sorted(self._singles(), key=lambda number: -prices[number])
        for number in by_price:
            kind = self._kinds[number]
            if prices[number] <= 0:
                return
            for device, free in enumerate(room.free_milli):
                spare_cpu = room.cpu_millis - int(self.cpu_millis[row])
                spare = free - int(self.milli[row, device])
                if spare >= kind.gpu_milli and spare_cpu >= kind.cpu_millis:
                    self.open(row, Slot(number, (device,)))

    def _singles(self) -> Iterable[int]:
        return (
            number
            for number, kind in enumerate(self._kinds)
            if kind.devices == 1 and kind.gpu_milli and not kind.models
        )
