"""Metrics of the scheduler: durations of plugins, movements in the queue, and the present.

Every framework has a ProfileMetricsRecorder, the scheduling queue has QueueMetrics as its observer,
and the Gauges are asked at every scrape; `app` runs `sample_queues` beside the scheduler, and makes
StaleWatches a part of readiness. Preemption is counted where it happens: victims and durations in
`scheduler.preemption`, attempts in `scheduler.schedule_one`. Invariant: what is measured is not
changed, and series are looked up once.
"""

import asyncio
import logging
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Final
from weakref import WeakSet, finalize

from typing_extensions import override

from stellwerk import __version__
from stellwerk.backend.queueing_policy import QueueObserver
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.explain.queue_history import SAMPLE_SECONDS, AttemptTotals, QueueHistory
from stellwerk.framework.events import ClusterChange
from stellwerk.framework.interface import Plugin
from stellwerk.framework.metrics_recorder import MetricsRecorder
from stellwerk.framework.services import (
    DeviceCounts,
    PluginCounter,
    PluginGauge,
    PluginHistogram,
    PluginMetrics,
    VolumeCounts,
)
from stellwerk.framework.types import CODE_NAMES, Code, CycleState
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import GROUP_KINDS
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.series import Counter, CounterFamily, Gauge, GaugeFamily, Histogram, HistogramFamily
from stellwerk.world.profiles import OnPluginFailure
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

_MAX_COMBINATIONS: Final = 1024
"""Sets of skipping plugins for which counters are kept together."""
_ESSENTIAL: Final = ("Pod", "Node")
"""The kinds without which nothing is decided."""
MAX_PLUGIN_SERIES: Final = 10_000
"""Series of one family that a plugin may make. Further label values are not counted, so that a
plugin cannot fill the memory of what scrapes."""


class ProfileMetricsRecorder(MetricsRecorder):
    """Durations and evaluations of one profile's plugins, with kube-scheduler's labels."""

    started: Callable[[], float]
    """The clock itself: asked at most points of a pod's way, it needs no method around it."""

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
        self.started = now
        self._points: dict[tuple[str, Code], Histogram] = {}
        self._plugins: dict[tuple[str, str, Code], Histogram] = {}
        self._evaluations: dict[tuple[str, frozenset[str]], list[Counter]] = {}

    @override
    def attempt(self, state: CycleState) -> None:
        runs, state.point_runs = state.point_runs, []
        for label, code, seconds, skipped in runs:
            series = self._points.get((label, code)) or self._point_series(label, code)
            series.observe(seconds)
            if skipped is None:
                continue
            counters = self._evaluations.get((label, frozenset(skipped)))
            if counters is None:
                counters = self._evaluation_counters(label, skipped)
            for counter in counters:
                counter.value += 1.0

    @override
    def point(self, label: str, code: Code, seconds: float) -> None:
        series = self._points.get((label, code)) or self._point_series(label, code)
        series.observe(seconds)

    @override
    def plugin(self, plugin: str, label: str, code: Code, started: float) -> None:
        series = self._plugins.get((plugin, label, code))
        if series is None:
            family = self._metrics.plugin_execution_duration
            series = family.labels(plugin, label, CODE_NAMES[code])
            self._plugins[plugin, label, code] = series
        series.observe(self.started() - started)

    def _point_series(self, label: str, code: Code) -> Histogram:
        family = self._metrics.framework_extension_point_duration
        series = self._points[label, code] = family.labels(label, CODE_NAMES[code], self._profile)
        return series

    def _evaluation_counters(self, label: str, skipped: AbstractSet[str]) -> list[Counter]:
        """The counters of a point's plugins but for those that skipped."""
        family = self._metrics.plugin_evaluation
        counters = [
            family.labels(name, label, self._profile)
            for name in self._names.get(label, ())
            if name not in skipped
        ]
        if len(self._evaluations) < _MAX_COMBINATIONS:
            self._evaluations[label, frozenset(skipped)] = counters
        return counters


class QueueMetrics(QueueObserver):
    """Counts what the scheduling queue does; a hint that raised is logged with its plugin."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._incoming: dict[tuple[str, str], Counter] = {}
        self._rejected: dict[tuple[str, str], Gauge] = {}
        self._hints: dict[tuple[str, str, str], Histogram] = {}

    def serve(self, queue: SchedulingQueue) -> None:
        """Let `scheduler_pending_pods` read the queue at every scrape."""
        for label in queue.pending():
            self._metrics.pending_pods.labels(label).set_function(partial(_pending, queue, label))

    @override
    def incoming(self, queue: str, event: str) -> None:
        series = self._incoming.get((queue, event))
        if series is None:
            series = self._metrics.queue_incoming_pods.labels(queue, event)
            self._incoming[queue, event] = series
        series.value += 1.0

    @override
    def rejected(self, plugin: str, profile: str, change: int) -> None:
        series = self._rejected.get((plugin, profile))
        if series is None:
            series = self._metrics.unschedulable_pods.labels(plugin, profile)
            self._rejected[plugin, profile] = series
        series.inc(change)

    @override
    def hints_evaluated(
        self, plugin: str, event: str, result: str, times: int, seconds: float
    ) -> None:
        # Each counts with the mean duration.
        series = self._hints.get((plugin, event, result))
        if series is None:
            family = self._metrics.queueing_hint_execution_duration
            series = self._hints[plugin, event, result] = family.labels(plugin, event, result)
        series.observe_repeated(seconds / times, times)

    @override
    def hint_failed(
        self, plugin: str, pod: PodInfo, change: ClusterChange, failure: Exception
    ) -> None:
        logger.error(
            "queueing hint of %s failed for %s on %s: %s",
            plugin,
            pod.key,
            change.name,
            failure,
            exc_info=failure,
        )


class VolumeCounters(VolumeCounts):
    """Counts what VolumeBinding does."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @override
    def assumed(self, operation: str) -> None:
        self._metrics.volume_binder_cache_requests.labels(operation).inc()

    @override
    def failed(self, stage: str) -> None:
        self._metrics.volume_scheduling_stage_errors.labels(stage).inc()


class DeviceCounters(DeviceCounts):
    """Counts what DynamicResources does."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    @override
    def claim_made(self, status: str) -> None:
        self._metrics.resource_claim_creates.labels(status).inc()

    @override
    def awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        metrics = self._metrics
        metrics.binding_conditions_allocations.labels(profile, driver, status).inc()
        metrics.binding_conditions_wait_duration.labels(profile, driver, status).observe(seconds)


class PluginFamilies(PluginMetrics):
    """The families of plugins' own; one of several plugins is shared."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._shown: dict[tuple[str, tuple[str, ...]], WeakSet[PluginGauge]] = {}
        """By gauge family and label values, the plugins' gauges that have set them."""

    @override
    def counter(self, name: str, text: str, *labels: str) -> PluginCounter:
        return _CounterOfPlugin(self._metrics.counter_of_plugins(name, text, labels))

    @override
    def gauge(self, name: str, text: str, *labels: str) -> PluginGauge:
        return _GaugeOfPlugin(self._metrics.gauge_of_plugins(name, text, labels), self._shown)

    @override
    def histogram(
        self, name: str, text: str, *labels: str, buckets: Sequence[float]
    ) -> PluginHistogram:
        bounds = tuple(sorted(float(bound) for bound in buckets))
        return _HistogramOfPlugin(self._metrics.histogram_of_plugins(name, text, labels, bounds))


class _CounterOfPlugin(PluginCounter):
    def __init__(self, family: CounterFamily) -> None:
        self._family = family

    @override
    def inc(self, *values: str, amount: float = 1.0) -> None:
        if _has_room(self._family, values):
            self._family.labels(*values).inc(max(0.0, amount))


class _HistogramOfPlugin(PluginHistogram):
    def __init__(self, family: HistogramFamily) -> None:
        self._family = family

    @override
    def observe(self, value: float, *values: str) -> None:
        if _has_room(self._family, values):
            self._family.labels(*values).observe(value)


class _GaugeOfPlugin(PluginGauge):
    """A plugin's part of a family: what no plugin that still lives has set is not shown."""

    def __init__(
        self,
        family: GaugeFamily,
        shown: dict[tuple[str, tuple[str, ...]], WeakSet[PluginGauge]],
    ) -> None:
        self._family = family
        self._shown = shown
        self._set: set[tuple[str, ...]] = set()
        finalize(self, _forget, family, shown, self._set).atexit = False

    @override
    def set(self, value: float, *values: str) -> None:
        if _has_room(self._family, values):
            self._family.labels(*values).set(value)
            self._set.add(values)
            self._shown.setdefault((self._family.name, values), WeakSet()).add(self)

    @override
    def remove(self, *values: str) -> None:
        self._set.discard(values)
        self._shown.pop((self._family.name, values), None)
        self._family.remove(*values)


def _forget(
    family: GaugeFamily,
    shown: dict[tuple[str, tuple[str, ...]], WeakSet[PluginGauge]],
    set_values: AbstractSet[tuple[str, ...]],
) -> None:
    for values in set_values:
        if not shown.get((family.name, values)):
            shown.pop((family.name, values), None)
            family.remove(*values)


def _has_room(
    family: CounterFamily | GaugeFamily | HistogramFamily, values: tuple[str, ...]
) -> bool:
    return family.has(*values) or family.size < MAX_PLUGIN_SERIES


class Gauges:
    """Values that are only looked at when metrics are scraped."""

    def __init__(self, world: World, metrics: Metrics, bindings: BindingTasks) -> None:
        self._bindings = bindings
        self._world = world
        self._metrics = metrics
        cache = world.cache
        metrics.goroutines.labels("binding").set_function(lambda: len(bindings))
        metrics.cache_size.labels("nodes").set_function(lambda: sum(1 for _ in cache.nodes()))
        metrics.cache_size.labels("pods").set_function(lambda: sum(1 for _ in cache.pods()))
        metrics.cache_size.labels("assumed_pods").set_function(lambda: len(cache.assumed_pods))
        metrics.ingest_lag.labels().set_function(self._ingest_lag_seconds)
        metrics.cache_age.labels().set_function(self._cache_age_seconds)
        metrics.served_profiles.labels().set_function(lambda: len(world.profiles.served))
        metrics.build_info.labels(__version__, platform.python_version()).set(1)

    def refresh(self) -> None:
        """Bring those up to date whose series come and go."""
        family = self._metrics.inflight_events
        counts = self._world.queue.in_flight_event_counts()
        for (event,), series in family.items():
            series.set(counts.get(event, 0))
        for event, count in counts.items():
            family.labels(event).set(count)
        self._refresh_groups()
        for profile in self._world.profiles.served.values():
            for plugin in profile.framework.distrusted:
                self._metrics.plugins_distrusted.labels(plugin, profile.scheduler_name).set(1)
        self._metrics.snapshot_rows_updated.labels().value = self._world.cache.rows_updated

    def _refresh_groups(self) -> None:
        """Groups that wait, and for how long."""
        book, now = self._world.pod_groups, self._world.clock.monotonic()
        waiting, longest = {"pods": 0, "room": 0, "turn": 0}, 0.0
        for members in book.groups.values():
            if members.waiting_since is not None:
                held = "turn" if book.is_inadmissible(members) else "room"
                waiting["pods" if book.why_closed(members) else held] += 1
                longest = max(longest, now - members.waiting_since)
        for kind in (*GROUP_KINDS, RESOURCE_CLAIM):
            self._metrics.kind_missed.labels(kind).set(self._world.misses(kind))
        for what, count in waiting.items():
            self._metrics.podgroups_waiting.labels(what).set(count)
        self._metrics.podgroup_longest_wait.labels().set(longest)

    def _ingest_lag_seconds(self) -> float:
        """The age of the oldest answered binding that the watch has not shown."""
        oldest = next(iter(self._bindings.unconfirmed.values()), None)
        return 0.0 if oldest is None else self._world.clock.monotonic() - oldest

    def _cache_age_seconds(self) -> float:
        """The silence of the watches that no decision goes without, in seconds."""
        heard = dict(self._metrics.watch_silence.items())
        return max((heard[kind,].current() for kind in _ESSENTIAL if (kind,) in heard), default=0.0)

    def pods(self) -> Iterator[PodInfo]:
        """Every pod that is known: those on nodes, then those in the queue."""
        cache = self._world.cache
        yield from cache.pods()
        for entry in self._world.queue.entries.values():
            if cache.pod(entry.newest.uid) is None:
                yield entry.newest


def plugin_failure_counter(metrics: Metrics) -> OnPluginFailure:
    """Counts plugins that raised while the queue asked them."""
    return lambda *labels: metrics.plugin_failures.labels(*labels).inc()


def _pending(queue: SchedulingQueue, label: str) -> float:
    return queue.pending()[label]


def attempt_totals(metrics: Metrics) -> AttemptTotals:
    """Read the counters of which the history of throughput and latency is made."""
    bound = failed = 0.0
    for (result, _), counter in metrics.schedule_attempts.items():
        if result == "scheduled":
            bound += counter.value
        else:
            failed += counter.value
    series = [each for _, each in metrics.pod_scheduling_sli_duration.items()]
    latency = tuple(map(sum, zip(*(each.counts for each in series), strict=True)))
    return AttemptTotals(bound, failed, series[0].bounds if series else (), latency)


async def sample_queues(history: QueueHistory, leading: asyncio.Event) -> None:
    """Sample every few seconds from the moment at which this replica leads, until cancelled."""
    await leading.wait()
    history.begin()
    while True:
        try:
            history.sample()
        except Exception:
            logger.exception("the queues could not be sampled")
        await asyncio.sleep(SAMPLE_SECONDS)


STALE_SECONDS: Final = 90.0
"""Silence of a watch after which `StaleWatches` fails. A quiet kind is silent for 25 s: then its
stream is opened again, and the server answers."""
MAX_NAMED_KINDS: Final = 3
"""Kinds that the message names. Beyond it only their number is given."""


class StaleWatches:
    """Fails while the API server says nothing of what is watched; scheduling goes on meanwhile."""

    def __init__(self, metrics: Metrics, limit_seconds: float = STALE_SECONDS) -> None:
        """Read the ages that `metrics` exports, and tolerate them up to the limit."""
        self._ages = metrics.watch_silence
        self._limit_seconds = limit_seconds

    def __call__(self) -> str | None:
        """Return what is wrong, or None."""
        ages = {kind: age.current() for (kind,), age in self._ages.items()}
        silent = sorted(
            (kind for kind, seconds in ages.items() if seconds > self._limit_seconds),
            key=lambda kind: (-ages[kind], kind),
        )
        if not silent:
            return None
        others = len(silent) - MAX_NAMED_KINDS
        kinds = ", ".join(silent[:MAX_NAMED_KINDS]) + (f" and {others} more" if others > 0 else "")
        return f"nothing was received about {kinds} for {ages[silent[0]]:.0f} s"
