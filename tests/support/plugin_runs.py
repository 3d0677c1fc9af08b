"""Run one plugin by itself on a small cluster and read its answers by node name."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar, cast

from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.extension_points import PRE_FILTER, PRE_SCORE
from stellwerk.framework.handle import (
    STANDING_CLOCK,
    DevicesUncounted,
    NoPodGroups,
    NothingMeasured,
    NothingRead,
)
from stellwerk.framework.interface import FilterPlugin, ScorePlugin
from stellwerk.framework.services import (
    DeviceCounts,
    Handle,
    NumberSources,
    PluginMetrics,
    PodGroups,
)
from stellwerk.framework.types import CycleState, Status
from stellwerk.framework.worker import NoWorker, Worker
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_cache

PluginT = TypeVar("PluginT")


@dataclass
class PluginHandle:
    """The parts of a Handle that plugins ask for when they run alone."""

    snapshot: Snapshot
    objects: IndexedObjectStore = field(default_factory=IndexedObjectStore)
    nominations: Nominator = field(default_factory=Nominator)
    client: Any = None
    recorder: Any = None
    now: Callable[[], datetime] = STANDING_CLOCK.now
    now_seconds: Callable[[], float] = STANDING_CLOCK.monotonic
    worker: Worker = field(default_factory=NoWorker)
    pod_groups: PodGroups = field(default_factory=NoPodGroups)
    device_counts: DeviceCounts = field(default_factory=DevicesUncounted)
    compatibility: Compatibility = AS_RECORDED
    sources: NumberSources = field(default_factory=NothingRead)
    metrics: PluginMetrics = field(default_factory=NothingMeasured)
    profile_name: str = "default-scheduler"

    def moment(self, state: CycleState) -> float:
        """The wall-clock time, which stands still during an attempt."""
        if state.moment_seconds is None:
            state.moment_seconds = self.now().timestamp()
        return state.moment_seconds

    @classmethod
    def empty(cls) -> Handle:
        """Return a handle on a cluster without anything."""
        return cast("Handle", cls(Snapshot()))


def make_plugin(
    kind: type[PluginT],
    snapshot: Snapshot | None = None,
    args: Mapping[str, Any] | None = None,
    **handle: Any,
) -> PluginT:
    """Return an instance with arguments in the API's words, validated as a profile's are."""
    model = getattr(kind, "args_model", None)
    make = cast("Any", kind)
    made: PluginT = make(
        cast("Handle", PluginHandle(snapshot or Snapshot(), **handle)),
        model.model_validate(args or {}) if model is not None else None,
    )
    return made


def statuses(plugin: FilterPlugin, pod: PodInfo, nodes: NodeView) -> dict[str, Status]:
    """Return the status of each node that the plugin rejects; none if its PreFilter skips."""
    state = CycleState()
    if PRE_FILTER.implemented_by(plugin) and plugin.pre_filter(state, pod, nodes).status.skip:
        return {}
    return filtered(plugin, state, pod, nodes)


def filtered(
    plugin: FilterPlugin, state: CycleState, pod: PodInfo, nodes: NodeView
) -> dict[str, Status]:
    """Return the status of each node that Filter rejects."""
    result = plugin.filter(state, pod, nodes)
    assert result.codes.dtype == "int32"
    assert result.codes.shape == (len(nodes),)
    return {
        node.name: result.status(code)
        for node, code in zip(nodes.nodes(), result.codes.tolist(), strict=True)
        if node is not None and code
    }


def raw_scores(plugin: ScorePlugin, pod: PodInfo, nodes: NodeView) -> dict[str, int] | None:
    """Return raw scores by node; None if PreScore skips."""
    state = CycleState()
    if PRE_SCORE.implemented_by(plugin) and plugin.pre_score(state, pod, nodes).skip:
        return None
    scores = plugin.score(state, pod, nodes)
    assert scores.dtype == "int64"
    assert scores.shape == (len(nodes),)
    return {
        node.name: score
        for node, score in zip(nodes.nodes(), scores.tolist(), strict=True)
        if node is not None
    }


def reasons_on(
    kind: type[FilterPlugin],
    pod: PodInfo,
    nodes: Iterable[JsonObject],
    pods: Iterable[JsonObject] = (),
    args: Mapping[str, Any] | None = None,
) -> dict[str, tuple[str, ...]]:
    """Return why each rejected node is rejected."""
    cache = make_cache(nodes, pods)
    plugin = make_plugin(kind, cache.snapshot, args)
    found = statuses(plugin, pod, NodeView(cache.snapshot))
    return {name: status.reasons for name, status in found.items()}


def scores_on(
    kind: type[ScorePlugin],
    pod: PodInfo,
    nodes: Iterable[JsonObject],
    pods: Iterable[JsonObject] = (),
    args: Mapping[str, Any] | None = None,
) -> dict[str, int] | None:
    """Return the raw score of each node."""
    cache = make_cache(nodes, pods)
    plugin = make_plugin(kind, cache.snapshot, args)
    # As before each cycle: books that the plugin has registered see the rows.
    return raw_scores(plugin, pod, NodeView(cache.update_snapshot()))
