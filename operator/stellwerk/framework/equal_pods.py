"""Runs of equal pods: verdicts and scores worked out once, then changed where a pod was placed.

The plain version is a decision for each pod (`world.decide.decide`), which costs 70 to 130 µs at
5,000 nodes; a step of a run costs a third of that (`python -m tests.benchmarks.
bench_sized_questions`). `world.equal_pods` drives runs for what-if, plans, groups and simulations;
the scheduling loop decides every pod by itself.

A step asks the filters and the score plugins about the one row that has changed. A plugin whose
scores change everywhere (spreading) is asked about all rows again. Whenever a raw score of a plugin
that normalises has changed, all of its scores are normalised anew, so that extremes are always
those of the feasible rows; totals change by the difference. A row that no longer takes the pod
leaves all columns.

Invariant: after each step, feasible rows and totals are those that a decision for the next pod
would find. A run begins only if every plugin from PreFilter to Reserve comes with Stellwerk and
says so (`EqualPodsPlugin`); tests/properties/framework compares runs with single decisions.
"""

from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np

from stellwerk.framework.extension_points import (
    EQUAL_PODS,
    FILTER,
    PRE_FILTER,
    PRE_SCORE,
    RESERVE,
    SCORE,
)
from stellwerk.framework.interface import EqualPods, Reuse
from stellwerk.framework.plugin_isolation import is_trusted
from stellwerk.framework.runtime import Framework
from stellwerk.framework.score_phase import PluginScore, Scorer, Scores
from stellwerk.framework.types import Feasibility
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, RowColumn
from stellwerk.snapshot.snapshot import NodeView

_ASKED_POINTS: Final = (PRE_FILTER, FILTER, PRE_SCORE, SCORE, RESERVE)
"""The points whose plugins a run does not call for every pod, or calls with the state of another.
Reserve is called for each."""


class _Part:
    """One score plugin's contribution to the totals."""

    __slots__ = ("effect", "raw", "scored", "scorer")

    def __init__(self, scorer: Scorer, effect: EqualPods, score: PluginScore) -> None:
        self.scorer = scorer
        self.effect = effect
        # The phase's columns may be cached ones, which change with the snapshot.
        self.raw = _own(score.answered)
        """Raw scores of the feasible rows: a column, or one number that all rows have."""
        self.scored = _own(score.scored)
        """Normalised scores, as `raw`."""


class EqualPodRun:
    """The feasible rows and scores for the next pod that is equal to those before it."""

    def __init__(
        self,
        framework: Framework,
        effects: dict[str, EqualPods],
        found: Feasibility,
        scores: Scores,
    ) -> None:
        """Begin with what the phases found for a pod; `effects` by the names of the plugins."""
        self._framework = framework
        self.found = replace(found, fits=found.fits.copy(), rows=None)
        """The feasible rows, kept up to date."""
        state, named = found.state, {each.plugin.name: each for each in framework.scoring.scorers}
        self._filters = [
            # The verdicts of the others do not depend on pods.
            call
            for call in framework.filters.active(state)
            if call.plugin.filter_reuse is not Reuse.NODE
        ]
        self._parts = [
            _Part(named[each.plugin], effects[each.plugin], each) for each in scores.by_plugin
        ]
        self._total: IntColumn = scores.total.copy()
        self._nodes = scores.nodes

    @property
    def scores(self) -> Scores:
        """The totals for the next pod; valid until the next `follow`."""
        return Scores(self._nodes, self._total, ())

    def follow(self, pod: PodInfo, row: int) -> bool:
        """Take into account that an equal pod was placed on a row, or taken off it again.

        Returns whether the run goes on: more than one row is feasible, and every plugin scores that
        scored before.

        Raises:
            PluginFailure: a plugin raised.
        """
        state, only = self.found.state, NodeView(self._nodes.snapshot, np.array([row], np.intp))
        filters = self._framework.filters
        position = self._position(row)
        if any(filters.codes(call, state, pod, only)[0] for call in self._filters):
            if not self._take_out(row, position):
                return False
            for part in self._parts:
                # The row may have had the highest or the lowest score of them.
                if part.effect is EqualPods.ROW and not isinstance(part.raw, int):
                    self._normalize(part, pod)
        else:
            for part in self._parts:
                if part.effect is EqualPods.ROW and not self._is_fixed(part):
                    self._rescore(part, pod, position, only)
        return all(
            self._score_all(part, pod) for part in self._parts if part.effect is EqualPods.SCORES
        )

    def _position(self, row: int) -> int:
        rows = self._nodes.rows
        return row if isinstance(rows, slice) else int(np.searchsorted(rows, row))

    @staticmethod
    def _is_fixed(part: _Part) -> bool:
        """Whether a plugin's raw scores depend on nodes alone."""
        return part.scorer.plugin.score_reuse is Reuse.NODE

    def _take_out(self, row: int, position: int) -> bool:
        """Take a row out of all columns; returns whether there is a choice left."""
        rows: RowColumn = np.delete(self._nodes.row_numbers(), position)
        if len(rows) < 2:  # noqa: PLR2004 a choice
            return False
        self.found.fits[row] = False
        self._nodes = NodeView(self._nodes.snapshot, rows)
        self._total = np.delete(self._total, position)
        for part in self._parts:
            if not isinstance(part.raw, int):
                part.raw = np.delete(part.raw, position)
            if not isinstance(part.scored, int):
                part.scored = np.delete(part.scored, position)
        return True

    def _rescore(self, part: _Part, pod: PodInfo, position: int, only: NodeView) -> None:
        """Write the raw score of one row anew."""
        new = int(self._framework.scoring.ask(part.scorer, self.found.state, pod, only)[0])
        if isinstance(part.raw, int):
            if new == part.raw:
                return
            part.raw = np.full(self._nodes.size, part.raw, np.int64)
        elif new == int(part.raw[position]):
            return
        part.raw[position] = new
        if part.scorer.normalize is not None:
            self._normalize(part, pod)
            return
        if isinstance(part.scored, int):
            part.scored = np.full(self._nodes.size, part.scored, np.int64)
        self._total[position] += (new - int(part.scored[position])) * part.scorer.weight
        part.scored[position] = new

    def _score_all(self, part: _Part, pod: PodInfo) -> bool:
        """Score every row anew; returns whether the plugin still scores."""
        scoring, state = self._framework.scoring, self.found.state
        if not scoring.pre_score_again(part.scorer, state, pod, self._nodes):
            return False
        part.raw = scoring.ask(part.scorer, state, pod, self._nodes)
        self._normalize(part, pod)
        return True

    def _normalize(self, part: _Part, pod: PodInfo) -> None:
        """Normalise a plugin's raw scores anew, and change the totals by the difference."""
        if isinstance(part.raw, int):
            return
        score = self._framework.scoring.normalized(part.scorer, self.found.state, pod, part.raw)
        after = _own(score.scored)
        change = after - part.scored
        if part.scorer.weight != 1:
            change = change * part.scorer.weight
        self._total += change
        part.scored = after


def begin_run(
    framework: Framework, pod: PodInfo, found: Feasibility, scores: Scores
) -> EqualPodRun | None:
    """Begin a run with what the phases found for a pod; None: its plugins do not allow one."""
    effects = effects_of(framework, pod)
    if effects is None or not found.pre_filter.ok or found.rows is not None:
        return None
    if found.state.among is not None or scores.nodes.overlay is not None:
        return None
    if any(each.plugin not in effects for each in scores.by_plugin):
        return None
    return EqualPodRun(framework, effects, found, scores)


def effects_of(framework: Framework, pod: PodInfo) -> dict[str, EqualPods] | None:
    """The effect of an equal pod on each plugin, by its name; None: one knows of none."""
    effects: dict[str, EqualPods] = {}
    at_points = [framework.plugins.get(point.point, ()) for point in _ASKED_POINTS]
    for plugin in dict.fromkeys(chain.from_iterable(at_points)):
        if not is_trusted(plugin) or not EQUAL_PODS.implemented_by(plugin):
            return None
        effect = plugin.after_equal_pod(pod)
        if effect is EqualPods.ANYTHING:
            return None
        effects[plugin.name] = effect
    return effects


def _own(values: IntColumn | int) -> IntColumn | int:
    return values if isinstance(values, int) else values.copy()
