"""LegacyRequestedToCapacityRatio: scores by a shape over utilization on the old scale, 0–10.

Off by default; the bin packing example of the Kubernetes documentation computes with it.
Invariant: each resource's score is rounded down, their weighted mean to the nearest integer.
"""

from typing import ClassVar

import numpy as np
from typing_extensions import override

from stellwerk.framework.interface import Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.resources.strategies import MAX_UTILIZATION, score_by_utilization
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.profiles.spec.plugin_args import LegacyRequestedToCapacityRatioArgs
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView


class LegacyRequestedToCapacityRatio(RowByRow, ScorePlugin):
    """The weighted mean of the shape's scores; a resource that scores 0 does not count."""

    name: ClassVar[str] = "LegacyRequestedToCapacityRatio"
    args_model: ClassVar[type[LegacyRequestedToCapacityRatioArgs]] = (
        LegacyRequestedToCapacityRatioArgs
    )
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, _handle: Handle, args: LegacyRequestedToCapacityRatioArgs) -> None:
        self._resources = args.resources
        self._scores = score_by_utilization(args.shape, scale=1)

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        requests = pod.spec.amounts.scoring_requests
        total: IntColumn = np.zeros(len(nodes), np.int64)
        weights: IntColumn = np.zeros(len(nodes), np.int64)
        for resource in self._resources:
            capacity = nodes.allocatable(resource.name)
            requested = nodes.nonzero_requested(resource.name) + requests.get(resource.name, 0)
            # Rounded from what is free, as then: 3 of 8 are 38 %, where v1.36 says 37 %. A resource
            # that the node lacks counts as used up.
            free = np.maximum(capacity - requested, 0)
            score = self._scores[
                MAX_UTILIZATION - free * MAX_UTILIZATION // np.maximum(capacity, 1)
            ]
            total += score * resource.weight
            weights += (score > 0) * np.int64(resource.weight)
        return (2 * total + weights) // np.maximum(2 * weights, 1)
