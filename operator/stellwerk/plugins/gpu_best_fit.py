"""GpuBestFit: prefers nodes on which little cpu and little of the GPUs is left after placing.

The BestFit policy of the published experiment (Weng et al., USENIX ATC 2023). Invariant: amounts
are shares of the largest node's; normalising keeps the order.
"""

from typing import ClassVar

from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.interface import (
    MAX_NODE_SCORE,
    NormalizeScorePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.fragmentation import GpuAmounts
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView


class GpuBestFit(RowByRow, ScorePlugin, NormalizeScorePlugin):
    """100 less the mean of the shares that stay idle, stretched from 0 to 100."""

    name: ClassVar[str] = "GpuBestFit"
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, _handle: Handle, _args: BaseModel | None = None) -> None:
        """There is nothing to keep."""

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        amounts = GpuAmounts(nodes, pod)
        cpu = (amounts.idle_cpu - amounts.pod_cpu) / amounts.most_cpu
        gpu = (amounts.idle_milli - amounts.pod_milli) / amounts.most_milli
        scores: IntColumn = (100 * (1 - (cpu + gpu) / 2)).astype("int64")
        return scores

    @override
    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn:
        lowest, highest = int(scores.min()), int(scores.max())
        if lowest == highest:
            return scores.clip(0, MAX_NODE_SCORE)
        return (scores - lowest) * MAX_NODE_SCORE // (highest - lowest)
