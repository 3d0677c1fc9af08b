"""NodeResourcesBalancedAllocation: prefers nodes that the pod makes more evenly used.

Invariant: fractions, their sums and the standard deviation are computed in float64 in
kube-scheduler's order (v1.36), so that the truncated scores are the same integers.
"""

from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import (
    MAX_NODE_SCORE,
    Handle,
    PreScorePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.reuse import ColumnCache
from stellwerk.framework.status import OK, SKIP, Status
from stellwerk.models.plugin_args import NodeResourcesBalancedAllocationArgs
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.amounts import Amount, column, divisor, lesser, offered, used
from stellwerk.plugins.resource_strategies import scored_resources
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.node_view import NodeView

_HALF: Final = MAX_NODE_SCORE // 2
_PAIR: Final = 2

Fraction: TypeAlias = npt.NDArray[np.floating[Any]] | float
"""(n,) float64, 0–1, or the one number of a view of one row."""


class NodeResourcesBalancedAllocation(PreScorePlugin, ScorePlugin):
    """Scores the change of balance: 75 is none, 100 the best, 50 the worst."""

    name: ClassVar[str] = "NodeResourcesBalancedAllocation"
    args_model: ClassVar[type[NodeResourcesBalancedAllocationArgs]] = (
        NodeResourcesBalancedAllocationArgs
    )
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, handle: Handle, args: NodeResourcesBalancedAllocationArgs) -> None:
        self._resources = args.resources
        self._columns = ColumnCache(handle.snapshot)
        self._snapshot = handle.snapshot

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        # Best-effort pods would all go to the same node (kubernetes/kubernetes#129138).
        requests = pod.amounts.requests
        return OK if any(requests.get(each.name) for each in self._resources) else SKIP

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        scored = scored_resources(self._resources, pod.amounts.requests)
        requests = {name: request for name, _, request in scored}
        change = _balance(nodes, requests) - self._present_balance(nodes, tuple(requests))
        # 50 + (50 + change) // 2; a shift rounds down like the division, in a third of the time.
        return column(nodes, (3 * _HALF + change) >> 1)

    def _present_balance(self, nodes: NodeView, resources: tuple[str, ...]) -> Amount:
        """How balanced the nodes are without the pod: the same for all pods, so it is kept."""
        nothing = dict.fromkeys(resources, 0)
        if len(nodes) == 1 or nodes.overlay is not None or nodes.snapshot is not self._snapshot:
            return _balance(nodes, nothing)
        columns = self._columns.columns(resources).scores
        kept = columns[self.name] = self._columns.refresh(
            columns.get(self.name),
            Reuse.USAGE,
            lambda rows: column(rows, _balance(rows, nothing)),
        )
        return nodes.gather(kept.values)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # An in-place resize makes the amounts the pod's own.
        return pod.spec if pod.amounts is pod.spec.amounts else None


def _balance(nodes: NodeView, requests: Mapping[str, int]) -> Amount:
    """(1 − standard deviation of the fractions in use) × 100, truncated; 50–100.

    The fractions are those after `requests` have come on top of what is in use.
    """
    offers = [offered(nodes, name) for name in requests]
    divisors = [divisor(offer) for offer in offers]
    fractions = [
        _fraction(lesser(used(nodes, name) + request, offer), nonzero)
        for (name, request), offer, nonzero in zip(requests.items(), offers, divisors, strict=True)
    ]
    if len(offers) == _PAIR:
        deviation = _half_distance(fractions[0], fractions[1])
        if divisors[0] is not offers[0] or divisors[1] is not offers[1]:
            # Some node lacks one of the two: what is left does not deviate.
            deviation = deviation * ((offers[0] > 0) * (offers[1] > 0))
    else:
        deviation = _deviation([(offer > 0) * 1 for offer in offers], fractions)
    balance = (1 - deviation) * MAX_NODE_SCORE
    return balance.astype(np.int64) if isinstance(balance, np.ndarray) else int(balance)


def _fraction(within: Amount, nonzero: Amount) -> Fraction:
    """The fraction in use, at most 1; 0 where nothing is offered."""
    if isinstance(within, int):
        # Each side is rounded to float64 first, as in Go and NumPy; Python would divide exactly.
        return float(within) / float(nonzero)
    return within / nonzero


def _deviation(counts: Sequence[Amount], fractions: Sequence[Fraction]) -> Fraction:
    """The standard deviation over the resources that a node offers (`counts` 1, else 0).

    Of two it is half their distance, of fewer 0. Resources that do not count add exact zeros.
    """
    number: Amount = sum(counts)
    mean = sum(fractions) / divisor(number)
    squares = sum(
        count * (fraction - mean) * (fraction - mean)
        for count, fraction in zip(counts, fractions, strict=True)
    )
    distance = sum(
        counts[one] * counts[other] * _half_distance(fractions[one], fractions[other])
        for one, other in combinations(range(len(counts)), _PAIR)
    )
    deviation: Fraction = np.sqrt(squares / divisor(number))
    return (number == _PAIR) * distance + (number > _PAIR) * deviation


def _half_distance(one: Fraction, other: Fraction) -> Fraction:
    distance = one - other
    absolute = abs(distance) if isinstance(distance, float) else np.abs(distance)
    return absolute * 0.5
