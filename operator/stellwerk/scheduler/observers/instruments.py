"""Metrics of the scheduler that take a stopwatch or a look around.

`app` gives every framework a ProfileStopwatch, puts TimedWatchHandlers before the handlers,
and asks the Gauges for the present at every scrape. Invariant: what is measured is not changed,
and one observation costs half a microsecond.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from typing_extensions import override

from stellwerk.framework.interface import Plugin
from stellwerk.framework.status import CODE_NAMES, Code
from stellwerk.framework.stopwatch import Stopwatch
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.metrics import Counter, Histogram, Metrics
from stellwerk.models.json_values import JsonObject
from stellwerk.models.plugin_description import ExtensionPoint
from stellwerk.scheduler.parts import Parts

_MAX_COMBINATIONS: Final = 1024
"""Sets of skipping plugins for which counters are kept together."""


class ProfileStopwatch(Stopwatch):
    """Durations and evaluations of one profile's plugins, with kube-scheduler's labels."""

    def __init__(
        self,
        metrics: Metrics,
        profile: str,
        plugins: Mapping[ExtensionPoint, Sequence[Plugin]],
        now: Callable[[], float],
    ) -> None:
        """`now` tells seconds from any origin."""
        self._metrics = metrics
        self._profile = profile
        self._names = {
            point.label: [plugin.name for plugin in at_point] for point, at_point in plugins.items()
        }
        self._now = now
        self._points: dict[tuple[str, Code], Histogram] = {}
        self._plugins: dict[tuple[str, str, Code], Histogram] = {}
        self._evaluations: dict[tuple[str, frozenset[str]], list[Counter]] = {}

    @override
    def started(self) -> float:
        return self._now()

    @override
    def point(self, label: str, code: Code, started: float) -> None:
        series = self._points.get((label, code))
        if series is None:
            family = self._metrics.framework_extension_point_duration
            series = family.labels(label, CODE_NAMES[code], self._profile)
            self._points[label, code] = series
        series.observe(self._now() - started)

    @override
    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        series = self._plugins.get((plugin, label, code))
        if series is None:
            family = self._metrics.plugin_execution_duration
            series = family.labels(plugin, label, CODE_NAMES[code])
            self._plugins[plugin, label, code] = series
        series.observe(self._now() - started)

    @override
    def evaluated(self, label: str, skipped: AbstractSet[str]) -> None:
        key = (label, frozenset(skipped))
        counters = self._evaluations.get(key)
        if counters is None:
            counters = self._counters(label, skipped)
            if len(self._evaluations) < _MAX_COMBINATIONS:
                self._evaluations[key] = counters
        for counter in counters:
            counter.value += 1.0

    def _counters(self, label: str, skipped: AbstractSet[str]) -> list[Counter]:
        family = self._metrics.plugin_evaluation
        return [
            family.labels(name, label, self._profile)
            for name in self._names.get(label, ())
            if name not in skipped
        ]


class Gauges:
    """What is only looked at when somebody scrapes."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        metrics, cache = parts.metrics, parts.cache
        metrics.goroutines.labels("binding").set_function(lambda: len(parts.bindings))
        metrics.cache_size.labels("nodes").set_function(lambda: sum(1 for _ in cache.nodes()))
        metrics.cache_size.labels("pods").set_function(lambda: sum(1 for _ in cache.pods()))
        metrics.cache_size.labels("assumed_pods").set_function(lambda: len(cache.assumed_pods))

    def refresh(self) -> None:
        """Bring those up to date whose series come and go."""
        family = self._parts.metrics.inflight_events
        counts = self._parts.queue.in_flight_event_counts()
        for (event,), series in family.items():
            series.set(counts.get(event, 0))
        for event, count in counts.items():
            family.labels(event).set(count)


class TimedWatchHandlers(WatchHandlers):
    """Event handlers, with the time they take."""

    def __init__(self, events: WatchHandlers, parts: Parts, now: Callable[[], float]) -> None:
        self._events = events
        self._parts = parts
        self._now = now
        self._series: dict[str, Histogram] = {}

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> None:
        label = self._pod_label(event_type, obj)
        started = self._now()
        self._events.on_pod(event_type, obj)
        self._observe(label, started)

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        known = self._parts.cache.node(obj["metadata"]["name"]) is not None
        started = self._now()
        self._events.on_node(event_type, obj)
        self._observe(f"Node{_change(event_type, known=known)}", started)

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        started = self._now()
        self._events.on_object(kind, event_type, obj)
        self._observe(f"{kind}{_change(event_type, known=event_type == 'MODIFIED')}", started)

    @override
    def on_synced(self, kind: str) -> None:
        self._events.on_synced(kind)

    def _pod_label(self, event_type: str | None, obj: JsonObject) -> str:
        """`AssignedPodAdd` and its like; a pod that got its node is added to the assigned ones."""
        cache, uid = self._parts.cache, obj["metadata"].get("uid", "")
        counted = cache.pod(uid) is not None and not cache.is_assumed(uid)
        if counted or (obj.get("spec") or {}).get("nodeName"):
            return f"AssignedPod{_change(event_type, known=counted)}"
        return f"UnschedulablePod{_change(event_type, known=uid in self._parts.queue)}"

    def _observe(self, label: str, started: float) -> None:
        series = self._series.get(label)
        if series is None:
            series = self._parts.metrics.event_handling_duration.labels(label)
            self._series[label] = series
        series.observe(self._now() - started)


def _change(event_type: str | None, *, known: bool) -> str:
    if event_type == "DELETED":
        return "Delete"
    return "Update" if known else "Add"
