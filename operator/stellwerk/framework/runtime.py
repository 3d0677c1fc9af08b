"""One profile's plugins, run at the extension points with kube-scheduler's contract.

The scheduling cycle, `decide`, explain and preemption drive the same synchronous parts:
`filtering`, then `scoring` or `run_post_filters`; binding tasks drive `binding`. Invariant: a
plugin that raises or answers nonsense ends the attempt as a PluginFailure that names it, and
nothing else.
"""

from collections.abc import Mapping
from dataclasses import replace

from stellwerk.framework.binding import BindingPoints
from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.extension_points import POST_FILTER, PluginsByPoint
from stellwerk.framework.filtering import FilterPhase
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.interface import PostFilterResult
from stellwerk.framework.point_runner import PointRunner
from stellwerk.framework.reuse import ColumnCache
from stellwerk.framework.sampling import NodeSampling
from stellwerk.framework.scoring import ScorePhase
from stellwerk.framework.stopwatch import UNMEASURED, Stopwatch
from stellwerk.framework.types import Code, CycleState, Status
from stellwerk.models.pod import PodInfo


class Framework:
    """The plugins of one profile in calling order, and the columns cached between cycles."""

    def __init__(
        self,
        handle: ProfileHandle,
        plugins: PluginsByPoint,
        weights: Mapping[str, int],
        *,
        percentage_of_nodes_to_score: int | None = None,
        check_all_filters: bool = False,
        extenders_choose: bool = False,
        stopwatch: Stopwatch = UNMEASURED,
    ) -> None:
        """`extenders_choose`: extenders filter or score what the plugins leave."""
        self.handle = handle
        self.plugins = plugins
        self.stopwatch = stopwatch
        snapshot, nominations = handle.snapshot, handle.nominations
        cache = ColumnCache(snapshot)
        self.scoring = ScorePhase(plugins, weights, cache, stopwatch)
        sampling = None
        if percentage_of_nodes_to_score is not None:
            sampling = NodeSampling(
                snapshot,
                percentage_of_nodes_to_score,
                one_is_enough=self.scoring.empty and not extenders_choose,
            )
        self.filtering = FilterPhase(
            snapshot,
            nominations,
            plugins,
            cache,
            stopwatch,
            sampling,
            check_all_filters=check_all_filters,
            extenders_choose=extenders_choose,
        )
        self.filters = self.filtering.filters
        self._post_filters = PointRunner(POST_FILTER, plugins, stopwatch)
        self.binding = BindingPoints(plugins, stopwatch)
        handle.serve(self)

    def run_post_filters(
        self,
        state: CycleState,
        pod: PodInfo,
        diagnosis: Diagnosis,
        after: PostFilterResult | None = None,
    ) -> PostFilterResult:
        """Look for a way to make room, until a plugin finds it or proves that there is none.

        `after`: what came of the candidates of a plugin, none of which is left; those that follow
        it are asked.
        """
        with self._post_filters.timed(state) as timing:
            result = self._post_filter(state, pod, diagnosis, after)
            timing.noted(result.status)
        return result

    def _post_filter(
        self,
        state: CycleState,
        pod: PodInfo,
        diagnosis: Diagnosis,
        after: PostFilterResult | None,
    ) -> PostFilterResult:
        runner = self._post_filters
        reasons = after.status.reasons if after is not None else ()
        follow_up = None
        # Without any plugin, nothing stands behind an old nomination.
        clear_nomination = not runner.calls
        asked = after is None
        for plugin, call in runner.calls:
            if not asked:
                asked = after is not None and plugin.name == after.plugin
                continue
            result = runner.ask(plugin, call, state, pod, diagnosis)
            follow_up = follow_up or result.follow_up
            if result.status.code is not Code.UNSCHEDULABLE:
                if not result.candidates:
                    return replace(result, follow_up=follow_up) if follow_up else result
                return replace(
                    result, earlier_reasons=reasons, plugin=plugin.name, follow_up=follow_up
                )
            clear_nomination |= result.clear_nomination
            reasons += result.status.reasons
        status = Status(Code.UNSCHEDULABLE, reasons)
        return PostFilterResult(status, clear_nomination=clear_nomination, follow_up=follow_up)
