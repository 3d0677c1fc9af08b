"""Scores of nodes by their zones: three strategies by what is left, and the fewest zones.

Each takes the requests that are aligned one by one: the pod as one, or its containers. Invariant:
the arithmetic is upstream's, in int64 and float64, in its order of operations.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stellwerk.plugin_api import MAX_NODE_SCORE, IntColumn, Mask, RowColumn, units
from stellwerk_plugins.numa.columns import Zones, whole_above
from stellwerk_plugins.numa.requests import Request

ZoneScores: TypeAlias = npt.NDArray[np.int64]
"""(P, n)."""
Rows: TypeAlias = RowColumn | slice
"""Some rows of the snapshot, or the slice of all: to gather them takes as long as to score them."""
ZoneStrategy: TypeAlias = Callable[[Zones, Rows, Request, Mapping[str, int]], ZoneScores]

_MANY_ZONES: Final = 10
_FEW: Final = 2
"""Of nodes with many zones, only sets of so few are tried: there are too many others."""
_BEYOND: Final = 1 << 62


def whole_score(
    strategy: ZoneStrategy,
    zones: Zones,
    rows: Rows,
    requests: Sequence[Request],
    weights: Mapping[str, int],
) -> IntColumn:
    """(n,) int64, the mean over the requests of the lowest score of a zone that holds them."""
    asking = [request for request in requests if request]
    if not asking:
        # Upstream divides by zero; nothing that zones have is asked for.
        return np.full(zones.known[rows].shape, MAX_NODE_SCORE, np.int64)
    present = zones.present[:, rows]
    total = np.zeros(present.shape[1], np.float64)
    for request in asking:
        scores = np.where(present, strategy(zones, rows, request, weights), 0)
        lowest = np.where(scores != 0, scores, _BEYOND).min(axis=0)
        total += np.where(lowest == _BEYOND, 0, lowest)
    mean: IntColumn = np.trunc(total / len(asking)).astype(np.int64)
    return mean


def least_allocated(
    zones: Zones, rows: Rows, request: Request, weights: Mapping[str, int]
) -> ZoneScores:
    """(P, n) int64, higher where more is left."""
    return _weighted(zones, rows, request, weights, lambda have, want: have - want)


def most_allocated(
    zones: Zones, rows: Rows, request: Request, weights: Mapping[str, int]
) -> ZoneScores:
    """(P, n) int64, higher where less is left."""
    return _weighted(zones, rows, request, weights, lambda have, want: want + 0 * have)


def _weighted(
    zones: Zones,
    rows: Rows,
    request: Request,
    weights: Mapping[str, int],
    counted: Callable[[ZoneScores, int], ZoneScores],
) -> ZoneScores:
    total = np.zeros(zones.present[:, rows].shape, np.int64)
    weight_sum = 0
    for resource, amount in request.items():
        amounts = zones.amounts(resource)
        have = amounts.whole[:, rows]
        fits = amounts.available[:, rows] >= whole_above(resource, amount)
        with np.errstate(over="ignore"):
            score = counted(have, units(amount)) * MAX_NODE_SCORE // np.maximum(have, 1)
        weight = weights.get(resource, 1)
        total += np.where(fits & (have > 0), score, 0) * weight
        weight_sum += weight
    result: ZoneScores = total if weight_sum == 1 else total // weight_sum
    return result


def balanced(zones: Zones, rows: Rows, request: Request, _: Mapping[str, int]) -> ZoneScores:
    """(P, n) int64, higher where resources are used in equal shares."""
    fractions = []
    for resource, amount in request.items():
        have = zones.amounts(resource).whole[:, rows].astype(np.float64)
        shares = np.divide(float(units(amount)), have, out=np.ones_like(have), where=have != 0)
        fractions.append(shares)
    stacked = np.stack(fractions)
    count = len(fractions)
    mean = sum(fractions[1:], fractions[0].copy()) / count
    squares = np.zeros_like(mean)
    compensation = np.zeros_like(mean)
    for fraction in fractions:
        apart = fraction - mean
        squares += apart * apart
        compensation += apart
    # Of a single share there is no variance; upstream's score is garbage there.
    variance = (squares - compensation * compensation / count) / max(count - 1, 1)
    scores = np.trunc((1 - variance) * float(MAX_NODE_SCORE)).astype(np.int64)
    result: ZoneScores = np.where((stacked > 1).any(axis=0), 0, scores)
    return result


def fewest_zones(zones: Zones, rows: RowColumn, requests: Sequence[Request]) -> IntColumn:
    """(n,) int64, higher where requests need fewer zones, and these are close to each other."""
    scores: IntColumn = np.zeros(len(rows), np.int64)
    for distances, positions in zones.distances(rows).items():
        among = np.array(positions, np.intp)
        if distances:
            scores[among] = _Spread(zones, rows[among], distances).score(requests)
    return scores


class _Spread:
    """Nodes with equal distances between their zones, while requests are spread over zones."""

    def __init__(
        self, zones: Zones, rows: RowColumn, distances: tuple[tuple[int, ...], ...]
    ) -> None:
        self._zones = zones
        self._rows = rows
        self._distances = distances
        self._size = len(distances)
        self._left: dict[str, ZoneScores] = {}

    def score(self, requests: Sequence[Request]) -> IntColumn:
        """(n,) int64."""
        nodes = len(self._rows)
        fits, optimal = np.ones(nodes, np.bool_), np.ones(nodes, np.bool_)
        most: IntColumn = np.zeros(nodes, np.int64)
        for request in requests:
            bound = self._bound(request)
            if not bound.any():
                continue
            pending = fits & bound
            for count in range(1, self._largest() + 1):
                if not pending.any():
                    break
                sets, lengths = self._sets(count)
                chosen, length = self._choose(request, pending, sets, lengths)
                found = chosen >= 0
                optimal &= ~found | (length == min(lengths))
                most = np.where(found, np.maximum(most, count), most)
                self._take(request, found, sets, chosen)
                pending &= ~found
            fits &= ~pending
        step = MAX_NODE_SCORE // self._zones.most_zones[self._rows]
        scores = MAX_NODE_SCORE - most * step + np.where(optimal, step // 2, 0)
        scores = np.where(most == 0, MAX_NODE_SCORE, scores)
        scores = np.clip(np.where(fits, scores, 0), 0, MAX_NODE_SCORE)
        result: IntColumn = scores.astype(np.int64)
        return result

    def _largest(self) -> int:
        return self._size if self._size <= _MANY_ZONES else _FEW

    def _sets(self, count: int) -> tuple[list[tuple[int, ...]], list[int]]:
        """The sets of so many zones, and the sum of the distances within each."""
        sets = list(combinations(range(self._size), count))
        lengths = [
            sum(self._distances[one][other] for one in each for other in each) for each in sets
        ]
        return sets, lengths

    def _bound(self, request: Request) -> Mask:
        """(n,) bool, where some zone reports something of the request."""
        bound: Mask = np.zeros(len(self._rows), np.bool_)
        for resource in request:
            bound |= self._reported(resource).any(axis=0)
        return bound

    def _choose(
        self,
        request: Request,
        pending: Mask,
        sets: Sequence[tuple[int, ...]],
        lengths: Sequence[int],
    ) -> tuple[IntColumn, IntColumn]:
        """((n,) the first set of the least length that holds the request, −1 none; its length)."""
        nodes = len(self._rows)
        chosen: IntColumn = np.full(nodes, -1, np.int64)
        length: IntColumn = np.full(nodes, _BEYOND, np.int64)
        for index, (each, apart) in enumerate(zip(sets, lengths, strict=True)):
            better = pending & (apart < length)
            members = list(each)
            for resource, amount in request.items():  # zeros too: every zone has to report them
                if not better.any():
                    break
                better &= self._reported(resource)[members].all(axis=0)
                together = self._available(resource)[members].sum(axis=0)
                better &= together >= whole_above(resource, amount)
            chosen[better], length[better] = index, apart
        return chosen, length

    def _take(
        self, request: Request, found: Mask, sets: Sequence[tuple[int, ...]], chosen: IntColumn
    ) -> None:
        """Take a request from the zones chosen, the lowest first."""
        if not found.any():
            return
        members = np.zeros((len(sets) + 1, self._size), np.bool_)
        for index, each in enumerate(sets):
            members[index, list(each)] = True
        of_node = members[chosen].T
        for resource, amount in request.items():
            if not amount:
                continue
            left = self._available(resource).copy()
            wanted = np.where(found, whole_above(resource, amount), 0)
            for zone in range(self._size):
                taken = np.where(of_node[zone], np.minimum(left[zone], wanted), 0)
                left[zone] -= taken
                wanted = wanted - taken
            self._left[resource] = left

    def _reported(self, resource: str) -> npt.NDArray[np.bool_]:
        reported: npt.NDArray[np.bool_] = self._zones.amounts(resource).reported[
            : self._size, self._rows
        ]
        return reported

    def _available(self, resource: str) -> ZoneScores:
        left = self._left.get(resource)
        if left is None:
            left = self._zones.amounts(resource).available[: self._size, self._rows]
            self._left[resource] = left
        return left
