"""NodeResourcesBalancedAllocation: prefers nodes that the pod makes more evenly used.

Invariant: fractions, their sums and the standard deviation are computed in float64 in
kube-scheduler's order (v1.36), so that the truncated scores are the same integers.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations
from typing import ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from stellwerk.framework.interface import MAX_NODE_SCORE, PreScorePlugin, Reuse, ScorePlugin
from stellwerk.framework.result_cache import ResultCache
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, SKIP, CycleState, Status
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.resources.amounts import offered_and_used_at, used_within_offer
from stellwerk.plugins.resources.strategies import scored_resources
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.profiles.spec.plugin_args import NodeResourcesBalancedAllocationArgs
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot

_HALF: Final = MAX_NODE_SCORE // 2
_PAIR: Final = 2

FloatColumn: TypeAlias = npt.NDArray[np.float64]
"""(n,) fractions in use, and what follows from them."""
Requests: TypeAlias = Sequence[tuple[str, int]]
"""(resource, amount) of a pod."""


class NodeResourcesBalancedAllocation(RowByRow, PreScorePlugin, ScorePlugin):
    """Scores the change of balance: 75 is none, 100 the best, 50 the worst."""

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    args_model: ClassVar[type[NodeResourcesBalancedAllocationArgs]] = (
        NodeResourcesBalancedAllocationArgs
    )
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, handle: Handle, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = args.resources
        self._columns = ResultCache(handle.snapshot)
        self._snapshot = handle.snapshot

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        # Best-effort pods would all go to the same node (kubernetes/kubernetes#129138).
        requests = pod.amounts.requests
        return OK if any(requests.get(each.name) for each in self._resources) else SKIP

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        scored = scored_resources(self._resources, pod.amounts.requests)
        before = tuple([(name, 0) for name, _, _ in scored])
        after = [(name, request) for name, _, request in scored]
        row = nodes.only_row
        if row is not None:
            there = _offered_and_used_at(nodes.snapshot, row, before)
            change = _balance_at(there, after) - _balance_at(there, before)
            return np.array([_HALF + (_HALF + change) // 2], np.int64)
        score = _balance(nodes, after)
        score -= self._present_balance(nodes, before)
        # A shift rounds down like the division, in a third of the time.
        score += 3 * _HALF
        score >>= 1
        return score

    def _present_balance(self, nodes: NodeView, before: Requests) -> IntColumn:
        """The balance of nodes without the pod: the same for all pods, so it is cached."""
        if nodes.overlay is not None or nodes.snapshot is not self._snapshot:
            return _balance(nodes, before)
        columns = self._columns.columns(before).scores
        present = self._columns.refresh(
            columns, self.name, Reuse.USAGE, lambda rows: _balance_of(rows, before)
        )
        return nodes.gather(present.values)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # An in-place resize makes the amounts the pod's own.
        return pod.spec if pod.amounts is pod.spec.amounts else None


def _balance_of(nodes: NodeView, requests: Requests) -> IntColumn:
    row = nodes.only_row
    if row is None:
        return _balance(nodes, requests)
    there = _offered_and_used_at(nodes.snapshot, row, requests)
    return np.array([_balance_at(there, requests)], np.int64)


def _offered_and_used_at(
    snapshot: Snapshot, row: int, requests: Requests
) -> Sequence[tuple[int, int]]:
    return [offered_and_used_at(snapshot, row, name, for_scoring=False) for name, _ in requests]


def _balance_at(there: Sequence[tuple[int, int]], requests: Requests) -> int:
    """The `_balance` of one row, of which this much is offered and used of each resource."""
    shares = []
    for (offer, present), (_, request) in zip(there, requests, strict=True):
        if offer:
            # Each side is rounded to float64 first, as in Go and NumPy; Python divides exactly.
            within = min(present + request, offer)
            shares.append(float(within) / float(offer))
    deviation = 0.0
    if len(shares) == _PAIR:
        deviation = abs(shares[0] - shares[1]) * 0.5
    elif len(shares) > _PAIR:
        mean = _added_up(shares) / len(shares)
        squares = _added_up([(share - mean) * (share - mean) for share in shares])
        deviation = math.sqrt(squares / len(shares))
    return int((1 - deviation) * MAX_NODE_SCORE)


def _added_up(numbers: Iterable[float]) -> float:
    """One after the other, as Go adds: from Python 3.12 on `sum` makes up for rounding."""
    total = 0.0
    for number in numbers:
        total += number
    return total


def _balance(nodes: NodeView, requests: Requests) -> IntColumn:
    """(1 − standard deviation of the fractions in use) × 100, truncated; 50–100.

    The fractions are those with a pod that requests so much.
    """
    amounts = [nodes.scored(name) for name, _ in requests]
    shares = []
    for (_, request), of_resource in zip(requests, amounts, strict=True):
        within = used_within_offer(of_resource, request)
        in_place = within if within.dtype == np.float64 else None
        shares.append(np.divide(within, of_resource.divisors, out=in_place))
    # Where every node offers both of two resources, as is usual, that takes fewer passes.
    if len(amounts) == _PAIR and all(each.offered_everywhere for each in amounts):
        balance = _half_distance(*shares)
    else:
        balance = _deviation([(each.offers > 0) * 1 for each in amounts], shares)
    np.subtract(1, balance, out=balance)
    balance *= MAX_NODE_SCORE
    return balance.astype(np.int64)


def _half_distance(one: FloatColumn, other: FloatColumn) -> FloatColumn:
    """Half of how far two fractions lie apart: their standard deviation."""
    distance = one - other
    np.abs(distance, out=distance)
    distance *= 0.5
    return distance


def _deviation(counts: Sequence[IntColumn], fractions: Sequence[FloatColumn]) -> FloatColumn:
    """The standard deviation over the resources that a node offers (`counts` 1, else 0).

    Of two it is half their distance, of fewer 0. Resources that do not count add exact zeros.
    """
    number = np.sum(counts, axis=0)
    some = np.maximum(number, 1)
    mean = sum(fractions) / some
    squares = sum(
        count * (share - mean) * (share - mean)
        for count, share in zip(counts, fractions, strict=True)
    )
    distance = sum(
        counts[one] * counts[other] * _half_distance(fractions[one], fractions[other])
        for one, other in combinations(range(len(counts)), _PAIR)
    )
    deviation: FloatColumn = (number == _PAIR) * distance + (number > _PAIR) * np.sqrt(
        squares / some
    )
    return deviation
