"""The pattern of pods that is worth most on a node, given the worth of each kind.

Column generation asks it once per round and kind of node. Invariant: a pattern fits: rounding is
against it, of cpu to steps and of shares of a device to hundredths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stellwerk.models.gpu import WHOLE
from stellwerk.plugins.gpu.fragmentation import FloatColumn
from stellwerk.snapshot.columns import IntColumn

MILLI_STEP: Final = 10
"""Shares of a device are planned in these steps, in thousandths."""
_CPU_STEP: Final = 100
_MAX_CPU_STEPS: Final = 2000
"""Steps of CPU in the table of a node. A node with more CPU gets larger steps."""
_FULL: Final = WHOLE // MILLI_STEP
_MIN_WORTH: Final = 1e-9
"""Worth from which something counts; below it there is only rounding."""
_NOTHING: Final = -1
_AS_BEFORE: Final = -2
"""One step less gives the same."""


@dataclass(frozen=True, slots=True)
class PlannedKind:
    """A kind of pod, as far as a plan looks at it."""

    cpu_millis: int
    memory_mib: float
    """The mean of the kind's pods."""
    gpu_milli: int
    """Thousandths of each device; 0: the pod asks for none."""
    devices: int
    models: tuple[str, ...]
    """The models it admits; empty: any."""

    @property
    def total_milli(self) -> int:
        """Thousandths of all its devices."""
        return self.gpu_milli * self.devices


class NodeShape(NamedTuple):
    """The idle part of a node, as far as a plan looks at it."""

    cpu_millis: int
    memory_mib: int
    untouched: int
    """Devices of which everything is free."""
    partial: tuple[int, ...]
    """The free part of each other device, in steps, most first."""
    model: str


class Slot(NamedTuple):
    """Room for one pod of a kind."""

    kind: int
    devices: tuple[int, ...]
    """Positions: untouched devices come first, then the partial ones in their order."""


class _Item(NamedTuple):
    kind: int
    worth: float
    cpu: int
    """In steps."""
    size: int
    """Steps of one device, or whole devices."""


class PatternPricing:
    """Dynamic programmes over devices and cpu, for the kinds that one model admits."""

    def __init__(
        self, kinds: Mapping[int, PlannedKind], worth: Sequence[float], most_cpu_millis: int
    ) -> None:
        self._step = max(_CPU_STEP, -(-most_cpu_millis // _MAX_CPU_STEPS))
        self._width = most_cpu_millis // self._step + 1
        singles, self._several, self._rest = self._items(kinds, worth)
        self._singles = _undominated(singles)
        self._device, self._choice = self._one_device()
        self._cpu_only, self._cpu_choice = self._without_devices()
        self._fronts: dict[int, tuple[IntColumn, FloatColumn]] = {}
        nothing: FloatColumn = np.zeros(self._width)
        no_choice: IntColumn = np.full(self._width, _NOTHING)
        self._untouched = [(nothing, no_choice, no_choice)]
        """By number of untouched devices: worth by cpu, cpu for the last one, or pod on several."""
        self._partial: dict[tuple[int, tuple[int, ...]], tuple[FloatColumn, IntColumn]] = {}

    def best(self, shape: NodeShape) -> tuple[float, list[Slot]]:
        """The pattern that is worth most on such a node, memory aside, and its worth."""
        cpu = shape.cpu_millis // self._step
        self._add_untouched(shape.untouched)
        worth = self._untouched[shape.untouched][0]
        stages = []
        for count in range(1, len(shape.partial) + 1):
            key = (shape.untouched, shape.partial[:count])
            if key not in self._partial:
                self._partial[key] = self._with_device(worth, shape.partial[count - 1])
            worth, spent = self._partial[key]
            stages.append(spent)
        total = worth[: cpu + 1] + self._cpu_only[cpu::-1]
        on_devices = int(total.argmax())
        slots = self._pods_without_devices(cpu - on_devices)
        slots += self._pods_on_devices(shape, stages, on_devices)
        return float(total[on_devices]), slots

    # --- what is worth planning -------------------------------------------------------------------

    def _items(
        self, kinds: Mapping[int, PlannedKind], worth: Sequence[float]
    ) -> tuple[list[_Item], list[_Item], list[_Item]]:
        """Pods on one device, pods on several, pods on none."""
        singles, several, rest = [], [], []
        for number, kind in kinds.items():
            cpu = -(-kind.cpu_millis // self._step)
            if worth[number] <= _MIN_WORTH or cpu >= self._width:
                continue
            if not kind.gpu_milli:
                # One that asks for nothing would fit without end.
                rest.append(_Item(number, worth[number], max(1, cpu), 0))
            elif kind.devices > 1:
                several.append(_Item(number, worth[number], cpu, kind.devices))
            else:
                size = -(-kind.gpu_milli // MILLI_STEP)
                singles.append(_Item(number, worth[number], cpu, size))
        return singles, several, rest

    # --- one device -------------------------------------------------------------------------------

    def _one_device(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int16]]:
        """(101, C) worth by free steps of a device and cpu, and the pod that is added there."""
        worth = np.zeros((_FULL + 1, self._width))
        choice = np.full((_FULL + 1, self._width), _NOTHING, np.int16)
        for free in range(1, _FULL + 1):
            best = worth[free - 1].copy()
            chosen = np.where(best > 0, _AS_BEFORE, _NOTHING).astype(np.int16)
            for index, item in enumerate(self._singles):
                if item.size <= free:
                    with_it = worth[free - item.size, : self._width - item.cpu] + item.worth
                    better = with_it > best[item.cpu :] + _MIN_WORTH
                    best[item.cpu :][better] = with_it[better]
                    chosen[item.cpu :][better] = index
            worth[free], choice[free] = best, chosen
        return worth, choice

    def _pods_on_device(self, free: int, cpu: int) -> list[int]:
        kinds = []
        while free > 0 and self._choice[free, cpu] != _NOTHING:
            index = int(self._choice[free, cpu])
            if index == _AS_BEFORE:
                free -= 1
                continue
            item = self._singles[index]
            kinds.append(item.kind)
            free, cpu = free - item.size, cpu - item.cpu
        return kinds

    def _with_device(self, worth: FloatColumn, free: int) -> tuple[FloatColumn, IntColumn]:
        """(C,) worth with one more device, and the cpu that goes to its pods."""
        if free not in self._fronts:
            column = self._device[free]
            steps = np.concatenate(([0], np.flatnonzero(np.diff(column) > _MIN_WORTH) + 1))
            self._fronts[free] = (steps, column[steps])
        steps, gains = self._fronts[free]
        last = int(steps[-1])
        # Every way to give some cpu to the device is the column, shifted; the best of each is kept.
        padded = np.concatenate((np.full(last, -np.inf), worth))
        shifted = np.lib.stride_tricks.sliding_window_view(padded, len(worth))[last - steps]
        total = shifted + gains[:, None]
        best = total.argmax(axis=0)
        return total[best, np.arange(len(worth))], steps[best]

    # --- several devices --------------------------------------------------------------------------

    def _add_untouched(self, count: int) -> None:
        while len(self._untouched) <= count:
            devices = len(self._untouched)
            worth, spent = self._with_device(self._untouched[-1][0], _FULL)
            several: IntColumn = np.full(self._width, _NOTHING)
            for index, item in enumerate(self._several):
                if item.size <= devices:
                    before = self._untouched[devices - item.size][0]
                    with_it = before[: self._width - item.cpu] + item.worth
                    better = with_it > worth[item.cpu :] + _MIN_WORTH
                    worth[item.cpu :][better] = with_it[better]
                    several[item.cpu :][better] = index
            self._untouched.append((worth, spent, several))

    def _pods_on_devices(
        self, shape: NodeShape, stages: Sequence[IntColumn], cpu: int
    ) -> list[Slot]:
        slots = []
        for index in reversed(range(len(stages))):
            spent = int(stages[index][cpu])
            position = (shape.untouched + index,)
            slots += [
                Slot(kind, position) for kind in self._pods_on_device(shape.partial[index], spent)
            ]
            cpu -= spent
        left = shape.untouched
        while left:
            _, spent_on_last, several = self._untouched[left]
            if several[cpu] != _NOTHING:
                item = self._several[int(several[cpu])]
                slots.append(Slot(item.kind, tuple(range(left - item.size, left))))
                left, cpu = left - item.size, cpu - item.cpu
                continue
            spent = int(spent_on_last[cpu])
            left, cpu = left - 1, cpu - spent
            slots += [Slot(kind, (left,)) for kind in self._pods_on_device(_FULL, spent)]
        return slots

    # --- no device --------------------------------------------------------------------------------

    def _without_devices(self) -> tuple[FloatColumn, list[int]]:
        """(C,) worth of pods without GPUs by cpu, and the pod that is added there."""
        worth, choice = [0.0], [_NOTHING]
        for cpu in range(1, self._width if self._rest else 1):
            best, chosen = worth[-1], _AS_BEFORE
            for index, item in enumerate(self._rest):
                if item.cpu <= cpu and worth[cpu - item.cpu] + item.worth > best + _MIN_WORTH:
                    best, chosen = worth[cpu - item.cpu] + item.worth, index
            worth.append(best)
            choice.append(chosen)
        column: FloatColumn = np.zeros(self._width)
        column[: len(worth)] = worth
        return column, choice

    def _pods_without_devices(self, cpu: int) -> list[Slot]:
        slots = []
        while self._rest and cpu > 0:
            index = self._cpu_choice[cpu]
            if index == _AS_BEFORE:
                cpu -= 1
                continue
            slots.append(Slot(self._rest[index].kind, ()))
            cpu -= self._rest[index].cpu
        return slots


def _undominated(items: Sequence[_Item]) -> list[_Item]:
    """Those that no other one replaces that takes no more and is worth no less."""
    kept: list[_Item] = []
    for item in sorted(items, key=lambda each: (each.size, each.cpu, -each.worth)):
        if not any(
            other.size <= item.size and other.cpu <= item.cpu and other.worth >= item.worth
            for other in kept
        ):
            kept.append(item)
    return kept
