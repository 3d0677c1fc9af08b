"""The score phase: total scores of the nodes that the filters have found.

A scheduling attempt calls `prioritize` if more than one node is feasible; explanations keep its
result. `world.decide.choose` takes one of the nodes with the highest total, to which it has added
the scores of extenders. PreScore runs first, then each plugin's raw scores come from one of three
places, with the same result:

1. Shared (`_shared`): the plugin gave one score to all rows last time, and nothing has changed
   since. The contribution of last time is used again, and no array is read.
2. A cached column: raw scores of all rows, kept for each spec and computed again only in rows that
   changed. If they are all equal (a uniform column), the score is normalised once, as one number.
3. The plugin itself: if its scores cannot be cached, or if the feasible rows are few.

Why: most plugins score all nodes alike for most pods (no taint, no image, no preference matters),
and arrays of equal numbers would be normalised, weighted and added for every pod. With the default
profile and 5,000 nodes a decision takes 84 µs; without uniform columns 105 µs, and without shared
contributions 88 µs (CPU time, `python -m tests.benchmarks.bench_decide`).

Invariant: `Scores.total` is the sum of normalised score times weight over all plugins that did not
skip. A cached score is the one that its plugin would give now; isolated plugins are checked at run
time (`_distrust_wrong_column`).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stellwerk.framework.extension_points import (
    NORMALIZE_SCORE,
    PRE_SCORE,
    SCORE,
    PluginsByPoint,
    is_keyed_by_spec,
)
from stellwerk.framework.interface import MAX_NODE_SCORE, Reuse, ScorePlugin
from stellwerk.framework.metrics_recorder import MetricsRecorder
from stellwerk.framework.plugin_isolation import IsolatedPlugin, is_trusted
from stellwerk.framework.point_runner import Call, PointRunner
from stellwerk.framework.result_cache import (
    MIN_COLUMN_SHARE,
    CachedColumn,
    ResultCache,
    SpecColumns,
)
from stellwerk.framework.types import Code, CycleState, PluginFailure
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, Mask, RowColumn
from stellwerk.snapshot.snapshot import NodeView

Normalize = Callable[[CycleState, PodInfo, IntColumn], IntColumn]


class PluginScore:
    """One plugin's contribution to the total; columns are (n,) int64."""

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
        """Raw scores: a column, or one number that all rows have."""
        self.scored = scored
        """Normalised scores: a column, or one number that all rows have."""
        self.weight = weight
        self.size = size
        """n."""

    @property
    def raw(self) -> IntColumn:
        """(n,) int64, the plugin's answer."""
        return self._column(self.answered)

    @property
    def normalized(self) -> IntColumn:
        """(n,) int64, 0–100."""
        return self._column(self.scored)

    def normalized_at(self, position: int) -> int:
        """Return one of `normalized`, without making the column."""
        return self.scored if isinstance(self.scored, int) else int(self.scored[position])

    def _column(self, values: IntColumn | int) -> IntColumn:
        return np.full(self.size, values, np.int64) if isinstance(values, int) else values


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of the rows of a view."""

    nodes: NodeView
    total: IntColumn
    """(n,) int64, sum of normalised score × weight; 1 everywhere if nothing scores."""
    by_plugin: Sequence[PluginScore]

    def best_positions(self) -> RowColumn:
        """(m,) positions with the highest total."""
        return np.flatnonzero(self.total == self.total.max())


@dataclass(frozen=True, slots=True)
class Scorer:
    """A score plugin and what the phase looks up about it, once and not for each pod."""

    plugin: ScorePlugin
    score: Call[IntColumn]
    measured_score: Call[IntColumn]
    """`score`, measured for sampled attempts."""
    normalize: Normalize | None
    weight: int
    trusted: bool
    keyed_by_spec: bool
    """True if it keeps the default `score_key`, so that nothing has to be called for it."""


class ScorePhase:
    """Runs the score plugins on feasible rows, or takes their scores from cached columns."""

    def __init__(
        self,
        plugins: PluginsByPoint,
        weights: Mapping[str, int],
        cache: ResultCache,
        metrics_recorder: MetricsRecorder,
    ) -> None:
        self._pre_scores = PointRunner(PRE_SCORE, plugins, metrics_recorder)
        self._scores = PointRunner(SCORE, plugins, metrics_recorder)
        self._cache = cache
        self._shared: dict[str, tuple[Hashable, CachedColumn[np.int64], PluginScore]] = {}
        """(reuse key, column, contribution) for each plugin whose last score was one number."""
        self.scorers: Sequence[Scorer] = [
            Scorer(
                plugin,
                score,
                measured_score,
                plugin.normalize if NORMALIZE_SCORE.implemented_by(plugin) else None,
                weights.get(plugin.name, 1),
                is_trusted(plugin),
                is_keyed_by_spec(plugin, "score_key"),
            )
            for (plugin, score), (_, measured_score) in zip(
                self._scores.calls, self._scores.measured_calls, strict=True
            )
        ]

    @property
    def empty(self) -> bool:
        """True if no plugin scores."""
        return not self.scorers

    def forget(self) -> None:
        """Drop what is kept of earlier scores."""
        self._shared.clear()

    def prioritize(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Scores:
        """Score the feasible rows.

        Raises:
            PluginFailure: a plugin raised, or its answer is not allowed.
        """
        skipped = state.skipped_scores
        with self._pre_scores.timed(state) as timing:
            self._pre_score(state, pod, nodes)
            timing.code, timing.skipped = Code.SUCCESS, skipped
            if not self.scorers:
                return Scores(nodes, np.ones(nodes.size, np.int64), ())
            timing.go_on_with(self._scores.label)
            few = not nodes.whole and nodes.size < MIN_COLUMN_SHARE * nodes.snapshot.size
            of_spec = None if few else self._cache.columns(pod.spec, pod.uid)
            by_plugin = [
                self._score(scorer, state, pod, nodes, of_spec)
                for scorer in self.scorers
                if scorer.plugin.name not in skipped
            ]
            scores = Scores(nodes, _add_up(by_plugin, nodes.size), by_plugin)
            timing.code, timing.skipped = Code.SUCCESS, skipped
        return scores

    def pre_score_again(
        self, scorer: Scorer, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> bool:
        """Run one plugin's PreScore on other rows; returns whether it still scores.

        Raises:
            PluginFailure: the plugin raised, or its PreScore failed.
        """
        point = self._pre_scores
        for plugin, pre_score in point.calls:
            if plugin.name == scorer.plugin.name:
                try:
                    status = pre_score(state, pod, nodes)
                except Exception as failure:
                    raise point.failure(plugin, failure) from failure
                if status.code is Code.SKIP:
                    return False
                if status.code is not Code.SUCCESS:
                    raise PluginFailure(plugin.name, point.label, status.message)
        return True

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
        self,
        scorer: Scorer,
        state: CycleState,
        pod: PodInfo,
        nodes: NodeView,
        of_spec: SpecColumns | None,
    ) -> PluginScore:
        """Find one plugin's contribution: shared, from its cached column, or by a call.

        `of_spec`: the columns of the pod's spec; None: the rows are few, and no column is used.
        """
        plugin = scorer.plugin
        columns: SpecColumns | None = None
        key: Hashable | None = None
        if plugin.score_reuse is not Reuse.NEVER and of_spec is not None:
            key = pod.spec if scorer.keyed_by_spec else plugin.score_key(state, pod)
            # Only the last key of each plugin is known: pods of one spec mostly come in a row.
            known = self._shared.get(plugin.name)
            if known is not None and known[0] is key and _still_shared(known[1], known[2], nodes):
                return known[2]
            if key is not None:
                columns = of_spec if key is pod.spec else self._cache.columns(key, pod.uid)
        if columns is None or not columns.kept:
            raw = self.ask(scorer, state, pod, nodes)
            return self.normalized(scorer, state, pod, raw)
        cached = self._cache.scores(
            columns, plugin, lambda nodes: self.ask(scorer, state, pod, nodes)
        )
        if not scorer.trusted and self._distrust_wrong_column(
            plugin, scorer, cached.values, state, pod, nodes
        ):
            raw = self.ask(scorer, state, pod, nodes)
            return self.normalized(scorer, state, pod, raw)
        uniform = cached.uniform
        if uniform is None or not scorer.trusted:
            # Normalising depends on all feasible rows, so that its result cannot be cached by row.
            return self.normalized(scorer, state, pod, cached.values[nodes.rows])
        if cached.normalized is None:
            # Normalising keeps equal scores equal, so that one row stands for all of them.
            one = self.normalized(scorer, state, pod, cached.values[:1])
            cached.normalized = int(one.normalized[0])
        score = PluginScore(plugin.name, uniform, cached.normalized, scorer.weight, nodes.size)
        self._shared[plugin.name] = key, cached, score
        return score

    def _distrust_wrong_column(
        self,
        plugin: ScorePlugin,
        scorer: Scorer,
        kept: IntColumn,
        state: CycleState,
        pod: PodInfo,
        nodes: NodeView,
    ) -> bool:
        """Run an isolated plugin on one feasible row, and distrust it if its column differs there.

        Returns whether it does. The plugin's answers are not cached from then on.
        """
        if not isinstance(plugin, IsolatedPlugin):
            return False
        among: Mask = np.zeros(nodes.snapshot.size, np.bool_)
        among[nodes.rows] = True
        row = self._cache.row_to_ask(among)
        if row is None or not among[row]:
            return False
        view = NodeView(nodes.snapshot, np.array([row], np.intp))
        if int(self.ask(scorer, state, pod, view)[0]) == int(kept[row]):
            return False
        plugin.distrust(self._scores.label, nodes.snapshot.node_at(row).name, "score_key")
        self._cache.clear()
        return True

    def normalized(
        self, scorer: Scorer, state: CycleState, pod: PodInfo, raw: IntColumn
    ) -> PluginScore:
        """One plugin's contribution from its raw scores of all feasible rows.

        Raises:
            PluginFailure: the plugin raised, or its scores are not allowed.
        """
        scores = raw
        if scorer.normalize is not None:
            try:
                scores = scorer.normalize(state, pod, raw)
            except Exception as failure:
                raise self._scores.failure(scorer.plugin, failure) from failure
        if not scorer.trusted:
            _check_scores(scorer.plugin.name, scores, len(raw))
        return PluginScore(scorer.plugin.name, raw, scores, scorer.weight, len(raw))

    def ask(self, scorer: Scorer, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, one plugin's raw scores of the rows of a view.

        Raises:
            PluginFailure: the plugin raised, or did not score these rows.
        """
        score = scorer.measured_score if state.sampled else scorer.score
        try:
            raw = score(state, pod, nodes)
        except Exception as failure:
            raise self._scores.failure(scorer.plugin, failure) from failure
        if raw.shape != (nodes.size,):
            message = f"{raw.shape} scores for {len(nodes)} nodes"
            raise PluginFailure(scorer.plugin.name, self._scores.label, message)
        return raw


def _still_shared(column: CachedColumn[np.int64], score: PluginScore, nodes: NodeView) -> bool:
    """Return whether a contribution of last time is still what the plugin would contribute.

    The column must be the same one, unchanged in all rows, and the view must have as many rows:
    then every row of it has the one score, whichever rows they are.
    """
    return (
        column.position == column.changes.position
        and not column.rewritten
        and column.uniform == score.answered
        and column.normalized == score.scored
        and nodes.size == score.size
    )


def _add_up(by_plugin: Sequence[PluginScore], rows: int) -> IntColumn:
    """(n,) int64, weighted sum of the contributions.

    Contributions that are one number for all rows are summed up as integers and added once. That is
    one pass over the array for all of them, in place of one for each.
    """
    shared = 0
    total: IntColumn | None = None
    for score in by_plugin:
        if isinstance(score.scored, int):
            shared += score.scored * score.weight
            continue
        weighted = score.scored if score.weight == 1 else score.scored * score.weight
        if total is None:
            # `weighted` may be a plugin's cached column, which must not change. The first addition
            # makes a new array, and the later ones write into it.
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
