"""GpuDotProduct: prefers nodes whose idle cpu and GPUs point away from what the pod requests.

The DotProd policy of the published experiment (Weng et al., USENIX ATC 2023). Invariant: amounts
are shares of the largest node's, so that cpu and GPUs weigh alike.
"""

from typing import ClassVar

from pydantic import BaseModel
from typing_extensions import override

from stellwerk.framework.interface import Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.fragmentation import GpuAmounts
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView


class GpuDotProduct(RowByRow, ScorePlugin):
    """100 less half the dot product of what is idle and what is requested."""

    name: ClassVar[str] = "GpuDotProduct"
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, _handle: Handle, _args: BaseModel | None = None) -> None:
        """There is nothing to keep."""

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        amounts = GpuAmounts(nodes, pod)
        cpu = amounts.idle_cpu / amounts.most_cpu * (amounts.pod_cpu / amounts.most_cpu)
        gpu = amounts.idle_milli / amounts.most_milli * (amounts.pod_milli / amounts.most_milli)
        scores: IntColumn = (100 * (1 - (cpu + gpu) / 2)).astype("int64")
        return scores
