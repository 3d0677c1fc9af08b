"""LowRiskOverCommitment: nodes on which limits and measured load exceed what is promised least.

A node's risk has two parts for each resource: that limits go beyond its capacity, and that the
measured load goes beyond what its pods have requested.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np
from pydantic import Field
from typing_extensions import override

from stellwerk.plugin_api import (
    MAX_NODE_SCORE,
    OK,
    Book,
    ChangeCursor,
    ConfigModel,
    CycleState,
    ExplainPlugin,
    Handle,
    IntColumn,
    NodeInfo,
    NodeView,
    PluginFacts,
    PodInfo,
    PreScorePlugin,
    Reuse,
    RowColumn,
    ScorePlugin,
    Status,
)
from stellwerk_plugins.load.node_usage import FloatColumn, UsageTable, whole_scores
from stellwerk_plugins.load.pod_sums import CpuAndMemory, requests_and_limits
from stellwerk_plugins.load.sources import UsageArgs, source_of
from stellwerk_plugins.load.utilisation import beta_probabilities, beta_probability

_DEFAULT_WEIGHT: Final = 0.5
_DEFAULT_WINDOW: Final = 5
_ALLOWED_VARIANCE: Final = 0.99
_FEW: Final = 8
_RESOURCES: Final = ("cpu", "memory")


class LowRiskOverCommitmentArgs(UsageArgs):
    """As of the upstream plugin of that name."""

    args_of_the_original: ClassVar[Mapping[str, Any]] = {"maxAgeSeconds": 0}

    smoothing_window_size: int = _DEFAULT_WINDOW
    """The deviation is multiplied by its square root; 0 and less is 5."""
    risk_limit_weights: dict[str, float] = Field(default_factory=dict)
    """By resource, the weight of limits against measured load; outside of 0 to 1 it is 0.5."""


class LimitSums(Book):
    """By row, what pods request and may use of cpu and memory, as this plugin sums it."""

    def __init__(self) -> None:
        self.requests: IntColumn = np.zeros((2, 0), np.int64)
        """(2, capacity) int64, millicores and bytes."""
        self.limits: IntColumn = np.zeros((2, 0), np.int64)
        """(2, capacity) int64, millicores and bytes; of each pod at least its requests."""

    @override
    def grow(self, capacity: int) -> None:
        for name in ("requests", "limits"):
            larger, known = np.zeros((2, capacity), np.int64), getattr(self, name)
            larger[:, : known.shape[1]] = known
            setattr(self, name, larger)

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        self.requests[:, row] = self.limits[:, row] = 0

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        requests, limits = requests_and_limits(pod)
        for index in range(len(_RESOURCES)):
            self.requests[index, row] += change * requests[index]
            self.limits[index, row] += change * limits[index]

    @override
    def fork(self) -> Self:
        fork = type(self)()
        fork.requests, fork.limits = self.requests.copy(), self.limits.copy()
        return fork


class LowRiskOverCommitment(PreScorePlugin, ScorePlugin, ExplainPlugin):
    """Scores a node by the resource with the higher risk of overcommitment."""

    name: ClassVar[str] = "LowRiskOverCommitment"
    args_model: ClassVar[type[ConfigModel]] = LowRiskOverCommitmentArgs
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, handle: Handle, args: LowRiskOverCommitmentArgs) -> None:
        self._handle = handle
        window = args.smoothing_window_size
        self._smoothing = math.sqrt(window if window > 0 else _DEFAULT_WINDOW)
        self._weights = [_weight(args.risk_limit_weights.get(name)) for name in _RESOURCES]
        self._sums = handle.snapshot.book(LimitSums)
        self._source = source_of(handle, args)
        self._usage = UsageTable(handle, self._source.name, args.max_age_seconds)
        self._rows = ChangeCursor(handle.snapshot.usage_changes)
        self._revision = -1
        self._load_risk: FloatColumn = np.zeros((2, 0))
        """(2, N) float64, the risk by measured load, weighted, which no pending pod changes; NaN:
        the node is not measured."""
        self._beyond: IntColumn = np.zeros((2, 0), np.int64)
        """(2, N) int64, by how much the limits on the node are above its capacity."""
        handle.sources.follow(self._source)

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        """Requests and limits of pods are summed once for each spec."""
        return OK

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """Requests, limits and what is measured; pods on the node are followed row by row."""
        return (requests_and_limits(pod), self._usage.refresh())

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, 0 to 100."""
        self._look()
        requests, limits = requests_and_limits(pod)
        if not any((*requests, *limits)):
            return np.zeros(len(nodes), np.int64)
        scores = self._risk(0, nodes, requests, limits)
        np.maximum(scores, self._risk(1, nodes, requests, limits), out=scores)
        np.subtract(1.0, scores, out=scores)
        scores *= MAX_NODE_SCORE
        return whole_scores(scores)

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        self._look()
        names = [node.name for node in nodes.nodes() if node is not None]
        return PluginFacts(lines=(self._usage.explained(names),))

    def _risk(
        self, index: int, nodes: NodeView, requests: CpuAndMemory, limits: CpuAndMemory
    ) -> FloatColumn:
        """(n,) float64, 0 to 1, of one resource; NaN where the node is not measured."""
        risk: FloatColumn = self._load_risk[index][nodes.rows] + 0.0
        beyond = self._beyond[index][nodes.rows] + limits[index]
        at = np.flatnonzero(beyond > 0)
        if not len(at):
            return risk  # the limits of no node go beyond its capacity
        rows = nodes.row_numbers()[at]
        capacity = nodes.take(rows).allocatable(_RESOURCES[index])
        requested = np.minimum(self._sums.requests[index, rows] + requests[index], capacity)
        by_limit = beyond[at].astype(np.float64) / (beyond[at] + capacity - requested)
        risk[at] = np.clip(self._weights[index] * by_limit + risk[at], 0, 1)
        return risk

    def _look(self) -> None:
        """Follow the measurements and the pods on nodes."""
        snapshot = self._handle.snapshot
        revision = self._usage.refresh()
        rows = self._rows.advance()
        if rows is None or revision != self._revision or self._load_risk.shape[1] != snapshot.size:
            self._revision = revision
            self._load_risk = np.zeros((2, snapshot.size))
            self._beyond = np.zeros((2, snapshot.size), np.int64)
            rows = list(range(snapshot.size))
        if not rows:
            return
        at: RowColumn = np.array(rows, np.intp)
        view = NodeView(snapshot, at)
        capacity = np.concatenate([view.allocatable(resource) for resource in _RESOURCES])
        limits = self._sums.limits[:, at]
        self._beyond[:, at] = limits - capacity.reshape(limits.shape)
        of_rows = self._load_risks if len(rows) > _FEW else self._few_load_risks
        risks = of_rows(at, capacity).reshape(limits.shape)
        weighted = np.array([[1 - weight] for weight in self._weights]) * risks
        self._load_risk[:, at] = np.where(self._usage.measured()[at], weighted, np.nan)

    def _load_risks(self, rows: RowColumn, capacity: IntColumn) -> FloatColumn:
        """(2k,) float64, the probability that load is beyond what was requested, given the limits.

        First of cpu, then of memory, in one pass. Of what is not measured there is no such risk.
        """
        limited = self._sums.limits[:, rows].ravel()
        requested = np.minimum(self._sums.requests[:, rows].ravel(), capacity)
        percent = self._usage.column
        mu = _share([percent("cpuMean")[rows], percent("memoryMean")[rows]], capacity)
        sigma = _share([percent("cpuDeviation")[rows], percent("memoryDeviation")[rows]], capacity)
        sigma = np.minimum(sigma * self._smoothing, np.sqrt(mu * (1 - mu) * _ALLOWED_VARIANCE))
        with np.errstate(divide="ignore", invalid="ignore"):
            threshold = np.where(capacity, requested / capacity, 0.0)
            limit = limited / capacity
            # Alpha and beta of the distribution with these moments, where some Beta has them.
            variance = (sigma * sigma + mu * mu) - mu * mu
            fitted = (mu > 0) & (sigma > 0) & (variance >= 0) & (variance < mu * (1 - mu))
            size = mu * (1 - mu) / variance - 1
        alpha, beta = mu * size, (1 - mu) * size
        within = np.zeros(len(capacity))
        within[fitted] = _probable(alpha[fitted], beta[fitted], threshold[fitted])
        within[(mu == 0) | ((sigma == 0) & (mu <= threshold))] = 1
        bounded = (limited < capacity) & (requested <= limited)
        within[bounded & (limited == 0)] = 1
        at = np.flatnonzero(bounded & (limited != 0) & fitted)
        below_limit = _probable(alpha[at], beta[at], limit[at])
        at, below_limit = at[below_limit > 0], below_limit[below_limit > 0]
        within[at] = np.minimum(within[at] / below_limit, 1.0)
        risk: FloatColumn = np.where(np.isnan(mu), 0.0, 1 - within)
        return risk

    def _few_load_risks(self, rows: RowColumn, capacity: IntColumn) -> FloatColumn:
        """Compute the load risks one by one: few rows are not worth the calls of NumPy."""
        risks = [
            self._load_risk_of(
                float(self._usage.column(f"{resource}Mean")[row]),
                float(self._usage.column(f"{resource}Deviation")[row]),
                int(capacity[index * len(rows) + position]),
                int(self._sums.requests[index, row]),
                int(self._sums.limits[index, row]),
            )
            for index, resource in enumerate(_RESOURCES)
            for position, row in enumerate(rows.tolist())
        ]
        return np.array(risks, np.float64)

    def _load_risk_of(
        self, mean: float, deviation: float, capacity: int, requested: int, limited: int
    ) -> float:
        """The load risk of one node and resource, at a tenth of the time."""
        if math.isnan(mean):
            return 0.0
        mu, sigma = _mu_and_sigma(mean, deviation, capacity)
        sigma = min(sigma * self._smoothing, math.sqrt(mu * (1 - mu) * _ALLOWED_VARIANCE))
        requested = min(requested, capacity)
        threshold = min(max(requested / capacity, 0.0), 1.0) if capacity else 0.0
        fitted = _fitted(mu, sigma) if mu and sigma else None
        within = _within(mu, sigma, fitted, threshold)
        if limited < capacity and requested <= limited:
            limit = limited / capacity
            if limit == 0:
                within = 1.0
            elif fitted is not None:
                below_limit = _checked(beta_probability(*fitted, limit))
                if below_limit > 0:
                    within = min(max(within / below_limit, 0.0), 1.0)
        return 1 - within


def _share(columns: Sequence[FloatColumn], capacity: IntColumn) -> FloatColumn:
    """(2k,) float64, 0 to 1, of the capacity; 0 where there is none, NaN: not measured."""
    percent = np.concatenate(columns)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.minimum(np.maximum(percent * capacity / 100 / capacity, 0.0), 1.0)
    found: FloatColumn = np.where((capacity <= 0) & ~np.isnan(percent), 0.0, share)
    return found


def _probable(alpha: FloatColumn, beta: FloatColumn, x: FloatColumn) -> FloatColumn:
    """(k,) float64, the Beta distribution's function; 0 of what is no probability."""
    found = beta_probabilities(alpha, beta, x)
    probability: FloatColumn = np.where((found >= 0) & (found <= 1), found, 0.0)
    return probability


def _weight(given: float | None) -> float:
    return given if given is not None and 0 <= given <= 1 else _DEFAULT_WEIGHT


def _mu_and_sigma(mean: float, deviation: float, capacity: float) -> tuple[float, float]:
    if capacity <= 0:
        return 0.0, 0.0
    mu, sigma = mean * capacity / 100 / capacity, deviation * capacity / 100 / capacity
    return min(max(mu, 0.0), 1.0), min(max(sigma, 0.0), 1.0)


def _fitted(mu: float, sigma: float) -> tuple[float, float] | None:
    """Alpha and beta of the distribution with these moments; None: no Beta has them."""
    variance = (sigma * sigma + mu * mu) - mu * mu
    if variance < 0 or variance >= mu * (1 - mu):
        return None
    size = mu * (1 - mu) / variance - 1 if variance else math.inf
    return mu * size, (1 - mu) * size


def _within(mu: float, sigma: float, fitted: tuple[float, float] | None, threshold: float) -> float:
    """The probability that the load is at most the threshold."""
    if mu == 0:
        return 1.0
    if sigma == 0:
        return 1.0 if mu <= threshold else 0.0
    return 0.0 if fitted is None else _checked(beta_probability(*fitted, threshold))


def _checked(probability: float) -> float:
    return probability if 0 <= probability <= 1 else 0.0
