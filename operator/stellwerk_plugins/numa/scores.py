"""Scores of nodes by their zones: three strategies by what is left, and the fewest zones.

Each takes the requests that are aligned one by one: the pod as one, or its containers. Invariant:
what comes out is upstream's, to the last digit.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stellwerk.plugin_api import MAX_NODE_SCORE, IntColumn, Mask, RowColumn, units
from stellwerk_plugins.numa.columns import Distances, ZoneAmounts, Zones, whole_above
from stellwerk_plugins.numa.requests import Request

ZoneScores: TypeAlias = npt.NDArray[np.float64]
"""(P, n), whole numbers."""
IntZones: TypeAlias = npt.NDArray[np.int64]
Rows: TypeAlias = RowColumn | slice
"""Some rows of the snapshot, or the slice of all: to gather them takes as long as to score them."""
ZoneStrategy: TypeAlias = Callable[[Zones, Rows, Request, Mapping[str, int]], ZoneScores]

_MANY_ZONES: Final = 10
_FEW: Final = 2
"""Zones of the sets that are tried on nodes with many zones: there are too many larger sets."""
_BEYOND: Final = float(1 << 62)
_AT_ONCE: Final = 16_000
"""Numbers that are computed at a time, so that they stay in the processor's cache."""
_LARGEST_IN_FLOATS: Final = 1 << 46


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
    size = len(zones.known[rows])
    total = np.zeros(size, np.float64)
    step = max(1, _AT_ONCE // len(zones.present))
    for first in range(0, size, step):
        part = slice(first, min(first + step, size))
        of_part = part if isinstance(rows, slice) else rows[part]
        for request in asking:
            scores = strategy(zones, of_part, request, weights)
            # A position without a zone has nothing available, and so no score.
            scores[scores == 0] = _BEYOND
            lowest = scores.min(axis=0)
            lowest[lowest == _BEYOND] = 0
            total[part] += lowest
    mean: IntColumn = np.trunc(total / len(asking)).astype(np.int64)
    return mean


def least_allocated(
    zones: Zones, rows: Rows, request: Request, weights: Mapping[str, int]
) -> ZoneScores:
    """(P, n) float64, whole, higher where more is left."""
    return _weighted(zones, rows, request, weights, least=True)


def most_allocated(
    zones: Zones, rows: Rows, request: Request, weights: Mapping[str, int]
) -> ZoneScores:
    """(P, n) float64, whole, higher where less is left."""
    return _weighted(zones, rows, request, weights, least=False)


def _weighted(
    zones: Zones, rows: Rows, request: Request, weights: Mapping[str, int], *, least: bool
) -> ZoneScores:
    total = np.zeros(zones.present[:, rows].shape, np.float64)
    weight_sum = 0
    for resource, amount in request.items():
        amounts = zones.amounts(resource)
        exact = amounts.largest <= _LARGEST_IN_FLOATS
        shares = (_shares_in_floats if exact else _shares)(amounts, rows, units(amount), least)
        if not least:
            # Amounts between two whole ones are equal here, though the zone may hold too little.
            shares[amounts.available[:, rows] < whole_above(resource, amount)] = 0
        weight = weights.get(resource, 1)
        total += shares if weight == 1 else shares * weight
        weight_sum += weight
    if weight_sum != 1:
        total /= weight_sum
        np.floor(total, out=total)
    return total


def _shares_in_floats(amounts: ZoneAmounts, rows: Rows, want: int, least: bool) -> ZoneScores:  # noqa: FBT001
    """(P, n) float64, percent, 0 where there is too little: exact up to _LARGEST_IN_FLOATS.

    A quotient of two such numbers that is not whole is farther from any whole number up to 100
    than its rounding.
    """
    have = amounts.whole_float[:, rows]
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.divide(float(want * MAX_NODE_SCORE), have)
    if least:
        np.ceil(shares, out=shares)
        np.subtract(MAX_NODE_SCORE, shares, out=shares)
        # Of what there is nothing the share is infinite, or no number.
        return np.fmax(shares, 0.0, out=shares) if want else np.where(have > 0, shares, 0.0)
    np.floor(shares, out=shares)
    shares[~(shares <= MAX_NODE_SCORE)] = 0
    return shares


def _shares(amounts: ZoneAmounts, rows: Rows, want: int, least: bool) -> ZoneScores:  # noqa: FBT001
    """The shares of numbers of any size, which int64 may not hold: slower."""
    have = amounts.whole[:, rows]
    with np.errstate(over="ignore"):
        counted = (have - want if least else want + 0 * have) * MAX_NODE_SCORE
    shares = np.where((have > 0) & (have >= want), counted // np.maximum(have, 1), 0)
    result: ZoneScores = shares.astype(np.float64)
    return result


def balanced(zones: Zones, rows: Rows, request: Request, _: Mapping[str, int]) -> ZoneScores:
    """(P, n) float64, whole, higher where resources are used in equal shares."""
    fractions = []
    beyond = ~zones.present[:, rows]
    mean = np.zeros(beyond.shape)
    for resource, amount in request.items():
        have = zones.amounts(resource).whole_float[:, rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.divide(float(units(amount)), have)
        shares[have == 0] = 1
        fractions.append(shares)
        beyond |= shares > 1
        mean += shares
    count = len(fractions)
    mean /= count
    squares, compensation = np.zeros(mean.shape), np.zeros(mean.shape)
    for shares in fractions:
        apart = np.subtract(shares, mean, out=shares)
        compensation += apart
        squares += np.multiply(apart, apart, out=shares)
    # Of a single share there is no variance; upstream's score is garbage there.
    compensation *= compensation
    compensation /= count
    squares -= compensation
    squares /= max(count - 1, 1)
    np.subtract(1, squares, out=squares)
    squares *= float(MAX_NODE_SCORE)
    np.trunc(squares, out=squares)
    squares[beyond] = 0
    return squares


def fewest_zones(zones: Zones, rows: RowColumn, requests: Sequence[Request]) -> IntColumn:
    """(n,) int64, higher where requests need fewer zones, and these are close to each other."""
    scores: IntColumn = np.zeros(len(rows), np.int64)
    for distances, among in zones.distances(rows):
        if distances:
            scores[among] = _Spread(zones, rows[among], distances).score(requests)
    return scores


class _Spread:
    """Nodes with equal distances between their zones, while requests are spread over zones."""

    def __init__(self, zones: Zones, rows: RowColumn, distances: Distances) -> None:
        self._zones = zones
        self._rows = rows
        self._distances = distances
        self._size = len(distances)
        everyone = len(rows) == len(zones.known) and bool((np.diff(rows) == 1).all())
        self._here: Rows = slice(None) if everyone else rows
        self._left: dict[str, IntZones] = {}
        """(P, n) int64, by resource, what earlier requests have left."""

    def score(self, requests: Sequence[Request]) -> IntColumn:
        """(n,) int64."""
        nodes = len(self._rows)
        fits, optimal = np.ones(nodes, np.bool_), np.ones(nodes, np.bool_)
        most: IntColumn = np.zeros(nodes, np.int64)
        for number, request in enumerate(requests, 1):
            bound = self._bound(request)
            if not bound.any():
                continue
            pending = np.flatnonzero(fits & bound)
            for count in range(1, self._largest() + 1):
                if not len(pending):
                    break
                sets, lengths = self._sets(count)
                chosen = self._choose(request, pending, sets)
                found = chosen >= 0
                taken = pending[found]
                optimal[taken] &= (lengths == lengths.min())[chosen[found]]
                np.maximum.at(most, taken, count)
                if number < len(requests):
                    self._take(request, taken, sets[chosen[found]])
                pending = pending[~found]
            fits[pending] = False
        step = MAX_NODE_SCORE // self._zones.most_zones[self._rows]
        scores = MAX_NODE_SCORE - most * step + np.where(optimal, step // 2, 0)
        scores = np.where(most == 0, MAX_NODE_SCORE, scores)
        scores = np.clip(np.where(fits, scores, 0), 0, MAX_NODE_SCORE)
        result: IntColumn = scores.astype(np.int64)
        return result

    def _largest(self) -> int:
        return self._size if self._size <= _MANY_ZONES else _FEW

    def _sets(self, count: int) -> tuple[npt.NDArray[np.intp], IntColumn]:
        """((S, count) the sets of so many zones, nearest first; (S,) their distances in sum)."""
        sets = np.array(list(combinations(range(self._size), count)), np.intp)
        matrix = np.array(self._distances, np.int64)
        lengths: IntColumn = matrix[sets[:, :, None], sets[:, None, :]].sum(axis=(1, 2))
        nearest = np.argsort(lengths, kind="stable")
        return sets[nearest], lengths[nearest]

    def _bound(self, request: Request) -> Mask:
        """(n,) bool, where some zone reports something of the request."""
        bound: Mask = np.zeros(len(self._rows), np.bool_)
        for resource in request:
            bound |= self._reported(resource).any(axis=0)
        return bound

    def _choose(
        self, request: Request, pending: RowColumn, sets: npt.NDArray[np.intp]
    ) -> RowColumn:
        """(n,) intp, of each of these nodes the first set that holds the request; −1: none."""
        chosen: RowColumn = np.full(len(pending), -1, np.intp)
        everyone = len(pending) == len(self._rows)
        all_report: npt.NDArray[np.bool_] = np.ones((self._size, len(pending)), np.bool_)
        available = []
        for resource, amount in request.items():  # zeros too: every zone has to report them
            reported, left = self._reported(resource), self._available(resource)
            all_report &= reported if everyone else reported[:, pending]
            here = left if everyone else left[:, pending]
            available.append((here, whole_above(resource, amount)))
        open_: RowColumn = np.arange(len(pending))
        for number, members in enumerate(sets):
            if not len(open_):
                break
            among: Rows = slice(None) if len(open_) == len(pending) else open_
            holds = np.ones(len(open_), np.bool_)
            for zone in members:
                holds &= all_report[zone, among]
            for amounts, want in available:
                together = amounts[members[0], among]
                for zone in members[1:]:
                    together = together + amounts[zone, among]
                holds &= together >= want
            chosen[open_[holds]] = number
            open_ = open_[~holds]
        return chosen

    def _take(self, request: Request, nodes: RowColumn, members: npt.NDArray[np.intp]) -> None:
        """Take a request from the zones of each node ((n, count)), the lowest first."""
        for resource, amount in request.items():
            if not amount or not len(nodes):
                continue
            left = self._available(resource).copy()
            wanted: IntColumn = np.full(len(nodes), whole_above(resource, amount), np.int64)
            for zones in members.T:
                taken = np.minimum(left[zones, nodes], wanted)
                left[zones, nodes] -= taken
                wanted -= taken
            self._left[resource] = left

    def _reported(self, resource: str) -> npt.NDArray[np.bool_]:
        reported: npt.NDArray[np.bool_] = self._zones.amounts(resource).reported
        return reported[: self._size, self._here]

    def _available(self, resource: str) -> IntZones:
        left = self._left.get(resource)
        if left is None:
            left = self._zones.amounts(resource).available[: self._size, self._here]
            self._left[resource] = left
        return left
