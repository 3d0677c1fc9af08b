"""PreScore, Score and NormalizeScore: total scores of the feasible nodes.

One per framework. Invariant: a total is the sum of normalised score × weight over the plugins that
did not skip; 1 everywhere if nothing scores.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stellwerk.framework.calls import Call, PointCalls, is_trusted
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import (
    MAX_NODE_SCORE,
    NormalizeScorePlugin,
    PreScorePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.reuse import ColumnCache, KeptColumn
from stellwerk.framework.status import Code, Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, RowColumn
from stellwerk.snapshot.node_view import NodeView

Scored = np.ndarray[Any, Any]
Normalize = Callable[[CycleState, PodInfo, IntColumn], IntColumn]


@dataclass(frozen=True, slots=True)
class PluginScore:
    """What one plugin contributed to the total, for explanations; all (n,) int64."""

    plugin: str
    raw: IntColumn
    normalized: IntColumn
    weight: int


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
    """A score plugin with what the phase wants to know of it, looked up once."""

    plugin: ScorePlugin
    normalize: Normalize | None
    weight: int
    trusted: bool


class ScorePhase:
    """See the module docstring."""

    def __init__(
        self,
        pre_scores: PointCalls[PreScorePlugin, Status],
        scores: PointCalls[ScorePlugin, Scored],
        weights: Mapping[str, int],
        cache: ColumnCache,
    ) -> None:
        self._pre_scores = pre_scores
        self._scores = scores
        self._cache = cache
        self._scorers = {
            plugin.name: _Scorer(
                plugin,
                plugin.normalize if isinstance(plugin, NormalizeScorePlugin) else None,
                weights.get(plugin.name, 1),
                is_trusted(plugin),
            )
            for plugin in scores
        }

    @property
    def empty(self) -> bool:
        """Whether no plugin scores."""
        return not self._scorers

    def prioritize(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Scores:
        """Total scores of feasible rows."""
        self._pre_score(state, pod, nodes)
        if not self._scorers:
            return Scores(nodes, np.ones(len(nodes), np.int64), ())
        by_plugin = [
            self._score(self._scorers[plugin.name], call, state, pod, nodes)
            for plugin, call in self._scores.of(state)
            if plugin.name not in state.skipped_scores
        ]
        total: IntColumn = np.zeros(len(nodes), np.int64)
        for score in by_plugin:
            total += score.normalized if score.weight == 1 else score.normalized * score.weight
        return Scores(nodes, total, by_plugin)

    def _pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> None:
        for plugin, call in self._pre_scores.of(state):
            try:
                status = call(state, pod, nodes)
            except Exception as failure:
                raise self._pre_scores.failed(plugin, failure) from failure
            if status.code is Code.SKIP:
                state.skipped_scores.add(plugin.name)
            elif status.code is not Code.SUCCESS:
                raise PluginFailure(plugin.name, self._pre_scores.point.label, status.message)

    def _score(
        self,
        scorer: _Scorer,
        call: Call[Scored],
        state: CycleState,
        pod: PodInfo,
        nodes: NodeView,
    ) -> PluginScore:
        raw, uniform = self._raw(scorer, call, state, pod, nodes)
        normalized = raw
        if scorer.normalize is not None:
            # Equal scores stay equal: one of them stands for all.
            sample = raw[:1] if uniform and scorer.trusted else raw
            try:
                normalized = scorer.normalize(state, pod, sample)
            except Exception as failure:
                raise self._scores.failed(scorer.plugin, failure) from failure
            if len(normalized) != len(raw):
                normalized = np.broadcast_to(normalized, raw.shape)
        if not scorer.trusted:
            _check_scores(scorer.plugin.name, normalized, len(nodes))
        return PluginScore(scorer.plugin.name, raw, normalized, scorer.weight)

    def _raw(
        self,
        scorer: _Scorer,
        call: Call[Scored],
        state: CycleState,
        pod: PodInfo,
        nodes: NodeView,
    ) -> tuple[IntColumn, bool]:
        """((n,) raw scores, whether they are known to be all equal)."""

        def compute(view: NodeView) -> IntColumn:
            return self._answer(scorer.plugin, call, state, pod, view)

        plugin = scorer.plugin
        reuse = plugin.score_reuse
        key = None if reuse is Reuse.NEVER else plugin.score_key(state, pod)
        few = not nodes.whole and len(nodes) * 4 < nodes.snapshot.size
        if key is None or few:
            return compute(nodes), False
        columns = self._cache.columns(key).scores
        before = columns.get(plugin.name)
        position = None if before is None else before.position
        kept = self._cache.refresh(before, reuse, compute)
        columns[plugin.name] = kept
        if reuse is Reuse.NODE and (kept is not before or kept.position != position):
            kept.uniform = _is_uniform(kept)
        return nodes.gather(kept.values), kept.uniform

    def _answer(
        self,
        plugin: ScorePlugin,
        call: Call[Scored],
        state: CycleState,
        pod: PodInfo,
        nodes: NodeView,
    ) -> IntColumn:
        try:
            raw = call(state, pod, nodes)
        except Exception as failure:
            raise self._scores.failed(plugin, failure) from failure
        if raw.shape != (len(nodes),):
            message = f"{raw.shape} scores for {len(nodes)} nodes"
            raise PluginFailure(plugin.name, self._scores.point.label, message)
        return raw


def _is_uniform(kept: KeptColumn[np.int64]) -> bool:
    values = kept.values
    return len(values) > 0 and bool((values == values[0]).all())


def _check_scores(plugin: str, scores: IntColumn, rows: int) -> None:
    if scores.shape != (rows,) or scores.dtype.kind != "i":
        message = f"{scores.dtype} scores of shape {scores.shape} for {rows} nodes"
        raise PluginFailure(plugin, "Score", message)
    if rows and not 0 <= int(scores.min()) <= int(scores.max()) <= MAX_NODE_SCORE:
        message = f"scores from {scores.min()} to {scores.max()} are outside 0 to {MAX_NODE_SCORE}"
        raise PluginFailure(plugin, "Score", message)
