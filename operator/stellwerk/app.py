"""The process of the operator: its way to the cluster, its port, its election, and its end.

The command line calls `run`. Invariant: nothing is decided before the first list of every kind is
complete, and the process ends only after the bindings in flight have.
"""

import asyncio
import logging
import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from stellwerk import __version__
from stellwerk.client.access import destinations_from
from stellwerk.client.allowed_writes import AllowedWrites
from stellwerk.client.connection import Fence
from stellwerk.client.credentials import load_credentials
from stellwerk.client.election import LeaderElectionOptions
from stellwerk.client.event_recorder import EventRecorder
from stellwerk.client.kubernetes import FirstAnswer, KubernetesClient
from stellwerk.client.leadership import Leadership, fence_for
from stellwerk.client.lease import PUBLIC_KEY_ANNOTATION, leases_path, own_pod
from stellwerk.framework.offline import Offline
from stellwerk.framework.services import ClusterClient, Recorder
from stellwerk.handlers.availability import CHECK_SECONDS
from stellwerk.handlers.lifecycle import OperatorOptions, run_operator
from stellwerk.journal.writer import JournalOptions
from stellwerk.metrics import Metrics
from stellwerk.profiles.loader import NewPlugins
from stellwerk.profiles.permission import RightReview
from stellwerk.scheduler.observers.instruments import (
    StaleWatches,
    sample_queues,
)
from stellwerk.scheduler.observers.recording import recording_to
from stellwerk.serving.explanations import ExplanationRoutes
from stellwerk.serving.http import Guard, HttpServer, Probes, Watchdog
from stellwerk.serving.port import PortOptions, guarded_port, log_level_routes
from stellwerk.supervision import (
    Ending,
    announced,
    run_together,
    take_signals,
    until_stopped,
)
from stellwerk.wiring import Operator, OperatorSettings, beside_server
from stellwerk_kube.clock import Clock, SuspendAwareClock, SystemClock
from stellwerk_kube.compatibility import (
    FeatureGates,
    decided_by_default,
    server_version,
)
from stellwerk_kube.destinations import UrlPrefix
from stellwerk_kube.errors import ApiError
from stellwerk_kube.listening.limits import Limits

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunOptions(OperatorSettings):
    """The options of `stellwerk run`."""

    kubeconfig: str | None = None
    context: str | None = None
    port: PortOptions = field(default_factory=PortOptions)
    leader_election: LeaderElectionOptions = field(default_factory=LeaderElectionOptions)
    journal: JournalOptions | None = None
    """The journal that takes down events and decisions; None: there is none."""
    is_own_cluster: bool = False
    """Whether this process serves the API, too, so that no kube-scheduler is there."""
    extender_allow: tuple[UrlPrefix, ...] = ()
    """URLs that profiles may have called beside Services by name, which are in a cluster alone.
    `destinations` is what they mean where the process runs; `run` works it out."""


async def _follow_server(
    operator: Operator, client: ClusterClient, gates: FeatureGates, git_version: str
) -> None:
    """Decide as the API server's release, also when it is another one than at the start."""
    while True:
        await asyncio.sleep(CHECK_SECONDS)
        try:
            found = server_version(await client.get("/version"))
        except ApiError as error:
            logger.debug("the version of the API server is not known just now: %s", error)
            continue
        if found != git_version:
            logger.info("the API server is now %s, it was %s", found, git_version)
            git_version = operator.handlers.world.profiles.server_version = found
            operator.loader.follow(beside_server(found, gates))


def _server(
    operator: Operator,
    first_answer: FirstAnswer,
    leadership: Leadership,
    clock: Clock,
    guard: Guard,
    limits: Limits,
) -> HttpServer:
    """Probes and metrics; what pods request is exposed by the replica that leads alone."""
    return HttpServer(
        Probes(
            live={"scheduling": Watchdog(clock, operator.scheduler.heartbeat)},
            ready={
                "apiServer": first_answer.unready,
                "lists": operator.barrier.unready,
                "watches": StaleWatches(operator.metrics),
                "leaderElection": leadership.watchdog,
                # A replica that stands by serves nothing, and cannot make a profile.
                "profiles": lambda: operator.loader.unready() if leadership.is_leading else None,
            },
            healthy={"leaderElection": leadership.watchdog},
        ),
        operator.exposition,
        lambda: operator.resource_metrics() if leadership.is_leading else iter(()),
        routes=[
            *ExplanationRoutes(
                operator.explanations, lambda: leadership.standing_by_for, operator.debugger
            ).table,
            *log_level_routes(),
        ],
        guard=guard,
        limits=limits,
        refused=lambda reason: operator.metrics.port_refusals.labels(reason).inc(),
    )


def _published(guard: Guard) -> dict[str, str]:
    """The annotations of the lease: our pod, and the key by which clients know its port."""
    certificate = guard.certificate
    key = {PUBLIC_KEY_ANNOTATION: certificate.public_key} if certificate is not None else {}
    return {**own_pod(os.environ), **key}


def _listen_to_signals(operator: Operator) -> None:
    """SIGALRM, which cuts plugins off, and SIGUSR2; `handlers` takes those that end the process."""
    operator.guard.install()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, operator.debugger.on_signal)


def _leadership(
    options: RunOptions, client: KubernetesClient, fence: Fence, metrics: Metrics
) -> Leadership:
    """The election, by a clock that goes on while the machine sleeps."""
    return Leadership.of(
        options.leader_election,
        client,
        fence,
        clock=SuspendAwareClock(),
        metrics=metrics,
        jitter=random.random,
    )


def _allowed_writes(options: RunOptions) -> AllowedWrites | None:
    """The only writes of a process that observes; None: all may be sent."""
    if not options.observe_only:
        return None
    election = options.leader_election
    if not election.leader_elect:
        return AllowedWrites()
    return AllowedWrites(leases_path(election.resource_namespace), election.resource_name)


@asynccontextmanager
async def _event_recorder(
    options: RunOptions, client: KubernetesClient, clock: Clock, metrics: Metrics, fence: Fence
) -> AsyncIterator[Recorder]:
    """Write events inside the block; a process that only observes writes none."""
    if options.observe_only:
        yield Offline()
        return
    recorder = EventRecorder(
        client, clock=clock, metrics=metrics, jitter=random.random, fence=fence
    )
    recorder.start()
    try:
        yield recorder
    finally:
        await recorder.close()


def _of_a_scheduler(
    operator: Operator, leadership: Leadership, review: RightReview, namespace: str | None
) -> dict[str, Coroutine[Any, Any, None]]:
    """Return what runs beside a scheduler, and not in a process that only observes.

    These write, ask for the right to schedule, or read what only tells schedulers apart.
    """
    return {
        "history": operator.history.run(leadership.leading, namespace),
        "unserved": operator.unserved.run(leadership.leading),
        "rights": review.run(),
    }


async def run(options: RunOptions, on_port: Callable[[int], None] = lambda _: None) -> None:
    """Run the operator until SIGTERM or SIGINT; `on_port` is called with the port it serves on.

    The port is open before an API server has answered, so that probes see what is waited for.

    Raises:
        ConfigurationError: an option or the kubeconfig cannot be used.
        SchedulerError: the watches ended for good.
    """
    clock, metrics = SystemClock(), Metrics()
    fence = fence_for(options.leader_election, SuspendAwareClock())
    credentials = await load_credentials(options.kubeconfig, options.context, clock=clock)
    destinations = destinations_from(
        credentials.access, options.extender_allow, in_pod=bool(own_pod(os.environ))
    )
    options = replace(options, destinations=destinations)
    async with AsyncExitStack() as stack:
        stack.enter_context(announced(__version__))
        ending = Ending()
        take_signals(ending.on_signal)
        client = await stack.enter_async_context(
            KubernetesClient(
                credentials,
                clock=clock,
                metrics=metrics,
                jitter=random.random,
                fence=fence,
                allowed_writes=_allowed_writes(options),
            )
        )
        leadership = _leadership(options, client, fence, metrics)
        recorder = await stack.enter_async_context(
            _event_recorder(options, client, clock, metrics, fence)
        )
        operator = Operator(client, recorder, metrics, clock, options, fence)
        permission = operator.loader.permission
        replaces = options.leader_election.replaces_kube_scheduler
        permission.is_only_scheduler = options.is_own_cluster or replaces
        review = RightReview(permission, client, operator.loader.on_permission)
        stack.push_async_callback(operator.extenders.close)
        stack.callback(operator.worker.close)
        stack.push_async_callback(operator.sources.close)
        guard = await stack.enter_async_context(guarded_port(options.port, client, clock))
        leadership.published = partial(_published, guard)
        first_answer = FirstAnswer(client, clock, random.random)
        server = _server(operator, first_answer, leadership, clock, guard, options.port.limits)
        on_port(await server.start(options.port.bind_address))
        stack.push_async_callback(server.close)
        _listen_to_signals(operator)
        version = await until_stopped(ending.stop, first_answer.version())
        if version is None:
            return
        compatibility = beside_server(version, options.gates)
        recording = stack.enter_context(
            recording_to(
                options.journal, options.max_pod_complexity, compatibility, clock, recorder
            )
        )
        operator.record_to(recording)
        operator.loader.follow(compatibility)
        operator.handlers.world.profiles.server_version = version
        followed = decided_by_default(str(compatibility.version))
        if options.observe_only:
            logger.info("observing Kubernetes %s at %s; %s", version, credentials.server, followed)
        else:
            await until_stopped(ending.stop, review.first())
            logger.info(
                "scheduling for Kubernetes %s at %s; %s", version, credentials.server, followed
            )
        watches = run_operator(
            events=operator.handlers,
            client=client,
            credentials=credentials,
            metrics=metrics,
            jitter=random.random,
            on_signal=ending.on_signal,
            options=OperatorOptions(
                own_kinds=operator.sources,
                identity=leadership.identity,
            ),
            redelivery=operator.redelivery,
        )
        electing = leadership.run(operator.barrier.wait, lambda: not operator.bindings.unconfirmed)
        # The scheduler ends first: it drains its bindings while the lease is held and the watches
        # still confirm them; then the lease is released.
        await run_together(
            ending.stop,
            scheduler=operator.schedule(leadership.leading),
            election=electing,
            audit=operator.audit_rounds.run(),
            plugins=NewPlugins(operator.loader).run(),
            queue_samples=sample_queues(operator.explanations.history, leadership.leading),
            watches=watches,
            server_release=_follow_server(operator, client, options.gates, version),
            **(
                {}
                if options.observe_only
                else _of_a_scheduler(operator, leadership, review, credentials.access.namespace)
            ),
        )
