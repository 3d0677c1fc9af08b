"""The table of extension points: the method, the label and the plugins of each.

The registry describes plugin classes by it, plugin_isolation wraps plugins, and the runtime and the
queue find the plugins of each point. Invariant: a plugin has a point if it has the point's method;
no other module looks for methods or checks protocols.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, Final, Generic, TypeAlias, TypeVar

from typing_extensions import TypeIs

from stellwerk.framework.interface import (
    AdmitsVictims,
    BindPlugin,
    CountsRoom,
    EnqueueExtensions,
    EqualPodsPlugin,
    ExplainPlugin,
    FilterPlugin,
    NormalizeScorePlugin,
    OrdersVictims,
    PermitPlugin,
    PermitResult,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterExtensions,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ProposePlugin,
    QueueSortPlugin,
    ReadsTime,
    ReservePlugin,
    ScorePlugin,
)
from stellwerk.framework.types import FilterResult, Status
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.snapshot.columns import IntColumn

Role = TypeVar("Role")
Answer = TypeVar("Answer")

PluginsByPoint: TypeAlias = Mapping[ExtensionPoint, Sequence[Plugin]]
"""The plugins of a profile at each point, in calling order."""


@dataclass(frozen=True, slots=True)
class Extensions(Generic[Role]):
    """Methods beside its points that a plugin may have."""

    protocol: type[object]
    methods: tuple[str, ...]

    def implemented_by(self, plugin: object) -> TypeIs[Role]:
        """Return whether the plugin (or class) has all of the methods."""
        return all(hasattr(plugin, method) for method in self.methods)

    def among(self, plugins: Iterable[Plugin]) -> list[Role]:
        """Those of the plugins that have them."""
        return [plugin for plugin in plugins if self.implemented_by(plugin)]


@dataclass(frozen=True, slots=True)
class Point(Generic[Role, Answer]):
    """One method of an extension point."""

    point: ExtensionPoint
    protocol: type[object]
    method: str
    name: str = ""

    @property
    def label(self) -> str:
        """The name in metrics, messages and logs: `PreFilter`."""
        return self.name or self.point.label

    @property
    def awaited(self) -> bool:
        """True if it may wait."""
        return iscoroutinefunction(getattr(self.protocol, self.method))

    def implemented_by(self, plugin: object) -> TypeIs[Role]:
        """Return whether the plugin (or class) has the method."""
        return hasattr(plugin, self.method)

    def among(self, plugins: PluginsByPoint) -> list[Role]:
        """A profile's plugins at the point, in calling order."""
        return [plugin for plugin in plugins.get(self.point, ()) if self.implemented_by(plugin)]

    def method_of(self, plugin: Role) -> Callable[..., Answer]:
        """The method to call."""
        method: Callable[..., Answer] = getattr(plugin, self.method)
        return method


PRE_ENQUEUE: Final[Point[PreEnqueuePlugin, Status]] = Point(
    ExtensionPoint.PRE_ENQUEUE, PreEnqueuePlugin, "pre_enqueue"
)
QUEUE_SORT: Final[Point[QueueSortPlugin, tuple[float, ...]]] = Point(
    ExtensionPoint.QUEUE_SORT, QueueSortPlugin, "sort_key"
)
PRE_FILTER: Final[Point[PreFilterPlugin, PreFilterResult]] = Point(
    ExtensionPoint.PRE_FILTER, PreFilterPlugin, "pre_filter"
)
FILTER: Final[Point[FilterPlugin, FilterResult]] = Point(
    ExtensionPoint.FILTER, FilterPlugin, "filter"
)
POST_FILTER: Final[Point[PostFilterPlugin, PostFilterResult]] = Point(
    ExtensionPoint.POST_FILTER, PostFilterPlugin, "post_filter"
)
PRE_SCORE: Final[Point[PreScorePlugin, Status]] = Point(
    ExtensionPoint.PRE_SCORE, PreScorePlugin, "pre_score"
)
SCORE: Final[Point[ScorePlugin, IntColumn]] = Point(ExtensionPoint.SCORE, ScorePlugin, "score")
RESERVE: Final[Point[ReservePlugin, Status]] = Point(
    ExtensionPoint.RESERVE, ReservePlugin, "reserve"
)
PERMIT: Final[Point[PermitPlugin, Awaitable[PermitResult]]] = Point(
    ExtensionPoint.PERMIT, PermitPlugin, "permit"
)
PRE_BIND: Final[Point[PreBindPlugin, Awaitable[Status]]] = Point(
    ExtensionPoint.PRE_BIND, PreBindPlugin, "pre_bind"
)
BIND: Final[Point[BindPlugin, Awaitable[Status]]] = Point(ExtensionPoint.BIND, BindPlugin, "bind")
POST_BIND: Final[Point[PostBindPlugin, Awaitable[None]]] = Point(
    ExtensionPoint.POST_BIND, PostBindPlugin, "post_bind"
)
PLACEMENT_GENERATE: Final[Point[PlacementGeneratePlugin, Sequence[Sequence[str]]]] = Point(
    ExtensionPoint.PLACEMENT_GENERATE, PlacementGeneratePlugin, "placement_keys"
)
PLACEMENT_SCORE: Final[Point[PlacementScorePlugin, IntColumn]] = Point(
    ExtensionPoint.PLACEMENT_SCORE, PlacementScorePlugin, "score_placements"
)
POINTS: Final[Sequence[Point[Any, Any]]] = (
    PRE_ENQUEUE,
    QUEUE_SORT,
    PRE_FILTER,
    FILTER,
    POST_FILTER,
    PRE_SCORE,
    SCORE,
    RESERVE,
    PERMIT,
    PRE_BIND,
    BIND,
    POST_BIND,
    PLACEMENT_GENERATE,
    PLACEMENT_SCORE,
)
"""The points that a plugin may have, by the method that makes it one of theirs."""

UNRESERVE: Final[Point[ReservePlugin, None]] = Point(
    ExtensionPoint.RESERVE, ReservePlugin, "unreserve", "Unreserve"
)
PRE_BIND_PRE_FLIGHT: Final[Point[PreBindPlugin, Status]] = Point(
    ExtensionPoint.PRE_BIND, PreBindPlugin, "pre_bind_pre_flight", "PreBindPreFlight"
)
"""Like UNRESERVE a second method of a point's plugins, with a name of its own in metrics."""

ENQUEUE_EXTENSIONS: Final[Extensions[EnqueueExtensions]] = Extensions(
    EnqueueExtensions, ("events_to_register",)
)
PRE_FILTER_EXTENSIONS: Final[Extensions[PreFilterExtensions]] = Extensions(
    PreFilterExtensions, ("add_pods", "remove_pods")
)
NORMALIZE_SCORE: Final[Extensions[NormalizeScorePlugin]] = Extensions(
    NormalizeScorePlugin, ("normalize",)
)
COUNTS_ROOM: Final[Extensions[CountsRoom]] = Extensions(CountsRoom, ("counted_resources",))
ADMITS_VICTIMS: Final[Extensions[AdmitsVictims]] = Extensions(AdmitsVictims, ("admits_victim",))
EQUAL_PODS: Final[Extensions[EqualPodsPlugin]] = Extensions(EqualPodsPlugin, ("after_equal_pod",))
READS_TIME: Final[Extensions[ReadsTime]] = Extensions(
    ReadsTime, ("reads_time", "rejection_ends_at")
)
ORDERS_VICTIMS: Final[Extensions[OrdersVictims]] = Extensions(OrdersVictims, ("victim_order",))
EXPLAIN: Final[Extensions[ExplainPlugin]] = Extensions(ExplainPlugin, ("explain",))
PROPOSE: Final[Extensions[ProposePlugin]] = Extensions(ProposePlugin, ("propose",))
"""Like EXPLAIN asked of every plugin of a profile that has it, at whatever points it is."""


def is_keyed_by_spec(plugin: Plugin, method: str) -> bool:
    """Return whether a plugin leaves its `filter_key` or `score_key` as it is: the pod's spec."""
    return getattr(type(plugin), method, None) in {FilterPlugin.filter_key, ScorePlugin.score_key}


def points_of(plugin: object) -> frozenset[ExtensionPoint]:
    """The extension points of a plugin or a plugin class."""
    return frozenset(point.point for point in POINTS if point.implemented_by(plugin))
