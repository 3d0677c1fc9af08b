"""PreFilter and Filter over all rows: which nodes take a pod, and why the others do not.

One per framework; the scheduling cycle, `decide`, explain and preemption drive it. Invariant: the
rows found are those that every filter passes on its own, computed for all rows at once or taken
from a cached column, with the same result.
"""

from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from stellwerk.framework.diagnosis import Diagnosis, among_all
from stellwerk.framework.extension_points import PRE_FILTER, PluginsByPoint
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.point_runner import PointRunner
from stellwerk.framework.reuse import CachedStatuses, ColumnCache
from stellwerk.framework.row_filters import RowFilters
from stellwerk.framework.sampling import NodeSampling
from stellwerk.framework.services import Nominations
from stellwerk.framework.stopwatch import Stopwatch
from stellwerk.framework.types import Code, CycleState, Feasibility, FilterResult, StatusColumn
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Mask, RowColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot

_FEW_RESOURCES: Final = 4
"""A pod that requests more has their rows made together, rather than one at its first use."""


class FilterPhase:
    """Finds the feasible nodes for one pod after the other, and diagnoses where there are none."""

    def __init__(
        self,
        snapshot: Snapshot,
        nominations: Nominations,
        plugins: PluginsByPoint,
        cache: ColumnCache,
        stopwatch: Stopwatch,
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
        self._pre_filters = PointRunner(PRE_FILTER, plugins, stopwatch)
        self.filters = RowFilters(plugins, nominations, stopwatch)
        self._cache = cache
        self._sampling = sampling
        self._check_all = check_all_filters
        self._extenders_choose = extenders_choose
        prepared = {plugin.name for plugin, _ in self._pre_filters.calls}
        self._unprepared = [
            plugin.name
            for plugin, _ in self.filters.runner.calls
            if getattr(plugin, "needs_pre_filter", False) and plugin.name not in prepared
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
            for name in self._unprepared:
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
        """Why no row takes the pod, node by node, filter by filter in the profile's order."""
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
                    break
                # Preemption may help, and then needs the state of every PreFilter.
            elif result.node_names is not None:
                found.restrict(plugin.name, result.node_names)
                if not found.node_names:
                    break

    # --- Filter ---------------------------------------------------------------------------------

    def _evaluate_nominated_node(self, pod: PodInfo, found: Feasibility) -> bool:
        """Whether the node nominated to the pod takes it; then it is the only one that counts."""
        row = self._snapshot.row_of.get(pod.nominated_node_name)
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
                self._filter_nominated(found, pod)
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
        cached, others = filters.split_by_reuse(state, pod)
        columns = [(call[0], partial(filters.codes, call, state, pod)) for call in cached]
        everywhere = self._cache.fits(pod.spec, columns) if columns else snapshot.alive
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

    def _filter_nominated(self, found: Feasibility, pod: PodInfo) -> None:
        """Filter the feasible rows that hold nominations once more, with the nominated pods."""
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
        if others or found.node_names is not None:
            return None
        filters = [plugin for plugin, _ in calls]
        cached = self._cache.statuses(pod.spec, filters, self._nominations)
        cached.refresh(pod, lambda nodes: self._asked(found.state, pod, nodes))
        return cached

    # --- diagnosis ------------------------------------------------------------------------------

    def _statuses(self, found: Feasibility, pod: PodInfo, rows: RowColumn) -> StatusColumn:
        """What the filters say of each row; those that PreFilter did not name are not asked."""
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
