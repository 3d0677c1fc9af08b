"""FragmentationGradientDescent: prefers nodes and devices where the pod leaves fewest fragments.

The FGD policy of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): how much less of what is
idle is a fragment after placing, through a sigmoid, as an integer. Invariant: the score of a node
is that of the device which Reserve chooses there, the lowest-numbered of the best.
"""

from collections.abc import Hashable, Sequence
from typing import ClassVar, Final, NamedTuple

import numpy as np
from typing_extensions import override

from stellwerk.framework.interface import (
    PreEnqueuePlugin,
    ReservePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, CycleState, Status
from stellwerk.models.gpu import WHOLE, GpuRequest, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.fragmentation import (
    FloatColumn,
    Fragmentation,
    TypicalPod,
    TypicalPods,
    idle_cpu,
)
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk.profiles.spec.plugin_args import FragmentationGradientDescentArgs
from stellwerk.snapshot.columns import IntColumn, Mask, RowColumn
from stellwerk.snapshot.pod_shapes import CountedShape
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.resource_amounts import CPU

_NAME: Final = "FragmentationGradientDescent"
_NOT_TRIED: Final = -1
_HUNDREDTHS: Final = 100
"""Parts of a pod in counts, in which pods that were seen long ago count less."""


class _Trial(NamedTuple):
    """Some rows as a view, and what is idle on them."""

    nodes: NodeView
    idle_cpu: IntColumn
    """After placing."""
    free_milli: IntColumn
    """Before."""
    before: FloatColumn
    """The fragmentation before."""


class FragmentationGradientDescent(PreEnqueuePlugin, ScorePlugin, ReservePlugin):
    """Tries every device of every node at once."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[FragmentationGradientDescentArgs]] = FragmentationGradientDescentArgs
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(
        self, handle: Handle, args: FragmentationGradientDescentArgs | None = None
    ) -> None:
        self._handle = handle
        given = [
            TypicalPod(kind.cpu_millis, kind.gpu_milli, kind.devices, kind.models, kind.count)
            for kind in (args or FragmentationGradientDescentArgs()).typical_pods
        ]
        self._seen = None if given else handle.snapshot.pod_shapes
        """The source of typical pods if none are given."""
        self._generation = 0
        self._reckon_with(given)

    def _reckon_with(self, typical: Sequence[TypicalPod]) -> None:
        self._typical = TypicalPods(typical)
        self._fragmentation = Fragmentation(self._handle.snapshot, self._typical)

    def _follow(self) -> None:
        """Reckon with the pods that were seen by now."""
        seen = self._seen
        if seen is None:
            return
        seen.follow(self._handle.snapshot)
        if seen.generation != self._generation:
            self._generation = seen.generation
            self._reckon_with([_typical(each) for each in seen.typical])

    @override
    def pre_enqueue(self, pod: PodInfo) -> Status:
        if self._seen is not None:
            self._seen.see((pod,))
        return OK

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        self._follow()
        request = gpu_request(pod.amounts.requests)
        return (_NAME, pod.amounts.requests.get(CPU, 0), request, self._generation)

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        self._follow()
        scores: IntColumn = np.zeros(len(nodes), np.int64)
        request = gpu_request(pod.amounts.requests)
        cpu = idle_cpu(nodes) - pod.amounts.requests.get(CPU, 0)
        free = nodes.snapshot.book(GpuDevices).free_milli(nodes)
        fits = cpu >= 0
        if request is not None:
            fits &= (free >= request.milli).sum(axis=1) >= request.devices
        # Where it does not fit, the score is never asked for.
        positions = np.flatnonzero(fits)
        if len(positions):
            before = self._before(nodes, positions)
            trial = _Trial(nodes.narrowed(positions), cpu[positions], free[positions], before)
            scores[positions] = self._scores(request, trial)
        return scores

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        request = gpu_request(pod.amounts.requests)
        if request is None or not request.shares:
            return OK
        snapshot = self._handle.snapshot
        row = np.array([snapshot.row_of[node_name]], np.intp)
        nodes = NodeView(snapshot, row)
        cpu = idle_cpu(nodes) - pod.amounts.requests.get(CPU, 0)
        free = snapshot.book(GpuDevices).free_milli(nodes)
        trial = _Trial(nodes, cpu, free, self._before(nodes, np.zeros(1, np.intp)))
        by_device = self._by_device(request.milli, trial)[0]
        if by_device.max() != _NOT_TRIED:
            pod.gpu_devices = (int(by_device.argmax()),)
        return OK

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """There is nothing to undo: the choice belongs to the assumed pod, which is forgotten."""

    def _followed(self, nodes: NodeView) -> Fragmentation:
        if nodes.snapshot is self._handle.snapshot:
            return self._fragmentation
        return Fragmentation(nodes.snapshot, self._typical)

    def _before(self, nodes: NodeView, positions: RowColumn) -> FloatColumn:
        """(m,) float64, the fragmentation at some positions as it is."""
        followed = self._followed(nodes)
        if nodes.overlay is None:
            return followed.column()[nodes.rows][positions]
        narrow = nodes.narrowed(positions)
        free = nodes.snapshot.book(GpuDevices).free_milli(narrow)
        return followed.of(narrow, idle_cpu(narrow), free)

    def _scores(self, request: GpuRequest | None, trial: _Trial) -> IntColumn:
        """(m,) int64, 0-100, of nodes on which the pod fits."""
        if request is not None and request.shares:
            best: IntColumn = self._by_device(request.milli, trial).max(axis=1)
            return best
        free = trial.free_milli
        if request is not None:
            untouched = free == WHOLE
            taken = untouched & (untouched.cumsum(axis=1) <= request.devices)
            free = np.where(taken, 0, free)
        after = self._followed(trial.nodes).of(trial.nodes, trial.idle_cpu, free)
        return _score(trial.before - after)

    def _by_device(self, milli: int, trial: _Trial) -> IntColumn:
        """(m, D) int64, 0-100, with a share on that device; -1 where it was not tried.

        Of devices with equally much free, which give the same, the first is tried.
        """
        free = trial.free_milli
        tried: Mask = free >= milli
        for device in range(1, free.shape[1]):
            tried[:, device] &= (free[:, :device] != free[:, device, None]).all(axis=1)
        positions, devices = np.nonzero(tried)
        after_free = free[positions]
        after_free[np.arange(len(positions)), devices] -= milli
        nodes = trial.nodes.take(trial.nodes.row_numbers()[positions])
        after = self._followed(nodes).of(nodes, trial.idle_cpu[positions], after_free)
        scores: IntColumn = np.full(free.shape, _NOT_TRIED, np.int64)
        scores[positions, devices] = _score(trial.before[positions] - after)
        return scores


def _typical(seen: CountedShape) -> TypicalPod:
    return TypicalPod(*seen.shape, count=max(1, round(_HUNDREDTHS * seen.pods)))


def _score(gain: FloatColumn) -> IntColumn:
    """(m,) int64, 0-100: 50 where fragmentation stays as it is, in steps of some 40 thousandths."""
    scores: IntColumn = (100 / (1 + np.exp(-gain / WHOLE))).astype(np.int64)
    return scores
