"""NodeResourceTopologyMatch: the plugin at its points.

It keeps pods from nodes whose kubelet, under the policy single-numa-node, would refuse them, and
scores the others by their zones. What it knows of zones is in `Zones`; the same answer for one node
at a time is written down in the tests.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.plugin_api import (
    BEST_EFFORT,
    GO_ON,
    GUARANTEED,
    MAX_NODE_SCORE,
    OK,
    SKIP_FILTER,
    Action,
    ClusterEventWithHint,
    ConfigModel,
    CycleState,
    EnqueueExtensions,
    ExplainPlugin,
    FilterPlugin,
    FilterResult,
    Handle,
    IntColumn,
    NodeView,
    PluginFacts,
    PluginKind,
    PodInfo,
    PostBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    ReservePlugin,
    Resource,
    Reuse,
    ScorePlugin,
    Status,
    unschedulable,
)
from stellwerk_plugins.numa.alignment import Alignment
from stellwerk_plugins.numa.args import NodeResourceTopologyMatchArgs
from stellwerk_plugins.numa.columns import Zones
from stellwerk_plugins.numa.faults import TopologyFaults
from stellwerk_plugins.numa.requests import Request, ZoneRequests, zone_requests
from stellwerk_plugins.numa.scores import (
    Rows,
    ZoneStrategy,
    balanced,
    fewest_zones,
    least_allocated,
    most_allocated,
    whole_score,
)
from stellwerk_plugins.numa.topology import KIND

_NAME: Final = "NodeResourceTopologyMatch"
_STRATEGIES: Final[dict[str, ZoneStrategy]] = {
    "LeastAllocated": least_allocated,
    "MostAllocated": most_allocated,
    "BalancedAllocation": balanced,
}
_NOT_FRESH, _POD, _INIT, _SIDECAR, _CONTAINER = range(1, 6)
_STATUSES: Final = {
    _NOT_FRESH: unschedulable(_NAME, "invalid node topology data"),
    _POD: unschedulable(_NAME, "cannot align pod"),
    _INIT: unschedulable(_NAME, "cannot align init container"),
    _SIDECAR: unschedulable(_NAME, "cannot align sidecar container"),
    _CONTAINER: unschedulable(_NAME, "cannot align container"),
}
_MAX_LINES: Final = 8
"""Nodes of which an explanation says what they lack."""


class NodeResourceTopologyMatch(
    PreFilterPlugin,
    FilterPlugin,
    ScorePlugin,
    ReservePlugin,
    PostBindPlugin,
    EnqueueExtensions,
    ExplainPlugin,
):
    """Filters and scores nodes by what their NUMA zones have available."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[ConfigModel]] = NodeResourceTopologyMatchArgs
    watched_kinds: ClassVar[Sequence[PluginKind]] = (
        PluginKind(KIND, "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies"),
    )
    filter_reuse: ClassVar[Reuse] = Reuse.USAGE
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, handle: Handle, args: NodeResourceTopologyMatchArgs) -> None:
        self._handle = handle
        self._zones = Zones(handle, args)
        self._faults = TopologyFaults(handle.objects, self._zones, handle.recorder)
        handle.sources.repeat(self._faults)
        self._strategy = args.scoring_strategy.type
        self._weights = {each.name: max(1, each.weight) for each in args.scoring_strategy.resources}

    # --- which nodes ----------------------------------------------------------------------------

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        self._look()
        if _asks_nothing(pod):
            return SKIP_FILTER
        if not self._handle.sources.is_synced(KIND):
            return PreFilterResult(unschedulable(_NAME, "waiting for the first list of topologies"))
        return GO_ON

    @override
    def filter_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """The spec; topologies are followed row by row."""
        self._look()
        return pod.spec if pod.qos_class == pod.spec.resources.qos_class else None

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        self._look()
        zones, codes = self._zones, np.zeros(len(nodes), np.int32)
        if _asks_nothing(pod):
            return FilterResult(codes, _STATUSES.__getitem__)
        concerned = nodes.gather(zones.known & zones.aligned & zones.fresh)
        as_pod = nodes.gather(zones.as_pod)
        if (concerned & as_pod).any():
            np.copyto(codes, self._as_pod(pod, nodes), where=concerned & as_pod)
        if (concerned & ~as_pod).any():
            np.copyto(codes, self._by_container(pod, nodes), where=concerned & ~as_pod)
        codes[~nodes.gather(zones.fresh)] = _NOT_FRESH
        return FilterResult(codes, _STATUSES.__getitem__)

    def _as_pod(self, pod: PodInfo, nodes: NodeView) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        alignment = Alignment(self._zones, nodes, guaranteed=pod.qos_class == GUARANTEED)
        fits, _ = alignment.place(zone_requests(pod).pod)
        return np.where(fits, 0, _POD).astype(np.int32)

    def _by_container(
        self, pod: PodInfo, nodes: NodeView
    ) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
        """Init containers each for itself; then containers, one after the other."""
        alignment = Alignment(self._zones, nodes, guaranteed=pod.qos_class == GUARANTEED)
        requests = zone_requests(pod)
        codes = np.zeros(len(nodes), np.int32)
        for request, sidecar in requests.init_containers:
            fits, _ = alignment.place(request)
            codes[~fits & (codes == 0)] = _SIDECAR if sidecar else _INIT
        for index, request in enumerate(requests.containers):
            fits, positions = alignment.place(request)
            codes[~fits & (codes == 0)] = _CONTAINER
            if index + 1 < len(requests.containers):
                alignment.take(request, positions)
        return codes

    # --- which is best --------------------------------------------------------------------------

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        """The spec; topologies are followed row by row."""
        self._look()
        return pod.spec if pod.qos_class == pod.spec.resources.qos_class else None

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64, 0 to 100."""
        self._look()
        zones, rows = self._zones, nodes.row_numbers()
        if pod.qos_class != GUARANTEED:
            return np.full(len(rows), MAX_NODE_SCORE, np.int64)
        scores: IntColumn = np.zeros(len(rows), np.int64)
        counted = zones.known[rows] & zones.fresh[rows]
        if self._strategy in _STRATEGIES:
            counted &= zones.aligned[rows]
        requests = zone_requests(pod)
        as_pod = zones.as_pod[rows]
        for among, asked in (
            (counted & as_pod, [requests.pod]),
            (counted & ~as_pod, _in_order(requests)),
        ):
            if nodes.whole and among.all() and self._strategy in _STRATEGIES:
                scores = self._scores(slice(0, len(rows)), asked)
            elif among.any():
                scores[among] = self._scores(rows[among], asked)
        return np.clip(scores, 0, MAX_NODE_SCORE)

    def _scores(self, rows: Rows, requests: Sequence[Request]) -> IntColumn:
        strategy = _STRATEGIES.get(self._strategy)
        if strategy is None and not isinstance(rows, slice):
            return fewest_zones(self._zones, rows, requests)
        if strategy is None:
            raise ValueError(f"{self._strategy} is for rows that are named")
        return whole_score(strategy, self._zones, rows, requests, self._weights)

    # --- what was decided -----------------------------------------------------------------------

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        row = self._handle.snapshot.row_of.get(node_name)
        if row is not None:
            self._zones.book.reserve(row, pod.uid)
        return OK

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        row = self._handle.snapshot.row_of.get(node_name)
        if row is not None:
            self._zones.book.unreserve(row, pod.uid)

    @override
    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.unreserve(state, pod, node_name)

    # --- what may help, and why -----------------------------------------------------------------

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(Resource.ASSIGNED_POD, Action.DELETE),
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE),
            ClusterEventWithHint(KIND, Action.ADD | Action.UPDATE),
        )

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PluginFacts | None:
        self._look()
        lines = list(self._explained(pod, nodes))
        return PluginFacts(lines=tuple(lines)) if lines else None

    def _explained(self, pod: PodInfo, nodes: NodeView) -> Iterator[str]:
        result = self.filter(state=CycleState(), pod=pod, nodes=nodes)
        told = 0
        for position, node in enumerate(nodes.nodes()):
            row = int(nodes.row_numbers()[position])
            topology = self._zones.topology(row)
            if node is None or topology is None:
                continue
            for fault in topology.faults:
                yield f"{node.name}: {fault}"
            if result.codes[position] and told < _MAX_LINES:
                told += 1
                yield f"{node.name}: {self._lacking(pod, row)}"

    def _lacking(self, pod: PodInfo, row: int) -> str:
        """The zones of a node, with what they have of what the pod asks."""
        if not self._zones.fresh[row]:
            return "waits for its exporter to see the pods that came since its last report"
        topology = self._zones.topology(row)
        zones = topology.zones if topology is not None else ()
        asked = [resource for resource, amount in zone_requests(pod).pod.items() if amount]
        parts = []
        for position, zone in enumerate(zones):
            have = ", ".join(
                f"{self._zones.amounts(resource).available[position, row]} {resource}"
                for resource in asked
                if self._zones.amounts(resource).reported[position, row]
            )
            parts.append(f"zone {zone.number} has {have or 'nothing of it'}")
        return "no single zone holds it: " + "; ".join(parts) if parts else "it reports no zones"

    def _look(self) -> None:
        """Follow topologies and pods; cached answers about rows that changed are made anew."""
        rows = self._zones.look()
        if rows is None:
            rows = list(self._handle.snapshot.row_of.values())
        if rows:
            self._handle.snapshot.look_again(rows)


def _asks_nothing(pod: PodInfo) -> bool:
    return pod.qos_class == BEST_EFFORT and not zone_requests(pod).asks


def _in_order(requests: ZoneRequests) -> list[Request]:
    return [*(request for request, _ in requests.init_containers), *requests.containers]
