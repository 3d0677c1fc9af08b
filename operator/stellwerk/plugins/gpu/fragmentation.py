"""The fragmentation of nodes: the idle part of them that no typical pod could use.

The measure of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): a typical pod that fits a
node makes those devices a fragment on which it does not fit, any other makes all idle devices one.
FragmentationGradientDescent scores with it, a simulation records it; GpuDotProduct and GpuBestFit
score with the amounts themselves (GpuAmounts). Invariant: the sums are taken in one order, so that
a change which moves no pod between classes changes nothing, to the last bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stellwerk.models.gpu import MODEL_LABEL, WHOLE, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk.snapshot.columns import IntColumn, Mask, RowColumn, RowCursor
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.resource_amounts import CPU

FloatColumn: TypeAlias = npt.NDArray[np.float64]
_CLASSES: Final = 6


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """A kind of pod, and how many of them there are."""

    cpu_millis: int
    gpu_milli: int
    """Thousandths of each device; 0: the pod asks for none."""
    devices: int
    models: tuple[str, ...]
    """The models it admits; empty: any."""
    count: int


class TypicalPods:
    """K kinds as columns, in their order."""

    def __init__(self, kinds: Sequence[TypicalPod]) -> None:
        total = sum(kind.count for kind in kinds)
        gpu = [index for index, kind in enumerate(kinds) if kind.gpu_milli]
        rest = [index for index, kind in enumerate(kinds) if not kind.gpu_milli]
        self._gpu: RowColumn = np.array(gpu, np.intp)
        """(G,) the places of the kinds that ask for GPUs."""
        self._rest: RowColumn = np.array(rest, np.intp)
        self.models = [kinds[index].models for index in gpu]
        """(G,)"""
        self._share: FloatColumn = np.array([kind.count / total for kind in kinds])
        cpu: IntColumn = np.array([kind.cpu_millis for kind in kinds], np.int64)
        self._gpu_cpu, self._rest_cpu = cpu[self._gpu, None], cpu[self._rest, None]
        devices = [kinds[index].devices for index in gpu]
        self._devices: IntColumn = np.array(devices, np.int64).reshape(-1, 1)
        milli = [kinds[index].gpu_milli for index in gpu]
        self._sizes: IntColumn
        self._sizes, self._size = np.unique(np.array(milli, np.int64), return_inverse=True)
        self.choosy = any(self.models)
        """Whether some kind does not admit every model."""

    def fragments(
        self, idle_cpu: IntColumn, free_milli: IntColumn, admitted: Mask | None
    ) -> FloatColumn:
        """(S,) float64, the fragmentation of each of S states of nodes, in thousandths of a device.

        Args:
            idle_cpu: (S,) millicores, idle on the node.
            free_milli: (S, D) thousandths, free on each of its devices.
            admitted: (G, S) whether the kind admits the node's model; None: all do.
        """
        free = np.ascontiguousarray(free_milli.T)
        idle = free.sum(axis=0)
        fits = free >= self._sizes[:, None, None]
        fitting = fits.sum(axis=1)[self._size]
        too_small = (idle - (free * fits).sum(axis=1))[self._size]
        enough, cpu = fitting >= self._devices, idle_cpu >= self._gpu_cpu
        if admitted is not None:
            enough_admitted, lacking = enough & admitted, admitted & ~enough
        else:
            enough_admitted, lacking = enough, ~enough
        amounts = self._share[:, None] * idle
        whole, states = amounts[self._gpu], len(idle)
        # By kind, class and state: summed along the first axis, hence in the order of the kinds.
        parts: FloatColumn = np.zeros((len(self._share), _CLASSES, states))
        gpu = np.zeros((len(self._gpu), _CLASSES, states))
        gpu[:, 0] = whole * (lacking & ~cpu)
        gpu[:, 1] = (
            np.where(enough_admitted, self._share[self._gpu, None] * too_small, whole * lacking)
            * cpu
        )
        gpu[:, 2] = whole * (enough_admitted & ~cpu)
        if admitted is not None:
            gpu[:, 5] = whole * ~admitted
        parts[self._gpu] = gpu
        if len(self._rest):
            runs = idle_cpu >= self._rest_cpu
            parts[self._rest, 3] = amounts[self._rest] * runs
            parts[self._rest, 4] = amounts[self._rest] * ~runs
        classes = parts.sum(axis=0)
        total: FloatColumn = classes[0]
        for part in classes[1:]:
            total = total + part
        return total


class Fragmentation:
    """The fragmentation of every row of a snapshot, followed as it changes."""

    def __init__(self, snapshot: Snapshot, typical: TypicalPods) -> None:
        self._snapshot = snapshot
        self._typical = typical
        self._devices = snapshot.book(GpuDevices)
        self._cursor = RowCursor(snapshot, snapshot.usage_changes)
        self._models_cursor = RowCursor(snapshot, snapshot.node_changes)
        self._admitted: Mask | None = None
        self._values: FloatColumn = np.zeros(0)

    def column(self) -> FloatColumn:
        """(N,) float64, of each row; 0 in free rows. Good until the snapshot changes."""
        cursor = self._cursor
        if not cursor.current:
            changed = cursor.changed(at_most=self._snapshot.size // 2)
            if changed is None:
                self._values = self._of(NodeView(self._snapshot))
            else:
                rows = np.array(changed, np.intp)
                self._values[rows] = self._of(NodeView(self._snapshot, rows))
            cursor.catch_up()
        return self._values

    def idle_milli(self) -> int:
        """The idle thousandths of all devices."""
        return int(self._devices.free_milli(NodeView(self._snapshot)).sum())

    def of(self, nodes: NodeView, idle_cpu: IntColumn, free_milli: IntColumn) -> FloatColumn:
        """(n,) float64, what it would be with so much idle cpu and so much free of the devices."""
        return self._typical.fragments(idle_cpu, free_milli, self._admitted_by(nodes))

    def _of(self, nodes: NodeView) -> FloatColumn:
        return self.of(nodes, idle_cpu(nodes), self._devices.free_milli(nodes))

    def _admitted_by(self, nodes: NodeView) -> Mask | None:
        """(G, n) bool; None: every kind admits every model."""
        if not self._typical.choosy:
            return None
        if self._admitted is None or not self._models_cursor.current:
            ids, label = NodeView(self._snapshot).label(MODEL_LABEL)
            admitted = [
                np.isin(ids, [label.id_of[name] for name in models if name in label.id_of])
                if models
                else np.ones(len(ids), np.bool_)
                for models in self._typical.models
            ]
            self._admitted = np.array(admitted)
            self._models_cursor.catch_up()
        admitted_by: Mask = self._admitted[:, nodes.rows]
        return admitted_by


def idle_cpu(nodes: NodeView) -> IntColumn:
    """(n,) int64 millicores."""
    return nodes.allocatable(CPU) - nodes.requested(CPU)


class GpuAmounts:
    """Amounts idle on nodes and requested by a pod: millicores, thousandths of a GPU device.

    The largest node is the largest there is, not the largest of those that are asked about, so that
    a node's score does not depend on others that are feasible.
    """

    def __init__(self, nodes: NodeView, pod: PodInfo) -> None:
        everything = NodeView(nodes.snapshot)
        devices = nodes.snapshot.book(GpuDevices)
        request = gpu_request(pod.amounts.requests)
        self.idle_cpu = idle_cpu(nodes)
        """(n,) int64."""
        self.idle_milli = devices.free_milli(nodes).sum(axis=1)
        """(n,) int64, of all devices of a node together."""
        self.pod_cpu = pod.amounts.requests.get(CPU, 0)
        self.pod_milli = 0 if request is None else request.total_milli
        self.most_cpu = max(1, int(everything.allocatable(CPU).max(initial=0)))
        """The millicores of the largest node."""
        self.most_milli = largest_node_milli(nodes)


def largest_node_milli(nodes: NodeView) -> int:
    """The thousandths of all devices of the node that has most, at least those of one device."""
    devices = nodes.snapshot.book(GpuDevices)
    return WHOLE * max(1, int(devices.device_count(NodeView(nodes.snapshot)).max(initial=0)))
