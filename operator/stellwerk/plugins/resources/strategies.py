"""Scoring strategies of NodeResourcesFit: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Invariant: integers and floor divisions are those of kube-scheduler v1.36; a resource that a node
does not offer counts neither in the score nor in the sum of weights.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stellwerk.framework.interface import MAX_NODE_SCORE
from stellwerk.plugins.resources.amounts import (
    ALWAYS_COUNTED,
    free_percent,
    offered_and_used_at,
    used_percent,
)
from stellwerk.profiles.spec.plugin_args import (
    MAX_SHAPE_SCORE,
    ResourceSpec,
    ScoringStrategy,
    UtilizationShapePoint,
)
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.resource_amounts import is_scalar_resource

Strategy: TypeAlias = Callable[[NodeView, Mapping[str, int]], IntColumn]
"""(nodes, requests of the incoming pod) → (n,) int64 scores, 0–100."""

MAX_UTILIZATION: Final = 100


def strategy_of(strategy: ScoringStrategy) -> Strategy:
    """The function that scores by a strategy."""
    resources = strategy.resources
    match strategy.type:
        case "LeastAllocated":
            return lambda nodes, requests: _mean(nodes, resources, requests, free=True)
        case "MostAllocated":
            return lambda nodes, requests: _mean(nodes, resources, requests, free=False)
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
    scored = []
    for resource in resources:
        name = resource.name
        request = requests.get(name, 0)
        if name in ALWAYS_COUNTED or (request and is_scalar_resource(name)):
            scored.append((name, resource.weight, request))
    return scored


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
    nodes: NodeView, resources: Sequence[ResourceSpec], requests: Mapping[str, int], *, free: bool
) -> IntColumn:
    """The mean of what is free, or else used, in percent of what is offered."""
    scored = scored_resources(resources, requests)
    row = nodes.only_row
    if row is not None:
        return np.array([_mean_at(nodes.snapshot, row, scored, free=free)], np.int64)
    percent = free_percent if free else used_percent
    total: npt.NDArray[np.float64] | None = None
    weights: IntColumn | int = 0
    for name, weight, request in scored:
        amounts = nodes.scored(name)
        score = percent(amounts, request)
        if weight != 1:
            score *= weight
        total = score if total is None else np.add(total, score, out=total)
        weights = weights + (
            weight if amounts.offered_everywhere else (amounts.offers > 0) * weight
        )
    if total is None:
        return np.zeros(nodes.size, np.int64)
    # Whole numbers, none of them negative: to cut off is to round down.
    total /= max(weights, 1) if isinstance(weights, int) else np.maximum(weights, 1)
    return total.astype(np.int64)


def _mean_at(
    snapshot: Snapshot, row: int, scored: Sequence[tuple[str, int, int]], *, free: bool
) -> int:
    total = weights = 0
    for name, weight, request in scored:
        offer, present = offered_and_used_at(snapshot, row, name, for_scoring=True)
        if offer:
            part = min(present + request, offer)
            total += (offer - part if free else part) * MAX_NODE_SCORE // offer * weight
            weights += weight
    return total // weights if weights else 0


def _shaped_mean(
    nodes: NodeView,
    resources: Sequence[ResourceSpec],
    requests: Mapping[str, int],
    table: IntColumn,
) -> IntColumn:
    """The mean of the resources that score above 0, rounded half up."""
    total: IntColumn = np.zeros(nodes.size, np.int64)
    weights: IntColumn = np.zeros(nodes.size, np.int64)
    for name, weight, request in scored_resources(resources, requests):
        amounts = nodes.scored(name)
        score = table[used_percent(amounts, request).astype(np.intp)] * (amounts.offers > 0)
        total += score * weight
        weights += (score > 0) * weight
    mean: IntColumn = (2 * total + weights) // (2 * np.maximum(weights, 1))
    return mean
