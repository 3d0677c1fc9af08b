"""PreScore, Score and NormalizeScore: total scores of the feasible nodes.

One per framework. Invariant: a total is the sum of normalised score × weight over the plugins that
did not skip; 1 everywhere if nothing scores.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stellwerk.framework.containment import is_trusted
from stellwerk.framework.extension_points import (
    NORMALIZE_SCORE,
    PRE_SCORE,
    SCORE,
    PluginsByPoint,
    is_keyed_by_spec,
)
from stellwerk.framework.interface import MAX_NODE_SCORE, Reuse, ScorePlugin
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.point_runner import Call, PointRunner
from stellwerk.framework.reuse import ColumnCache
from stellwerk.framework.stopwatch import Stopwatch
from stellwerk.framework.types import Code, CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, RowColumn
from stellwerk.snapshot.snapshot import NodeView

Normalize = Callable[[CycleState, PodInfo, IntColumn], IntColumn]


class PluginScore:
    """What one plugin contributed to the total; columns are (n,) int64."""

    __slots__ = ("answered", "plugin", "scored", "size", "weight")

    def __init__(
        self,
        plugin: str,
        answered: IntColumn | int,
        scored: IntColumn | int,
        weight: int,
        size: int,
    ) -> None:
        self.plugin = plugin
        self.answered = answered
        """Raw scores; one number where all rows have the same."""
        self.scored = scored
        """Normalised scores; one number where all rows have the same."""
        self.weight = weight
        self.size = size
        """n."""

    @property
    def raw(self) -> IntColumn:
        """(n,) int64, what the plugin answered."""
        return self._column(self.answered)

    @property
    def normalized(self) -> IntColumn:
        """(n,) int64, 0–100."""
        return self._column(self.scored)

    def normalized_at(self, position: int) -> int:
        """One of `normalized`, without making the column."""
        return self.scored if isinstance(self.scored, int) else int(self.scored[position])

    def _column(self, values: IntColumn | int) -> IntColumn:
        return np.full(self.size, values, np.int64) if isinstance(values, int) else values


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the rows of a view."""

    nodes: NodeView
    total: IntColumn
    """(n,) int64, sum of normalised score × weight; 1 everywhere if nothing scores."""
    by_plugin: Sequence[PluginScore]

    def best_positions(self) -> RowColumn:
        """Positions with the highest total."""
        return np.flatnonzero(self.total == self.total.max())


@dataclass(frozen=True, slots=True)
class _Scorer:
    """A score plugin with everything that the phase needs of it, looked up once."""

    plugin: ScorePlugin
    call: Call[IntColumn]
    normalize: Normalize | None
    weight: int
    trusted: bool
    keyed_by_spec: bool
    """Whether its reuse key is the pod's spec, without being asked."""


class ScorePhase:
    """Asks the score plugins about feasible rows, or takes their scores from cached columns."""

    def __init__(
        self,
        plugins: PluginsByPoint,
        weights: Mapping[str, int],
        cache: ColumnCache,
        stopwatch: Stopwatch,
    ) -> None:
        self._pre_scores = PointRunner(PRE_SCORE, plugins, stopwatch)
        self._scores = PointRunner(SCORE, plugins, stopwatch)
        self._cache = cache
        self._scorers = [
            _Scorer(
                plugin,
                call,
                plugin.normalize if NORMALIZE_SCORE.implemented_by(plugin) else None,
                weights.get(plugin.name, 1),
                is_trusted(plugin),
                is_keyed_by_spec(plugin, "score_key"),
            )
            for plugin, call in self._scores.calls
        ]

    @property
    def empty(self) -> bool:
        """Whether no plugin scores."""
        return not self._scorers

    def prioritize(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Scores:
        """Total scores of feasible rows."""
        skipped = state.skipped_scores
        with self._pre_scores.timed(state) as timing:
            self._pre_score(state, pod, nodes)
            timing.code, timing.skipped = Code.SUCCESS, skipped
            if not self._scorers:
                return Scores(nodes, np.ones(nodes.size, np.int64), ())
            timing.go_on_with(self._scores.label)
            by_plugin = [
                self._score(scorer, state, pod, nodes)
                for scorer in self._scorers
                if scorer.plugin.name not in skipped
            ]
            scores = Scores(nodes, _total(by_plugin, nodes.size), by_plugin)
            timing.code, timing.skipped = Code.SUCCESS, skipped
        return scores

    def _pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> None:
        point = self._pre_scores
        for plugin, pre_score in point.measured_calls if state.sampled else point.calls:
            try:
                status = pre_score(state, pod, nodes)
            except Exception as failure:
                raise point.failure(plugin, failure) from failure
            if status.code is Code.SKIP:
                state.skipped_scores.add(plugin.name)
            elif status.code is not Code.SUCCESS:
                raise PluginFailure(plugin.name, point.label, status.message)

    def _score(
        self, scorer: _Scorer, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> PluginScore:
        plugin = scorer.plugin
        few = not nodes.whole and nodes.size * 4 < nodes.snapshot.size
        key: Hashable | None = None
        if plugin.score_reuse is not Reuse.NEVER and not few:
            key = pod.spec if scorer.keyed_by_spec else plugin.score_key(state, pod)
        if key is None:
            raw = self._answer(scorer, state, pod, nodes)
            return self._normalized(scorer, state, pod, raw)
        cached = self._cache.scores(
            key, plugin, lambda nodes: self._answer(scorer, state, pod, nodes)
        )
        uniform = cached.uniform
        if uniform is None or not scorer.trusted:
            return self._normalized(scorer, state, pod, cached.values[nodes.rows])
        if cached.normalized is None:
            # Equal scores stay equal: one of them stands for all.
            one = self._normalized(scorer, state, pod, cached.values[:1])
            cached.normalized = int(one.normalized[0])
        return PluginScore(plugin.name, uniform, cached.normalized, scorer.weight, nodes.size)

    def _normalized(
        self, scorer: _Scorer, state: CycleState, pod: PodInfo, raw: IntColumn
    ) -> PluginScore:
        scores = raw
        if scorer.normalize is not None:
            try:
                scores = scorer.normalize(state, pod, raw)
            except Exception as failure:
                raise self._scores.failure(scorer.plugin, failure) from failure
        if not scorer.trusted:
            _check_scores(scorer.plugin.name, scores, len(raw))
        return PluginScore(scorer.plugin.name, raw, scores, scorer.weight, len(raw))

    def _answer(
        self, scorer: _Scorer, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> IntColumn:
        raw = self._scores.ask(scorer.plugin, scorer.call, state, pod, nodes)
        if raw.shape != (nodes.size,):
            message = f"{raw.shape} scores for {len(nodes)} nodes"
            raise PluginFailure(scorer.plugin.name, self._scores.label, message)
        return raw


def _total(by_plugin: Sequence[PluginScore], rows: int) -> IntColumn:
    """(n,) int64, weighted sum; what all rows share is added once."""
    shared = 0
    total: IntColumn | None = None
    for score in by_plugin:
        if isinstance(score.scored, int):
            shared += score.scored * score.weight
            continue
        weighted = score.scored if score.weight == 1 else score.scored * score.weight
        if total is None:
            # The first addition makes a new column, which may then be changed in place.
            total, shared = weighted + shared, 0
        else:
            np.add(total, weighted, out=total)
    if total is None:
        return np.full(rows, shared, np.int64)
    return np.add(total, shared, out=total) if shared else total


def _check_scores(plugin: str, scores: IntColumn, rows: int) -> None:
    if scores.shape != (rows,) or scores.dtype.kind != "i":
        message = f"{scores.dtype} scores of shape {scores.shape} for {rows} nodes"
        raise PluginFailure(plugin, "Score", message)
    if rows and not 0 <= int(scores.min()) <= int(scores.max()) <= MAX_NODE_SCORE:
        message = f"scores from {scores.min()} to {scores.max()} are outside 0 to {MAX_NODE_SCORE}"
        raise PluginFailure(plugin, "Score", message)
