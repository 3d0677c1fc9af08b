"""One profile's plugins, run at the extension points with kube-scheduler's contract.

`Assembly` makes a Framework for each profile. Decisions, explanations and preemption run its
synchronous points: `filtering` (filter_phase), `scoring` (score_phase) and PostFilter, which is
here. Binding cycles run `binding` (binding_points). Each point's plugins are called by a
PointRunner, and nodes are judged all at once, each on its own, computed or taken from the
ResultCache. Invariant: a plugin that raises, or whose answer is not allowed, ends the attempt as a
PluginFailure that names it, and nothing else.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from stellwerk.framework.binding_points import BindingPoints
from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.extension_points import POST_FILTER, PluginsByPoint
from stellwerk.framework.filter_phase import FilterPhase
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.interface import PostFilterResult
from stellwerk.framework.metrics_recorder import UNMEASURED, MetricsRecorder
from stellwerk.framework.node_sampling import NodeSampling
from stellwerk.framework.plugin_isolation import IsolatedPlugin
from stellwerk.framework.point_runner import PointRunner
from stellwerk.framework.result_cache import ResultCache
from stellwerk.framework.score_phase import ScorePhase
from stellwerk.framework.types import Code, CycleState, Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Mask


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
        metrics_recorder: MetricsRecorder = UNMEASURED,
    ) -> None:
        """`extenders_choose`: extenders filter or score what the plugins leave."""
        self.handle = handle
        self.plugins = plugins
        self.metrics_recorder = metrics_recorder
        snapshot, nominations = handle.snapshot, handle.nominations
        cache = self._results = ResultCache(snapshot)
        self.scoring = ScorePhase(plugins, weights, cache, metrics_recorder)
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
            metrics_recorder,
            sampling,
            check_all_filters=check_all_filters,
            extenders_choose=extenders_choose,
        )
        self.filters = self.filtering.filters
        self.reads_time = any(
            getattr(plugin, "reads_time", False) for each in plugins.values() for plugin in each
        )
        """Whether a plugin's arguments make decisions depend on the wall-clock time."""
        self._post_filters = PointRunner(POST_FILTER, plugins, metrics_recorder)
        self.binding = BindingPoints(plugins, metrics_recorder)
        handle.serve(self)

    @property
    def distrusted(self) -> dict[str, str]:
        """Reasons why answers of isolated plugins are no longer cached, by plugin."""
        return {
            plugin.name: plugin.distrusted
            for plugin in dict.fromkeys(chain.from_iterable(self.plugins.values()))
            if isinstance(plugin, IsolatedPlugin) and plugin.distrusted
        }

    def forget_results(self) -> None:
        """Drop all cached columns and scores, to free their memory."""
        self._results.clear()
        self.scoring.forget()

    def feasible(self, pod: PodInfo) -> Mask:
        """(N,) bool, the rows that would take a pod, found in a separate attempt."""
        state = CycleState()
        try:
            return self.filtering.find_feasible(pod, state, sample=False).fits
        finally:
            self.metrics_recorder.attempt(state)

    def run_post_filters(
        self,
        state: CycleState,
        pod: PodInfo,
        diagnosis: Diagnosis,
        after: PostFilterResult | None = None,
    ) -> PostFilterResult:
        """Run PostFilter plugins until one makes room or proves that there is no way to.

        `after`: the result of a plugin whose candidates have all failed. The plugins that follow
        it run.
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
        api_call = None
        # Without PostFilter plugins, no preemption backs an old nomination.
        clear_nomination = not runner.calls
        has_begun = after is None
        for plugin, post_filter in runner.measured_calls if state.sampled else runner.calls:
            if not has_begun:
                has_begun = after is not None and plugin.name == after.plugin
                continue
            try:
                result = post_filter(state, pod, diagnosis)
            except Exception as failure:
                raise runner.failure(plugin, failure) from failure
            api_call = api_call or result.api_call
            if result.status.code is not Code.UNSCHEDULABLE:
                if not result.candidates:
                    return replace(result, api_call=api_call) if api_call else result
                return replace(
                    result, earlier_reasons=reasons, plugin=plugin.name, api_call=api_call
                )
            clear_nomination |= result.clear_nomination
            reasons += result.status.reasons
        status = Status(Code.UNSCHEDULABLE, reasons)
        return PostFilterResult(status, clear_nomination=clear_nomination, api_call=api_call)
