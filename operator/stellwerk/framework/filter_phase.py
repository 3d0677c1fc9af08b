"""The filter phase: finds the nodes that can take a pod, and says why the others cannot.

A scheduling attempt calls `find_feasible`, and `diagnose` if no node is left; explanations and
what-if questions do the same. PreFilter runs first, then the filters judge the rows in one of three
ways. All three give the same result, and tests compare them (tests/properties/framework):

1. Cached statuses (`_cached_statuses`): while pods are nominated, and if every filter's answer
   depends on the pod's spec and the row alone. Only rows that changed are judged again, with
   the nominated pods on them.
2. Few rows (`_filter_few_rows`): if PreFilter, or the placement of a group, leaves less than a
   quarter of the nodes, every filter runs on these rows alone, and nothing is cached.
3. Cached columns (`_filter_by_columns`): in all other cases. A filter's verdicts for all rows are
   kept for each spec, and computed again only in rows that changed.

Invariant: a cached verdict is the one that its filter would give now. Built-in plugins are held to
that by tests; isolated plugins are checked at run time, one row at a time, and lose their cache if
they are wrong (`_distrust_wrong_columns`, `_distrust_wrong_statuses`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from stellwerk.framework.diagnosis import Diagnosis, among_all
from stellwerk.framework.extension_points import PRE_FILTER, PluginsByPoint
from stellwerk.framework.interface import FilterPlugin
from stellwerk.framework.metrics_recorder import MetricsRecorder
from stellwerk.framework.node_sampling import NodeSampling
from stellwerk.framework.plugin_isolation import IsolatedPlugin
from stellwerk.framework.point_runner import PointRunner
from stellwerk.framework.result_cache import MIN_COLUMN_SHARE, CachedStatuses, ResultCache
from stellwerk.framework.row_filters import FilterCall, RowFilters
from stellwerk.framework.services import Nominations
from stellwerk.framework.types import (
    Code,
    CycleState,
    Feasibility,
    FilterResult,
    PluginFailure,
    StatusColumn,
)
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Mask, RowColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot

MAX_RESOURCES_MADE_ONE_BY_ONE: Final = 4
"""Requested resources of a pod whose snapshot rows are made one by one, at their first use. A pod
that requests more gets them all in one pass over the nodes, since each row alone takes a pass."""


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
        """`sampling`: None if the profile considers every node.

        `extenders_choose`: extenders may refuse the node nominated to a pod, so that the other
        nodes have to be found in any case.
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
        """Find every row the pod fits on; with `sample`, as many as a scheduling cycle looks for.

        A cycle looks at no other node if the node nominated to the pod takes it.

        Raises:
            PluginFailure: a plugin raised, or is without the PreFilter that it needs.
        """
        state = state or CycleState()
        if len(pod.amounts.requests) > MAX_RESOURCES_MADE_ONE_BY_ONE:
            self._snapshot.make_rows(pod.amounts.requests)
        found = Feasibility(state, NodeView(self._snapshot), self._snapshot.alive)
        with self._pre_filters.timed(state) as timing:
            self._pre_filter(pod, found)
            timing.code, timing.skipped = found.pre_filter.code, state.skipped_filters
            if not found.pre_filter.ok:
                found.fits = np.zeros_like(found.fits)
                return found
            for name in self._without_pre_filter:
                # kube-scheduler's plugins fail with these words: they find no state to read.
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
        """Add every other row the pod fits on, because an extender refuses the nominated one."""
        if self._sampling is not None:
            self._sampling.look_beyond_nominated(found)

    def diagnose(self, found: Feasibility, pod: PodInfo) -> Diagnosis:
        """Say for each row, filter by filter in the profile's order, why it refuses the pod."""
        rows, numbers = self._snapshot.rows
        if found.state.among is not None:
            numbers = numbers[found.state.among[numbers]]
            rows = numbers.tolist()
        if not found.pre_filter.ok:
            return Diagnosis.of_pre_filter(rows, found.pre_filter)
        statuses = self._statuses(found, pod, numbers)
        return Diagnosis.of_filters(rows, numbers, statuses, found.restricted_by)

    # --- PreFilter ------------------------------------------------------------------------------

    def _pre_filter(self, pod: PodInfo, found: Feasibility) -> None:
        """Run every PreFilter: it may reject the pod, skip its own filter, or name nodes."""
        point, state = self._pre_filters, found.state
        for plugin, pre_filter in point.measured_calls if state.sampled else point.calls:
            try:
                result = pre_filter(state, pod, found.everything)
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

    # --- Filter: the nominated node, or all rows in one of the three ways -----------------------

    def _evaluate_nominated_node(self, pod: PodInfo, found: Feasibility) -> bool:
        """Try the node nominated to the pod; if it takes the pod, it is the only one found.

        `evaluateNominatedNode`. A pod that has waited for its victims gets its node without a
        search through all the others.
        """
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
        snapshot, state = self._snapshot, found.state
        candidates = None if found.node_names is None else found.candidate_rows(snapshot)
        among = state.among
        if among is not None:
            candidates = among if candidates is None else candidates & among
        nominations = self._nominations.by_node
        statuses = self._cached_statuses(found, pod) if nominations else None
        if statuses is not None:
            found.fits = statuses.fits & snapshot.alive
            if among is not None:
                found.fits &= among
        else:
            if (
                candidates is not None
                and int(candidates.sum()) < MIN_COLUMN_SHARE * snapshot.node_count
            ):
                found.fits = self._filter_few_rows(state, pod, np.flatnonzero(candidates))
            else:
                found.fits = self._filter_by_columns(found, pod, candidates)
            if nominations:
                # Neither way counts nominated pods. The feasible rows that have any, mostly none or
                # one, are judged once more with them.
                row_of = snapshot.row_of
                nominated = [row_of.get(name) for name in nominations]
                rows = [row for row in nominated if row is not None and found.fits[row]]
                if rows:
                    nodes = NodeView(snapshot, np.array(rows, dtype=np.intp))
                    fits = self.filters.run_with_nominated_pods(state, pod, nodes).fits
                    found.fits[rows] = fits
        found.evaluated = snapshot.node_count if candidates is None else int(candidates.sum())

    def _filter_few_rows(self, state: CycleState, pod: PodInfo, rows: RowColumn) -> Mask:
        """(N,) bool: of these rows, those that every filter passes without nominated pods.

        PreFilter has named the rows, such as the one node of a DaemonSet's pod. Columns of all rows
        would be wasted on them.
        """
        filters = self.filters
        fits: Mask = np.zeros(self._snapshot.size, np.bool_)
        verdicts = filters.run(state, pod, NodeView(self._snapshot, rows))
        for call, result in zip(filters.active(state), verdicts.results, strict=True):
            if filters.is_costly(call):
                _note_error(state, call.name, result)
        fits[rows] = verdicts.fits
        return fits

    def _filter_by_columns(self, found: Feasibility, pod: PodInfo, candidates: Mask | None) -> Mask:
        """(N,) bool, rows that every filter passes without nominated pods, by cached columns.

        The order of filters does not matter here, since only rows that pass all of them are found.
        So the cheap ones go first, and a costly one sees only the rows that are left.
        """
        snapshot, filters, state = self._snapshot, self.filters, found.state
        cached, others = filters.split_by_reuse(state, pod)
        everywhere = snapshot.alive
        if cached:
            everywhere = self._cache.fits(
                pod,
                [call.plugin for call in cached],
                lambda index, nodes: filters.codes(cached[index], state, pod, nodes),
            )
            if filters.isolated and self._distrust_wrong_columns(cached, state, pod):
                # A distrusted filter is no longer among `cached`, so that this comes to an end.
                return self._filter_by_columns(found, pod, candidates)
        fits = everywhere & snapshot.alive
        if candidates is not None:
            fits &= candidates
        for call in others:
            if not filters.is_costly(call):
                fits &= filters.answer(call, state, pod, found.everything).codes == 0
        for call in others:
            if filters.is_costly(call) and fits.any():
                rows = np.flatnonzero(fits)
                result = filters.answer(call, state, pod, NodeView(snapshot, rows))
                fits[rows] = result.codes == 0
                _note_error(state, call.name, result)
        return fits

    # --- statuses: what each row answers, with the nominated pods -------------------------------

    def _cached_statuses(self, found: Feasibility, pod: PodInfo) -> CachedStatuses | None:
        """Return every row's status, up to date; None if it cannot be cached for this pod.

        Without this, each nominated pod would make every attempt judge its row again, and
        `diagnose` would run all filters on all rows for each pod that is rejected.
        """
        calls, others = self.filters.split_by_reuse(found.state, pod)
        by_deadline = self._nominations.depends_on_deadline(pod)
        if others or found.node_names is not None or by_deadline:
            return None
        filters = [call.plugin for call in calls]
        cached = self._cache.statuses(pod, filters, self._nominations)
        cached.refresh(pod, lambda nodes: self._run_for_statuses(found.state, pod, nodes))
        if self.filters.isolated and self._distrust_wrong_statuses(
            cached, found.state, pod, filters
        ):
            return None
        return cached

    def _statuses(self, found: Feasibility, pod: PodInfo, rows: RowColumn) -> StatusColumn:
        """Return the status of each row; filters do not run on rows that PreFilter did not name."""
        cached = self._cached_statuses(found, pod)
        if cached is not None:
            return cached.at(rows)
        candidates = found.candidate_rows(self._snapshot)
        if candidates is None:
            return self._run_for_statuses(found.state, pod, NodeView(self._snapshot, rows))
        named = candidates[rows]
        of_named = self._run_for_statuses(found.state, pod, NodeView(self._snapshot, rows[named]))
        return among_all(of_named, named, found.restricted_by)

    def _run_for_statuses(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> StatusColumn:
        """Run every filter on the rows of a view, and return the status of each row."""
        verdicts = self.filters.run_with_nominated_pods(state, pod, nodes)
        return verdicts.statuses(every_reason=self._check_all)

    # --- isolated filters, whose cached answers are checked -------------------------------------

    def _distrust_wrong_columns(
        self, cached: Sequence[FilterCall], state: CycleState, pod: PodInfo
    ) -> bool:
        """Run each isolated filter on one row, and distrust those that contradict their column.

        Returns whether there was one. Its answers are not cached from then on, and the cache is
        cleared, because other rows of it may be wrong, too.
        """
        snapshot, wrong = self._snapshot, False
        columns = self._cache.columns(pod.spec, pod.uid)
        if not columns.kept:
            return False  # each has answered for every row just now
        for call in cached:
            plugin = call.plugin
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

    def _distrust_wrong_statuses(
        self,
        cached: CachedStatuses,
        state: CycleState,
        pod: PodInfo,
        filters: Sequence[FilterPlugin],
    ) -> bool:
        """Do as `_distrust_wrong_columns` for cached statuses.

        A status names the filter that rejected the row first. If it differs, the isolated filters
        that the old or the new status names are distrusted.
        """
        row = self._cache.row_to_ask(cached.fits)
        if row is None:
            return False
        rows = np.array([row], np.intp)
        kept, new = (
            statuses.different[statuses.codes[0]]
            for statuses in (
                cached.at(rows),
                self._run_for_statuses(state, pod, NodeView(self._snapshot, rows)),
            )
        )
        if kept == new:
            return False
        wrong = [
            plugin
            for plugin in filters
            if isinstance(plugin, IsolatedPlugin) and plugin.name in {kept.plugin, new.plugin}
        ]
        for plugin in wrong:
            name = self._snapshot.node_at(row).name
            plugin.distrust(self.filters.runner.label, name, "filter_key")
        if wrong:
            self._cache.clear()
        return bool(wrong)


def _note_error(state: CycleState, plugin: str, result: FilterResult) -> None:
    """Note the first status of a costly filter that is an error: it ends the attempt.

    With an error it is not known which nodes fit, so none may be chosen.
    """
    for code in np.unique(result.codes).tolist():
        if code:
            status = result.status(code)
            if not status.rejected:
                state.broken_filter = state.broken_filter or replace(status, plugin=plugin)
                return
