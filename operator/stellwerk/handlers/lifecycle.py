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

import stellwerk.handlers.kopf_import  # noqa: F401 before kopf

# isort: split
import aiohttp
import kopf
from typing_extensions import override

from stellwerk.client.leadership import process_identity
from stellwerk.handlers.availability import CHECK_SECONDS, Availability
from stellwerk.handlers.delivery import Delivery
from stellwerk.handlers.rereading import Rereader
from stellwerk.handlers.watched_kinds import WATCHED, WatchedKind
from stellwerk.handlers.watching import KindWatchers
from stellwerk.supervision import take_signals
from stellwerk_kube.errors import SchedulerError, in_words

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from stellwerk.client.credentials import Credentials
    from stellwerk.framework.services import ClusterClient
    from stellwerk.framework.watch_handlers import WatchHandlers
    from stellwerk.handlers.rereading import Redelivery
    from stellwerk.metrics import Metrics
    from stellwerk.profiles.spec.plugin_description import PluginKind


logger = logging.getLogger(__name__)

_INACTIVITY_SECONDS: Final = 25.0
"""Time without a line after which a watch is opened again: nothing else shows a half-open
connection. Bookmarks come once a minute, which is too rare to wait for. A quiet kind costs two
small requests in this time."""
_LOGIN_PAUSE_SECONDS: Final = 5.0
"""Pause before kopf gets another session after the server has refused the last one."""
_LINE_SECONDS: Final = 10.0
"""Time in which the log has one of kopf's lines about watches that fail."""
STOP_SECONDS: Final = 10.0
"""Longest wait for cancelled tasks; the log names those that go on."""
_LEFT_BEHIND_SECONDS: Final = 5.0
"""Longest time in which the tasks that kopf leaves behind are cancelled again and again."""
_CANCEL_AGAIN_SECONDS: Final = 0.2
"""Pause between two cancellations of such a task, which takes the first for a pause of kopf's."""
_KOPF_FOLDER: Final = str(Path(kopf.__file__).parent)
"""The folder of kopf's code, by which its tasks are recognised."""


class OwnKinds(Protocol):
    """The kinds that plugins want watched."""

    kinds: dict[PluginKind, None]
    on_kind: Callable[[PluginKind], None]
    """Called with each further kind."""


@dataclass(frozen=True, slots=True)
class OperatorOptions:
    """The options of the watches."""

    watched: tuple[WatchedKind, ...] = WATCHED
    check_seconds: float = CHECK_SECONDS
    """Longest time between two searches for kinds that cannot be watched."""
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
    """Return kopf's settings: no annotations in users' objects, patience, streamed lists."""
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
    settings.watching.initial_streaming = True  # a watch without a version begins with the list
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = _INACTIVITY_SECONDS
    for kind in watched:
        if kind.field_selector is not None:
            selectors = settings.watching.field_selectors
            selectors[kind.group, kind.version, kind.plural] = kind.field_selector
    return settings


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
        session = self._credentials.new_session(shares=not self._opened, traces=[_reading_only()])
        self._opened.append(session)
        return kopf.AiohttpSession(
            server=self._credentials.server, aiohttp_session=self._opened[-1]
        )

    async def close(self) -> None:
        """Close what is still open."""
        for session in self._opened:
            await session.close()


def _reading_only() -> aiohttp.TraceConfig:
    """Return a trace that refuses every request but reads: kopf is given nothing to write."""

    async def look(
        _: aiohttp.ClientSession, __: object, request: aiohttp.TraceRequestStartParams
    ) -> None:
        if request.method != "GET":
            raise SchedulerError(f"kopf may not {request.method} {request.url.path}")

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(look)
    return trace


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
        SchedulerError: kopf ended of its own accord, or the installed kopf lacks a private part.
    """
    options = options or OperatorOptions()
    rereader = Rereader(client)
    availability = Availability(client, check_seconds=options.check_seconds)
    deliveries = [Delivery(kind, events, metrics, rereader.mark) for kind in options.watched]
    if redelivery is not None:
        redelivery.attach(deliveries)
    sessions, settings = Sessions(credentials), build_settings(options.watched, jitter)

    _quieten_kopf()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(sessions.close)
        registry = kopf.OperatorRegistry()
        _register_login(registry, sessions.open)
        watchers = KindWatchers(registry, deliveries, availability, client, metrics, jitter)
        stack.enter_context(watchers.installed())
        # Not in a task of its own: the watchers search for kinds with what kopf sets here.
        tasks = await kopf.spawn_tasks(
            registry=registry,
            settings=settings,
            identity=options.identity,  # type: ignore[arg-type] # a NewType that kopf keeps private
            clusterwide=True,
            standalone=True,
            insights=watchers.insights,
        )
        take_signals(on_signal)  # from kopf, whose handlers raise on the second one

        def add(kind: PluginKind) -> None:
            watched = WatchedKind(kind.kind, kind.group, kind.version, kind.plural, optional=True)
            delivery = Delivery(watched, events, metrics, rereader.mark)
            deliveries.append(delivery)
            watchers.add(delivery)

        # Coroutines are made when nothing can fail any more that would leave them unawaited.
        await _supervise(
            kopf=run_kopf(list(tasks)),
            rereading=rereader.run(),
            **{
                "keeping the kinds complete": watchers.find_kinds(settings),
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


class _Seldom(logging.Filter):
    """Passes one record in ten seconds, whatever happens to the time of day."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._silent_until_seconds = float("-inf")

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        now_seconds = self._now()
        if now_seconds < self._silent_until_seconds:
            return False
        self._silent_until_seconds = now_seconds + _LINE_SECONDS
        return True


def _is_no_request_for_a_pause(record: logging.LogRecord) -> bool:
    """Drop kopf's line, an error in its eyes, for a 429: it keeps the pause that was asked for.

    A server asks for one while it makes the storage of a kind that was defined a moment ago. What
    lasts is reported by KindWatchers.
    """
    text = record.getMessage()
    return not ("will retry" in text and "APITooManyRequestsError" in text)


def _is_no_skipped_cleanup(record: logging.LogRecord) -> bool:
    """Drop kopf's line at the end that it cleans nothing up: there is nothing to clean up."""
    return not record.getMessage().startswith("Cleanup activity")


def _quieten_kopf() -> None:
    """Leave out of kopf's log what does not help a user of the operator."""
    # Otherwise it logs every single event, where it handles them itself.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    # It warns of each absent kind, as does the delivery of the kind.
    logging.getLogger("kopf._core.reactor.observation").setLevel(logging.ERROR)
    logging.getLogger("kopf._core.reactor.running").addFilter(_is_no_skipped_cleanup)
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
    """Cancel the tasks that kopf has left behind until they end."""
    deadline = asyncio.get_running_loop().time() + _LEFT_BEHIND_SECONDS
    while (left := _left_behind()) and asyncio.get_running_loop().time() < deadline:
        # A watch whose pause-waiter ends before it takes that for the end of a pause.
        streams = {task for task in left if not task.get_name().startswith("pause-waiter")}
        for task in streams or left:
            task.cancel()
        await asyncio.wait(left, timeout=_CANCEL_AGAIN_SECONDS)
    for task in left:
        logger.warning('the task "%s" of kopf does not end', task.get_name())


def _left_behind() -> set[asyncio.Task[Any]]:
    """Return the tasks that run kopf's code."""
    return {
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task()
        and (code := getattr(task.get_coro(), "cr_code", None)) is not None
        and code.co_filename.startswith(_KOPF_FOLDER)
    }
