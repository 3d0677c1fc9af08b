"""PreFilter and Filter over all rows: which nodes take a pod, and why the others do not.

One per framework; the scheduling cycle, `decide`, explain and preemption drive it. Invariant: the
rows found are those that every filter passes on its own, computed for all rows at once or taken
from a column that is kept, with the same result.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from stellwerk.framework.calls import Call, PointCalls
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.interface import (
    Diagnosis,
    FilterPlugin,
    FilterResult,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
    Reuse,
)
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.reuse import CachedStatuses, ColumnCache
from stellwerk.framework.status import OK, Code, Status
from stellwerk.framework.status_column import StatusColumn
from stellwerk.framework.verdicts import FITS, Verdicts, merge_passes, rejecting_plugins
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Mask, RowColumn
from stellwerk.snapshot.node_view import NodeOverlay, NodeView

FilterCall = tuple[FilterPlugin, Call[FilterResult]]


@dataclass(slots=True)
class Feasibility:
    """Which rows take the pod, and why the others do not."""

    state: CycleState
    fits: Mask
    """(N,) bool over all rows of the snapshot; free rows are False."""
    pre_filter: Status = OK
    """A rejection of the pod as a whole."""
    node_names: frozenset[str] | None = None
    """Only these nodes were looked at (PreFilter)."""
    restricted_by: tuple[str, ...] = ()
    """The plugins that named them."""
    evaluated: int = 0
    """How many nodes were looked at, in kube-scheduler's sense."""
    rows: RowColumn | None = field(default=None, repr=False)
    """The feasible rows in visiting order, where only some were looked for."""

    def keep(self, rows: RowColumn, *, evaluated: int) -> None:
        """Let only these of the feasible rows count, having looked at so many nodes."""
        self.rows, self.evaluated = rows, evaluated
        self.fits = np.zeros_like(self.fits)
        self.fits[rows] = True

    def view(self, everything: NodeView) -> NodeView:
        """The feasible rows as a view."""
        if self.rows is not None:
            return everything.take(self.rows)
        if self.fits.all():
            return everything
        return everything.take(np.flatnonzero(self.fits))


class FilterPhase:
    """See the module docstring."""

    def __init__(
        self,
        handle: ProfileHandle,
        pre_filters: PointCalls[PreFilterPlugin, PreFilterResult],
        filters: PointCalls[FilterPlugin, FilterResult],
        cache: ColumnCache,
        *,
        check_all: bool,
    ) -> None:
        self._handle = handle
        self._pre_filters = pre_filters
        self._filters = filters
        self._cache = cache
        self._check_all = check_all
        self._extensions = [
            plugin for plugin in pre_filters if isinstance(plugin, PreFilterExtensions)
        ]

    # --- the cycle ------------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, state: CycleState) -> Feasibility:
        """Let every PreFilter look at the pod; nothing fits yet."""
        snapshot = self._handle.snapshot
        found = Feasibility(state, snapshot.alive)
        everything = NodeView(snapshot)
        for plugin, call in self._pre_filters.of(state):
            try:
                result = call(state, pod, everything)
            except Exception as failure:
                raise self._pre_filters.failed(plugin, failure) from failure
            code = result.status.code
            if code is Code.SKIP:
                state.skipped_filters.add(plugin.name)
            elif code is Code.UNSCHEDULABLE:
                # Preemption may help, and then needs the state of every PreFilter.
                found.pre_filter = _named(result.status, plugin.name)
            elif code is not Code.SUCCESS:
                found.pre_filter = _named(result.status, plugin.name)
                return found
            elif result.node_names is not None and not _restrict(found, plugin.name, result):
                return found
        return found

    def filter(self, pod: PodInfo, found: Feasibility) -> None:
        """Write into `found` the rows that every filter passes, nominated pods counted."""
        snapshot = self._handle.snapshot
        candidates = self.candidate_rows(found)
        nominated = bool(self._handle.nominations.nominated_nodes())
        kept = self._kept_statuses(found, pod) if nominated else None
        if kept is not None:
            found.fits = kept.fits & snapshot.alive
        else:
            found.fits = self._fitting(found.state, pod, candidates)
            if nominated:
                self._recheck_nominated(found, pod)
        found.evaluated = snapshot.node_count if candidates is None else int(candidates.sum())

    def evaluate_nominated_node(self, pod: PodInfo, found: Feasibility) -> bool:
        """Whether the node nominated to the pod takes it; then it is the only one that counts.

        `evaluateNominatedNode`: it is looked at before all others, which are then spared.
        """
        snapshot = self._handle.snapshot
        row = snapshot.row_of.get(pod.nominated_node_name)
        if row is None or (found.node_names and pod.nominated_node_name not in found.node_names):
            return False
        rows = np.array([row], dtype=np.intp)
        if not self.run_with_nominated(found.state, pod, NodeView(snapshot, rows)).fits[0]:
            return False
        found.keep(rows, evaluated=1)
        return True

    def candidate_rows(self, found: Feasibility) -> Mask | None:
        """(N,) bool, the rows that PreFilter named; None: all of them."""
        if found.node_names is None:
            return None
        snapshot = self._handle.snapshot
        named: Mask = np.zeros(snapshot.size, np.bool_)
        named[[snapshot.row_of[name] for name in found.node_names if name in snapshot.row_of]] = (
            True
        )
        return named

    def diagnose(self, found: Feasibility, pod: PodInfo) -> Diagnosis:
        """Why no row takes the pod, node by node, filter by filter in the profile's order."""
        snapshot = self._handle.snapshot
        rows = list(snapshot.row_of.values())
        if not found.pre_filter.ok:
            rejected, pending = rejecting_plugins([found.pre_filter])
            everywhere = StatusColumn.everywhere(found.pre_filter, len(rows))
            return Diagnosis(rows, everywhere, found.pre_filter.message, rejected, pending)
        statuses = self._statuses(found, pod, np.array(rows, dtype=np.intp))
        rejected, pending = rejecting_plugins(statuses.counts().keys())
        return Diagnosis(rows, statuses, "", rejected | frozenset(found.restricted_by), pending)

    def _statuses(self, found: Feasibility, pod: PodInfo, rows: RowColumn) -> StatusColumn:
        """What the filters say of each row; those that PreFilter did not name are not asked."""
        kept = self._kept_statuses(found, pod)
        if kept is not None:
            return kept.at(rows)
        named = self.candidate_rows(found)
        asked = rows if named is None else rows[named[rows]]
        verdicts = self.run_with_nominated(found.state, pod, NodeView(self._handle.snapshot, asked))
        made = verdicts.statuses(every_reason=self._check_all)
        if named is None:
            return made
        codes = np.full(len(rows), len(made.different), np.int32)
        codes[named[rows]] = made.codes
        return StatusColumn([*made.different, _excluded(found.restricted_by)], codes)

    def is_row_local(self, state: CycleState, pod: PodInfo) -> bool:
        """Whether each row's verdicts depend on the pod's spec and what is on that row alone."""
        return not self._split_by_reuse(state, pod)[1]

    def _kept_statuses(self, found: Feasibility, pod: PodInfo) -> CachedStatuses | None:
        """Every row's status, up to date; None: not to be had without asking every filter."""
        kept_calls, others = self._split_by_reuse(found.state, pod)
        if others or found.node_names is not None:
            return None
        filters = [plugin for plugin, _ in kept_calls]
        cached = self._cache.statuses(pod.spec, filters, self._handle.nominations)
        cached.refresh(
            pod,
            lambda nodes: self.run_with_nominated(found.state, pod, nodes).statuses(
                every_reason=self._check_all
            ),
        )
        return cached

    # --- filters over rows ----------------------------------------------------------------------

    def active(self, state: CycleState) -> list[FilterCall]:
        """The filters that no PreFilter skipped, in order."""
        skipped = state.skipped_filters
        return [call for call in self._filters.of(state) if call[0].name not in skipped]

    def run(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Verdicts:
        """Every active filter on the rows of a view, in order; overlays count, nominations not."""
        rejected_by = np.full(len(nodes), FITS, np.int16)
        results = []
        for index, call in enumerate(self.active(state)):
            result = self._answer(call, state, pod, nodes)
            results.append(result)
            rejected_by[(result.codes != 0) & (rejected_by < 0)] = index
        return Verdicts(rejected_by, results)

    def run_with_nominated(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Verdicts:
        """Rows that hold nominations must pass with and without them.

        `RunFilterPluginsWithNominatedPods`: only nominated pods of equal or higher priority count,
        a lower one would be preempted anyway.
        """
        plain = self.run(state, pod, nodes)
        added = self._nominated_at(pod, nodes)
        if not added:
            return plain
        positions = np.unique(np.array([position for position, _ in added], dtype=np.intp))
        place = {int(position): index for index, position in enumerate(positions)}
        narrow = nodes.narrowed(positions)
        if narrow.overlay is None:
            narrow = narrow.with_overlay()
        nominated = [(place[position], other) for position, other in added]
        self.add_pods(state, pod, narrow, nominated)
        crowded = self.run(state, pod, narrow)
        if self._extensions:
            # The view is thrown away; only plugins that keep books of their own must take it back.
            self.remove_pods(state, pod, narrow, nominated)
        return merge_passes(crowded, positions, plain)

    def add_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> None:
        """Put pods on positions of a view with overlay, and tell the plugins that keep count."""
        _overlay(nodes).change_pods(pods, 1)
        for plugin in self._extensions:
            _must_be_ok(plugin.add_pods(state, pod, nodes, pods), "AddPod")

    def remove_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> None:
        """Take pods off positions of a view with overlay, and tell the plugins that keep count."""
        _overlay(nodes).change_pods(pods, -1)
        for plugin in self._extensions:
            _must_be_ok(plugin.remove_pods(state, pod, nodes, pods), "RemovePod")

    def _fitting(self, state: CycleState, pod: PodInfo, candidates: Mask | None) -> Mask:
        """(N,) bool, rows where every filter passes, nominated pods not counted."""
        snapshot = self._handle.snapshot
        if candidates is not None and int(candidates.sum()) * 4 < snapshot.node_count:
            # A pod for a few named nodes (a DaemonSet's): columns of all rows would be wasted.
            rows = np.flatnonzero(candidates)
            fits: Mask = np.zeros(snapshot.size, np.bool_)
            fits[rows] = self.run(state, pod, NodeView(snapshot, rows)).fits
            return fits
        kept, others = self._split_by_reuse(state, pod)
        fits = self._kept_fits(state, pod, kept) & snapshot.alive if kept else snapshot.alive.copy()
        if candidates is not None:
            fits &= candidates
        everything = NodeView(snapshot)
        for call in others:
            fits &= self._answer(call, state, pod, everything).codes == 0
        return fits

    def _split_by_reuse(
        self, state: CycleState, pod: PodInfo
    ) -> tuple[list[FilterCall], list[FilterCall]]:
        """(filters whose columns are kept for pod.spec, filters computed in every cycle)."""
        kept: list[FilterCall] = []
        others: list[FilterCall] = []
        spec = pod.spec
        for call in self.active(state):
            plugin = call[0]
            reusable = (
                plugin.filter_reuse is not Reuse.NEVER and plugin.filter_key(state, pod) is spec
            )
            (kept if reusable else others).append(call)
        return kept, others

    def _kept_fits(self, state: CycleState, pod: PodInfo, calls: list[FilterCall]) -> Mask:
        """(N,) bool, rows where all of these pass; treat as read-only."""
        call_of = dict(calls)
        return self._cache.fits(
            pod.spec,
            list(call_of),
            lambda plugin, nodes: self._answer((plugin, call_of[plugin]), state, pod, nodes).codes,
        )

    def _answer(
        self, call: FilterCall, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> FilterResult:
        plugin, filter_rows = call
        try:
            result = filter_rows(state, pod, nodes)
        except Exception as failure:
            raise self._filters.failed(plugin, failure) from failure
        if result.codes.shape != (len(nodes),):
            message = f"{result.codes.shape} verdicts for {len(nodes)} nodes"
            raise PluginFailure(plugin.name, self._filters.label, message)
        return result

    # --- nominated pods -------------------------------------------------------------------------

    def _recheck_nominated(self, found: Feasibility, pod: PodInfo) -> None:
        """The pass with nominated pods, for the feasible rows that hold some."""
        nominated = self._handle.nominations.nominated_nodes()
        snapshot = self._handle.snapshot
        rows = [
            snapshot.row_of[name]
            for name in nominated
            if name in snapshot.row_of and found.fits[snapshot.row_of[name]]
        ]
        if rows:
            view = NodeView(snapshot, np.array(rows, dtype=np.intp))
            found.fits[rows] = self.run_with_nominated(found.state, pod, view).fits

    def _nominated_at(self, pod: PodInfo, nodes: NodeView) -> list[tuple[int, PodInfo]]:
        """(position, nominated pod) for the pods that count against this one."""
        nominations, snapshot = self._handle.nominations, self._handle.snapshot
        named = nominations.nominated_nodes()
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


def _restrict(found: Feasibility, plugin: str, result: PreFilterResult) -> bool:
    """Note the nodes that a plugin names; False if now no node is left."""
    names = result.node_names or frozenset()
    found.node_names = names if found.node_names is None else found.node_names & names
    found.restricted_by = (*found.restricted_by, plugin)
    if not found.node_names:
        found.pre_filter = _no_common_node(found.restricted_by)
    return bool(found.node_names)


def _named(status: Status, plugin: str) -> Status:
    """The status with its plugin; an error says who ran into it, in kube-scheduler's words."""
    if status.rejected:
        return status if status.plugin else Status(status.code, status.reasons, plugin)
    return Status(status.code, (f'running PreFilter plugin "{plugin}": {status.message}',), plugin)


def _no_common_node(plugins: Iterable[str]) -> Status:
    names = sorted(plugins)
    reason = f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
    if len(names) == 1:
        reason = f"node(s) didn't satisfy plugin {names[0]}"
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))


def _excluded(restricted_by: Iterable[str]) -> Status:
    """The status of nodes that PreFilter did not name."""
    names = " ".join(sorted(restricted_by))
    reason = f"node(s) didn't satisfy plugin(s) [{names}]"
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))


def _overlay(nodes: NodeView) -> NodeOverlay:
    if nodes.overlay is None:
        message = "pods can be added and removed only in a view with an overlay"
        raise ValueError(message)
    return nodes.overlay


def _must_be_ok(status: Status, point: str) -> None:
    if not status.ok:
        raise PluginFailure(status.plugin or "unnamed", point, status.message)
