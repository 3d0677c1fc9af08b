"""The target of each node: taken from the newest plan, and updated with each pod.

GpuPatternPlan owns one. Invariant: the open slots follow from the last plan and from the pods that
came and went since. A pod that leaves opens its slot again; a pod that takes other room closes the
slots that no longer fit. All open slots of a row fit at the same time, with its pods, on the
devices that they name and within the row's idle cpu. Memory counts only as the mean of a kind of
pods.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from stellwerk.framework.services import Handle
from stellwerk.framework.worker import PendingResult
from stellwerk.models.gpu import MODEL_LABEL, WHOLE
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.fragmentation import idle_cpu
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk.plugins.gpu.pattern_plan import PatternPlan, PlanProblem, plan_patterns
from stellwerk.plugins.gpu.pattern_pricing import MILLI_STEP, NodeShape, PlannedKind, Slot
from stellwerk.plugins.gpu.planned_pods import MIB, PlannedPods, seen_kinds
from stellwerk.profiles.spec.plugin_args import GpuPatternPlanArgs
from stellwerk.snapshot.columns import IntColumn, RowColumn, RowCursor, grown
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.resource_amounts import MEMORY


class IdleCapacity(NamedTuple):
    """The idle part of one row."""

    cpu_millis: int
    free_milli: Sequence[int]
    """Free thousandths of each device."""


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


_log = logging.getLogger(__name__)

_USED_UP: Final = 0.8
"""A plan is made anew when so much is left of what was idle when the last one was asked for."""
_FREED: Final = 1.1
_MIN_NEW_PODS: Final = 32
"""Pods of new kinds from which a plan may be made anew."""
_NEWS: Final = 0.5
"""The share of new kinds from which a plan is made anew where kinds are those that were seen."""
_UNKNOWN: Final = 0.05
"""The share of pods of no kind that was given from which plans go by those that were seen."""
_MIN_UNKNOWN_PODS: Final = 25
"""Pods of no given kind from which plans may go by those that were seen."""
_CPU_STEP: Final = 100
_MEMORY_STEP_MIB: Final = 4096
_FULL: Final = WHOLE // MILLI_STEP


class _KnownPod(NamedTuple):
    kind: int | None
    devices: tuple[int, ...]


class _Asked(NamedTuple):
    """A plan under way, and what it was asked about."""

    outcome: PendingResult[PatternPlan]
    kinds: PlannedPods
    rows: Sequence[Sequence[int]]
    """By shape."""
    devices: Mapping[int, Sequence[int]]
    """By row: the numbers of its devices in the order of a shape's positions."""
    changed: dict[int, dict[str, _KnownPod]]
    """By row that changed since: its pods then."""


class PatternTargets:
    """The open slots of rows, by the plan that is in force."""

    def __init__(self, handle: Handle, args: GpuPatternPlanArgs) -> None:
        self._handle, self._seconds = handle, float(args.solver_seconds)
        given = {
            PlannedKind(
                kind.cpu_millis,
                float(kind.memory_mib),
                kind.gpu_milli,
                kind.devices if kind.gpu_milli else 0,
                tuple(sorted(kind.models)) if kind.gpu_milli else (),
            ): kind.count
            for kind in args.typical_pods
        }
        self._given = PlannedPods(given)
        self.kinds = self._given
        self.open = OpenSlots(self.kinds.kinds, 0, 1)
        self._prices: Sequence[float] = ()
        self._devices = handle.snapshot.book(GpuDevices)
        self._cursor = RowCursor(handle.snapshot, handle.snapshot.usage_changes)
        self._known: dict[int, dict[str, _KnownPod]] = {}
        self._idle: IntColumn = np.zeros(0, np.int64)
        self._idle_then = 0
        self._seen, self._seen_then = handle.snapshot.pod_shapes, 0
        self._asked: _Asked | None = None

    def see(self, pod: PodInfo) -> None:
        """A pod is there that may never get a node: it counts among those seen."""
        self._seen.see((pod,))

    def follow(self) -> None:
        """Look at what changed; take a plan over that is there, ask for one that is due."""
        self._follow_rows()
        self._seen.follow(self._handle.snapshot)
        if self._asked is not None:
            if self._asked.outcome.ready():
                self._take_over(self._asked)
        elif self._due():
            self._ask()

    # --- pods come and go -------------------------------------------------------------------------

    def room(self, row: int) -> IdleCapacity:
        """The idle part of a row."""
        view = NodeView(self._handle.snapshot, np.array([row], np.intp))
        return IdleCapacity(int(idle_cpu(view)[0]), self._devices.in_row(row))

    def _follow_rows(self) -> None:
        if self._cursor.current:
            return
        size = self._handle.snapshot.size
        if size > self.open.rows:
            self.open.grow(size, 1)
            self._idle = np.pad(self._idle, (0, size - len(self._idle)))
        changed = self._cursor.changed()
        for row in range(size) if changed is None else changed:
            self._follow_row(row)
        self._cursor.catch_up()

    def _follow_row(self, row: int) -> None:
        before, pods = self._known.get(row, {}), self._handle.snapshot.pods[row]
        room = self.room(row)
        self._idle[row] = sum(room.free_milli)
        if self._asked is not None:
            self._asked.changed.setdefault(row, before)
        self._known[row] = {
            uid: before[uid] if uid in before else self._pod(pod) for uid, pod in pods.items()
        }
        self._account(row, before, room)

    def _account(self, row: int, before: Mapping[str, _KnownPod], room: IdleCapacity) -> None:
        """Open the slots of pods that left, close those of pods that came, repair the rest."""
        now = self._known.get(row, {})
        if len(room.free_milli) > self.open.milli.shape[1]:
            self.open.grow(self.open.rows, len(room.free_milli))
        for uid, pod in before.items():
            if (
                uid not in now
                and pod.kind is not None
                and self._prices
                and (pod.devices or room.free_milli)
            ):
                self.open.open(row, Slot(pod.kind, pod.devices))
        for uid, pod in now.items():
            if uid in before or pod.kind is None:
                continue
            if Slot(pod.kind, pod.devices) in self.open.of(row):
                self.open.close(row, Slot(pod.kind, pod.devices))
        self.open.repair(row, room, self._prices)

    def _pod(self, pod: PodInfo) -> _KnownPod:
        return _KnownPod(self.kinds.number_of(pod), tuple(sorted(pod.gpu_devices)))

    # --- plans ------------------------------------------------------------------------------------

    def _due(self) -> bool:
        idle = int(self._idle.sum())
        if not _USED_UP * self._idle_then < idle < max(_FREED * self._idle_then, WHOLE):
            return True
        news = 0 if self._given.kinds else self._seen.count - self._seen_then
        return news >= max(_MIN_NEW_PODS, _NEWS * self._seen.remembered)

    def _expected(self) -> PlannedPods:
        """The kinds that were given, or those seen where they are others."""
        shapes = self._seen.shapes()
        unknown = sum(
            each.pods for each in shapes if self._given.number_of_shape(each.shape) is None
        )
        drifted = unknown > max(_MIN_UNKNOWN_PODS, _UNKNOWN * self._seen.remembered)
        return PlannedPods(seen_kinds(shapes)) if drifted or not self._given.kinds else self._given

    def _ask(self) -> None:
        """Hand a plan over to the worker."""
        self._idle_then = max(WHOLE, int(self._idle.sum()))
        snapshot = self._handle.snapshot
        self._seen_then = self._seen.count
        kinds = self._expected()
        rows = np.flatnonzero((self._idle > 0) & snapshot.alive & ~snapshot.unschedulable)
        if not len(rows) or not kinds.mean_milli:
            return
        shapes, number, order = self._shapes(rows, kinds)
        by_shape: list[list[int]] = [[] for _ in shapes]
        for row, of_shape in zip(rows.tolist(), number.tolist(), strict=True):
            by_shape[of_shape].append(row)
        devices = dict(zip(rows.tolist(), order.tolist(), strict=True))
        begun = [] if kinds is not self.kinds else self._begun(by_shape, devices)
        expected = float(self._idle[rows].sum()) / kinds.mean_milli / max(1, sum(kinds.counts))
        demand = [count * expected for count in kinds.counts]
        problem = PlanProblem(kinds.kinds, demand, shapes, [len(each) for each in by_shape], begun)
        outcome = self._handle.worker.compute(partial(plan_patterns, problem, self._seconds))
        self._asked = _Asked(outcome, kinds, by_shape, devices, {})

    def _shapes(
        self, rows: RowColumn, kinds: PlannedPods
    ) -> tuple[list[NodeShape], RowColumn, IntColumn]:
        """Distinct shapes, the shape of each row, and each row's devices in their order."""
        view = NodeView(self._handle.snapshot, rows)
        cpu = idle_cpu(view) // _CPU_STEP * _CPU_STEP
        memory = (view.allocatable(MEMORY) - view.requested(MEMORY)) // MIB
        dearest = max(
            (kind.memory_mib / kind.cpu_millis for kind in kinds.kinds if kind.cpu_millis),
            default=1.0,
        )
        # More than pods that fill the cpu ask for makes no difference.
        memory = np.minimum(memory, (cpu * max(dearest, 1.0)).astype(np.int64) + _MEMORY_STEP_MIB)
        memory = memory // _MEMORY_STEP_MIB * _MEMORY_STEP_MIB
        models, names = view.label(MODEL_LABEL)
        smallest = min((kind.gpu_milli for kind in kinds.kinds if kind.gpu_milli), default=WHOLE)
        free = self._devices.free_milli(view)
        steps = np.where(free >= smallest, free // MILLI_STEP, 0)
        order: IntColumn = np.argsort(-steps, axis=1, kind="stable")
        steps = np.take_along_axis(steps, order, axis=1)
        keys = np.column_stack((cpu, memory, models, steps))
        distinct, number = np.unique(keys, axis=0, return_inverse=True)
        by_id = {id_: name for name, id_ in names.id_of.items()}
        return [self._shape(key, by_id) for key in distinct.tolist()], number, order

    @staticmethod
    def _shape(key: Sequence[int], names: Mapping[int, str]) -> NodeShape:
        cpu, memory, model, *steps = key
        partial_steps = tuple(step for step in steps if 0 < step < _FULL)
        return NodeShape(cpu, memory, steps.count(_FULL), partial_steps, names.get(model, ""))

    def _begun(
        self, by_shape: Sequence[Sequence[int]], devices: Mapping[int, Sequence[int]]
    ) -> list[tuple[int, tuple[Slot, ...]]]:
        """The open slots, in the positions of shapes."""
        begun: dict[tuple[int, tuple[Slot, ...]], None] = {}
        for shape, rows in enumerate(by_shape):
            for row in rows:
                slots = tuple(
                    sorted(
                        Slot(slot.kind, tuple(devices[row].index(each) for each in slot.devices))
                        for slot in self.open.of(row)
                    )
                )
                if slots:
                    begun[shape, slots] = None
        return list(begun)

    def _take_over(self, asked: _Asked) -> None:
        self._asked = None
        try:
            plan = asked.outcome.result()
        except Exception:  # noqa: BLE001 a solver or a process that failed, in whatever way
            _log.exception("no plan for GPUs: only the other scores place pods")
            return
        renamed = asked.kinds is not self.kinds
        self.kinds, self._prices = asked.kinds, plan.prices
        rows, devices = self.open.rows, self.open.milli.shape[1]
        self.open = OpenSlots(self.kinds.kinds, rows, devices)
        for shape, patterns in enumerate(plan.patterns):
            left = list(asked.rows[shape])
            for times, slots in patterns:
                for _ in range(min(times, len(left))):
                    self._aim_at(left.pop(), slots, asked.devices)
        if renamed:
            self._known = {
                row: {uid: self._pod(pod) for uid, pod in self._handle.snapshot.pods[row].items()}
                for row in self._known
            }
        for row, then in asked.changed.items():
            self._account(row, then, self.room(row))

    def _aim_at(
        self, row: int, slots: Sequence[Slot], devices: Mapping[int, Sequence[int]]
    ) -> None:
        order = devices[row]
        for slot in slots:
            numbers = tuple(sorted(order[position] for position in slot.devices))
            self.open.open(row, Slot(slot.kind, numbers))

    def slack(self, nodes: NodeView) -> tuple[IntColumn, npt.NDArray[np.float64], IntColumn]:
        """The part that no open slot keeps back: (n,) millicores, (n,) MiB, (n, D) of devices."""
        cpu = idle_cpu(nodes) - nodes.gather(self.open.cpu_millis)
        memory = (nodes.allocatable(MEMORY) - nodes.requested(MEMORY)) / MIB
        milli = self._devices.free_milli(nodes).copy()  # of a whole view it is the book's own
        kept = self.open.milli[nodes.rows]
        width = min(kept.shape[1], milli.shape[1])
        milli[:, :width] -= kept[:, :width]
        return cpu, memory - nodes.gather(self.open.memory_mib), milli
