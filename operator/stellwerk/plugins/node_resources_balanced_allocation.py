"""NodeResourcesBalancedAllocation: prefers nodes that the pod makes more evenly used.

Invariant: fractions, their sums and the standard deviation are computed in float64 in
kube-scheduler's order (v1.36), so that the truncated scores are the same integers.
"""

from collections.abc import Hashable, Sequence
from itertools import combinations
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.framework.interface import MAX_NODE_SCORE, PreScorePlugin, Reuse, ScorePlugin
from stellwerk.framework.result_cache import ResultCache
from stellwerk.framework.services import Handle
from stellwerk.framework.types import OK, SKIP, CycleState, Status
from stellwerk.models.plugin_args import NodeResourcesBalancedAllocationArgs
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.resources.amounts import (
    Amount,
    Fraction,
    column,
    divisor,
    fraction,
    half_distance,
    offered,
    used,
)
from stellwerk.plugins.resources.strategies import scored_resources
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView

_HALF: Final = MAX_NODE_SCORE // 2
_PAIR: Final = 2


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
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
        names: list[str] = []
        before: list[Amount] = []
        after: list[Amount] = []
        for name, _, request in scored_resources(self._resources, pod.amounts.requests):
            present = used(nodes, name)
            names.append(name)
            before.append(present)
            after.append(present + request)
        offers = [offered(nodes, name) for name in names]
        change = _balance(offers, after) - self._present_balance(nodes, names, offers, before)
        # 50 + (50 + change) // 2; a shift rounds down like the division, in a third of the time.
        return column(nodes, (3 * _HALF + change) >> 1)

    def _present_balance(
        self,
        nodes: NodeView,
        names: Sequence[str],
        offers: Sequence[Amount],
        requested: Sequence[Amount],
    ) -> Amount:
        """The balance of nodes without the pod: the same for all pods, so it is cached."""
        if (
            nodes.only_row is not None
            or nodes.overlay is not None
            or nodes.snapshot is not self._snapshot
        ):
            return _balance(offers, requested)
        columns = self._columns.columns(tuple(names)).scores
        present = self._columns.refresh(
            columns, self.name, Reuse.USAGE, lambda rows: _balance_of(rows, names)
        )
        return nodes.gather(present.values)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # An in-place resize makes the amounts the pod's own.
        return pod.spec if pod.amounts is pod.spec.amounts else None


def _balance_of(nodes: NodeView, names: Sequence[str]) -> IntColumn:
    offers = [offered(nodes, name) for name in names]
    return column(nodes, _balance(offers, [used(nodes, name) for name in names]))


def _balance(offers: Sequence[Amount], requested: Sequence[Amount]) -> Amount:
    """(1 − standard deviation of the fractions in use) × 100, truncated; 50–100."""
    if len(offers) == _PAIR:
        deviation = _deviation_of_two(*offers, *requested)
    else:
        fractions = [
            fraction(amount, offer, divisor(offer))
            for offer, amount in zip(offers, requested, strict=True)
        ]
        deviation = _deviation([(offer > 0) * 1 for offer in offers], fractions)
    balance = (1 - deviation) * MAX_NODE_SCORE
    return balance.astype(np.int64) if isinstance(balance, np.ndarray) else int(balance)


def _deviation_of_two(
    offer: Amount, other_offer: Amount, requested: Amount, other_requested: Amount
) -> Fraction:
    """Half the distance of two fractions; 0 where a node lacks one of the resources."""
    nonzero, other_nonzero = divisor(offer), divisor(other_offer)
    share = fraction(requested, offer, nonzero)
    other_share = fraction(other_requested, other_offer, other_nonzero)
    deviation = half_distance(share, other_share)
    if nonzero is offer and other_nonzero is other_offer:
        return deviation  # every node has both, as is usual
    return deviation * ((offer > 0) * (other_offer > 0))


def _deviation(counts: Sequence[Amount], fractions: Sequence[Fraction]) -> Fraction:
    """The standard deviation over the resources that a node offers (`counts` 1, else 0).

    Of two it is half their distance, of fewer 0. Resources that do not count add exact zeros.
    """
    number: Amount = sum(counts)
    mean = sum(fractions) / divisor(number)
    squares = sum(
        count * (share - mean) * (share - mean)
        for count, share in zip(counts, fractions, strict=True)
    )
    distance = sum(
        counts[one] * counts[other] * half_distance(fractions[one], fractions[other])
        for one, other in combinations(range(len(counts)), _PAIR)
    )
    deviation: Fraction = np.sqrt(squares / divisor(number))
    return (number == _PAIR) * distance + (number > _PAIR) * deviation
