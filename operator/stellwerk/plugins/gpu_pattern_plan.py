"""GpuPatternPlan: prefers nodes and devices for which a plan has kept room for such a pod.

Plans set each node a target, a pattern of pods that fill its devices; they are made in the
background by a linear programme over such patterns. Where no room is kept, nodes are preferred on
which the pod takes none that is kept for others, and other scores choose among these:
FragmentationGradientDescent with a lower weight. Invariant: a cycle never waits for a plan; without
one, every node scores the same.
"""

import importlib.util
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.framework.interface import (
    MAX_NODE_SCORE,
    PreEnqueuePlugin,
    ReservePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, CycleState, Status
from stellwerk.models.gpu import WHOLE, GpuRequest, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk.plugins.gpu.pattern_targets import PatternTargets
from stellwerk.plugins.gpu.planned_pods import MIB
from stellwerk.profiles.spec.plugin_args import GpuPatternPlanArgs
from stellwerk.snapshot.columns import IntColumn, Mask
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.resource_amounts import CPU, MEMORY

_TAKES_NOTHING_KEPT: Final = 1
_SHORT_OF_MEMORY: Final = 2
_MIN_SLOT_SCORE: Final = 3
"""The lowest score of a node with a slot for the pod, above the two of nodes without one."""


class GpuPatternPlan(PreEnqueuePlugin, ScorePlugin, ReservePlugin):
    """0 where the pod takes room kept for others, 1 where it takes none, more where it has some."""

    name: ClassVar[str] = "GpuPatternPlan"
    args_model: ClassVar[type[GpuPatternPlanArgs]] = GpuPatternPlanArgs
    score_reuse: ClassVar[Reuse] = Reuse.NEVER

    def __init__(self, handle: Handle, args: GpuPatternPlanArgs | None = None) -> None:
        if importlib.util.find_spec("highspy") is None:
            message = "it needs the package highspy, which is missing: stellwerk[planning]"
            raise ModuleNotFoundError(message)
        self._handle = handle
        self._devices = handle.snapshot.book(GpuDevices)
        self._targets = PatternTargets(handle, args or GpuPatternPlanArgs())

    @override
    def pre_enqueue(self, pod: PodInfo) -> Status:
        self._targets.see(pod)
        return OK

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        scores: IntColumn = np.zeros(len(nodes), np.int64)
        if nodes.snapshot is not self._handle.snapshot or nodes.overlay is not None:
            return scores  # a hypothesis, for which there is no plan
        targets = self._targets
        targets.follow()
        cpu, memory, milli = targets.slack(nodes)
        request, asked_mib = gpu_request(pod.amounts.requests), _memory_mib(pod)
        free: Mask = (cpu >= pod.amounts.requests.get(CPU, 0)) & (memory + 1 >= asked_mib)
        if request is not None:
            free &= (milli >= request.milli).sum(axis=1) >= request.devices
        scores += _TAKES_NOTHING_KEPT * free
        kind = targets.kinds.number_of(pod)
        if kind is not None and len(targets.open.counts):
            kept = nodes.gather(targets.open.counts[kind]) > 0
            positions = np.flatnonzero(kept)
            if len(positions):
                own = targets.kinds.kinds[kind].memory_mib
                enough = memory[positions] + own + 1 >= asked_mib
                fullness = self._fullness(nodes.narrowed(positions))
                scores[positions] = np.where(enough, fullness, _SHORT_OF_MEMORY)
        return scores

    def _fullness(self, nodes: NodeView) -> IntColumn:
        """(n,) int64, 3 to 100: the fuller a node's devices, the more."""
        idle = self._devices.free_milli(nodes).sum(axis=1)
        most = WHOLE * np.maximum(1, self._devices.device_count(nodes).max(initial=1))
        full: IntColumn = (most - idle).clip(0) * (MAX_NODE_SCORE - _MIN_SLOT_SCORE) // most
        return full + _MIN_SLOT_SCORE

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        request = gpu_request(pod.amounts.requests)
        if request is None:
            return OK
        targets = self._targets
        targets.follow()
        row = self._handle.snapshot.row_of[node_name]
        free = self._devices.in_row(row)
        kind = targets.kinds.number_of(pod)
        slot = None if kind is None else targets.open.best(row, kind, free)
        if slot is not None and all(free[device] >= request.milli for device in slot.devices):
            pod.gpu_devices = slot.devices
            return OK
        kept = targets.open.milli[row].tolist()
        slack = [milli - back for milli, back in zip(free, kept, strict=False)]
        pod.gpu_devices = _beside(slack, request, pod.gpu_devices)
        return OK

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """There is nothing to undo: the choice belongs to the assumed pod, which is forgotten."""


def _beside(slack: list[int], request: GpuRequest, chosen: tuple[int, ...]) -> tuple[int, ...]:
    """Devices on which nothing is kept for others, if there are any; else those already chosen."""
    if chosen and all(slack[device] >= request.milli for device in chosen if device < len(slack)):
        return chosen
    fitting = [number for number, milli in enumerate(slack) if milli >= request.milli]
    if len(fitting) < request.devices:
        return chosen
    return tuple(sorted(sorted(fitting, key=lambda number: slack[number])[: request.devices]))


def _memory_mib(pod: PodInfo) -> float:
    return pod.amounts.requests.get(MEMORY, 0) / MIB
