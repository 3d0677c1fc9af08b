"""GpuPacking: prefers devices in use, then nodes in use, then small nodes.

The GpuPacking policy of the published experiment (Weng et al., USENIX ATC 2023). Invariant: a node
on which the pod touches no untouched device scores above one on which it does, and that above a
node without any GPU pod.
"""

from typing import ClassVar, Final

import numpy as np
from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.interface import Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.gpu import WHOLE, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView

_MAX_SCORE: Final = 100
_UNTOUCHED_DEVICE: Final = 50
"""The most that a node scores on which the pod touches an untouched device."""
_UNTOUCHED_NODE: Final = 33
"""Points of a node all of whose devices are untouched."""
_DOES_NOT_FIT: Final = WHOLE + 1


class GpuPacking(RowByRow, ScorePlugin):
    """Looks at the devices that the pod would get: the fullest that fit."""

    name: ClassVar[str] = "GpuPacking"
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, _handle: Handle, _args: BaseModel | None = None) -> None:
        """There is nothing to keep."""

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        request = gpu_request(pod.amounts.requests)
        if request is None:
            return np.zeros(len(nodes), np.int64)
        devices = nodes.snapshot.book(GpuDevices)
        free = devices.free_milli(nodes)
        untouched = (free == WHOLE).sum(axis=1)
        fitting = np.sort(np.where(free >= request.milli, free, _DOES_NOT_FIT), axis=1)
        taken = fitting[:, : request.devices]
        newly_touched = (taken == WHOLE).sum(axis=1)
        left = (taken // 10).sum(axis=1) // 10
        scores: IntColumn = np.select(
            [untouched == devices.device_count(nodes), newly_touched > 0],
            [
                np.maximum(_UNTOUCHED_NODE - untouched, untouched),
                np.maximum(_UNTOUCHED_DEVICE - newly_touched, _UNTOUCHED_NODE),
            ],
            np.maximum(_MAX_SCORE - left, _UNTOUCHED_DEVICE),
        )
        return scores.clip(0, _MAX_SCORE)
