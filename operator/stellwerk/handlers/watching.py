"""A watcher for each kind, in place of kopf's: watch events go straight to the deliveries.

kopf keeps login, discovery, connections, time-outs and pauses. Its own watcher puts a queue and a
task for each object between a watch event and a handler, and looks for causes that `on.event`
handlers do not need: 450 µs of CPU an event, where a `Reflector` takes 16 (2026-11-23, kopf 1.45;
`python -m tests.benchmarks.bench_events`). `lifecycle` makes the KindWatchers, and installs them
while kopf runs.
Invariant: this is the only module that touches kopf's private parts, and `check_kopf` knows each.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import stellwerk.handlers.kopf_import  # noqa: F401 before kopf

# isort: split
import kopf
import orjson

from stellwerk.client.transport import lines_of
from stellwerk.handlers.reflector import (
    EVENT_TYPES,
    Reflector,
    StreamRefused,
    event_id,
    parse_event,
    status_text,
    type_and_object,
)
from stellwerk_kube.errors import ApiError, SchedulerError, in_words

try:
    from kopf._cogs.clients import api, errors, watching
    from kopf._cogs.structs import references
    from kopf._core.reactor import observation, queueing
except ImportError as missing:
    raise SchedulerError(f"the installed kopf lacks a part of kopf 1.45: {missing}") from missing

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
    )

    from kopf._cogs.aiokits import aiotasks, aiotoggles
    from kopf._cogs.configs import configuration

    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.availability import Availability
    from stellwerk.handlers.delivery import Delivery
    from stellwerk.handlers.reflector import Watch
    from stellwerk.metrics import Metrics

logger = logging.getLogger(__name__)

_KOPF_VERSION: Final = "1.45."
"""The beginning of the versions of kopf whose private parts this module knows."""
_PRIVATE_PARTS: Final = (
    (queueing, "watcher", {"resource", "namespace", "settings", "operator_paused"}),
    (watching, "streaming_block", {"resource", "namespace", "operator_paused"}),
    (
        watching,
        "watch_objs",
        {"settings", "resource", "namespace", "since", "operator_pause_waiter"},
    ),
    (
        observation,
        "process_discovered_resource_event",
        {"raw_event", "registry", "settings", "insights"},
    ),
    (references, "Insights", set[str]()),
    (api, "iter_jsonlines", {"content"}),
    (errors, "APITooManyRequestsError", set[str]()),
    (errors, "APISessionClosed", set[str]()),
    (errors, "APIServerError", set[str]()),
    (errors, "APIError", set[str]()),
)
"""Module, name and parameters of what is used of kopf's private parts, `api.json` apart."""

_STREAM_BACKOFFS_SECONDS: Final = (0.25, 0.5, 1.0, 2.0)
"""kopf's own retries when a stream is opened; an error that outlasts them reaches `_watch`."""
_REOPEN_SECONDS: Final = 0.02
"""Pause before the next stream, if the last one brought news or lasted as a quiet one does."""
_MAX_REOPEN_SECONDS: Final = 1.0
"""Longest pause before the next stream, if the last one ended early, without error and news."""
_RESTART_SECONDS: Final = 0.1
"""Pause before the next stream after the first error; it doubles with each further one."""
_MAX_RESTART_SECONDS: Final = 15.0
"""Longest pause after errors: an API server that is back is asked again within this time."""
_LASTING_SECONDS: Final = 5.0
"""A stream that ends without an error after this time counts as one that worked."""
_FAILURES_PER_LINE: Final = 10
"""Failures in a row for one line of the log: in an outage every kind fails again and again."""

DEFINING: Final = (
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "v1", "apiservices"),
)
"""Group, version and plural of what adds kinds to an API; of their objects nothing is kept."""
_DEFINITIONS_RETRY_SECONDS: Final = 60.0
"""Pause after a watch of definitions has failed. The operator may lack the right to it, and
`find_kinds` looks once a minute without it."""
_MIN_SEARCH_PAUSE_SECONDS: Final = 0.5
"""Shortest pause between two searches for kinds: a definition changes several times before its
kind is served, and in an outage every kind's stream asks for a search."""


def check_kopf() -> None:
    """Return if the installed kopf has all private parts that are used here.

    Raises:
        SchedulerError: it has not, with the first part that is missing.
    """
    installed = version("kopf")
    needs = f"kopf {_KOPF_VERSION}* is needed"
    if not installed.startswith(_KOPF_VERSION):
        raise SchedulerError(f"{needs}, and kopf {installed} is installed")
    for module, name, parameters in _PRIVATE_PARTS:
        part, path = getattr(module, name, None), f"{module.__name__}.{name}"
        if part is None:
            raise SchedulerError(f"{needs}: kopf {installed} has no {path}")
        lacking = parameters - set(inspect.signature(part).parameters) if parameters else None
        if lacking:
            names = ", ".join(sorted(lacking))
            raise SchedulerError(f"{needs}: {path} of kopf {installed} has no parameter {names}")
    if getattr(api, "json", None) is not json:
        raise SchedulerError(f"{needs}: {api.__name__} of kopf {installed} does not use json")


class KindWatchers:
    """A reflector for each kind that kopf watches, and the search for kinds that come and go."""

    def __init__(
        self,
        registry: kopf.OperatorRegistry,
        deliveries: Iterable[Delivery],
        availability: Availability,
        client: ClusterClient,
        metrics: Metrics,
        jitter: Callable[[], float],
    ) -> None:
        """Register the kinds of `deliveries` with kopf; `jitter` is in [0, 1).

        Raises:
            SchedulerError: the installed kopf lacks a private part.
        """
        check_kopf()
        self.insights = references.Insights()
        """To be given to kopf's operator: it says which kinds kopf watches."""
        self._registry = registry
        self._deliveries: dict[tuple[str, str], Delivery] = {}
        self._watching: set[tuple[Delivery, str]] = set()
        """The kinds and versions that kopf has a watcher for; the version in use streams."""
        self._reflectors: dict[Delivery, Reflector] = {}
        """By delivery, the reflector of the version in use."""
        self._search = asyncio.Event()
        """Set when the API may serve other kinds or versions than before."""
        self._availability = availability
        self._client = client
        self._metrics = metrics
        self._jitter = jitter
        self._tells_refusals = True

        for delivery in deliveries:
            self._register(delivery)
        for group, version_, plural in DEFINING:
            _have_watched(registry, group, version_, plural, id_=plural)

    def add(self, delivery: Delivery) -> None:
        """Watch one kind more, and search for it at once."""
        self._register(delivery)
        self._search.set()

    def _register(self, delivery: Delivery) -> None:
        watched = delivery.watched
        self._deliveries[watched.group, watched.plural] = delivery
        for each in watched.versions:
            id_ = f"{watched.kind}/{each}" if watched.readable else watched.kind
            _have_watched(self._registry, watched.group, each, watched.plural, id_=id_)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Replace kopf's watcher, and how its streams are parsed, while the block lasts."""
        kopfs_watcher, kopfs_lines = queueing.watcher, api.iter_jsonlines

        async def watcher(*, resource: references.Resource, **arguments: Any) -> None:
            delivery = self._deliveries.get((resource.group, resource.plural))
            if (resource.group, resource.version, resource.plural) in DEFINING:
                await self._watch_definitions(resource=resource, **arguments)
            elif delivery is None:  # kopf also matches singulars and short names
                await kopfs_watcher(resource=resource, **arguments)
            else:
                watcher_of = (delivery, resource.version)
                self._watching.add(watcher_of)
                try:
                    await self._watch(delivery, resource=resource, **arguments)
                finally:
                    self._watching.discard(watcher_of)

        queueing.watcher = watcher
        vars(api).update(json=_EventParser, iter_jsonlines=lines_of)
        try:
            yield
        finally:
            queueing.watcher = kopfs_watcher
            vars(api).update(json=json, iter_jsonlines=kopfs_lines)

    def _on_refused(self, plural: str, reason: str) -> None:
        """Say once for all kinds that the server streams no lists, now that pages have shown one.

        A server on etcd 3.4 streams none at all, so that each kind would say the same.
        """
        if self._tells_refusals:
            self._tells_refusals = False
            logger.info(
                "the API server does not stream the list of %s. Lists are read in pages, also "
                "those of other kinds that it does not stream: %s",
                plural,
                reason,
            )

    async def find_kinds(self, settings: configuration.OperatorSettings) -> None:
        """Search again and again for kinds that the API serves now, or serves no longer.

        Searches are frequent at first and come once in CHECK_SECONDS later. A changed definition
        or a lost connection causes one at once, and then they are frequent again.
        """
        for delivery in list(self._deliveries.values()):
            if delivery.watched.may_be_absent:
                # If the kind is absent, the barrier need not wait until kopf has looked.
                await self._try(delivery, self._availability.is_there(delivery))
        while True:
            for pause_seconds in self._availability.pauses():
                # The first pause comes first, because kopf itself searches at its start.
                is_wanted = await self._is_search_wanted(pause_seconds)
                is_rare = pause_seconds == self._availability.check_seconds
                for delivery in list(self._deliveries.values()):
                    if (delivery, delivery.watched.version) not in self._watching:
                        await self._try(delivery, self._find(delivery, settings))
                    elif delivery.watched.readable and (is_wanted or is_rare):
                        await self._try(delivery, self._leave_if_gone(delivery))
                if is_wanted:
                    break

    async def _is_search_wanted(self, pause_seconds: float) -> bool:
        """Wait until the next search is due; return whether something asked for it earlier."""
        loop = asyncio.get_running_loop()
        earliest_seconds = loop.time() + min(pause_seconds, _MIN_SEARCH_PAUSE_SECONDS)
        try:
            async with asyncio.timeout(pause_seconds):
                await self._search.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(earliest_seconds - loop.time())
        self._search.clear()
        return True

    async def _leave_if_gone(self, delivery: Delivery) -> None:
        """End the stream of a version that is served no longer; its watcher chooses another."""
        reflector = self._reflectors.get(delivery)
        with suppress(ApiError):  # the stream itself will meet the error, and say so
            if reflector is not None and await self._availability.is_gone(delivery.watched):
                reflector.forget()

    async def _try(self, delivery: Delivery, look: Awaitable[object]) -> None:
        """Look for a kind; a look that fails is logged, and does not end those that follow."""
        try:
            await look
        except Exception as error:  # noqa: BLE001 - the next look may do better
            logger.warning("looking for %s failed: %s", delivery.watched.plural, in_words(error))

    async def _find(self, delivery: Delivery, settings: configuration.OperatorSettings) -> None:
        """Have kopf watch a kind that the API serves by now."""
        if not await self._availability.is_there(delivery):
            return
        if (delivery, delivery.watched.version) in self._watching:
            return
        # kopf reads its discovery again, as if a definition of the group had changed.
        await observation.process_discovered_resource_event(
            raw_event={"type": "MODIFIED", "object": {"spec": {"group": delivery.watched.group}}},
            registry=self._registry,
            settings=settings,
            insights=self.insights,
        )

    async def _watch(
        self,
        delivery: Delivery,
        *,
        namespace: references.Namespace,
        settings: configuration.OperatorSettings,
        resource: references.Resource,
        operator_paused: aiotoggles.ToggleSet | None = None,
        **_: Any,
    ) -> None:
        """Stream a kind until cancelled: stands for kopf's `queueing.watcher`.

        kopf ends the whole operator when a watch ends with an error; here it begins anew.
        """
        reflector = Reflector(delivery, self._client, self._metrics, self._on_refused)
        quiet_seconds = settings.watching.inactivity_timeout or 0.0
        pause_seconds, failures, loop = _RESTART_SECONDS, 0, asyncio.get_running_loop()
        while True:
            failed, began = False, loop.time()
            try:
                if reflector.must_list:
                    await self._availability.wait_for(delivery)
                    await self._availability.until_stored(delivery.watched)
                if delivery.watched.version != resource.version:
                    # Another watcher streams; this one goes on when its version is chosen again.
                    reflector.forget()
                    self._search.set()
                    await delivery.until_version(resource.version)
                    continue
                self._reflectors[delivery] = reflector
                async with watching.streaming_block(
                    resource=resource, namespace=namespace, operator_paused=operator_paused
                ) as pause_waiter:
                    await reflector.run(_watch_of(settings, resource, namespace, pause_waiter))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                # kopf's inactivity limit, passed while an event was being handled: the process was
                # stopped, or the machine suspended. The stream is closed like any that is silent.
            except Exception as error:  # noqa: BLE001 - whatever it is, the kind must be watched
                failed = True
                failures = 1 if reflector.gave_news else failures + 1
                delivery.not_listed(0, in_words(error))
                self._metrics.watch_failures.labels(delivery.watched.kind).inc()
                if failures % _FAILURES_PER_LINE == 1:
                    logger.warning(
                        "watching %s failed, starting again: %s", resource, in_words(error)
                    )
            if not failed:
                failures = 0
            if failed or delivery.silence_seconds() < quiet_seconds:
                # It was not closed for being quiet: a server of another release may answer now.
                self._search.set()
            lasted = not failed and loop.time() - began > _LASTING_SECONDS
            pause_seconds = _next_pause(
                pause_seconds, failed=failed, worked=reflector.gave_news or lasted
            )
            await asyncio.sleep(pause_seconds * (1 + self._jitter()))

    async def _watch_definitions(
        self,
        *,
        resource: references.Resource,
        namespace: references.Namespace,
        settings: configuration.OperatorSettings,
        operator_paused: aiotoggles.ToggleSet | None = None,
        **_: Any,
    ) -> None:
        """Search for kinds whenever what defines them changes, until cancelled.

        Without the right to watch definitions, kinds are searched for once in CHECK_SECONDS alone.
        """
        path = f"/apis/{resource.group}/{resource.version}/{resource.plural}?limit=1"
        resume_version, failed = "", False
        while True:
            pause_seconds = _MAX_REOPEN_SECONDS
            try:
                if not resume_version:
                    page = await self._client.get(path)
                    resume_version = str(page["metadata"]["resourceVersion"])
                async with watching.streaming_block(
                    resource=resource, namespace=namespace, operator_paused=operator_paused
                ) as pause_waiter:
                    watch = _watch_of(settings, resource, namespace, pause_waiter)
                    resume_version = await self._take_definitions(watch, resume_version)
                    failed = False
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
            except Exception as error:  # noqa: BLE001 - the clock looks for kinds as well
                resume_version, pause_seconds = "", _DEFINITIONS_RETRY_SECONDS
                if not failed:
                    logger.info("changes of %s are not watched: %s", resource, in_words(error))
                failed = True
            await asyncio.sleep(pause_seconds * (1 + self._jitter()))

    async def _take_definitions(self, watch: Watch, resume_version: str) -> str:
        """Ask for a search after each change; return the version to resume the watch from.

        An empty version means that the definitions have to be listed first.
        """
        async with watch(resume_version) as events:
            async for event in events:
                event_type, obj = type_and_object(event)
                if event_type not in EVENT_TYPES | {"BOOKMARK"}:
                    self._search.set()
                    return ""
                resume_version = event_id(obj)[1] or resume_version
                if event_type != "BOOKMARK":
                    self._search.set()
        return resume_version


def _have_watched(
    registry: kopf.OperatorRegistry, group: str, version_: str, plural: str, *, id_: str
) -> None:
    """Register a handler without a body: kopf starts a watcher for each kind that has a handler.

    `on.event` only: every other kind of handler annotates and patches the objects that it sees.
    """

    @kopf.on.event(group, version_, plural, registry=registry, id=id_)
    async def on_event(**_: Any) -> None:
        """Do nothing: KindWatchers takes the events."""


def _next_pause(pause_seconds: float, *, failed: bool, worked: bool) -> float:
    """Return the seconds until the next round.

    Args:
        pause_seconds: before the round that has ended.
        failed: whether this round ended with an error.
        worked: whether it brought news, or lasted as a quiet one does.
    """
    if worked:
        return _RESTART_SECONDS if failed else _REOPEN_SECONDS
    return min(2 * pause_seconds, _MAX_RESTART_SECONDS if failed else _MAX_REOPEN_SECONDS)


def _watch_of(
    settings: configuration.OperatorSettings,
    resource: references.Resource,
    namespace: references.Namespace,
    pause_waiter: aiotasks.Future,
) -> Watch:
    """Return what opens kopf's streams. Errors inside such a stream's block say what they mean.

    ConnectionError: the server is only away. StreamRefused: it does not begin with a list. The
    block makes them of kopf's errors, so that nothing stands between the Reflector and the events:
    a generator here would be entered again with each event.
    """
    networking = replace(settings.networking, error_backoffs=_STREAM_BACKOFFS_SECONDS)
    patient = replace(settings, networking=networking)

    @asynccontextmanager
    async def watch(resume_version: str | None) -> AsyncGenerator[AsyncIterator[Any]]:
        events = watching.watch_objs(
            settings=patient,
            resource=resource,
            namespace=namespace,
            since=resume_version,
            operator_pause_waiter=pause_waiter,
        )
        try:
            async with aclosing(events):  # type: ignore[type-var]
                yield events
        except (errors.APITooManyRequestsError, errors.APISessionClosed) as away:
            raise ConnectionError(repr(away)) from away
        except errors.APIError as refused:
            if resume_version is None:  # pages will show whether the server is away
                text = refused.message or str(refused)
                status = {"code": refused.status, "message": text}
                raise StreamRefused(status_text(status)) from refused
            if isinstance(refused, errors.APIServerError):
                raise ConnectionError(repr(refused)) from refused
            raise

    return watch


class _EventParser:
    """The functions of the json module that kopf's streams use."""

    loads = staticmethod(parse_event)
    JSONDecodeError = orjson.JSONDecodeError
