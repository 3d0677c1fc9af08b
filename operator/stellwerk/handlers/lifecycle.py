"""The operator as kopf sees it: registry, settings, login, and the supervision of its tasks.

`app` calls `run_operator` with what the handlers need. Invariant: it ends when it is cancelled, and
otherwise only by raising; kopf's own ending is an error like any other, after which no task of kopf
runs any more that could keep the process alive.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import kopf
from typing_extensions import override

from stellwerk.client.leadership import process_identity
from stellwerk.handlers.availability import CHECK_SECONDS, Availability
from stellwerk.handlers.delivery import WATCHED, Delivery, WatchedKind
from stellwerk.handlers.rereading import LIST_PERIOD_SECONDS, Rereader, Resync
from stellwerk.supervision import take_signals
from stellwerk_kube.errors import SchedulerError, in_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence

    import aiohttp

    from stellwerk.client.credentials import Credentials
    from stellwerk.framework.services import ClusterClient
    from stellwerk.framework.watch_handlers import WatchHandlers
    from stellwerk.handlers.fastlane import FastLane
    from stellwerk.handlers.rereading import Redelivery
    from stellwerk.metrics import Metrics
    from stellwerk.profiles.spec.plugin_description import PluginKind

    Spawn = Callable[[], Awaitable[list[asyncio.Task[Any]]]]


logger = logging.getLogger(__name__)

_CHUNK_ITEMS: Final = 500
"""Objects per page of a list: a page is parsed at once, a whole list would stall the loop."""
_INACTIVITY_SECONDS: Final = 25.0
"""After so long without a line a watch is opened again: nothing but that shows a half-open line.

Bookmarks come once a minute, which is too seldom to wait for. A quiet kind costs two small requests
in this time."""
_LOGIN_PAUSE_SECONDS: Final = 5.0
_SELDOM_SECONDS: Final = 10.0


class OwnKinds(Protocol):
    """The kinds that plugins want watched."""

    kinds: dict[PluginKind, None]
    on_kind: Callable[[PluginKind], None]
    """Called with each further kind."""


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """The options of the watches."""

    fast_lane: bool = True
    """False takes kopf's own path: slower, and without private parts of kopf."""
    watched: tuple[WatchedKind, ...] = WATCHED
    check_seconds: float = CHECK_SECONDS
    """How often a kind that cannot be watched is looked at again."""
    resync_seconds: float = LIST_PERIOD_SECONDS
    """How often everything is listed on kopf's own path."""
    own_kinds: OwnKinds | None = None
    """The kinds that plugins want watched, now and later."""
    identity: str = field(default_factory=process_identity)
    """The name of this process for kopf, which asks for the user's name if there is none. A user
    who is but a number has no name."""


class Backoffs:
    """Endless delays for kopf's retries: an iterable without a length, spread by jitter."""

    def __init__(self, jitter: Callable[[], float], *, longest_seconds: float = 15.0) -> None:
        self._jitter = jitter
        self._longest_seconds = longest_seconds

    def __iter__(self) -> Iterator[float]:
        delay_seconds = 0.5
        while True:
            yield delay_seconds * (1 + self._jitter())
            delay_seconds = min(2 * delay_seconds, self._longest_seconds)


def build_settings(
    watched: Iterable[WatchedKind], jitter: Callable[[], float]
) -> kopf.OperatorSettings:
    """Return kopf's settings: no annotations in users' objects, patience, small pages."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True  # availability looks for new kinds, without rights to CRDs
    settings.process.ultimate_exiting_timeout = None  # kopf would kill the process, us included
    settings.persistence.diffbase_storage = kopf.MultiDiffBaseStorage([])
    settings.persistence.progress_storage = kopf.MultiProgressStorage([])
    settings.networking.error_backoffs = Backoffs(jitter)
    settings.networking.connect_timeout = 10
    settings.networking.request_timeout = 60
    settings.watching.chunk_size = _CHUNK_ITEMS
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = _INACTIVITY_SECONDS
    for kind in watched:
        if kind.field_selector is not None:
            selectors = settings.watching.field_selectors
            selectors[kind.group, kind.version, kind.plural] = kind.field_selector
    return settings


def build_registry(
    deliveries: Iterable[Delivery], open_session: Callable[[], kopf.AiohttpSession]
) -> kopf.OperatorRegistry:
    """Return kopf's registry: a login handler, and one event handler per kind."""
    registry = kopf.OperatorRegistry()
    _register_login(registry, open_session)
    for delivery in deliveries:
        _register_events(registry, delivery)
    return registry


class Sessions:
    """The HTTP sessions handed to kopf; it does not close them when it ends in haste."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._opened: list[aiohttp.ClientSession] = []

    def open(self) -> kopf.AiohttpSession:
        """Return a new session with the newest credentials.

        The first shares the client's connections. Those that follow a refusal open their own: what
        was refused may have been the certificate that a connection was opened with.
        """
        self._opened.append(self._credentials.new_session(shares=not self._opened))
        return kopf.AiohttpSession(
            server=self._credentials.server, aiohttp_session=self._opened[-1]
        )

    async def close(self) -> None:
        """Close what is still open."""
        for session in self._opened:
            await session.close()


def _register_login(
    registry: kopf.OperatorRegistry, open_session: Callable[[], kopf.AiohttpSession]
) -> None:
    logins = 0

    @kopf.on.login(registry=registry, id="login")
    async def login(**_: Any) -> kopf.AiohttpSession:
        """Open a session; kopf asks for another when the server refuses this one."""
        nonlocal logins
        logins += 1
        if logins > 1:
            await asyncio.sleep(_LOGIN_PAUSE_SECONDS)
        return open_session()


def _register_events(registry: kopf.OperatorRegistry, delivery: Delivery) -> None:
    for version in delivery.watched.versions:
        _register_version(registry, delivery, version)


def _register_version(registry: kopf.OperatorRegistry, delivery: Delivery, version: str) -> None:
    """Take the events of one version, while it is the one that is watched."""
    watched = delivery.watched
    id_ = f"{watched.kind}/{version}" if watched.readable else watched.kind

    # on.event only: every other kind of handler annotates and patches the objects it sees.
    @kopf.on.event(watched.group, version, watched.plural, registry=registry, id=id_)
    async def on_event(event: kopf.RawEvent, **_: Any) -> None:
        if version != delivery.watched.version:
            return
        delivery.heard()
        if event["type"] is None:
            # kopf lists anew, item by item: the whole is what counts, and `resync` lists it.
            delivery.list_wanted.set()
        else:
            delivery.deliver(event["type"], event["object"])  # type: ignore[arg-type]


async def run_operator(
    *,
    events: WatchHandlers,
    client: ClusterClient,
    credentials: Credentials,
    metrics: Metrics,
    jitter: Callable[[], float],
    on_signal: Callable[[], None],
    options: OperatorOptions | None = None,
    redelivery: Redelivery | None = None,
) -> None:
    """Watch every kind and feed `events`, until cancelled.

    Args:
        events: takes the events.
        client: for lists and access reviews beside kopf's watches.
        credentials: for kopf's sessions.
        metrics: counts lists, failures and malformed objects.
        jitter: in [0, 1); spreads retries.
        on_signal: called on SIGTERM and SIGINT, in place of kopf's handlers; should lead to the
            cancellation of this coroutine once bindings in flight are settled.
        options: how to get the events.
        redelivery: lets objects in that were read.

    Raises:
        SchedulerError: kopf ended of its own accord; on its own path it is started again instead.
    """
    options = options or OperatorOptions()
    rereader = Rereader(client)
    availability = Availability(client, check_seconds=options.check_seconds)
    deliveries = [Delivery(kind, events, metrics, rereader.mark) for kind in options.watched]
    if redelivery is not None:
        redelivery.attach(deliveries)
    sessions, settings = Sessions(credentials), build_settings(options.watched, jitter)

    async def spawn(registry: kopf.OperatorRegistry, **extra: Any) -> list[asyncio.Task[Any]]:
        tasks = await _spawn(registry, settings, options.identity, **extra)
        take_signals(on_signal)  # from kopf, whose handlers raise on the second one
        return tasks

    _quieten_kopf()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(sessions.close)
        registry = build_registry(deliveries, sessions.open)
        lane = _fast_lane(options, registry, deliveries, availability, client, metrics, jitter)
        if lane is not None:
            stack.enter_context(lane.installed())
            # Not in a task of its own: the lane looks for kinds with what kopf sets here.
            tasks = await spawn(registry, insights=lane.insights)
            # Coroutines are made when nothing can fail any more that would leave them unawaited.
            watches, feed = run_kopf(tasks), lane.find_kinds(settings)
        else:
            resync = Resync(client, availability, period_seconds=options.resync_seconds)
            feed = resync.run(deliveries)
            watches = run_kopf_again_and_again(
                lambda: spawn(build_registry(deliveries, sessions.open))
            )

        def add(kind: PluginKind) -> None:
            watched = WatchedKind(kind.kind, kind.group, kind.version, kind.plural, optional=True)
            delivery = Delivery(watched, events, metrics, rereader.mark)
            deliveries.append(delivery)
            _register_events(registry, delivery)
            if lane is not None:
                lane.add(delivery)

        await _supervise(
            kopf=watches,
            rereading=rereader.run(),
            **{
                "keeping the kinds complete": feed,
                "watching the kinds of plugins": _add_wanted(options.own_kinds, add),
            },
        )


async def _add_wanted(own_kinds: OwnKinds | None, add: Callable[[PluginKind], None]) -> None:
    """Add every kind that a plugin wants, until cancelled."""
    wanted: asyncio.Queue[PluginKind] = asyncio.Queue()
    if own_kinds is not None:
        for kind in own_kinds.kinds:
            wanted.put_nowait(kind)
        own_kinds.on_kind = wanted.put_nowait
    while True:
        add(await wanted.get())


def _fast_lane(
    options: OperatorOptions,
    registry: kopf.OperatorRegistry,
    deliveries: Sequence[Delivery],
    availability: Availability,
    client: ClusterClient,
    metrics: Metrics,
    jitter: Callable[[], float],
) -> FastLane | None:
    if not options.fast_lane:
        return None
    try:
        # Here and not above: in another version of kopf its private parts may have moved.
        from stellwerk.handlers import fastlane  # noqa: PLC0415

        reason = fastlane.unsupported()
    except (ImportError, AttributeError) as error:
        reason = str(error)
    if reason is not None:
        logger.warning("no fast lane, kopf's own path is used (slower): %s", reason)
        return None
    return fastlane.FastLane(registry, deliveries, availability, client, metrics, jitter)


async def _spawn(
    registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, identity: str, **extra: Any
) -> list[asyncio.Task[Any]]:
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=settings,
        identity=identity,  # type: ignore[arg-type] # a NewType that kopf keeps private
        clusterwide=True,
        standalone=True,
        **extra,
    )
    return list(tasks)


class _Seldom(logging.Filter):
    """Lets one record through in ten seconds, whatever happens to the time of day."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._silent_until_seconds = float("-inf")

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        now_seconds = self._now()
        if now_seconds < self._silent_until_seconds:
            return False
        self._silent_until_seconds = now_seconds + _SELDOM_SECONDS
        return True


def _is_no_request_for_a_pause(record: logging.LogRecord) -> bool:
    """Drop kopf's line, an error in its eyes, for a 429: it keeps the pause that was asked for.

    A server asks for one while it makes the storage of a kind that was defined a moment ago. What
    lasts is reported by the fast lane.
    """
    text = record.getMessage()
    return not ("will retry" in text and "APITooManyRequestsError" in text)


def _quieten_kopf() -> None:
    """Leave out of kopf's log what does not help a user of the operator."""
    # Otherwise it logs every single event, where it handles them itself.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # It warns of each absent kind, as does the delivery of the kind.
    logging.getLogger("kopf._core.reactor.observation").setLevel(logging.ERROR)
    # In an outage every attempt of every kind is an error.
    watching = logging.getLogger("kopf._cogs.clients.watching")
    if not any(isinstance(present, _Seldom) for present in watching.filters):
        watching.addFilter(_is_no_request_for_a_pause)
        watching.addFilter(_Seldom())


async def _supervise(**runs: Coroutine[Any, Any, None]) -> None:
    """Wait for the first of several to end, which none should, and end the others.

    Raises:
        SchedulerError: one has ended, with the reason.
    """
    tasks = [asyncio.create_task(run, name=name) for name, run in runs.items()]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop(tasks)
    for task in ended:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, SchedulerError):
            raise error
        raise SchedulerError(f'the task "{task.get_name()}" ended: {in_words(error)}') from error


# --- kopf's tasks, until nothing of them is left --------------------------------------------------


STOP_SECONDS: Final = 10.0


_LEFT_BEHIND_SECONDS: Final = 5.0


_AGAIN_SECONDS: Final = 0.2


_FIRST_RESTART_SECONDS: Final = 1.0


_LONGEST_RESTART_SECONDS: Final = 15.0


_WELL_SECONDS: Final = 60.0
"""What has run for so long is started again as if for the first time."""


_PACKAGE: Final = str(Path(kopf.__file__).parent)


async def run_kopf(tasks: list[asyncio.Task[Any]]) -> None:
    """Watch over kopf's tasks until one of them ends, which none should, or until cancelled.

    kopf ends as a whole when one of its watches meets an error, and then leaves tasks behind that
    take a cancellation for a pause and go on: these are cancelled until they end.

    Raises:
        SchedulerError: one has ended, with the reason.
    """
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop(tasks)
        await _stop_left_behind()
    for task in ended:
        error = None if task.cancelled() else task.exception()
        raise SchedulerError(f'the task "{task.get_name()}" ended: {in_words(error)}') from error


async def run_kopf_again_and_again(spawn: Spawn) -> None:
    """Run kopf, and start it again whenever it ends, until cancelled."""
    loop = asyncio.get_running_loop()
    pause_seconds = _FIRST_RESTART_SECONDS
    while True:
        began = loop.time()
        try:
            await run_kopf(await spawn())
        except SchedulerError as error:
            if loop.time() - began > _WELL_SECONDS:
                pause_seconds = _FIRST_RESTART_SECONDS
            logger.warning("kopf ended and is started again in %.0f s: %s", pause_seconds, error)
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, _LONGEST_RESTART_SECONDS)


async def stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for them; what does not end in time is named in the log."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    _, hanging = await asyncio.wait(tasks, timeout=STOP_SECONDS)
    for task in hanging:
        logger.warning('the task "%s" does not end', task.get_name())
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()):
            logger.debug('the task "%s" ended with %s', task.get_name(), in_words(error))


async def _stop_left_behind() -> None:
    deadline = asyncio.get_running_loop().time() + _LEFT_BEHIND_SECONDS
    while (left := _left_behind()) and asyncio.get_running_loop().time() < deadline:
        # A watch whose pause-waiter ends before it takes that for the end of a pause.
        streams = {task for task in left if not task.get_name().startswith("pause-waiter")}
        for task in streams or left:
            task.cancel()
        await asyncio.wait(left, timeout=_AGAIN_SECONDS)
    for task in left:
        logger.warning('the task "%s" of kopf does not end', task.get_name())


def _left_behind() -> set[asyncio.Task[Any]]:
    """The tasks that run kopf's code."""
    return {
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task()
        and (code := getattr(task.get_coro(), "cr_code", None)) is not None
        and code.co_filename.startswith(_PACKAGE)
    }
