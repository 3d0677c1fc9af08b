"""A cluster that another scheduler serves, followed by watches with the caller's credentials.

`stellwerk page --local` opens it, in place of an operator's port. Watches fill an Operator whose
client may not write, and the operator's own routes answer on a socket that only this user can open.
Invariant: nothing is written, no lease is taken, and every profile observes, whatever it says.
"""

from __future__ import annotations

import asyncio
import random  # noqa: TID251 breaks ties of an answer
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp import web
from typing_extensions import override

from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.operator_port import OperatorPort
from stellwerk.client.reading import ReadOnlyClient
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.handlers.availability import Availability, Obstacle
from stellwerk.handlers.lifecycle import OperatorOptions, run_operator
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.profile import KIND as PROFILE
from stellwerk.profiles.spec.profile import OPERATOR_LABEL
from stellwerk.profiles.spec.spec_fields import OBSERVE
from stellwerk.scheduler.observers.instruments import sample_queues
from stellwerk.scheduler.scheduler import stand_by
from stellwerk.serving.explanations import ExplanationRoutes
from stellwerk.serving.http import LIMITS, MAX_QUESTION_BYTES
from stellwerk.supervision import run_together
from stellwerk.wiring import Operator, OperatorSettings
from stellwerk_cli.reading.assumed import Assumed, assumed_configuration
from stellwerk_cli.reading.needs import KINDS, without_blind_plugins
from stellwerk_cli.reading.reader import BY_KIND, REFUSED_USER, role_for
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.errors import ConfigurationError, Forbidden, RightsMissingError
from stellwerk_kube.listening.middleware import within_limits
from stellwerk_kube.listening.port_use import PortUse

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping

    from stellwerk.client.credentials import Credentials
    from stellwerk.framework.services import ClusterClient
    from stellwerk.framework.watch_handlers import Identified, Lack
    from stellwerk.handlers.watched_kinds import WatchedKind
    from stellwerk_kube.json_values import JsonObject

_USER: Final = "the user of this process"
_FOLLOWED: Final = tuple(
    replace(kind, optional=True) if kind.kind == PROFILE else kind for kind in WATCHED
)
"""The kinds that are watched. A cluster without Stellwerk has no SchedulerProfiles."""
_RIGHTS: Final = ("list", "watch")
_DROPPED_FIELDS: Final = ("allowBeside", "extenders")
"""Fields of a SchedulerProfile that do not count here: nothing is scheduled, and extenders, which
may write, are not called from this machine."""


@dataclass(frozen=True, slots=True)
class ClusterToFollow:
    """Arguments for the cluster."""

    kubeconfig: str | None = None
    context: str | None = None
    config: str = ""
    """The configuration of the cluster's scheduler: a file, configmap/NAMESPACE/NAME, or empty."""


class FollowedCluster:
    """An Operator that watches fill, and what is to be said about its answers."""

    def __init__(
        self,
        client: ReadOnlyClient,
        credentials: Credentials,
        version: str,
        assumed: Assumed,
        unread: Mapping[str, str],
    ) -> None:
        """Begin nothing yet.

        Args:
            client: of the cluster, with the caller's credentials.
            credentials: the same, for the watches.
            version: the API server's.
            assumed: the configuration of the cluster's scheduler.
            unread: the kinds that exist and cannot be followed, and why.
        """
        self.client = client
        self._credentials = credentials
        self._metrics = Metrics()
        settings = OperatorSettings(observe_only=True)
        self.operator = Operator(
            client, client, self._metrics, SystemClock(), settings, numbers=random.Random
        )
        self.operator.world.profiles.server_version = version
        self.operator.loader.follow(assumed.compatibility)
        self.operator.profile_status.may_write = lambda: False
        self._filled = asyncio.Event()
        self._assumed = assumed
        self._unread = unread
        self._profiles = ObservedProfiles(self.operator.handlers, assumed, unread)

    async def close(self) -> None:
        """End what the Operator has begun."""
        await self.operator.extenders.close()
        await self.operator.sources.close()
        self.operator.worker.close()

    async def run(self, stop: asyncio.Event, on_signal: Callable[[], None]) -> None:
        """Follow the cluster, and decide, until `stop` is set.

        Raises:
            SchedulerError: the watches ended for good.
        """
        operator = self.operator
        self._profiles.assume()
        await run_together(
            stop,
            deciding=self._decide(),
            queue_samples=sample_queues(operator.explanations.history, self._filled),
            watches=run_operator(
                events=self._profiles,
                client=self.client,
                credentials=self._credentials,
                metrics=self._metrics,
                jitter=random.random,
                on_signal=on_signal,
                options=OperatorOptions(watched=_FOLLOWED, own_kinds=operator.sources),
                redelivery=operator.redelivery,
            ),
        )

    async def _decide(self) -> None:
        operator, at_once = self.operator, asyncio.Event()
        at_once.set()
        await operator.barrier.wait()
        # Writes the snapshot, which answers read, as an operator does while it waits for its lease.
        await stand_by(operator.world, operator.active, at_once)
        self._filled.set()
        await operator.scheduler.run()

    async def filled(self) -> None:
        """Wait until the first list of every kind is complete, and answers can be given."""
        await self._filled.wait()

    def progress(self) -> str:
        """The objects that were read so far, for the line of a command that waits."""
        cache = self.operator.world.cache
        nodes, pods = sum(1 for _ in cache.nodes()), sum(1 for _ in cache.pods())
        return f"reading the cluster: {nodes:,} nodes, {pods:,} pods"

    def lines(self) -> Iterator[str]:
        """The things that are assumed, and those that cannot be seen, in words."""
        yield f"decided as kube-scheduler {self._assumed.compatibility.version} is assumed to"
        if self._profiles.is_assumed:
            yield from self._assumed.remarks
        yield from self._profiles.remarks()
        for kind, reason in self._unread.items():
            yield f"without {kind}: {reason}; {KINDS[kind].consequence}"


@asynccontextmanager
async def follow_cluster(asked: ClusterToFollow) -> AsyncIterator[FollowedCluster]:
    """Yield a cluster that is followed once its `run` runs.

    Raises:
        RightsMissingError: nodes or pods may not be listed and watched.
        ConfigurationError: the cluster cannot be reached, or the scheduler's configuration read.
    """
    clock = SystemClock()
    credentials = await load_credentials(asked.kubeconfig, asked.context, clock=clock)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            KubernetesClient(credentials, clock=clock, metrics=Metrics(), jitter=random.random)
        )
        version = await client.check_reachable()
        reading = ReadOnlyClient(client)
        unread = await _unread(reading)
        assumed = await assumed_configuration(reading, version, asked.config)
        followed = FollowedCluster(reading, credentials, version, assumed, unread)
        stack.push_async_callback(followed.close)
        yield followed


@asynccontextmanager
async def private_port(followed: FollowedCluster) -> AsyncIterator[OperatorPort]:
    """Yield the port of a followed cluster: a socket in a folder that only this user may enter.

    Raises:
        ConfigurationError: the folder for temporary files cannot hold a socket.
    """
    operator = followed.operator
    routes = ExplanationRoutes(operator.explanations, lambda: None, operator.debugger)

    async def gate(_: web.Request) -> str:
        return _USER

    use = PortUse(replace(LIMITS, user_requests=LIMITS.requests))
    application = web.Application(
        middlewares=[within_limits(use, gate)], client_max_size=MAX_QUESTION_BYTES
    )
    application.add_routes(routes.table)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stellwerk-"))
        stack.push_async_callback(runner.cleanup)
        await runner.setup()
        path = str(Path(folder) / "port")
        try:
            await web.UnixSite(runner, path).start()
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {path}: {error}") from error
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(path))
        )
        yield OperatorPort(session, "http://localhost")


# --- rights ---------------------------------------------------------------------------------------


async def _unread(client: ClusterClient) -> dict[str, str]:
    """The kinds that exist and may not be listed and watched, and why.

    Raises:
        RightsMissingError: nodes or pods are among them.
    """
    availability = Availability(client)
    found = await asyncio.gather(*(availability.find(kind) for kind in _FOLLOWED))
    unread = {
        kind.kind: obstacle.reason.replace("the role lacks the right to", "you may not")
        for kind, obstacle in zip(_FOLLOWED, found, strict=True)
        if isinstance(obstacle, Obstacle) and not obstacle.absent
    }
    lacking = [BY_KIND[kind] for kind in unread if BY_KIND[kind].indispensable]
    if lacking:
        raise RightsMissingError(
            f"{unread[lacking[0].kind]} of the whole cluster, and nothing can be decided without "
            "nodes and the pods of all namespaces; the ClusterRole on standard output gives the "
            "rights to follow both",
            role_for(await _own_name(client, lacking[0]), *_RIGHTS),
        )
    return unread


async def _own_name(client: ClusterClient, refused: WatchedKind) -> str:
    """The caller's name, as the API server says it when it refuses a list; empty: it does not."""
    try:
        await client.get(f"{refused.collection_path}?limit=1")
    except Forbidden as error:
        user = REFUSED_USER.search(error.message)
        return user[1] if user else ""
    return ""


# --- profiles -------------------------------------------------------------------------------------


class ObservedProfiles(WatchHandlers):
    """Passes events on; a SchedulerProfile becomes one that observes.

    The configuration assumed stands in for each schedulerName that no SchedulerProfile has.
    """

    def __init__(self, events: WatchHandlers, assumed: Assumed, unread: Iterable[str]) -> None:
        self._events = events
        self._unread = frozenset(unread)
        self._is_known = assumed.is_known
        self._assumed = {each["spec"]["schedulerName"]: each for each in assumed.manifests}
        self._standing_in: dict[str, JsonObject] = {}
        """By schedulerName, the assumed profiles that are served now."""
        self._named: dict[str, str] = {}
        """The schedulerName of each SchedulerProfile of the cluster that is followed."""
        self._left_out: dict[str, str] = {}
        """The SchedulerProfiles that are not followed, and why."""
        self._extenders: dict[str, list[str]] = {}
        """By profile, the URLs of extenders that are not asked."""

    @property
    def is_assumed(self) -> bool:
        """Whether an assumed profile is served."""
        return bool(self._standing_in)

    def remarks(self) -> Iterator[str]:
        """The profiles that are followed, and those that are not, in words."""
        if self._named:
            yield f"SchedulerProfiles of the cluster are followed: {', '.join(sorted(self._named))}"
        for name, reason in self._left_out.items():
            yield f"SchedulerProfile {name} is not followed: {reason}"
        urls = [url for each in self._extenders.values() for url in each]
        if urls:
            yield f"extenders are not asked: {', '.join(dict.fromkeys(urls))}"

    def assume(self) -> None:
        """Serve the assumed profiles for every schedulerName that no SchedulerProfile has."""
        taken = set(self._named.values())
        for name, manifest in self._assumed.items():
            if name not in taken and name not in self._standing_in:
                # Its name is that of no object: SchedulerProfiles come and go beside it.
                metadata = {"name": f"assumed:{manifest['metadata']['name']}", "uid": ""}
                self._note_extenders(metadata["name"], manifest["spec"])
                standing_in = self._observed({**manifest, "metadata": metadata})
                self._standing_in[name] = standing_in
                self._events.on_object(PROFILE, "ADDED", standing_in)
            elif name in taken and name in self._standing_in:
                gone = self._standing_in.pop(name)
                self._extenders.pop(gone["metadata"]["name"], None)
                self._events.on_object(PROFILE, "DELETED", gone)

    def _profile(self, event_type: str | None, obj: JsonObject) -> None:
        name, spec = str(obj["metadata"]["name"]), obj.get("spec")
        spec = spec if isinstance(spec, dict) else {}
        scheduler_name = spec.get("schedulerName")
        self._extenders.pop(name, None)
        self._left_out.pop(name, None)
        is_gone = event_type == "DELETED"
        if not is_gone and self._is_left_behind(spec):
            self._left_out[name] = "the scheduler's own configuration is known"
            is_gone = True
        if is_gone:
            self._named.pop(name, None)
            self._events.on_object(PROFILE, "DELETED", obj)
            self.assume()
            return
        if isinstance(scheduler_name, str) and scheduler_name:
            self._named[name] = scheduler_name
            self._note_extenders(name, spec)
        self.assume()  # before: a schedulerName is not served by two
        self._events.on_object(PROFILE, event_type, self._observed(obj))

    def _is_left_behind(self, spec: JsonObject) -> bool:
        """Whether another scheduler serves pods in whose profile's place an operator once was."""
        is_same = spec.get("schedulerName") in self._assumed
        return self._is_known and is_same and spec.get("mode") != OBSERVE

    def _note_extenders(self, name: str, spec: JsonObject) -> None:
        extenders = spec.get("extenders")
        for each in extenders if isinstance(extenders, list) else ():
            if isinstance(each, dict):
                self._extenders.setdefault(name, []).append(str(each.get("urlPrefix")))

    def _observed(self, profile: JsonObject) -> JsonObject:
        """The profile as one that observes, of this operator's name; a shadow stays a shadow."""
        metadata = dict(profile["metadata"])
        if isinstance(metadata.get("labels"), dict):
            metadata["labels"] = {
                key: each for key, each in metadata["labels"].items() if key != OPERATOR_LABEL
            }
        found = {**profile, "metadata": metadata, "spec": self._spec(profile.get("spec"))}
        status = profile.get("status")
        if isinstance(status, dict) and "lastGoodSpec" in status:
            found["status"] = {**status, "lastGoodSpec": self._spec(status["lastGoodSpec"])}
        return found

    def _spec(self, spec: object) -> object:
        if not isinstance(spec, dict):
            return spec  # the loader says what is wrong with it
        kept = {key: each for key, each in spec.items() if key not in _DROPPED_FIELDS}
        if not kept.get("shadowOf"):
            kept["mode"] = OBSERVE
        return without_blind_plugins({"spec": kept}, self._unread)["spec"]

    # --- passed on ------------------------------------------------------------------------------

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> Identified | None:
        return self._events.on_pod(event_type, obj)

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        self._events.on_node(event_type, obj)

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        if kind == PROFILE:
            self._profile(event_type, obj)
        else:
            self._events.on_object(kind, event_type, obj)

    @override
    def prepare(self, kind: str, obj: JsonObject) -> object:
        return None if kind == PROFILE else self._events.prepare(kind, obj)

    @override
    def on_synced(self, kind: str) -> None:
        self._events.on_synced(kind)

    @override
    def on_unlisted(self, kind: str, state: str) -> None:
        self._events.on_unlisted(kind, state)

    @override
    def on_lack(self, kind: str, lack: Lack | None) -> None:
        self._events.on_lack(kind, lack)

    @override
    def on_version(self, kind: str, version: str) -> None:
        self._events.on_version(kind, version)

    @override
    def on_relist(self, kind: str, *, applying: bool) -> None:
        self._events.on_relist(kind, applying=applying)
