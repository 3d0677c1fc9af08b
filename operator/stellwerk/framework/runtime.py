"""One profile's plugins, run at the extension points with kube-scheduler's contract.

The scheduling cycle, `decide`, explain and preemption drive the same synchronous parts:
`find_feasible`, then `prioritize`, or `diagnose` and `run_post_filters`; binding tasks drive
`binding`. Invariant: a plugin that raises or answers nonsense ends the attempt as a PluginFailure
that names it, and nothing else.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from stellwerk.framework.binding import BindingPoints
from stellwerk.framework.calls import Instruments, PointCalls
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.filtering import Feasibility, FilterCall, FilterPhase
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.interface import (
    Diagnosis,
    FilterPlugin,
    FilterResult,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
)
from stellwerk.framework.reuse import ColumnCache
from stellwerk.framework.scoring import Scored, ScorePhase, Scores
from stellwerk.framework.status import Code, Status
from stellwerk.framework.verdicts import Verdicts
from stellwerk.models.plugin_description import ExtensionPoint
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.node_view import NodeView

__all__ = ["Feasibility", "Framework", "Scores", "nodes_to_find"]

MIN_NODES_TO_FIND = 100


class Framework:
    """The plugins of one profile in calling order, and the columns kept between cycles."""

    def __init__(
        self,
        handle: ProfileHandle,
        plugins: Mapping[ExtensionPoint, Sequence[Plugin]],
        weights: Mapping[str, int],
        *,
        percentage_of_nodes_to_score: int | None = None,
        check_all_filters: bool = False,
        extenders_choose: bool = False,
        instruments: Instruments | None = None,
    ) -> None:
        self.handle = handle
        self.plugins = plugins
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.extenders_choose = extenders_choose
        """Whether extenders filter or score what the plugins leave."""
        self.binding = BindingPoints(plugins)
        instruments = instruments or Instruments()
        self._stopwatch = instruments.stopwatch
        cache = ColumnCache(handle.snapshot)
        self._filtering = FilterPhase(
            handle,
            PointCalls(
                ExtensionPoint.PRE_FILTER,
                [
                    (plugin, plugin.pre_filter)
                    for plugin in plugins.get(ExtensionPoint.PRE_FILTER, ())
                    if isinstance(plugin, PreFilterPlugin)
                ],
                PreFilterResult,
                instruments,
            ),
            PointCalls(
                ExtensionPoint.FILTER,
                [
                    (plugin, plugin.filter)
                    for plugin in plugins.get(ExtensionPoint.FILTER, ())
                    if isinstance(plugin, FilterPlugin)
                ],
                FilterResult,
                instruments,
            ),
            cache,
            check_all=check_all_filters,
        )
        self._post_filters = PointCalls(
            ExtensionPoint.POST_FILTER,
            [
                (plugin, plugin.post_filter)
                for plugin in plugins.get(ExtensionPoint.POST_FILTER, ())
                if isinstance(plugin, PostFilterPlugin)
            ],
            PostFilterResult,
            instruments,
        )
        self._scoring = ScorePhase(
            PointCalls(
                ExtensionPoint.PRE_SCORE,
                [
                    (plugin, plugin.pre_score)
                    for plugin in plugins.get(ExtensionPoint.PRE_SCORE, ())
                    if isinstance(plugin, PreScorePlugin)
                ],
                Status,
                instruments,
            ),
            PointCalls(
                ExtensionPoint.SCORE,
                [
                    (plugin, plugin.score)
                    for plugin in plugins.get(ExtensionPoint.SCORE, ())
                    if isinstance(plugin, ScorePlugin)
                ],
                Scored,
                instruments,
            ),
            weights,
            cache,
        )
        self._next_start = 0
        handle.serve(self)

    @property
    def profile_name(self) -> str:
        """The schedulerName served."""
        return self.handle.profile_name

    def find_feasible(
        self, pod: PodInfo, state: CycleState | None = None, *, sample: bool = True
    ) -> Feasibility:
        """Every row the pod fits on (or as many as the profile's percentage asks for)."""
        state = state or CycleState()
        watch = self._stopwatch
        started = watch.started() if watch else 0.0
        found = self._filtering.pre_filter(pod, state)
        if watch:
            watch.point(ExtensionPoint.PRE_FILTER, found.pre_filter.code, started)
            started = watch.started()
        if not found.pre_filter.ok:
            found.fits = np.zeros_like(found.fits)
            return found
        self._filtering.filter(pod, found)
        if sample and self.percentage_of_nodes_to_score is not None:
            self._sample(found, self._filtering.candidate_rows(found))
        if watch:
            watch.point(ExtensionPoint.FILTER, Code.SUCCESS, started)
        return found

    def diagnose(self, found: Feasibility, pod: PodInfo) -> Diagnosis:
        """Why no row takes the pod, node by node."""
        return self._filtering.diagnose(found, pod)

    def run_post_filters(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Look for a way to make room, until a plugin finds it or proves that there is none."""
        watch = self._stopwatch
        started = watch.started() if watch else 0.0
        result = self._post_filter(state, pod, diagnosis)
        if watch:
            watch.point(ExtensionPoint.POST_FILTER, result.status.code, started)
        return result

    def prioritize(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Scores:
        """Total scores of feasible rows."""
        watch = self._stopwatch
        started = watch.started() if watch else 0.0
        scores = self._scoring.prioritize(state, pod, nodes)
        if watch:
            watch.point(ExtensionPoint.SCORE, Code.SUCCESS, started)
        return scores

    def active_filters(self, state: CycleState) -> list[FilterCall]:
        """The filters that no PreFilter skipped, in order, each with its call."""
        return self._filtering.active(state)

    def run_filters_with_nominated(
        self, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> Verdicts:
        """Each row's first rejection; rows that hold nominations must pass with and without."""
        return self._filtering.run_with_nominated(state, pod, nodes)

    def add_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> None:
        """Put pods on positions of a view with overlay."""
        self._filtering.add_pods(state, pod, nodes, pods)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> None:
        """Take pods off positions of a view with overlay."""
        self._filtering.remove_pods(state, pod, nodes, pods)

    def _post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        reasons: tuple[str, ...] = ()
        clear_nomination = False
        for plugin, call in self._post_filters.of(state):
            try:
                result = call(state, pod, diagnosis)
            except Exception as failure:
                raise self._post_filters.failed(plugin, failure) from failure
            if result.status.code is not Code.UNSCHEDULABLE:
                return result
            clear_nomination |= result.clear_nomination
            reasons += result.status.reasons
        status = Status(Code.UNSCHEDULABLE, reasons)
        return PostFilterResult(status, clear_nomination=clear_nomination)

    def _sample(self, found: Feasibility, candidates: Mask | None) -> None:
        """Keep only as many feasible rows as kube-scheduler would look for, in its order."""
        snapshot = self.handle.snapshot
        order = snapshot.visit_order
        if candidates is not None:
            order = order[candidates[order]]
        wanted = nodes_to_find(self.percentage_of_nodes_to_score, len(order))
        if self._scoring.empty and not self.extenders_choose:
            # Without scores one feasible node is as good as another.
            wanted = 1
        if wanted >= len(order):
            return
        start = self._next_start % len(order)
        order = np.concatenate([order[start:], order[:start]])
        reached = np.flatnonzero(found.fits[order])[:wanted]
        looked_at = int(reached[-1]) + 1 if len(reached) == wanted else len(order)
        found.rows = order[reached]
        found.fits = np.zeros_like(found.fits)
        found.fits[found.rows] = True
        found.evaluated = looked_at
        self._next_start = (self._next_start + looked_at) % snapshot.node_count


def nodes_to_find(percentage: int | None, nodes: int) -> int:
    """How many feasible nodes are enough (`numFeasibleNodesToFind`); None: all, 0: adaptive.

    Values above 100 count as 100, negative ones as 0; below 100 nodes all are looked at.
    """
    if percentage is None or nodes < MIN_NODES_TO_FIND:
        return nodes
    if percentage <= 0:
        percentage = max(5, 50 - nodes // 125)
    return max(MIN_NODES_TO_FIND, nodes * min(percentage, 100) // 100)
