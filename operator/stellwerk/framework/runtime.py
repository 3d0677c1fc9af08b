"""One profile's plugins, run at the extension points with kube-scheduler's contract.

`decide`, explain and preemption drive the synchronous parts, PreFilter to Score and PostFilter;
binding tasks drive Reserve to PostBind. Nodes are judged all at once, each on its own: the rows
found are those that every filter passes, computed or taken from the ResultCache, with the same
result. Invariants: a plugin that raises or answers nonsense ends the attempt as a PluginFailure
that names it, and nothing else; Unreserve runs for every Reserve plugin in reverse order, whichever
of them failed, so plugins may rely on being asked to clean up.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Final, Generic, Self, TypeAlias, TypeVar

import numpy as np
from typing_extensions import override

from stellwerk.framework.diagnosis import Diagnosis, among_all
from stellwerk.framework.extension_points import (
    BIND,
    FILTER,
    NORMALIZE_SCORE,
    PERMIT,
    POST_BIND,
    POST_FILTER,
    PRE_BIND,
    PRE_BIND_PRE_FLIGHT,
    PRE_FILTER,
    PRE_FILTER_EXTENSIONS,
    PRE_SCORE,
    RESERVE,
    SCORE,
    UNRESERVE,
    PluginsByPoint,
    Point,
    is_keyed_by_spec,
)
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.interface import (
    MAX_NODE_SCORE,
    FilterPlugin,
    PlacedPods,
    Plugin,
    PostFilterResult,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.metrics_recorder import UNMEASURED, MetricsRecorder
from stellwerk.framework.plugin_isolation import IsolatedPlugin, is_trusted
from stellwerk.framework.result_cache import CachedColumn, CachedStatuses, ResultCache, SpecColumns
from stellwerk.framework.services import FilterRunner, Nominations
from stellwerk.framework.types import (
    FITS,
    OK,
    SKIP,
    Code,
    CycleState,
    Feasibility,
    FilterResult,
    PluginFailure,
    PointRun,
    Status,
    StatusColumn,
    Verdicts,
    merge_passes,
)
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, Mask, RowColumn, VerdictColumn
from stellwerk.snapshot.snapshot import NodeOverlay, NodeView, Snapshot

Role = TypeVar("Role", bound=Plugin)
Answer = TypeVar("Answer")
Awaited = TypeVar("Awaited")
Call = Callable[..., Answer]
FilterCall: TypeAlias = tuple[FilterPlugin, Call[FilterResult]]
Normalize = Callable[[CycleState, PodInfo, IntColumn], IntColumn]

MAX_PERMIT_TIMEOUT_SECONDS = 15 * 60.0
MIN_NODES_TO_FIND: Final = 100
_FEW_RESOURCES: Final = 4
"""A pod that requests more has their rows made together, rather than one at its first use."""


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
        self._post_filters = PointRunner(POST_FILTER, plugins, metrics_recorder)
        self.binding = BindingPoints(plugins, metrics_recorder)
        handle.serve(self)

    @property
    def distrusted(self) -> dict[str, str]:
        """Why answers of plugins are reused no longer, by plugin."""
        return {
            plugin.name: plugin.distrusted
            for plugin in dict.fromkeys(chain.from_iterable(self.plugins.values()))
            if isinstance(plugin, IsolatedPlugin) and plugin.distrusted
        }

    def forget_results(self) -> None:
        """Free what earlier decisions have left for later ones."""
        self._results.clear()
        self.scoring.forget()

    def feasible(self, pod: PodInfo) -> Mask:
        """(N,) bool, the rows that would take a pod, found in an attempt of its own."""
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
        api_call = None
        # Without any plugin, nothing stands behind an old nomination.
        clear_nomination = not runner.calls
        asked = after is None
        for plugin, call in runner.calls:
            if not asked:
                asked = after is not None and plugin.name == after.plugin
                continue
            result = runner.ask(plugin, call, state, pod, diagnosis)
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


class NodeSampling:
    """kube-scheduler's sampling of feasible nodes where a profile sets percentageOfNodesToScore.

    Invariant: searches go on where the last one ended (`nextStartNodeIndex`), in the order of the
    node tree, so that each node is looked at as often as any other.
    """

    def __init__(self, snapshot: Snapshot, percentage: int, *, one_is_enough: bool) -> None:
        """`one_is_enough`: without scores one feasible node is as good as another."""
        self._snapshot = snapshot
        self._percentage = percentage
        self._one_is_enough = one_is_enough
        self._next_start = 0

    def narrow(self, pod: PodInfo, found: Feasibility) -> None:
        """Keep only as many feasible rows as kube-scheduler would look for, in its order."""
        nominated = found.nominated_row(pod, self._snapshot)
        if nominated is None:
            self._search(found)
            return
        # Looked at before the search begins, which takes place only if an extender refuses it.
        found.unsampled = (found.fits, found.evaluated)
        found.keep(np.array([nominated], dtype=np.intp), evaluated=1)

    def look_beyond_nominated(self, found: Feasibility) -> None:
        """Search after all, as if no node were nominated."""
        if found.unsampled is not None:
            found.fits, found.evaluated = found.unsampled
            found.rows = found.unsampled = None
            self._search(found)

    def _search(self, found: Feasibility) -> None:
        snapshot = self._snapshot
        order = snapshot.visit_order
        candidates = found.candidate_rows(snapshot)
        if candidates is not None:
            order = order[candidates[order]]
        wanted = 1 if self._one_is_enough else nodes_to_find(self._percentage, len(order))
        if wanted >= len(order):
            return
        start = self._next_start % len(order)
        order = np.concatenate([order[start:], order[:start]])
        reached = np.flatnonzero(found.fits[order])[:wanted]
        looked_at = int(reached[-1]) + 1 if len(reached) == wanted else len(order)
        found.keep(order[reached], evaluated=looked_at)
        self._next_start = (self._next_start + looked_at) % snapshot.node_count


def nodes_to_find(percentage: int | None, nodes: int) -> int:
    """The number of feasible nodes that is enough (`numFeasibleNodesToFind`).

    A percentage of None means all, 0 adaptive. Values above 100 count as 100, negative ones as 0;
    below 100 nodes all are looked at.
    """
    if percentage is None or nodes < MIN_NODES_TO_FIND:
        return nodes
    if percentage <= 0:
        percentage = max(5, 50 - nodes // 125)
    return max(MIN_NODES_TO_FIND, nodes * min(percentage, 100) // 100)


class FilterPhase:
    """Finds the feasible nodes for one pod after the other, and diagnoses where there are none."""

    def __init__(
        self,
        snapshot: Snapshot,
        nominations: Nominations,
        plugins: PluginsByPoint,
        cache: ResultCache,
        metrics_recorder: MetricsRecorder,
        sampling: NodeSampling | None,
        *,
        check_all_filters: bool,
        extenders_choose: bool,
    ) -> None:
        """`sampling`: None where every node is looked at.

        `extenders_choose`: extenders may refuse the node nominated to a pod, and then the others
        are wanted after all.
        """
        self._snapshot = snapshot
        self._nominations = nominations
        self._pre_filters = PointRunner(PRE_FILTER, plugins, metrics_recorder)
        self.filters = RowFilters(plugins, nominations, metrics_recorder)
        self._cache = cache
        self._sampling = sampling
        self._check_all = check_all_filters
        self._extenders_choose = extenders_choose
        having = {plugin.name for plugin, _ in self._pre_filters.calls}
        self._without_pre_filter = [
            plugin.name
            for plugin, _ in self.filters.runner.calls
            if getattr(plugin, "needs_pre_filter", False) and plugin.name not in having
        ]

    def find_feasible(
        self, pod: PodInfo, state: CycleState | None = None, *, sample: bool = True
    ) -> Feasibility:
        """Every row the pod fits on; with `sample`, as many as a scheduling cycle looks for.

        A cycle looks at no other node where the one nominated to the pod takes it.

        Raises:
            PluginFailure: a plugin raised, or is without the PreFilter that it needs.
        """
        state = state or CycleState()
        if len(pod.amounts.requests) > _FEW_RESOURCES:
            self._snapshot.make_rows(pod.amounts.requests)
        found = Feasibility(state, self._snapshot.alive)
        everything = NodeView(self._snapshot)
        with self._pre_filters.timed(state) as timing:
            self._pre_filter(pod, found, everything)
            timing.code, timing.skipped = found.pre_filter.code, state.skipped_filters
            if not found.pre_filter.ok:
                found.fits = np.zeros_like(found.fits)
                return found
            for name in self._without_pre_filter:
                # As kube-scheduler's plugins fail, which then have no state to read.
                message = f'reading "PreFilter{name}" from cycleState: not found'
                raise PluginFailure(name, self.filters.runner.label, message)
            timing.go_on_with(self.filters.runner.label)
            nominated_first = sample and not self._extenders_choose
            if not (nominated_first and self._evaluate_nominated_node(pod, found)):
                self._filter(pod, found)
                if sample and self._sampling is not None:
                    self._sampling.narrow(pod, found)
            timing.code, timing.skipped = Code.SUCCESS, state.skipped_filters
        return found

    def look_beyond_nominated(self, found: Feasibility) -> None:
        """Take every other row the pod fits on, too: an extender refuses the nominated one."""
        if self._sampling is not None:
            self._sampling.look_beyond_nominated(found)

    def diagnose(self, found: Feasibility, pod: PodInfo) -> Diagnosis:
        """Say of each row, filter by filter in the profile's order, why it refuses the pod."""
        rows, numbers = self._snapshot.rows
        if found.state.among is not None:
            numbers = numbers[found.state.among[numbers]]
            rows = numbers.tolist()
        if not found.pre_filter.ok:
            return Diagnosis.of_pre_filter(rows, found.pre_filter)
        statuses = self._statuses(found, pod, numbers)
        return Diagnosis.of_filters(rows, numbers, statuses, found.restricted_by)

    # --- PreFilter ------------------------------------------------------------------------------

    def _pre_filter(self, pod: PodInfo, found: Feasibility, everything: NodeView) -> None:
        """Every PreFilter looks at the pod; no filter has run yet."""
        point, state = self._pre_filters, found.state
        for plugin, pre_filter in point.measured_calls if state.sampled else point.calls:
            try:
                result = pre_filter(state, pod, everything)
            except Exception as failure:
                raise point.failure(plugin, failure) from failure
            code = result.status.code
            if code is Code.SKIP:
                state.skipped_filters.add(plugin.name)
            elif code is not Code.SUCCESS:
                found.pre_filter = point.named(plugin, result.status)
                if code is not Code.UNSCHEDULABLE:
                    found.lift_restriction()
                    break
                # Preemption may help, and then needs the state of every PreFilter.
            elif result.node_names is not None:
                found.restrict(plugin.name, result.node_names)
                if not found.node_names:
                    break

    # --- Filter ---------------------------------------------------------------------------------

    def _evaluate_nominated_node(self, pod: PodInfo, found: Feasibility) -> bool:
        """Whether the node nominated to the pod takes it; then it is the only one that counts."""
        row = self._snapshot.row_of.get(pod.details.nominated_node_name)
        if row is None or (found.node_names and pod.nominated_node_name not in found.node_names):
            return False
        if found.state.among is not None and not found.state.among[row]:
            return False
        rows = np.array([row], dtype=np.intp)
        nodes = NodeView(self._snapshot, rows)
        if not self.filters.run_with_nominated_pods(found.state, pod, nodes).fits[0]:
            return False
        found.keep(rows, evaluated=1)
        return True

    def _filter(self, pod: PodInfo, found: Feasibility) -> None:
        """Write into `found` the rows that every filter passes, nominated pods counted."""
        snapshot = self._snapshot
        candidates = None if found.node_names is None else found.candidate_rows(snapshot)
        among = found.state.among
        if among is not None:
            candidates = among if candidates is None else candidates & among
        nominated = bool(self._nominations.by_node)
        cached = self._cached_statuses(found, pod) if nominated else None
        if cached is not None:
            found.fits = cached.fits & snapshot.alive
            if among is not None:
                found.fits &= among
        else:
            found.fits = self._fitting(found.state, pod, candidates)
            if nominated:
                self._filter_beside_nominees(found, pod)
        found.evaluated = snapshot.node_count if candidates is None else int(candidates.sum())

    def _fitting(self, state: CycleState, pod: PodInfo, candidates: Mask | None) -> Mask:
        """(N,) bool, rows where every filter passes, nominated pods not counted."""
        snapshot, filters = self._snapshot, self.filters
        if candidates is not None and int(candidates.sum()) * 4 < snapshot.node_count:
            # A pod for a few named nodes (a DaemonSet's): columns of all rows would be wasted.
            rows = np.flatnonzero(candidates)
            fits: Mask = np.zeros(snapshot.size, np.bool_)
            verdicts = filters.run(state, pod, NodeView(snapshot, rows))
            for call, result in zip(filters.active(state), verdicts.results, strict=True):
                if filters.is_costly(call):
                    note_error(state, call[0].name, result)
            fits[rows] = verdicts.fits
            return fits
        everywhere, others = self._kept(state, pod)
        fits = everywhere & snapshot.alive
        if candidates is not None:
            fits &= candidates
        everything = NodeView(snapshot)
        for call in others:
            if not filters.is_costly(call):
                fits &= filters.answer(call, state, pod, everything).codes == 0
        for call in others:
            if filters.is_costly(call) and fits.any():
                rows = np.flatnonzero(fits)
                result = filters.answer(call, state, pod, NodeView(snapshot, rows))
                fits[rows] = result.codes == 0
                note_error(state, call[0].name, result)
        return fits

    def _kept(self, state: CycleState, pod: PodInfo) -> tuple[Mask, list[FilterCall]]:
        """((N,) rows that the filters with cached columns pass, the filters that have none)."""
        filters = self.filters
        cached, others = filters.split_by_reuse(state, pod)
        if not cached:
            return self._snapshot.alive, others
        plugins = [call[0] for call in cached]
        everywhere = self._cache.fits(
            pod, plugins, lambda index, nodes: filters.codes(cached[index], state, pod, nodes)
        )
        if filters.isolated and self._contradicted(cached, state, pod):
            return self._kept(state, pod)
        return everywhere, others

    def _contradicted(self, cached: Sequence[FilterCall], state: CycleState, pod: PodInfo) -> bool:
        """Ask each isolated filter about one row anew; whether it says other than what was kept.

        Such a plugin is distrusted from then on. Built-in ones are held to their keys by tests.
        """
        snapshot, wrong = self._snapshot, False
        columns = self._cache.columns(pod.spec, pod.uid)
        if not columns.kept:
            return False  # each was asked about every row just now
        for call in cached:
            plugin = call[0]
            if isinstance(plugin, IsolatedPlugin):
                values = columns.filters[plugin.name].values
                row = self._cache.row_to_ask(values == 0)
                if row is not None:
                    view = NodeView(snapshot, np.array([row], np.intp))
                    if self.filters.codes(call, state, pod, view)[0] != values[row]:
                        name = snapshot.node_at(row).name
                        plugin.distrust(self.filters.runner.label, name, "filter_key")
                        wrong = True
        if wrong:
            self._cache.clear()
        return wrong

    def _filter_beside_nominees(self, found: Feasibility, pod: PodInfo) -> None:
        """Filter the feasible rows to which other pods are nominated once more, with these pods."""
        row_of = self._snapshot.row_of
        nominated = (row_of.get(name) for name in self._nominations.by_node)
        rows = [row for row in nominated if row is not None and found.fits[row]]
        if rows:
            nodes = NodeView(self._snapshot, np.array(rows, dtype=np.intp))
            found.fits[rows] = self.filters.run_with_nominated_pods(found.state, pod, nodes).fits

    # --- cached columns -------------------------------------------------------------------------

    def _cached_statuses(self, found: Feasibility, pod: PodInfo) -> CachedStatuses | None:
        """Every row's status, up to date; None where some filter has to be asked every time."""
        calls, others = self.filters.split_by_reuse(found.state, pod)
        by_deadline = self._nominations.depends_on_deadline(pod)
        if others or found.node_names is not None or by_deadline:
            return None
        filters = [plugin for plugin, _ in calls]
        cached = self._cache.statuses(pod, filters, self._nominations)
        cached.refresh(pod, lambda nodes: self._asked(found.state, pod, nodes))
        if self.filters.isolated and self._status_contradicted(cached, found.state, pod, filters):
            return None
        return cached

    def _status_contradicted(
        self,
        cached: CachedStatuses,
        state: CycleState,
        pod: PodInfo,
        filters: Sequence[FilterPlugin],
    ) -> bool:
        """`_contradicted` of what is kept of all filters together, nominated pods counted."""
        row = self._cache.row_to_ask(cached.fits)
        if row is None:
            return False
        rows = np.array([row], np.intp)
        kept, asked = (
            statuses.different[statuses.codes[0]]
            for statuses in (
                cached.at(rows),
                self._asked(state, pod, NodeView(self._snapshot, rows)),
            )
        )
        if kept == asked:
            return False
        wrong = [
            plugin
            for plugin in filters
            if isinstance(plugin, IsolatedPlugin) and plugin.name in {kept.plugin, asked.plugin}
        ]
        for plugin in wrong:
            name = self._snapshot.node_at(row).name
            plugin.distrust(self.filters.runner.label, name, "filter_key")
        if wrong:
            self._cache.clear()
        return bool(wrong)

    # --- diagnosis ------------------------------------------------------------------------------

    def _statuses(self, found: Feasibility, pod: PodInfo, rows: RowColumn) -> StatusColumn:
        """The status of each row; filters are not asked about rows that PreFilter did not name."""
        cached = self._cached_statuses(found, pod)
        if cached is not None:
            return cached.at(rows)
        candidates = found.candidate_rows(self._snapshot)
        if candidates is None:
            return self._asked(found.state, pod, NodeView(self._snapshot, rows))
        named = candidates[rows]
        asked = self._asked(found.state, pod, NodeView(self._snapshot, rows[named]))
        return among_all(asked, named, found.restricted_by)

    def _asked(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> StatusColumn:
        verdicts = self.filters.run_with_nominated_pods(state, pod, nodes)
        return verdicts.statuses(every_reason=self._check_all)


def note_error(state: CycleState, plugin: str, result: FilterResult) -> None:
    """Note the first status of a filter that is an error: then it is not known what fits."""
    for code in np.unique(result.codes).tolist():
        if code:
            status = result.status(code)
            if not status.rejected:
                state.broken_filter = state.broken_filter or replace(status, plugin=plugin)
                return


class RowFilters(FilterRunner):
    """A profile's Filter plugins, and the PreFilter plugins that follow pods on nodes."""

    def __init__(
        self, plugins: PluginsByPoint, nominations: Nominations, metrics_recorder: MetricsRecorder
    ) -> None:
        self.runner = PointRunner(FILTER, plugins, metrics_recorder)
        self._named = [(call[0].name, call) for call in self.runner.calls]
        self._extensions = PRE_FILTER_EXTENSIONS.among(PRE_FILTER.among(plugins))
        self._nominations = nominations
        self._costly = {
            plugin.name
            for plugin, _ in self.runner.calls
            if getattr(plugin, "costly_filter", False)
        }
        self._keyed_by_spec = {
            plugin.name
            for plugin, _ in self.runner.calls
            if plugin.filter_reuse is not Reuse.NEVER and is_keyed_by_spec(plugin, "filter_key")
        }
        self.isolated = any(isinstance(plugin, IsolatedPlugin) for plugin, _ in self.runner.calls)
        """Whether there is a filter whose kept answers are compared with new ones."""

    def is_costly(self, call: FilterCall) -> bool:
        """Whether a filter is asked about the rows alone that every other one passes."""
        return call[0].name in self._costly

    def active(self, state: CycleState) -> list[FilterCall]:
        """The filters that no PreFilter skipped, in order."""
        skipped = state.skipped_filters
        return [call for name, call in self._named if name not in skipped]

    def each(
        self, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> Iterator[tuple[FilterPlugin, FilterResult]]:
        """Every active filter on the rows of a view, in order; overlays count."""
        for call in self.active(state):
            yield call[0], self.answer(call, state, pod, nodes)

    def answer(
        self, call: FilterCall, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> FilterResult:
        """One filter's result for the rows of a view.

        Raises:
            PluginFailure: it raised, or its answer is not about these rows.
        """
        plugin, filter_rows = call
        result = self.runner.ask(plugin, filter_rows, state, pod, nodes)
        if result.codes.shape != (nodes.size,):
            message = f"{result.codes.shape} verdicts for {len(nodes)} nodes"
            raise PluginFailure(plugin.name, self.runner.label, message)
        return result

    def codes(
        self, call: FilterCall, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> VerdictColumn:
        """(n,) int32, the codes of one filter's `answer`."""
        return self.answer(call, state, pod, nodes).codes

    def run(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Verdicts:
        """Each row's first rejection; overlays count, nominations do not."""
        rejected_by = np.full(len(nodes), FITS, np.int16)
        results = []
        for index, (_, result) in enumerate(self.each(state, pod, nodes)):
            results.append(result)
            rejected_by[(result.codes != 0) & (rejected_by < 0)] = index
        return Verdicts(rejected_by, results)

    @override
    def run_with_nominated_pods(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Verdicts:
        """Rows that hold nominations must pass with and without them.

        `RunFilterPluginsWithNominatedPods`: only nominated pods of equal or higher priority count,
        a lower one would be preempted anyway.
        """
        plain = self.run(state, pod, nodes)
        nominated = self._nominated_pods(pod, nodes)
        if not nominated:
            return plain
        positions = np.unique(np.array([position for position, _ in nominated], dtype=np.intp))
        place = {int(position): index for index, position in enumerate(positions)}
        narrow = nodes.narrowed(positions)
        if narrow.overlay is None:
            narrow = narrow.with_overlay()
        added = [(place[position], other) for position, other in nominated]
        self.add_pods(state, pod, narrow, added)
        with_nominated = self.run(state, pod, narrow)
        if self._extensions:
            # The view is thrown away; only plugins with state of their own must take it back.
            self.remove_pods(state, pod, narrow, added)
        return merge_passes(with_nominated, positions, plain)

    @override
    def add_pods(self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: PlacedPods) -> None:
        _overlay(nodes).change_pods(pods, 1)
        for plugin in self._extensions:
            _must_be_ok(plugin.add_pods(state, pod, nodes, pods), "AddPod")

    @override
    def remove_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: PlacedPods
    ) -> None:
        _overlay(nodes).change_pods(pods, -1)
        for plugin in self._extensions:
            _must_be_ok(plugin.remove_pods(state, pod, nodes, pods), "RemovePod")

    @override
    def is_row_local(self, state: CycleState, pod: PodInfo) -> bool:
        return not self.split_by_reuse(state, pod)[1]

    def split_by_reuse(
        self, state: CycleState, pod: PodInfo
    ) -> tuple[list[FilterCall], list[FilterCall]]:
        """(active filters whose columns are cached for pod.spec, those that run in every cycle)."""
        cached: list[FilterCall] = []
        others: list[FilterCall] = []
        spec, skipped, keyed_by_spec = pod.spec, state.skipped_filters, self._keyed_by_spec
        for name, call in self._named:
            if name in skipped:
                continue
            plugin = call[0]
            reusable = name in keyed_by_spec or (
                plugin.filter_reuse is not Reuse.NEVER and plugin.filter_key(state, pod) is spec
            )
            (cached if reusable else others).append(call)
        return cached, others

    def _nominated_pods(self, pod: PodInfo, nodes: NodeView) -> list[tuple[int, PodInfo]]:
        """(position, nominated pod) for the pods that count against this one.

        `Nominator.against` says which: of equal or higher priority, but for what ends in time.
        """
        nominations, snapshot = self._nominations, nodes.snapshot
        named = nominations.by_node
        if not named:
            return []
        rows = nodes.row_numbers().tolist()
        if len(rows) < len(named):
            names = ((position, snapshot.nodes[row]) for position, row in enumerate(rows))
            held = [(position, node.name) for position, node in names if node is not None]
        else:
            place = {row: position for position, row in enumerate(rows)}
            row_of = snapshot.row_of
            held = [(place[row_of[name]], name) for name in named if row_of.get(name) in place]
        return [
            (position, other)
            for position, name in held
            if name in named
            for other in nominations.against(pod, name)
        ]


def _overlay(nodes: NodeView) -> NodeOverlay:
    if nodes.overlay is None:
        message = "pods can be added and removed only in a view with an overlay"
        raise ValueError(message)
    return nodes.overlay


def _must_be_ok(status: Status, point: str) -> None:
    if not status.ok:
        raise PluginFailure(status.plugin or "unnamed", point, status.message)


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
        cache: ResultCache,
        metrics_recorder: MetricsRecorder,
    ) -> None:
        self._pre_scores = PointRunner(PRE_SCORE, plugins, metrics_recorder)
        self._scores = PointRunner(SCORE, plugins, metrics_recorder)
        self._cache = cache
        self._shared: dict[str, tuple[Hashable, CachedColumn[np.int64], PluginScore]] = {}
        """By plugin, what all rows had in common last time: (key, column, contribution)."""
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

    def forget(self) -> None:
        """Free what is kept of earlier scores."""
        self._shared.clear()

    def prioritize(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Scores:
        """Total scores of feasible rows."""
        skipped = state.skipped_scores
        with self._pre_scores.timed(state) as timing:
            self._pre_score(state, pod, nodes)
            timing.code, timing.skipped = Code.SUCCESS, skipped
            if not self._scorers:
                return Scores(nodes, np.ones(nodes.size, np.int64), ())
            timing.go_on_with(self._scores.label)
            # Of a few rows among many no columns are made.
            few = not nodes.whole and nodes.size * 4 < nodes.snapshot.size
            of_spec = None if few else self._cache.columns(pod.spec, pod.uid)
            by_plugin = [
                self._score(scorer, state, pod, nodes, of_spec)
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
        self,
        scorer: _Scorer,
        state: CycleState,
        pod: PodInfo,
        nodes: NodeView,
        of_spec: SpecColumns | None,
    ) -> PluginScore:
        """`of_spec` are the columns of the pod's spec; None: nothing is looked up or kept."""
        plugin = scorer.plugin
        columns: SpecColumns | None = None
        key: Hashable | None = None
        if plugin.score_reuse is not Reuse.NEVER and of_spec is not None:
            key = pod.spec if scorer.keyed_by_spec else plugin.score_key(state, pod)
            known = self._shared.get(plugin.name)
            if known is not None and known[0] is key and _still_shared(known[1], known[2], nodes):
                return known[2]
            if key is not None:
                columns = of_spec if key is pod.spec else self._cache.columns(key, pod.uid)
        if columns is None or not columns.kept:
            raw = self._answer(scorer, state, pod, nodes)
            return self._normalized(scorer, state, pod, raw)
        cached = self._cache.scores(
            columns, plugin, lambda nodes: self._answer(scorer, state, pod, nodes)
        )
        if not scorer.trusted and self._contradicted(
            plugin, scorer, cached.values, state, pod, nodes
        ):
            raw = self._answer(scorer, state, pod, nodes)
            return self._normalized(scorer, state, pod, raw)
        uniform = cached.uniform
        if uniform is None or not scorer.trusted:
            return self._normalized(scorer, state, pod, cached.values[nodes.rows])
        if cached.normalized is None:
            # Equal scores stay equal: one of them stands for all.
            one = self._normalized(scorer, state, pod, cached.values[:1])
            cached.normalized = int(one.normalized[0])
        score = PluginScore(plugin.name, uniform, cached.normalized, scorer.weight, nodes.size)
        self._shared[plugin.name] = key, cached, score
        return score

    def _contradicted(
        self,
        plugin: ScorePlugin,
        scorer: _Scorer,
        kept: IntColumn,
        state: CycleState,
        pod: PodInfo,
        nodes: NodeView,
    ) -> bool:
        """Ask about one row anew; whether the score is another one than what was kept."""
        if not isinstance(plugin, IsolatedPlugin):
            return False
        among: Mask = np.zeros(nodes.snapshot.size, np.bool_)
        among[nodes.rows] = True
        row = self._cache.row_to_ask(among)
        if row is None or not among[row]:
            return False
        view = NodeView(nodes.snapshot, np.array([row], np.intp))
        if int(self._answer(scorer, state, pod, view)[0]) == int(kept[row]):
            return False
        plugin.distrust(self._scores.label, nodes.snapshot.node_at(row).name, "score_key")
        self._cache.clear()
        return True

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


def _still_shared(column: CachedColumn[np.int64], score: PluginScore, nodes: NodeView) -> bool:
    """Whether a column that has not changed gives all rows of a view this one score."""
    return (
        column.position == column.changes.position
        and not column.rewritten
        and column.uniform == score.answered
        and column.normalized == score.scored
        and nodes.size == score.size
    )


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


class BindingPoints:
    """The binding half of a profile's plugins, in calling order."""

    def __init__(
        self, plugins: PluginsByPoint, metrics_recorder: MetricsRecorder = UNMEASURED
    ) -> None:
        self._reserve = PointRunner(RESERVE, plugins, metrics_recorder)
        self._unreserve = PointRunner(UNRESERVE, plugins, metrics_recorder)
        self._permit = PointRunner(PERMIT, plugins, metrics_recorder)
        self._pre_flight = PointRunner(PRE_BIND_PRE_FLIGHT, plugins, metrics_recorder)
        self._pre_bind = PointRunner(PRE_BIND, plugins, metrics_recorder)
        self._bind = PointRunner(BIND, plugins, metrics_recorder)
        self._post_bind = PointRunner(POST_BIND, plugins, metrics_recorder)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Reserve; the first that does not succeed ends it.

        Raises:
            PluginFailure: a plugin raised.
        """
        point = self._reserve
        with point.timed(state) as timing:
            for plugin, call in point.calls:
                status = point.ask(plugin, call, state, pod, node_name)
                if not status.ok:
                    return timing.noted(point.named(plugin, status))
            return timing.noted(OK)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> list[PluginFailure]:
        """Run Unreserve of every plugin, last first; returns what went wrong, having gone on."""
        failures = []
        with self._unreserve.timed(state) as timing:
            for plugin, unreserve in reversed(self._unreserve.calls):
                try:
                    unreserve(state, pod, node_name)
                except Exception as failure:  # noqa: BLE001 what others reserved must be undone too
                    failures.append(self._unreserve.failure(plugin, failure))
            timing.code = Code.SUCCESS
        return failures

    async def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status, Mapping[str, float]]:
        """Run Permit: (OK, Wait or a rejection; seconds each waiting plugin grants).

        Raises:
            PluginFailure: a plugin raised.
        """
        waits: dict[str, float] = {}
        point = self._permit
        if not point.calls:
            state.point_runs.append(point.empty_run)
            return OK, waits
        with point.timed(state) as timing:
            for plugin, call in point.calls:
                result = await point.wait(plugin, call, state, pod, node_name)
                if result.status.code is Code.WAIT:
                    waits[plugin.name] = min(result.timeout_seconds, MAX_PERMIT_TIMEOUT_SECONDS)
                elif not result.status.ok:
                    return timing.noted(point.named(plugin, result.status)), {}
            return timing.noted(Status(Code.WAIT) if waits else OK), waits

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Success if any PreBind has work to do, Skip if none; a plugin that skips is left out.

        Raises:
            PluginFailure: a plugin raised.
        """
        any_has_work = False
        point = self._pre_flight
        with point.timed(state) as timing:
            for plugin, call in point.calls:
                status = point.ask(plugin, call, state, pod, node_name)
                if status.skip:
                    state.skipped_pre_binds.add(plugin.name)
                elif status.ok:
                    any_has_work = True
                else:
                    # A rejection is not foreseen here: kube-scheduler takes it for an error, too.
                    return timing.noted(point.error(plugin, status))
            return timing.noted(OK if any_has_work else SKIP)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run PreBind of those plugins that have work.

        Raises:
            PluginFailure: a plugin raised.
        """
        point, skipped = self._pre_bind, state.skipped_pre_binds
        calls = [each for each in point.calls if each[0].name not in skipped]
        if not calls:
            state.point_runs.append(point.empty_run)
            return OK
        with point.timed(state) as timing:
            for plugin, call in calls:
                status = await point.wait(plugin, call, state, pod, node_name)
                if not status.ok:
                    return timing.noted(point.named(plugin, status))
            return timing.noted(OK)

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Bind: the first plugin that does not skip decides.

        Raises:
            PluginFailure: a plugin raised.
        """
        point = self._bind
        with point.timed(state) as timing:
            for plugin, call in point.calls:
                status = await point.wait(plugin, call, state, pod, node_name)
                if not status.skip:
                    return timing.noted(OK if status.ok else point.named(plugin, status))
            return timing.noted(Status(Code.ERROR, ("no Bind plugin took the pod",)))

    async def post_bind(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> list[PluginFailure]:
        """Run PostBind of every plugin; returns what went wrong, having gone on."""
        failures: list[PluginFailure] = []
        point = self._post_bind
        if not point.calls:
            state.point_runs.append(point.empty_run)
            return failures
        with point.timed(state) as timing:
            for plugin, post_bind in point.calls:
                try:
                    await post_bind(state, pod, node_name)
                except Exception as failure:  # noqa: BLE001 the others want to run, too
                    failures.append(point.failure(plugin, failure))
            timing.code = Code.SUCCESS
        return failures


class Timing:
    """Runs of extension points, each noted in the attempt when it ends.

    It ends when the context is left, or when the next one begins without anything between them: one
    reading of the clock is the end of one and the beginning of the other.
    """

    __slots__ = ("_label", "_now", "_started", "_state", "code", "skipped")

    def __init__(self, metrics_recorder: MetricsRecorder, label: str, state: CycleState) -> None:
        self._now = metrics_recorder.started
        self._label = label
        self._state = state
        self.code = Code.ERROR
        """How the run ended; Error until something else is noted."""
        self.skipped: AbstractSet[str] | None = None
        """Set at the end of a run whose plugins count as evaluated, but for these."""

    def __enter__(self) -> Self:
        self._started = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        seconds = self._now() - self._started
        self._state.point_runs.append(PointRun(self._label, self.code, seconds, self.skipped))

    def go_on_with(self, label: str) -> None:
        """The run has ended, and that of another point begins."""
        started, self._started = self._started, self._now()
        seconds = self._started - started
        self._state.point_runs.append(PointRun(self._label, self.code, seconds, self.skipped))
        self._label, self.code, self.skipped = label, Code.ERROR, None

    def noted(self, status: Status) -> Status:
        """The same status, with which the run ended."""
        self.code = status.code
        return status


class PointRunner(Generic[Role, Answer]):
    """The plugins of one extension point in calling order, each with its method.

    `subject` is what the point looks at beside the pod: nodes, a node's name, a diagnosis.
    """

    def __init__(
        self, point: Point[Role, Answer], plugins: PluginsByPoint, metrics_recorder: MetricsRecorder
    ) -> None:
        self.label = point.label
        self.calls: Sequence[tuple[Role, Call[Answer]]] = [
            (plugin, point.method_of(plugin)) for plugin in point.among(plugins)
        ]
        self.timed: Callable[[CycleState], Timing] = partial(Timing, metrics_recorder, point.label)
        """The context in which the point runs."""
        self.empty_run = PointRun(point.label, Code.SUCCESS, 0.0, None)
        """Noted where no plugin has anything to do, which takes no time."""
        self._metrics_recorder = metrics_recorder
        self.measured_calls: Sequence[tuple[Role, Call[Answer]]] = [
            (plugin, partial(self._measure, plugin, call)) for plugin, call in self.calls
        ]
        """The same for sampled attempts, at points that ask many: no frame more around each.

        The caller turns what a plugin raises into a `failure`.
        """

    def ask(
        self, plugin: Role, call: Call[Answer], state: CycleState, pod: PodInfo, subject: object
    ) -> Answer:
        """One plugin's answer.

        Raises:
            PluginFailure: the plugin raised.
        """
        try:
            if state.sampled:
                return self._measure(plugin, call, state, pod, subject)
            return call(state, pod, subject)
        except Exception as failure:
            raise self.failure(plugin, failure) from failure

    async def wait(
        self,
        plugin: Role,
        call: Call[Awaitable[Awaited]],
        state: CycleState,
        pod: PodInfo,
        subject: object,
    ) -> Awaited:
        """One plugin's answer, at a point that may wait.

        Raises:
            PluginFailure: the plugin raised.
        """
        started = self._metrics_recorder.started() if state.sampled else 0.0
        try:
            answer = await call(state, pod, subject)
        except Exception as failure:
            raise self.failure(plugin, failure) from failure
        if state.sampled:
            self._metrics_recorder.plugin(plugin.name, self.label, _code_of(answer), started)
        return answer

    def failure(self, plugin: Plugin, failure: Exception) -> PluginFailure:
        """Name the plugin in what it raised; a failure that names another plugin already stays."""
        if isinstance(failure, PluginFailure):
            return failure
        return PluginFailure(plugin.name, self.label, f"{type(failure).__name__}: {failure}")

    def named(self, plugin: Plugin, status: Status) -> Status:
        """A rejection with its plugin; an error in kube-scheduler's words, which name it, too."""
        if status.rejected:
            return Status(status.code, status.reasons, status.plugin or plugin.name)
        return self.error(plugin, status)

    def error(self, plugin: Plugin, status: Status) -> Status:
        """An error that names plugin and point, whatever the status was."""
        reason = f'running {self.label} plugin "{plugin.name}": {status.message}'
        return Status(Code.ERROR, (reason,), plugin.name)

    def _measure(
        self, plugin: Role, call: Call[Answer], state: CycleState, pod: PodInfo, subject: object
    ) -> Answer:
        started = self._metrics_recorder.started()
        answer = call(state, pod, subject)
        self._metrics_recorder.plugin(plugin.name, self.label, _code_of(answer), started)
        return answer


def _code_of(answer: object) -> Code:
    """The status code of an answer; arrays of verdicts and scores count as Success."""
    status = getattr(answer, "status", answer)
    code = getattr(status, "code", Code.SUCCESS)
    return code if isinstance(code, Code) else Code.SUCCESS
