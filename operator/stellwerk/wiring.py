"""The parts of one operator, wired, whatever its way to the cluster; decides nothing.

`app` drives one with watches, `stellwerk record` one that writes nothing, replays one in virtual
time, and commands fill one from lists. Invariant: nothing of kopf or of a port is imported for it.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.client.connection import Fence
from stellwerk.client.extender import ExtenderReach
from stellwerk.client.extender_tls import ExtenderFiles
from stellwerk.client.web import WebClient
from stellwerk.explain.queue_history import QueueHistory
from stellwerk.explain.report import Explanations
from stellwerk.framework.handle import RandomNumbers, Services
from stellwerk.framework.services import ClusterClient, Recorder
from stellwerk.framework.time_budget import DEFAULT_SHARE, TimeBudget
from stellwerk.handlers.rereading import Redelivery
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.metrics import Metrics
from stellwerk.models.complexity import DEFAULT_MAX_POD_COMPLEXITY
from stellwerk.observing.observer import Observer
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.default_profile import ensure_profile, keep_profile
from stellwerk.profiles.history import RevisionHistory
from stellwerk.profiles.loader import ProfileLoader
from stellwerk.profiles.moves import PodsWithoutProfile
from stellwerk.profiles.plugin_guard import DEFAULT_LIMIT_SECONDS, TimerGuard
from stellwerk.profiles.status_writer import ProfileStatusWriter
from stellwerk.profiles.unserved import UnservedPods
from stellwerk.scheduler.api_dispatcher import APIDispatcher, KeyedLocks
from stellwerk.scheduler.binding_cycle import BindingCycle
from stellwerk.scheduler.binding_outcomes import BindingOutcomes
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.event_handlers import EventHandlers, Predicates, SyncBarrier
from stellwerk.scheduler.extenders.pool import ExtenderPool
from stellwerk.scheduler.extenders.raw_objects import RawObjects
from stellwerk.scheduler.failure_handler import FailureHandler
from stellwerk.scheduler.gangs.group_conditions import GroupConditions
from stellwerk.scheduler.gangs.group_events import GroupEvents
from stellwerk.scheduler.observers.audit import Audit
from stellwerk.scheduler.observers.audit_rounds import AUDIT_PERIOD_SECONDS, AuditRounds
from stellwerk.scheduler.observers.debugger import Debugger
from stellwerk.scheduler.observers.instruments import (
    DeviceCounters,
    Gauges,
    PluginFamilies,
    ProfileMetricsRecorder,
    QueueMetrics,
    VolumeCounters,
    attempt_totals,
    plugin_failure_counter,
)
from stellwerk.scheduler.observers.recording import Recording
from stellwerk.scheduler.plugin_sources import PluginSources
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk.scheduler.scheduler import ActiveQueue, Scheduler, stand_by
from stellwerk.scheduler.status_reports import StatusReports
from stellwerk.scheduler.throttle import Throttle
from stellwerk.scheduler.waiting_pods_map import WaitingPodsMap
from stellwerk.scheduler.worker_process import WorkerProcess
from stellwerk.serving.exposition import exposition
from stellwerk.serving.resource_metrics import resource_metrics
from stellwerk.world.gangs.pod_groups import PodGroupStates
from stellwerk.world.profiles import Profiles, RecordedRandom
from stellwerk.world.world import World
from stellwerk_kube.clock import Clock
from stellwerk_kube.compatibility import (
    NO_GATES,
    RECORDED,
    Compatibility,
    FeatureGates,
    release_of_server,
)
from stellwerk_kube.destinations import EVERYWHERE, Destinations

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The options of `stellwerk run` that concern the parts themselves."""

    max_unschedulable_seconds: float = 300.0
    plugin_limit_seconds: float = DEFAULT_LIMIT_SECONDS
    """The longest call of a plugin that does not come with Stellwerk."""
    audit_seconds: float = AUDIT_PERIOD_SECONDS
    """The time between two comparisons of cache and queue with the API, and repairs; 0: never."""
    foreign_share: float = DEFAULT_SHARE
    """The share of the scheduler's time for foreign plugins and extenders of one profile."""
    max_pod_complexity: int = DEFAULT_MAX_POD_COMPLEXITY
    """Pending pods beyond it are not scheduled."""
    gates: FeatureGates = NO_GATES
    """Feature gates, as kube-scheduler has them."""
    extender_files_dir: Path | None = None
    """Files of extenders lie below it; None: none is read."""
    destinations: Destinations = EVERYWHERE
    """The addresses that profiles may have called."""
    observe_only: bool = False
    """Whether to schedule nothing, and to write nothing but the statuses of profiles."""
    name: str = ""
    """Profiles with it as their label are served; empty: those without one."""
    history_namespace: str | None = None
    """The namespace that keeps the history of profiles; None: the pod's own, outside a cluster
    none."""


class Operator:
    """The parts of one running operator, whatever its way to the cluster."""

    def __init__(
        self,
        client: ClusterClient,
        recorder: Recorder,
        metrics: Metrics,
        clock: Clock,
        options: OperatorSettings,
        fence: Fence | None = None,
        recording: Recording | None = None,
        numbers: Callable[[int | None], RandomNumbers] = random.Random,
    ) -> None:
        """Wire the parts; `numbers` makes a generator, from a profile's seed or from none."""
        self.metrics = metrics
        self._client = client
        self.active, self.observed = ActiveQueue(), ActiveQueue()
        active, observed = self.active, self.observed
        self.world = _world(active, observed, metrics, clock, options, numbers(None))
        self.bindings, self.waiting_pods = BindingTasks(), WaitingPodsMap()
        self.outcomes = BindingOutcomes(self.world, self.bindings, client)
        self.barrier = SyncBarrier(frozenset(kind.kind for kind in WATCHED))
        self.budget = TimeBudget(clock.monotonic, options.foreign_share)
        self.guard = TimerGuard(options.plugin_limit_seconds, budget=self.budget)
        reports = StatusReports(client, clock, self.world.profiles.is_observed)
        dispatcher = APIDispatcher(client, recorder, reports)
        self.raw = RawObjects(client)
        self.worker = WorkerProcess()
        self.web = WebClient(destinations=options.destinations, elsewhere=self.worker.computed)
        self.sources = PluginSources(
            client,
            self.web,
            self.world.objects,
            clock,
            metrics,
            lambda: fence is None or fence.is_open,
        )
        self.extenders = ExtenderPool(
            client,
            self.raw,
            self.world.cache,
            clock,
            metrics,
            self.budget,
            fence,
            ExtenderReach(ExtenderFiles(options.extender_files_dir), options.destinations),
        )
        self.predicates = Predicates()
        self.without_profile = PodsWithoutProfile(self.world, dispatcher)
        self.unserved = UnservedPods(self.world, self.without_profile, client, metrics)
        self.loader = ProfileLoader(
            self.world,
            self._services(dispatcher),
            known_plugins(),
            self.extenders,
            self.without_profile,
            numbers,
            metrics,
            options.max_pod_complexity,
        )
        self.loader.operator_name = options.name
        self.loader.permission.observe_only = options.observe_only
        self.preemption = PreemptionExecutor(
            self.world, dispatcher, metrics, self.bindings, self.waiting_pods
        )
        self.group_conditions = GroupConditions(self.world, dispatcher)
        self.handlers = self._event_handlers(dispatcher, options)
        self.handlers.on_own_kind = self.sources.on_synced
        self.profile_status = ProfileStatusWriter(
            self.world, self.loader, dispatcher, refused_sources=self.sources.refused_secrets
        )
        self.scheduler = self._scheduler(
            active, observed, dispatcher, options.max_pod_complexity, numbers
        )
        self.audit = Audit(
            self.world,
            client,
            self.without_profile,
            self.bindings,
            self.outcomes,
            lambda: self.scheduler.deciding or self.observer.deciding,
        )
        self.redelivery = Redelivery()
        self.audit_rounds = AuditRounds(self.audit, self.redelivery, metrics, options.audit_seconds)
        self.history = RevisionHistory(client, clock, options.history_namespace).follow(self.loader)
        self.debugger = Debugger(self.world, self.audit)
        self.gauges = Gauges(self.world, metrics, self.bindings)
        self.record_to(recording)

    def _event_handlers(
        self, dispatcher: APIDispatcher, options: OperatorSettings
    ) -> EventHandlers:
        """The object that turns watch events into changes of the World."""
        groups = GroupEvents(self.world, self.group_conditions)
        self.loader.moves.on_change = groups.on_profiles
        return EventHandlers(
            self.world,
            self.loader,
            dispatcher.reports,
            self.raw,
            self.bindings,
            self.waiting_pods,
            self.preemption,
            self.predicates,
            self.barrier,
            self.metrics,
            groups,
            options.max_pod_complexity,
        )

    def _services(self, dispatcher: APIDispatcher) -> Services:
        """The services that plugins are offered."""
        world, metrics = self.world, self.metrics
        return Services(
            snapshot=world.cache.snapshot,
            objects=world.objects,
            nominations=world.nominator,
            client=dispatcher.client,
            recorder=dispatcher.recorder,
            now_seconds=world.clock.monotonic,
            now=world.clock.now,
            random=world.random,
            activate=world.activate,
            waiting_pods=self.waiting_pods,
            wait_until=self.predicates.wait_until,
            one_at_a_time=KeyedLocks().one_at_a_time,
            write_later=dispatcher.api_calls.start,
            worker=self.worker,
            pods_on=world.cache.pods_on,
            preempting=world.preempting,
            pod_groups=world.pod_groups,
            guard=self.guard,
            metrics_recorder=lambda name, plugins: ProfileMetricsRecorder(
                metrics, name, plugins, world.clock.monotonic
            ),
            volume_counts=VolumeCounters(metrics),
            device_counts=DeviceCounters(metrics),
            sources=self.sources,
            metrics=PluginFamilies(metrics),
        )

    def _scheduler(
        self,
        active: ActiveQueue,
        observed: ActiveQueue,
        dispatcher: APIDispatcher,
        max_pod_complexity: int,
        numbers: Callable[[int | None], RandomNumbers],
    ) -> Scheduler:
        """The way of a pod, from activeQ to its binding, and what observes beside it."""
        world, metrics = self.world, self.metrics
        failures = FailureHandler(world, dispatcher, metrics, self.preemption, self.without_profile)
        binding = BindingCycle(
            world,
            dispatcher,
            metrics,
            self.bindings,
            self.outcomes,
            self.waiting_pods,
            self.preemption,
            failures,
        )
        throttle = Throttle(world, self.budget, active, metrics)
        schedule_one = ScheduleOne(
            world,
            self.loader,
            metrics,
            self.bindings,
            binding,
            failures,
            throttle,
            self.group_conditions,
        )
        self._schedule_one = schedule_one
        scheduler = Scheduler(
            world,
            active,
            schedule_one,
            self.bindings,
            binding,
            self.preemption,
            self.handlers,
            self.profile_status,
        )
        self.observer = Observer(
            world,
            observed,
            self.handlers,
            self.loader,
            metrics,
            (self.guard, self.sources),
            lambda: numbers(None),
            scheduler,
        )
        scheduler.observing = self.observer.run
        world.profiles.on_handed_over = scheduler.hand_over
        self.explanations = Explanations(
            world,
            schedule_one.records,
            schedule_one.evictions,
            lambda: self.without_profile.pods,
            self.unserved,
            self.bindings.stage,
            QueueHistory(world, partial(attempt_totals, metrics)),
            self.profile_status.described,
            self.loader.shadows.described,
            throttle.why_slow,
            max_pod_complexity,
            self.observer.described,
            self.observer.comparison_of,
            self.observer.is_comparison_pending,
        )
        return scheduler

    def record_to(self, recording: Recording | None) -> None:
        """Take down what happens from now on, before anything has; without a recording nothing."""
        if recording is not None:
            recording.listen(self.world, self.handlers, self._schedule_one, self.extenders)

    def exposition(self) -> bytes:
        """The text of /metrics."""
        self.gauges.refresh()
        return exposition(self.metrics)

    def resource_metrics(self) -> Iterator[bytes]:
        """The text of /metrics/resources, in pieces."""
        return resource_metrics(self.gauges.pods())

    async def schedule(self, leading: asyncio.Event) -> None:
        """Wait for the lists and the lease, make sure that there is a profile, and schedule.

        A process that only observes makes no profile.
        """
        await self.barrier.wait()
        await stand_by(self.world, self.active, leading, self.observed)
        observe_only = self.loader.permission.observe_only
        if not observe_only:
            await ensure_profile(self.loader, self._client, self.handlers)
        served = ", ".join(sorted(self.world.profiles.served)) or "no profile"
        nodes = sum(1 for _ in self.world.cache.nodes())
        if observe_only:
            logger.info("observing %s with %d nodes", served, nodes)
        else:
            logger.info("serving %s with %d nodes", served, nodes)
        if observe_only:
            await self.scheduler.run()
            return
        keeping = asyncio.create_task(
            keep_profile(self.loader, self._client, self.handlers), name="default profile"
        )
        try:
            await self.scheduler.run()
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})


def _world(
    active: ActiveQueue,
    observed: ActiveQueue,
    metrics: Metrics,
    clock: Clock,
    options: OperatorSettings,
    numbers: RandomNumbers,
) -> World:
    """An empty World, whose queue feeds activeQ, and that of observed pods."""
    objects = IndexedObjectStore()
    profiles = Profiles(
        plugin_failure_counter(metrics),
        partial(objects.get, "Namespace", ""),
        # Until the server has said what it is.
        Compatibility.with_server(RECORDED, options.gates),
    )
    nominator = Nominator()
    queue_metrics = QueueMetrics(metrics)
    queue = SchedulingQueue(
        active.put_nowait,
        profiles,
        nominator=nominator,
        observer=queue_metrics,
        wake=active.wake,
        max_unschedulable_seconds=options.max_unschedulable_seconds,
        push_observed=observed.put_nowait,
    )
    queue_metrics.serve(queue)
    cache = Cache()
    return World(
        cache=cache,
        objects=objects,
        priority_classes=PriorityClasses(),
        nominator=nominator,
        queue=queue,
        profiles=profiles,
        clock=clock,
        random=RecordedRandom(numbers),
        pod_groups=PodGroupStates(
            lambda name: name in profiles.served and name not in profiles.observing,
            profiles.profile_name,
            cache.assumed_pods,
        ),
    )


def beside_server(git_version: str, gates: FeatureGates) -> Compatibility:
    """The meaning of `compatibility: auto` beside an API server of this version.

    Gates that its release does not take are named in the log, and left as they are by default.
    """
    version = release_of_server(git_version)
    if version is None:
        version = RECORDED
        logger.warning("the API server reports no Kubernetes version: %s", git_version)
    for problem in gates.problems(version.release):
        logger.error("--feature-gates, with Kubernetes %s: %s", version.release, problem)
    for message in gates.without_effect(version.release):
        logger.warning("%s", message)
    return Compatibility.with_server(version, gates)
