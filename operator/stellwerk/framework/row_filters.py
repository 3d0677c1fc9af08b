"""A profile's Filter plugins, run on the rows of a view, with or without nominated pods.

FilterPhase asks them for scheduling attempts; preemption, group decisions and explanations ask them
about views of their own, which may have pods added or taken out. Nothing is cached here. Invariant:
each answer has one code for each row of the view, in the view's order, and a filter whose PreFilter
answered Skip is not called.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from typing_extensions import override

from stellwerk.framework.extension_points import (
    FILTER,
    PRE_FILTER,
    PRE_FILTER_EXTENSIONS,
    PluginsByPoint,
    is_keyed_by_spec,
)
from stellwerk.framework.interface import FilterPlugin, PlacedPods, Reuse
from stellwerk.framework.metrics_recorder import MetricsRecorder
from stellwerk.framework.plugin_isolation import IsolatedPlugin
from stellwerk.framework.point_runner import Call, PointRunner
from stellwerk.framework.services import FilterRunner, Nominations
from stellwerk.framework.types import (
    FITS,
    CycleState,
    FilterResult,
    PluginFailure,
    Status,
    Verdicts,
    merge_passes,
)
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import VerdictColumn
from stellwerk.snapshot.snapshot import NodeOverlay, NodeView


class FilterCall(NamedTuple):
    """A filter, its name and its method: they are read for each pod."""

    name: str
    plugin: FilterPlugin
    filter: Call[FilterResult]
    measured_filter: Call[FilterResult]
    """`filter`, measured for sampled attempts."""


class RowFilters(FilterRunner):
    """A profile's Filter plugins, and the PreFilterExtensions that follow pods put on nodes."""

    def __init__(
        self, plugins: PluginsByPoint, nominations: Nominations, metrics_recorder: MetricsRecorder
    ) -> None:
        self.runner = PointRunner(FILTER, plugins, metrics_recorder)
        # Pairs for speed: `split_by_reuse` goes through them for each pod, and leaves most out.
        self._named = [
            (plugin.name, FilterCall(plugin.name, plugin, filter_rows, measured))
            for (plugin, filter_rows), (_, measured) in zip(
                self.runner.calls, self.runner.measured_calls, strict=True
            )
        ]
        self._extensions = PRE_FILTER_EXTENSIONS.among(PRE_FILTER.among(plugins))
        self._nominations = nominations
        self._costly = {
            plugin.name
            for plugin, _ in self.runner.calls
            if getattr(plugin, "costly_filter", False)
        }
        # An IsolatedPlugin is never in this set: its class does not have the default `filter_key`.
        # `FilterPhase` relies on that: a distrusted plugin's `filter_reuse` changes to NEVER later,
        # and this set is made once.
        self._keyed_by_spec = {
            plugin.name
            for plugin, _ in self.runner.calls
            if plugin.filter_reuse is not Reuse.NEVER and is_keyed_by_spec(plugin, "filter_key")
        }
        """Filters that keep the default `filter_key`, so that nothing has to be called for it."""
        self.isolated = any(isinstance(plugin, IsolatedPlugin) for plugin, _ in self.runner.calls)
        """True if any filter is isolated: its cached answers are compared with new ones."""

    def is_costly(self, call: FilterCall) -> bool:
        """Return whether a filter runs last, and only on rows that every other filter passes."""
        return call.name in self._costly

    def active(self, state: CycleState) -> list[FilterCall]:
        """List the filters whose PreFilter did not answer Skip, in the profile's order."""
        skipped = state.skipped_filters
        return [call for name, call in self._named if name not in skipped]

    def each(
        self, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> Iterator[tuple[FilterPlugin, FilterResult]]:
        """Run every active filter on the rows of a view, in order; overlays count."""
        for call in self.active(state):
            yield call.plugin, self.answer(call, state, pod, nodes)

    def answer(
        self, call: FilterCall, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> FilterResult:
        """Run one filter on the rows of a view.

        Raises:
            PluginFailure: it raised, or its answer is not about these rows.
        """
        filter_rows = call.measured_filter if state.sampled else call.filter
        try:
            result = filter_rows(state, pod, nodes)
        except Exception as failure:
            raise self.runner.failure(call.plugin, failure) from failure
        if result.codes.shape != (nodes.size,):
            message = f"{result.codes.shape} verdicts for {len(nodes)} nodes"
            raise PluginFailure(call.name, self.runner.label, message)
        return result

    def codes(
        self, call: FilterCall, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> VerdictColumn:
        """(n,) int32, the codes of one filter's `answer`; 0 fits."""
        return self.answer(call, state, pod, nodes).codes

    def run(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Verdicts:
        """Find each row's first rejection; overlays count, nominated pods do not."""
        rejected_by = np.full(len(nodes), FITS, np.int16)
        results = []
        for index, (_, result) in enumerate(self.each(state, pod, nodes)):
            results.append(result)
            rejected_by[(result.codes != 0) & (rejected_by < 0)] = index
        return Verdicts(rejected_by, results)

    @override
    def run_with_nominated_pods(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Verdicts:
        """Find each row's first rejection, where a nominated row must pass with and without them.

        `RunFilterPluginsWithNominatedPods`, called for feasible rows if there are nominations
        (`FilterPhase._filter`). `Nominator.against` says which nominated pods count: those of equal
        or higher priority, since a lower one would be preempted anyway, but for backfill.
        """
        plain = self.run(state, pod, nodes)
        nominated = self._nominated_pods(pod, nodes)
        if not nominated:
            return plain
        # Few rows have nominations: the second pass sees these alone, in an overlay of their own.
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
        """(active filters with a column cached by pod.spec, filters that run in every attempt).

        A filter belongs to the second list if it answers `Reuse.NEVER`, or if its `filter_key` for
        this pod is anything but the pod's spec.
        """
        cached: list[FilterCall] = []
        others: list[FilterCall] = []
        spec, skipped, keyed_by_spec = pod.spec, state.skipped_filters, self._keyed_by_spec
        for name, call in self._named:
            if name in skipped:
                continue
            plugin = call.plugin
            reusable = name in keyed_by_spec or (
                plugin.filter_reuse is not Reuse.NEVER and plugin.filter_key(state, pod) is spec
            )
            (cached if reusable else others).append(call)
        return cached, others

    def _nominated_pods(self, pod: PodInfo, nodes: NodeView) -> list[tuple[int, PodInfo]]:
        """(position in the view, nominated pod) for each pod that counts against this one.

        `Nominator.against` selects them: equal or higher priority, with one exception for pods that
        end in time.
        """
        nominations, snapshot = self._nominations, nodes.snapshot
        named = nominations.by_node
        if not named:
            return []
        rows = nodes.row_numbers().tolist()
        # Go through the smaller of the two: the rows of the view, or the nodes with nominations.
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
