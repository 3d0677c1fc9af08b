"""One profile's plugins, run at the extension points with kube-scheduler's contract.

The scheduling cycle, `decide`, explain and preemption drive the same synchronous parts:
`find_feasible`, then `prioritize`, or `diagnose` and `run_post_filters`; binding tasks drive
`binding`. Invariant: a plugin that raises or answers nonsense ends the attempt as a PluginFailure
that names it, and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stellwerk.framework.binding import BindingPoints
from stellwerk.framework.calls import UNMEASURED, PointCalls, Stopwatch
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.filtering import Feasibility, FilterCall, FilterPhase
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.interface import (
    Diagnosis,
    FilterPlugin,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
)
from stellwerk.framework.reuse import ColumnCache
from stellwerk.framework.scoring import ScorePhase, Scores
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
        stopwatch: Stopwatch = UNMEASURED,
    ) -> None:
        self.handle = handle
        self.plugins = plugins
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.extenders_choose = extenders_choose
        """Whether extenders filter or score what the plugins leave."""
        self.binding = BindingPoints(plugins, stopwatch)
        self.stopwatch = stopwatch
        cache = ColumnCache(handle.snapshot)
        self._filtering = FilterPhase(
            handle,
            PointCalls(
                "PreFilter",
                [
                    (plugin, plugin.pre_filter)
                    for plugin in plugins.get(ExtensionPoint.PRE_FILTER, ())
                    if isinstance(plugin, PreFilterPlugin)
                ],
                stopwatch,
            ),
            PointCalls(
                "Filter",
                [
                    (plugin, plugin.filter)
                    for plugin in plugins.get(ExtensionPoint.FILTER, ())
                    if isinstance(plugin, FilterPlugin)
                ],
                stopwatch,
            ),
            cache,
            check_all=check_all_filters,
        )
        self._post_filters = PointCalls(
            "PostFilter",
            [
                (plugin, plugin.post_filter)
                for plugin in plugins.get(ExtensionPoint.POST_FILTER, ())
                if isinstance(plugin, PostFilterPlugin)
            ],
            stopwatch,
        )
        self._scoring = ScorePhase(
            PointCalls(
                "PreScore",
                [
                    (plugin, plugin.pre_score)
                    for plugin in plugins.get(ExtensionPoint.PRE_SCORE, ())
                    if isinstance(plugin, PreScorePlugin)
                ],
                stopwatch,
            ),
            PointCalls(
                "Score",
                [
                    (plugin, plugin.score)
                    for plugin in plugins.get(ExtensionPoint.SCORE, ())
                    if isinstance(plugin, ScorePlugin)
                ],
                stopwatch,
            ),
            weights,
            cache,
            stopwatch,
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
        found = self._pre_filtered(pod, state)
        if not found.pre_filter.ok:
            found.fits = np.zeros_like(found.fits)
            return found
        watch = self.stopwatch
        started, code = watch.started(), Code.ERROR
        try:
            # Extenders may refuse the promised node, and then the others are wanted after all.
            promised = sample and not self.extenders_choose
            if not (promised and self._filtering.evaluate_nominated_node(pod, found)):
                self._filtering.filter(pod, found)
                if sample and self.percentage_of_nodes_to_score is not None:
                    self._sample(found, pod, self._filtering.candidate_rows(found))
            code = Code.SUCCESS
        finally:
            watch.point("Filter", code, started)
        watch.evaluated("Filter", state.skipped_filters)
        return found

    def diagnose(self, found: Feasibility, pod: PodInfo) -> Diagnosis:
        """Why no row takes the pod, node by node."""
        return self._filtering.diagnose(found, pod)

    def run_post_filters(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Look for a way to make room, until a plugin finds it or proves that there is none."""
        started, code = self.stopwatch.started(), Code.ERROR
        try:
            result = self._post_filter(state, pod, diagnosis)
            code = result.status.code
        finally:
            self.stopwatch.point("PostFilter", code, started)
        return result

    def prioritize(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Scores:
        """Total scores of feasible rows."""
        return self._scoring.prioritize(state, pod, nodes)

    def active_filters(self, state: CycleState) -> list[FilterCall]:
        """The filters that no PreFilter skipped, in order, each with its call."""
        return self._filtering.active(state)

    def is_row_local(self, state: CycleState, pod: PodInfo) -> bool:
        """Whether what filters say of a row depends on the spec and what is on that row alone."""
        return self._filtering.is_row_local(state, pod)

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

    def _pre_filtered(self, pod: PodInfo, state: CycleState) -> Feasibility:
        watch = self.stopwatch
        started, code = watch.started(), Code.ERROR
        try:
            found = self._filtering.pre_filter(pod, state)
            code = found.pre_filter.code
        finally:
            watch.point("PreFilter", code, started)
        watch.evaluated("PreFilter", state.skipped_filters)
        return found

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
                return replace(result, earlier_reasons=reasons) if result.candidates else result
            clear_nomination |= result.clear_nomination
            reasons += result.status.reasons
        status = Status(Code.UNSCHEDULABLE, reasons)
        return PostFilterResult(status, clear_nomination=clear_nomination)

    def _sample(self, found: Feasibility, pod: PodInfo, candidates: Mask | None) -> None:
        """Keep only as many feasible rows as kube-scheduler would look for, in its order."""
        snapshot = self.handle.snapshot
        promised = snapshot.row_of.get(pod.nominated_node_name)
        if promised is not None and found.fits[promised]:
            # Tried before the search begins, and the search does not (`evaluateNominatedNode`).
            found.keep(np.array([promised], dtype=np.intp), evaluated=1)
            return
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
        found.keep(order[reached], evaluated=looked_at)
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
