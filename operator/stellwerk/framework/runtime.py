"""One profile's plugins, run at the extension points up to Score with kube-scheduler's contract.

The scheduling cycle, `decide`, explain and preemption drive the same synchronous parts:
`find_feasible`, then `prioritize`. The asynchronous points are run by `binding.py`. Invariant: a
plugin that raises or answers nonsense ends the attempt as a PluginFailure that names it, and
nothing else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

import numpy as np

from stellwerk.framework.binding import BindingPoints
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.interface import (
    MAX_NODE_SCORE,
    Diagnosis,
    FilterPlugin,
    FilterResult,
    NormalizeScorePlugin,
    Plugin,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.reuse import ColumnCache, KeptColumn, all_fit, changed_rows
from stellwerk.framework.status import OK, Code, Status
from stellwerk.framework.verdicts import FITS, Verdicts, merge_passes, rejecting_plugins
from stellwerk.models.plugin_description import ExtensionPoint
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn, Mask, RowColumn
from stellwerk.snapshot.node_view import NodeOverlay, NodeView

Answer = TypeVar("Answer")

_IN_TREE: Final = "stellwerk.plugins."


class PluginGuard(Protocol):
    """Cuts off a synchronous call of somebody else's plugin that does not return."""

    def __call__(self, plugin: str, point: str, call: Callable[[], Answer]) -> Answer: ...


class Stopwatch(Protocol):
    """Told how long extension points and plugins take; metrics live above this layer."""

    def point(self, point: ExtensionPoint, code: Code, seconds: float) -> None: ...

    def plugin(self, plugin: str, point: ExtensionPoint, code: Code, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class PluginScore:
    """What one plugin contributed to the total, for explanations; all (n,) int64."""

    plugin: str
    raw: IntColumn
    normalized: IntColumn
    weight: int


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

    def view(self, snapshot_view: NodeView) -> NodeView:
        """The feasible rows as a view."""
        if self.rows is not None:
            return snapshot_view.take(self.rows)
        if bool(self.fits.all()):
            return snapshot_view
        return snapshot_view.take(np.flatnonzero(self.fits))


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
    ) -> None:
        self.handle = handle
        self.plugins = plugins
        self.weights = weights
        self.percentage_of_nodes_to_score = percentage_of_nodes_to_score
        self.check_all_filters = check_all_filters
        self.guard: PluginGuard | None = None
        """Set by the scheduler: runs calls of out-of-tree plugins under a time limit."""
        self._pre_filters = [
            p for p in plugins.get(ExtensionPoint.PRE_FILTER, ()) if isinstance(p, PreFilterPlugin)
        ]
        self._filters = [
            p for p in plugins.get(ExtensionPoint.FILTER, ()) if isinstance(p, FilterPlugin)
        ]
        self._post_filters = [
            p
            for p in plugins.get(ExtensionPoint.POST_FILTER, ())
            if isinstance(p, PostFilterPlugin)
        ]
        self._pre_scores = [
            p for p in plugins.get(ExtensionPoint.PRE_SCORE, ()) if isinstance(p, PreScorePlugin)
        ]
        self._scores = [
            p for p in plugins.get(ExtensionPoint.SCORE, ()) if isinstance(p, ScorePlugin)
        ]
        self._extensions = [
            plugin for plugin in self._pre_filters if isinstance(plugin, PreFilterExtensions)
        ]
        self.binding = BindingPoints(plugins)
        self._cache = ColumnCache(handle.snapshot)
        self._next_start = 0
        handle.serve(self)

    @property
    def profile_name(self) -> str:
        """The schedulerName served."""
        return self.handle.profile_name

    # --- PreFilter and Filter -------------------------------------------------------------------

    def find_feasible(
        self, pod: PodInfo, state: CycleState | None = None, *, sample: bool = True
    ) -> Feasibility:
        """Every row the pod fits on (or as many as the profile's percentage asks for)."""
        snapshot = self.handle.snapshot
        found = self._pre_filter(pod, state or CycleState())
        if not found.pre_filter.ok:
            return found
        candidates = self._candidate_rows(found)
        found.fits = self._fitting(found.state, pod, candidates)
        self._recheck_nominated(found, pod)
        found.evaluated = snapshot.node_count if candidates is None else int(candidates.sum())
        if sample and found.fits.any():
            self._sample(found, candidates)
        return found

    def diagnose(self, found: Feasibility, pod: PodInfo) -> Diagnosis:
        """Why no row takes the pod, node by node, filter by filter in the profile's order."""
        snapshot = self.handle.snapshot
        rows = list(snapshot.row_of.values())
        if not found.pre_filter.ok:
            rejected, pending = rejecting_plugins([found.pre_filter])
            everywhere = [found.pre_filter] * len(rows)
            return Diagnosis(rows, everywhere, found.pre_filter.message, rejected, pending)
        looked_at = rows
        if found.node_names is not None:
            looked_at = [row for name, row in snapshot.row_of.items() if name in found.node_names]
        view = NodeView(snapshot, np.array(looked_at, dtype=np.intp))
        verdicts = self.run_filters_with_nominated(found.state, pod, view)
        status_of = dict(zip(looked_at, verdicts.statuses(range(len(looked_at))), strict=True))
        excluded = _excluded(found.restricted_by)
        statuses = [status_of.get(row, excluded) for row in rows]
        rejected, pending = rejecting_plugins(statuses)
        return Diagnosis(rows, statuses, "", rejected | frozenset(found.restricted_by), pending)

    def run_post_filters(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult:
        """Look for a way to make room, until a plugin finds it or proves that there is none."""
        reasons: tuple[str, ...] = ()
        clear_nomination = False
        for plugin in self._post_filters:
            result = self._call(
                plugin,
                "PostFilter",
                PostFilterResult,
                partial(plugin.post_filter, state, pod, diagnosis),
            )
            if result.status.ok or result.status.code is not Code.UNSCHEDULABLE:
                return result
            clear_nomination |= result.clear_nomination
            reasons += result.status.reasons
        status = Status(Code.UNSCHEDULABLE, reasons)
        return PostFilterResult(status, clear_nomination=clear_nomination)

    def _pre_filter(self, pod: PodInfo, state: CycleState) -> Feasibility:
        snapshot = self.handle.snapshot
        found = Feasibility(state, np.zeros(snapshot.size, np.bool_))
        everything = NodeView(snapshot)
        for plugin in self._pre_filters:
            result = self._call(
                plugin,
                "PreFilter",
                PreFilterResult,
                partial(plugin.pre_filter, state, pod, everything),
            )
            if result.status.skip:
                state.skipped_filters.add(plugin.name)
                continue
            if not result.status.ok:
                found.pre_filter = _named(result.status, plugin.name)
                if result.status.code is Code.UNSCHEDULABLE:
                    # Preemption may help and then needs the state of every PreFilter.
                    continue
                return found
            if result.node_names is not None:
                known = found.node_names
                found.node_names = result.node_names if known is None else known & result.node_names
                found.restricted_by = (*found.restricted_by, plugin.name)
                if not found.node_names:
                    found.pre_filter = _no_common_node(found.restricted_by)
                    return found
        return found

    def _candidate_rows(self, found: Feasibility) -> Mask | None:
        """(N,) bool, the alive rows that PreFilter left; None: all of them."""
        if found.node_names is None:
            return None
        snapshot = self.handle.snapshot
        named: Mask = np.zeros(snapshot.size, np.bool_)
        rows = [snapshot.row_of[name] for name in found.node_names if name in snapshot.row_of]
        named[rows] = True
        return named

    def active_filters(self, state: CycleState) -> list[FilterPlugin]:
        """The filters that no PreFilter skipped, in order."""
        skipped = state.skipped_filters
        return [plugin for plugin in self._filters if plugin.name not in skipped]

    def _fitting(self, state: CycleState, pod: PodInfo, candidates: Mask | None) -> Mask:
        """(N,) bool, rows where every filter passes, nominated pods not counted."""
        snapshot = self.handle.snapshot
        if candidates is not None and int(candidates.sum()) * 4 < snapshot.node_count:
            # A pod for a few named nodes (a DaemonSet's): columns of all rows would be wasted.
            rows = np.flatnonzero(candidates)
            fits: Mask = np.zeros(snapshot.size, np.bool_)
            fits[rows] = self.run_filters(state, pod, NodeView(snapshot, rows)).fits
            return fits
        kept, others = self._split_by_reuse(state, pod)
        fits = snapshot.alive.copy() if not kept else self._kept_fits(state, pod, kept)
        if kept:
            fits &= snapshot.alive
        if candidates is not None:
            fits &= candidates
        everything = NodeView(snapshot)
        for plugin in others:
            fits &= self._filter(plugin, state, pod, everything).codes == 0
        return fits

    def _split_by_reuse(
        self, state: CycleState, pod: PodInfo
    ) -> tuple[list[FilterPlugin], list[FilterPlugin]]:
        """(filters whose columns are kept for pod.spec, filters computed in every cycle)."""
        kept: list[FilterPlugin] = []
        others: list[FilterPlugin] = []
        for plugin in self._filters:
            if plugin.name in state.skipped_filters:
                continue
            reusable = (
                plugin.filter_reuse is not Reuse.NEVER and plugin.filter_key(state, pod) is pod.spec
            )
            (kept if reusable else others).append(plugin)
        return kept, others

    def _kept_fits(self, state: CycleState, pod: PodInfo, plugins: list[FilterPlugin]) -> Mask:
        """(N,) bool, rows where all of these pass; a copy the caller may change."""
        snapshot = self.handle.snapshot
        columns = self._cache.columns(pod.spec)
        together = tuple(plugin.name for plugin in plugins)
        fits = columns.fits.get(together)
        log = snapshot.usage_changes
        position = log.position
        if fits is not None and fits.position == position:
            return fits.values.copy()
        changed = None if fits is None else changed_rows(snapshot, log, fits)
        codes = [
            self._kept_codes(state, pod, plugin, columns.filters, columns.statuses)
            for plugin in plugins
        ]
        if fits is None or changed is None:
            fits = columns.fits[together] = KeptColumn(all_fit(codes, slice(None)), position)
        else:
            fits.values[changed] = all_fit(codes, changed)
            fits.position = position
        return fits.values.copy()

    def _kept_codes(
        self,
        state: CycleState,
        pod: PodInfo,
        plugin: FilterPlugin,
        filters: dict[str, KeptColumn[np.int32]],
        statuses: dict[str, FilterResult],
    ) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        def compute(nodes: NodeView) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
            result = statuses[plugin.name] = self._filter(plugin, state, pod, nodes)
            return result.codes

        kept = self._cache.refresh(filters.get(plugin.name), plugin.filter_reuse, compute)
        filters[plugin.name] = kept
        return kept.values

    def run_filters(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Verdicts:
        """Every active filter on the rows of a view, in order.

        Overlays count, nominations do not.
        """
        rejected_by = np.full(len(nodes), FITS, np.int16)
        results = []
        for index, plugin in enumerate(self.active_filters(state)):
            result = self._filter(plugin, state, pod, nodes)
            results.append(result)
            rejected_by[(result.codes != 0) & (rejected_by < 0)] = index
        return Verdicts(rejected_by, results)

    def run_filters_with_nominated(
        self, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> Verdicts:
        """`RunFilterPluginsWithNominatedPods`.

        Rows that hold nominations must pass with and without.

        Only nominated pods of equal or higher priority count: a lower one would be preempted
        anyway.
        """
        plain = self.run_filters(state, pod, nodes)
        added = self._nominated_at(pod, nodes)
        if not added:
            return plain
        positions = np.unique(np.array([position for position, _ in added], dtype=np.intp))
        place = {position: place for place, position in enumerate(positions.tolist())}
        narrow = _narrowed(nodes, positions)
        nominated = [(place[position], other) for position, other in added]
        self.add_pods(state, pod, narrow, nominated)
        crowded = self.run_filters(state, pod, narrow)
        if self._extensions:
            # The view is thrown away; only plugins that keep books of their own must take it back.
            self.remove_pods(state, pod, narrow, nominated)
        return merge_passes(_widened(crowded, positions, len(nodes)), plain)

    def _recheck_nominated(self, found: Feasibility, pod: PodInfo) -> None:
        """The pass with nominated pods, for the feasible rows that hold some."""
        snapshot = self.handle.snapshot
        rows = [
            snapshot.row_of[name]
            for name in self.handle.nominations.nominated_nodes()
            if name in snapshot.row_of and found.fits[snapshot.row_of[name]]
        ]
        if rows:
            view = NodeView(snapshot, np.array(rows, dtype=np.intp))
            found.fits[rows] = self.run_filters_with_nominated(found.state, pod, view).fits

    def _nominated_at(self, pod: PodInfo, nodes: NodeView) -> list[tuple[int, PodInfo]]:
        """(position, nominated pod) for the pods that count against this one."""
        nominations, snapshot = self.handle.nominations, self.handle.snapshot
        named = frozenset(nominations.nominated_nodes())
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
            for other in nominations.pods_for_node(name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]

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

    # --- sampling -------------------------------------------------------------------------------

    def _sample(self, found: Feasibility, candidates: Mask | None) -> None:
        """Keep only as many feasible rows as kube-scheduler would look for, in its order."""
        snapshot = self.handle.snapshot
        percentage = self.percentage_of_nodes_to_score
        order = snapshot.visit_order
        if candidates is not None:
            order = order[candidates[order]]
        wanted = nodes_to_find(percentage, len(order))
        if not self._scores and self.percentage_of_nodes_to_score is not None:
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

    # --- PreScore, Score, NormalizeScore --------------------------------------------------------

    def prioritize(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Scores:
        """Total scores of feasible rows."""
        for plugin in self._pre_scores:
            status = self._call(
                plugin,
                "PreScore",
                Status,
                partial(plugin.pre_score, state, pod, nodes),
            )
            if status.skip:
                state.skipped_scores.add(plugin.name)
            elif not status.ok:
                raise PluginFailure(plugin.name, "PreScore", status.message)
        by_plugin = [
            self._score(plugin, state, pod, nodes)
            for plugin in self._scores
            if plugin.name not in state.skipped_scores
        ]
        if not self._scores:
            return Scores(nodes, np.ones(len(nodes), np.int64), ())
        total: IntColumn = np.zeros(len(nodes), np.int64)
        for score in by_plugin:
            total += score.normalized if score.weight == 1 else score.normalized * score.weight
        return Scores(nodes, total, by_plugin)

    def _score(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> PluginScore:
        raw = self._raw_score(plugin, state, pod, nodes)
        normalized = raw
        if isinstance(plugin, NormalizeScorePlugin):
            normalized = self._call(
                plugin, "NormalizeScore", np.ndarray, partial(plugin.normalize, state, pod, raw)
            )
        if not _trusted(plugin):
            _check_scores(plugin.name, normalized, len(nodes))
        return PluginScore(plugin.name, raw, normalized, self.weights.get(plugin.name, 1))

    def _raw_score(
        self, plugin: ScorePlugin, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> IntColumn:
        def compute(view: NodeView) -> IntColumn:
            raw = self._call(plugin, "Score", np.ndarray, partial(plugin.score, state, pod, view))
            if raw.shape != (len(view),):
                message = f"{raw.shape} scores for {len(view)} nodes"
                raise PluginFailure(plugin.name, "Score", message)
            return raw

        key = None if plugin.score_reuse is Reuse.NEVER else plugin.score_key(state, pod)
        few = not nodes.whole and len(nodes) * 4 < self.handle.snapshot.size
        if key is None or few:
            return compute(nodes)
        scores = self._cache.columns(key).scores
        kept = self._cache.refresh(scores.get(plugin.name), plugin.score_reuse, compute)
        scores[plugin.name] = kept
        return nodes.gather(kept.values)

    # --- calling plugins ------------------------------------------------------------------------

    def _filter(
        self, plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> FilterResult:
        result = self._call(
            plugin, "Filter", FilterResult, partial(plugin.filter, state, pod, nodes)
        )
        if result.codes.shape != (len(nodes),):
            message = f"{result.codes.shape} verdicts for {len(nodes)} nodes"
            raise PluginFailure(plugin.name, "Filter", message)
        return result

    def _call(
        self, plugin: Plugin, point: str, answer: type[Answer], call: Callable[[], Answer]
    ) -> Answer:
        try:
            if self.guard is not None and not _trusted(plugin):
                result = self.guard(plugin.name, point, call)
            else:
                result = call()
        except PluginFailure:
            raise
        except Exception as failure:
            message = f"{type(failure).__name__}: {failure}"
            raise PluginFailure(plugin.name, point, message) from failure
        if not isinstance(result, answer):
            message = f"answered {type(result).__name__}, not {answer.__name__}"
            raise PluginFailure(plugin.name, point, message)
        return result


def nodes_to_find(percentage: int | None, nodes: int) -> int:
    """How many feasible nodes are enough (`numFeasibleNodesToFind`); None: all, 0: adaptive.

    Values above 100 count as 100, negative ones as 0; below 100 nodes all are looked at.
    """
    minimum = 100
    if percentage is None or nodes < minimum:
        return nodes
    if percentage <= 0:
        percentage = max(5, 50 - nodes // 125)
    return max(minimum, nodes * min(percentage, 100) // 100)


def _trusted(plugin: Plugin) -> bool:
    """In-tree plugins are held to their contract by tests, not at run time."""
    return type(plugin).__module__.startswith(_IN_TREE)


def _check_scores(plugin: str, scores: IntColumn, rows: int) -> None:
    if scores.shape != (rows,) or scores.dtype.kind != "i":
        message = f"{scores.dtype} scores of shape {scores.shape} for {rows} nodes"
        raise PluginFailure(plugin, "Score", message)
    if rows and not 0 <= int(scores.min()) <= int(scores.max()) <= MAX_NODE_SCORE:
        message = f"scores from {scores.min()} to {scores.max()} are outside 0 to {MAX_NODE_SCORE}"
        raise PluginFailure(plugin, "Score", message)


def _named(status: Status, plugin: str) -> Status:
    return status if status.plugin else Status(status.code, status.reasons, plugin)


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


def _narrowed(nodes: NodeView, positions: RowColumn) -> NodeView:
    """Some positions of a view as a view of their own, with a copy of the overlay's changes."""
    narrow = nodes.take(nodes.row_numbers()[positions])
    if nodes.overlay is None:
        return narrow.with_overlay()
    return NodeView(narrow.snapshot, narrow.rows, nodes.overlay.take(positions))


def _widened(narrow: Verdicts, positions: RowColumn, rows: int) -> Verdicts:
    """Verdicts on some positions of a view as verdicts on the whole view; the others fit."""
    rejected_by = np.full(rows, FITS, np.int16)
    rejected_by[positions] = narrow.rejected_by
    results = []
    for result in narrow.results:
        codes = np.zeros(rows, np.int32)
        codes[positions] = result.codes
        results.append(FilterResult(codes, result.status))
    return Verdicts(rejected_by, results)


def _overlay(nodes: NodeView) -> NodeOverlay:
    if nodes.overlay is None:
        message = "pods can be added and removed only in a view with an overlay"
        raise ValueError(message)
    return nodes.overlay


def _must_be_ok(status: Status, point: str) -> None:
    if not status.ok:
        raise PluginFailure(status.plugin or "unnamed", point, status.message)
