"""GpuClustering: prefers nodes whose GPU pods are of the pod's own kind.

The GpuClustering policy of the published experiment (Weng et al., USENIX ATC 2023). Kinds are
shares of a device, and whole devices by their number. Invariant: the kinds on a node weigh more
than how full its devices are.
"""

from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.interface import Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.gpu import gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.fragmentation import largest_node_milli
from stellwerk.plugins.gpu.node_gpus import GpuDevices, kind_of
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView

_ALL_OF_ITS_KIND: Final = 75
_SOME_OF_ITS_KIND: Final = 50
_NO_GPU_POD: Final = 25
_ONLY_OTHERS: Final = 0
_FULLNESS: Final = 25


class GpuClustering(RowByRow, ScorePlugin):
    """A node's score says which kinds are there; within 25 points, how full its devices are."""

    name: ClassVar[str] = "GpuClustering"
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, _handle: Handle, _args: BaseModel | None = None) -> None:
        """There is nothing to keep."""

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        request = gpu_request(pod.amounts.requests)
        nothing: IntColumn = np.zeros(len(nodes), np.int64)
        if request is None:
            return nothing
        devices = nodes.snapshot.book(GpuDevices)
        counts = devices.kind_counts(nodes)
        own = counts.get(kind_of(request), nothing)
        pods: IntColumn = sum(counts.values(), nothing)
        base = np.select(
            [pods == 0, own == pods, own > 0],
            [_NO_GPU_POD, _ALL_OF_ITS_KIND, _SOME_OF_ITS_KIND],
            _ONLY_OTHERS,
        )
        most = largest_node_milli(nodes)
        idle = devices.free_milli(nodes).sum(axis=1)
        scores: IntColumn = base + _FULLNESS * (most - idle) // most
        return scores
