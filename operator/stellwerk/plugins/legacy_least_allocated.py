"""LegacyLeastAllocated: the emptier the better, as kube-scheduler 1.18 scored it.

Off by default. Invariant: unlike NodeResourcesFit of v1.36, a resource that a node lacks scores 0
and keeps its weight.
"""

from typing import ClassVar

import numpy as np
from typing_extensions import override

from stellwerk.framework.interface import MAX_NODE_SCORE, Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.profiles.spec.plugin_args import LegacyLeastAllocatedArgs
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView


class LegacyLeastAllocated(RowByRow, ScorePlugin):
    """The weighted mean of what would be free, in percent of what the node has."""

    name: ClassVar[str] = "LegacyLeastAllocated"
    args_model: ClassVar[type[LegacyLeastAllocatedArgs]] = LegacyLeastAllocatedArgs
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, _handle: Handle, args: LegacyLeastAllocatedArgs) -> None:
        self._resources = args.resources

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        requests = pod.spec.amounts.scoring_requests
        total: IntColumn = np.zeros(len(nodes), np.int64)
        for resource in self._resources:
            capacity = nodes.allocatable(resource.name)
            requested = nodes.nonzero_requested(resource.name) + requests.get(resource.name, 0)
            free = np.maximum(capacity - requested, 0)
            total += free * MAX_NODE_SCORE // np.maximum(capacity, 1) * resource.weight
        return total // sum(resource.weight for resource in self._resources)
