"""Scoring strategies of NodeResourcesFit: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Invariant: integers and floor divisions are those of kube-scheduler v1.36; a resource that a node
does not offer counts neither in the score nor in the sum of weights.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from stellwerk.framework.interface import MAX_NODE_SCORE
from stellwerk.models.plugin_args import (
    MAX_SHAPE_SCORE,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from stellwerk.models.pod_resources import is_scalar_resource
from stellwerk.plugins.resources.amounts import (
    Amount,
    column,
    divisor,
    free_percent,
    is_counted,
    offered,
    offered_weight,
    used_for_scoring,
    used_percent,
)
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView

Strategy: TypeAlias = Callable[[NodeView, Mapping[str, int]], IntColumn]
"""(nodes, requests of the incoming pod) → (n,) int64 scores, 0–100."""

MAX_UTILIZATION: Final = 100


def strategy_of(strategy: ScoringStrategy) -> Strategy:
    """The function that scores by a strategy."""
    resources = strategy.resources
    match strategy.type:
        case "LeastAllocated":
            return lambda nodes, requests: _mean(nodes, resources, requests, free_percent)
        case "MostAllocated":
            return lambda nodes, requests: _mean(nodes, resources, requests, used_percent)
        case "RequestedToCapacityRatio":
            ratio = strategy.requested_to_capacity_ratio
            scale = MAX_NODE_SCORE // MAX_SHAPE_SCORE
            table = score_by_utilization(ratio.shape if ratio else (), scale)
            return lambda nodes, requests: _shaped_mean(nodes, resources, requests, table)


def scored_resources(
    resources: Sequence[ResourceSpec], requests: Mapping[str, int]
) -> list[tuple[str, int, int]]:
    """(name, weight, request) of the resources that count for a pod.

    An extended resource that the pod does not request is left out, as in
    calculateNodeAllocatableRequest (v1.36).
    """
    return [
        (resource.name, resource.weight, request)
        for resource in resources
        if ((request := requests.get(resource.name, 0)) or not is_scalar_resource(resource.name))
        and is_counted(resource.name)
    ]


def score_by_utilization(shape: Sequence[UtilizationShapePoint], scale: int) -> IntColumn:
    """(101,) int64, the shape's score, times `scale`, at each whole percent of utilization."""
    points = [(point.utilization, point.score * scale) for point in shape]
    return np.array(
        [_interpolate(points, percent) for percent in range(MAX_UTILIZATION + 1)], dtype=np.int64
    )


def _interpolate(points: Sequence[tuple[int, int]], percent: int) -> int:
    """The broken line through the points, flat outside; divisions truncate towards 0, as in Go."""
    for index, (utilization, score) in enumerate(points):
        if percent <= utilization:
            if index == 0:
                return score
            before, low = points[index - 1]
            rise = (score - low) * (percent - before)
            run = utilization - before
            return low + (rise // run if rise >= 0 else -(-rise // run))
    return points[-1][1]


def _mean(
    nodes: NodeView,
    resources: Sequence[ResourceSpec],
    requests: Mapping[str, int],
    percent: Callable[[Amount, Amount], Amount],
) -> IntColumn:
    total: Amount = 0
    weights: Amount = 0
    for name, weight, request in scored_resources(resources, requests):
        allocatable = offered(nodes, name)
        total = total + percent(allocatable, used_for_scoring(nodes, name) + request) * weight
        weights = weights + offered_weight(allocatable, weight)
    return column(nodes, total // divisor(weights))


def _shaped_mean(
    nodes: NodeView,
    resources: Sequence[ResourceSpec],
    requests: Mapping[str, int],
    table: IntColumn,
) -> IntColumn:
    """The mean of the resources that score above 0, rounded half up."""
    total: Amount = 0
    weights: Amount = 0
    for name, weight, request in scored_resources(resources, requests):
        allocatable = offered(nodes, name)
        score = table[used_percent(allocatable, used_for_scoring(nodes, name) + request)]
        score = score * (allocatable > 0)
        total = total + score * weight
        weights = weights + (score > 0) * weight
    return column(nodes, (2 * total + weights) // (2 * divisor(weights)))
