"""The composition root: builds every part of the operator and wires them; decides nothing.

The command line calls `run`. Invariant: nothing is decided before the first list of every kind is
complete, and the process ends only after the bindings in flight have.
"""

import asyncio
import logging
import random
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import ObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.client.credentials import Credentials, load_credentials
from stellwerk.client.election import LeaderElectionOptions
from stellwerk.client.event_recorder import EventRecorder
from stellwerk.client.fence import Fence
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.leadership import Leadership, fence_for
from stellwerk.clock import Clock, SuspendAwareClock, SystemClock
from stellwerk.errors import Conflict, SchedulerError
from stellwerk.framework.handle import Services
from stellwerk.handlers.lifecycle import OperatorOptions, run_operator
from stellwerk.handlers.watched import WATCHED
from stellwerk.metrics import Metrics
from stellwerk.models.profile import API_VERSION, DEFAULT_PROFILE_MANIFEST, PLURAL
from stellwerk.plugins.registry import known_plugins
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.extenders.profile_extenders import ExtenderPool
from stellwerk.scheduler.extenders.raw_objects import RawObjects
from stellwerk.scheduler.observers.debugger import Debugger
from stellwerk.scheduler.observers.instruments import Gauges, ProfileStopwatch, TimedWatchHandlers
from stellwerk.scheduler.observers.queue_metrics import QueueMetrics
from stellwerk.scheduler.parts import Parts
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.scheduler.profiles.plugin_guard import DEFAULT_LIMIT_SECONDS, TimerGuard
from stellwerk.scheduler.profiles.predicates import Predicates
from stellwerk.scheduler.profiles.profiles import ProfileChange, Profiles
from stellwerk.scheduler.profiles.queueing import ProfileQueueing
from stellwerk.scheduler.profiles.unserved import UnservedPods
from stellwerk.scheduler.scheduler import ActiveQueue, Scheduler
from stellwerk.scheduler.standby import stand_by
from stellwerk.scheduler.status_reports import StatusReports
from stellwerk.scheduler.waiting_pods import WaitingPodsMap
from stellwerk.serving.http import HttpServer, Probes, Watchdog
from stellwerk.serving.resource_metrics import resource_metrics

logger = logging.getLogger(__name__)

_PROFILES_PATH: Final = f"/apis/{API_VERSION}/{PLURAL}"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line says about `stellwerk run`."""

    kubeconfig: str | None = None
    context: str | None = None
    bind_address: str = "127.0.0.1:10259"
    fast_lane: bool = True
    max_unschedulable_seconds: float = 300.0
    plugin_limit_seconds: float = DEFAULT_LIMIT_SECONDS
    """How long a call of a plugin that does not come with Stellwerk may take."""
    leader_election: LeaderElectionOptions = field(default_factory=LeaderElectionOptions)


class SyncBarrier:
    """Opens when the first list of every watched kind is complete."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self._missing = set(kinds)
        self._complete = asyncio.Event()

    def on_synced(self, kind: str) -> None:
        """A kind's first list is complete."""
        self._missing.discard(kind)
        if not self._missing:
            self._complete.set()

    @property
    def missing(self) -> list[str]:
        """Kinds that are still being listed."""
        return sorted(self._missing)

    async def wait(self) -> None:
        """Wait until nothing is missing."""
        await self._complete.wait()


class Operator:
    """The parts of one running operator."""

    def __init__(
        self,
        client: KubernetesClient,
        recorder: EventRecorder,
        metrics: Metrics,
        clock: Clock,
        options: RunOptions,
        fence: Fence | None = None,
    ) -> None:
        self.barrier = SyncBarrier(frozenset(kind.kind for kind in WATCHED))
        cache, raw = Cache(), RawObjects(client)
        self.parts = Parts(
            clock=clock,
            client=client,
            recorder=recorder,
            metrics=metrics,
            cache=cache,
            objects=ObjectStore(),
            priority_classes=PriorityClasses(),
            waiting=WaitingPodsMap(),
            bindings=BindingTasks(),
            raw=raw,
            reports=StatusReports(client, clock),
        )
        active, nominator = ActiveQueue(), Nominator()
        self.guard = TimerGuard(options.plugin_limit_seconds)
        self.handlers = TimedWatchHandlers(
            EventHandlers(self.parts, self.barrier.on_synced), self.parts, clock.monotonic
        )
        self.extenders = ExtenderPool(client, raw, cache, clock, metrics, fence)
        self.parts.profiles = Profiles(
            self._services(nominator),
            known_plugins(),
            self.extenders,
            self._profiles_changed,
            random.Random,
        )
        self.parts.queueing = ProfileQueueing(self.parts.profiles, metrics)
        self.parts.unserved = UnservedPods(self.parts)
        queue_metrics = QueueMetrics(metrics)
        self.parts.queue = SchedulingQueue(
            active.push,
            self.parts.queueing,
            nominator=nominator,
            observer=queue_metrics,
            wake=active.wake,
            max_unschedulable_seconds=options.max_unschedulable_seconds,
        )
        queue_metrics.serve(self.parts.queue)
        self.parts.preemptor = PreemptionExecutor(self.parts)
        self.active = active
        self.scheduler = Scheduler(self.parts, active, self.handlers)
        self.debugger = Debugger(self.parts)
        self._gauges = Gauges(self.parts)

    def _services(self, nominator: Nominator) -> Services:
        parts = self.parts
        predicates = Predicates()
        parts.listeners.append(predicates.look)
        return Services(
            snapshot=parts.cache.snapshot,
            objects=parts.objects,
            nominations=nominator,
            client=parts.client,
            recorder=parts.recorder,
            now_seconds=parts.clock.monotonic,
            random=random.Random(),
            activate=lambda pods: parts.queue.activate(pods, parts.clock.monotonic()),
            waiting_pods=parts.waiting,
            wait_until=predicates.wait_until,
            is_preempting=lambda uid: parts.preemptor.is_preempting(uid),  # noqa: PLW0108 made later
            guard=self.guard,
            stopwatch=lambda name, plugins: ProfileStopwatch(
                parts.metrics, name, plugins, parts.clock.monotonic
            ),
        )

    def _profiles_changed(self, change: ProfileChange) -> None:
        parts = self.parts
        parts.unserved.profiles_changed()
        if change.queue_sort:
            parts.queue.reorder()
        for name in change.scheduler_names:
            parts.queue.retry_profile(name, parts.clock.monotonic())

    def unready(self) -> str | None:
        """Why the operator is not ready; None: it is."""
        missing = self.barrier.missing
        return f"waiting for the first list of {', '.join(missing)}" if missing else None

    def heartbeat(self) -> float:
        """When the scheduling coroutine last moved; now, while it is not running yet."""
        if not self.scheduler.running:
            return self.parts.clock.monotonic()
        return self.scheduler.last_heartbeat_seconds

    def exposition(self) -> bytes:
        """The text of /metrics."""
        self._gauges.refresh()
        return self.parts.metrics.exposition()

    def resource_metrics(self) -> bytes:
        """The text of /metrics/resources."""
        cache = self.parts.cache
        waiting = (
            entry.newest
            for entry in self.parts.queue.entries()
            if cache.pod(entry.newest.uid) is None
        )
        return resource_metrics(chain(cache.pods(), waiting))

    async def schedule(self, leading: asyncio.Event) -> None:
        """Wait for the lists and the lease, make sure that there is a profile, and schedule."""
        await self.barrier.wait()
        await stand_by(self.parts, self.active, leading)
        await self._ensure_profile()
        logger.info(
            "serving %s with %d nodes",
            ", ".join(sorted(self.parts.profiles.serving())) or "no profile",
            sum(1 for _ in self.parts.cache.nodes()),
        )
        await self.scheduler.run()

    async def _ensure_profile(self) -> None:
        if self.parts.profiles.entries:
            return
        try:
            created = await self.parts.client.create(_PROFILES_PATH, DEFAULT_PROFILE_MANIFEST)
        except Conflict:
            return
        except SchedulerError as failure:
            logger.warning(
                "no SchedulerProfile exists and none can be created; serving %s from memory: %s",
                DEFAULT_PROFILE_MANIFEST["spec"]["schedulerName"],
                failure,
            )
            created = dict(DEFAULT_PROFILE_MANIFEST)
        self.handlers.on_object("SchedulerProfile", "ADDED", created)


async def run(options: RunOptions) -> None:
    """Run the operator until SIGTERM or SIGINT.

    Raises:
        ConfigurationError: the cluster cannot be reached as configured.
        SchedulerError: the watches ended for good.
    """
    clock, metrics = SystemClock(), Metrics()
    fence = fence_for(options.leader_election, SuspendAwareClock())
    credentials = await load_credentials(options.kubeconfig, options.context, clock=clock)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            KubernetesClient(
                credentials, clock=clock, metrics=metrics, jitter=random.random, fence=fence
            )
        )
        leadership = Leadership.of(
            options.leader_election,
            client,
            fence,
            clock=SuspendAwareClock(),
            metrics=metrics,
            jitter=random.random,
        )
        version = await client.check_reachable()
        recorder = EventRecorder(
            client, clock=clock, metrics=metrics, jitter=random.random, fence=fence
        )
        recorder.start()
        stack.push_async_callback(recorder.close)
        operator = Operator(client, recorder, metrics, clock, options, fence)
        stack.push_async_callback(operator.extenders.close)
        server = HttpServer(
            Probes(
                live={"scheduling": Watchdog(clock, operator.heartbeat)},
                ready={"lists": operator.unready, "leaderElection": leadership.watchdog},
                healthy={"leaderElection": leadership.watchdog},
            ),
            operator.exposition,
            lambda: operator.resource_metrics() if leadership.is_leading else b"",
        )
        await server.start(options.bind_address)
        stack.push_async_callback(server.close)
        logger.info("scheduling for Kubernetes %s at %s", version, credentials.server)
        await _supervise(operator, leadership, client, credentials, metrics, options)


async def _supervise(
    operator: Operator,
    leadership: Leadership,
    client: KubernetesClient,
    credentials: Credentials,
    metrics: Metrics,
    options: RunOptions,
) -> None:
    stop = asyncio.Event()
    operator.guard.install()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, operator.debugger.on_signal)
    scheduling = asyncio.create_task(operator.schedule(leadership.leading), name="scheduler")
    electing = asyncio.create_task(
        leadership.run(operator.barrier.wait, lambda: not operator.parts.unconfirmed),
        name="leader election",
    )
    watching = asyncio.create_task(
        run_operator(
            events=operator.handlers,
            client=client,
            credentials=credentials,
            metrics=metrics,
            jitter=random.random,
            on_signal=stop.set,
            options=OperatorOptions(fast_lane=options.fast_lane),
        ),
        name="watches",
    )
    stopped = asyncio.create_task(stop.wait(), name="stop")
    tasks = (scheduling, electing, watching, stopped)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        # The scheduler first: it drains its bindings while the lease is held and the watches still
        # confirm them; then the lease is released.
        for task in tasks:
            task.cancel()
            await asyncio.wait({task})
    for task in (scheduling, electing, watching):
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
