"""Events straight from kopf's watch streams to the deliveries, at a small part of the cost.

kopf keeps login, discovery, connections, time-outs and pauses. Replaced, for the watched kinds
only, is what it puts between a watch event and a handler (a queue and a task per object, and the
detection of causes that `on.event` handlers do not need), and its lists, which take anything for a
list: a kind is listed by the stream that then goes on as its watch, or by pages where the server
has no such streams, or one has broken. The only module that touches kopf's private parts: where
they are missing it cannot be imported, where their shape is not the known one `unsupported()` says
so, and either way `lifecycle` takes kopf's own path. Invariants: the deliveries are given the same
events, in the same order per object, on both paths; a stream is resumed only on a history of the
server that is known to be the one that was seen before, on any other the kind is listed anew.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import kopf
import orjson
from kopf._cogs.clients import api, errors, watching
from kopf._cogs.structs import references
from kopf._core.reactor import observation, queueing

from stellwerk import garbage
from stellwerk.client.paging import checked_page, pages
from stellwerk.handlers.delivery import EVENTS_PER_SLICE, StreamSlice
from stellwerk_kube.errors import (
    ApiError,
    NotAList,
    SchedulerError,
    Throttled,
    Unavailable,
    in_words,
)
from stellwerk_kube.untrusted_text import cut, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kopf._cogs.aiokits import aiotasks, aiotoggles
    from kopf._cogs.configs import configuration

    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.availability import Availability
    from stellwerk.handlers.delivery import Delivery
    from stellwerk.metrics import Metrics
    from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)
_KOPF: Final = "1.45."
_SHAPES: Final[dict[Callable[..., Any], frozenset[str]]] = {
    queueing.watcher: frozenset(
        {
            "namespace",
            "settings",
            "resource",
            "processor",
            "operator_paused",
            "operator_indexed",
            "resource_indexed",
        }
    ),
    watching.watch_objs: frozenset(
        {
            "settings",
            "resource",
            "namespace",
            "since",
            "operator_pause_waiter",
        }
    ),
    watching.streaming_block: frozenset({"resource", "namespace", "operator_paused"}),
}
_STREAM_BACKOFFS_SECONDS: Final = (0.25, 0.5, 1.0, 2.0)
"""kopf's own retries within a stream; what outlasts them comes back to the lane."""
_REOPEN_SECONDS: Final = 0.02
"""Before a stream is opened again that has given news, or lasted as a quiet one does."""
_REOPEN_LONGEST_SECONDS: Final = 1.0
"""Before a stream is opened again that ended without an error, and without news."""
_WELL_SECONDS: Final = 5.0
_RESTART_FIRST_SECONDS: Final = 0.1
_RESTART_LONGEST_SECONDS: Final = 15.0
_FAILURES_A_LINE: Final = 10
"""In a row: in an outage every kind fails again and again."""

_PAGE_ITEMS: Final = 250
"""A page is parsed at once, which for a whole list would stall the event loop, and the next one
comes while it is dealt with: two of 500 would take 9 MiB more."""
_REASON_CHARACTERS: Final = 200
"""Of what a server says of a refusal, in the log."""
_LONGEST_VERSION: Final = 20
"""Digits of an unsigned integer of 64 bits."""
_EXPIRED: Final = 410
_REPEATED_SECONDS: Final = 10.0
"""A server repeats an event as soon as a stream begins; one that is silent ends after 25 s."""
_EVENT_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_LIST_END: Final = "k8s.io/initial-events-end"
"""Annotates the bookmark that follows the last object of a list."""
LARGE_EVENT_CHARACTERS: Final = 1 << 17
"""Objects that people write have a tenth of that."""

DEFINING: Final = (
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions"),
    ("apiregistration.k8s.io", "v1", "apiservices"),
)
"""Group, version and plural of what adds kinds to an API; of their objects nothing is kept."""
_DEFINITIONS_RETRY_SECONDS: Final = 60.0
_BETWEEN_LOOKS_SECONDS: Final = 0.5
"""At least: a definition changes often before it serves, and in an outage every kind fails."""

Watch = Callable[[str | None], AsyncGenerator[Any, None]]
"""Opens a watch from a resourceVersion on, or, with None, the list that a watch follows; ends when
the connection does."""


def unsupported() -> str | None:
    """Return why this kopf cannot be used with the fast lane; None if it can."""
    if not (installed := version("kopf")).startswith(_KOPF):
        return f"it was written for kopf {_KOPF}x, not {installed}"
    for function, parameters in _SHAPES.items():
        if set(inspect.signature(function).parameters) - {"_iterations"} != parameters:
            return f"{function.__module__}.{function.__qualname__} has other parameters"
    if getattr(api, "json", None) is not json:
        return "kopf reads its streams in another way"
    return None


class FastLane:
    """The short way from watch streams to handlers, while installed."""

    def __init__(
        self,
        registry: kopf.OperatorRegistry,
        deliveries: Iterable[Delivery],
        availability: Availability,
        client: ClusterClient,
        metrics: Metrics,
        jitter: Callable[[], float],
    ) -> None:
        """Prepare the lane for the kinds of `deliveries`; `jitter` is in [0, 1)."""
        self.insights = references.Insights()
        """To be given to kopf's operator: it says which kinds kopf watches."""
        self._registry = registry
        self._deliveries = {
            (delivery.watched.group, delivery.watched.plural): delivery for delivery in deliveries
        }
        self._watching: set[tuple[Delivery, str]] = set()
        """What kopf has a watcher for, with the version; the one that is in use streams."""
        self._streams: dict[Delivery, WatchStream] = {}
        """Of the version in use."""
        self._look = asyncio.Event()
        """Set when the API may serve other kinds or versions than before."""
        self._availability = availability
        self._client = client
        self._metrics = metrics
        self._jitter = jitter
        self._tells_refusals = True

        for defining in DEFINING:
            _register_definitions(registry, *defining)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Take the place of kopf's per-object workers, and of its JSON parser for streams."""
        watcher = queueing.watcher

        async def fast_watcher(*, resource: references.Resource, **arguments: Any) -> None:
            delivery = self._deliveries.get((resource.group, resource.plural))
            if (resource.group, resource.version, resource.plural) in DEFINING:
                await self._watch_definitions(resource=resource, **arguments)
            elif delivery is None:
                await watcher(resource=resource, **arguments)
            else:
                watcher_of = (delivery, resource.version)
                self._watching.add(watcher_of)
                try:
                    await self._watch(delivery, resource=resource, **arguments)
                finally:
                    self._watching.discard(watcher_of)

        queueing.watcher = fast_watcher
        vars(api)["json"] = _Orjson
        try:
            yield
        finally:
            queueing.watcher = watcher
            vars(api)["json"] = json

    def _on_refused(self, plural: str, reason: str) -> None:
        """Say once for all kinds that the server streams no lists, now that pages have shown one.

        A server on etcd 3.4 streams none at all, so that each kind would say the same.
        """
        if self._tells_refusals:
            self._tells_refusals = False
            logger.info(
                "the API server streams no list of %s, so lists are read by pages, also those of "
                "other kinds that it may not stream: %s",
                plural,
                reason,
            )

    def add(self, delivery: Delivery) -> None:
        """Look for one kind more, at once."""
        self._deliveries[delivery.watched.group, delivery.watched.plural] = delivery
        self._look.set()

    async def find_kinds(self, settings: configuration.OperatorSettings) -> None:
        """Look again and again at what the API serves: absent kinds may appear, versions go.

        At first often, later once in CHECK_SECONDS; at once when a definition has changed or a
        connection was lost, and then often again.
        """
        for delivery in list(self._deliveries.values()):
            if delivery.watched.may_be_absent:
                # Where it is absent the barrier need not wait until kopf has looked.
                await self._try(delivery, self._availability.is_there(delivery))
        while True:
            for pause_seconds in self._availability.pauses():
                # At first, kopf is just looking itself.
                is_wanted = await self._is_look_wanted(pause_seconds)
                seldom = pause_seconds == self._availability.check_seconds
                for delivery in list(self._deliveries.values()):
                    if (delivery, delivery.watched.version) not in self._watching:
                        await self._try(delivery, self._find(delivery, settings))
                    elif delivery.watched.readable and (is_wanted or seldom):
                        await self._try(delivery, self._leave_if_gone(delivery))
                if is_wanted:
                    break

    async def _is_look_wanted(self, pause_seconds: float) -> bool:
        """Wait until the next look is due; whether something has asked for it before."""
        loop = asyncio.get_running_loop()
        earliest_seconds = loop.time() + min(pause_seconds, _BETWEEN_LOOKS_SECONDS)
        try:
            async with asyncio.timeout(pause_seconds):
                await self._look.wait()
        except TimeoutError:
            return False
        await asyncio.sleep(earliest_seconds - loop.time())
        self._look.clear()
        return True

    async def _leave_if_gone(self, delivery: Delivery) -> None:
        """End the stream of a version that is served no longer; its watcher chooses another."""
        stream = self._streams.get(delivery)
        with suppress(ApiError):  # the stream itself will meet the error, and say so
            if stream is not None and await self._availability.is_gone(delivery.watched):
                stream.forget()

    async def _try(self, delivery: Delivery, look: Awaitable[object]) -> None:
        """Look for a kind; a look that fails is logged, and does not end those that follow."""
        try:
            await look
        except Exception as error:  # noqa: BLE001 - the next look may do better
            logger.warning("looking for %s failed: %s", delivery.watched.plural, in_words(error))

    async def _find(self, delivery: Delivery, settings: configuration.OperatorSettings) -> None:
        if not await self._availability.is_there(delivery):
            return
        if (delivery, delivery.watched.version) in self._watching:
            return
        # Have kopf look again at what the API serves, as if a definition had changed.
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
        processor: queueing.WatchStreamProcessor,  # noqa: ARG002 - what the lane replaces
        operator_paused: aiotoggles.ToggleSet | None = None,
        operator_indexed: aiotoggles.ToggleSet | None = None,  # noqa: ARG002 - no index handlers
        resource_indexed: aiotoggles.Toggle | None = None,  # noqa: ARG002
    ) -> None:
        """Stream a kind until cancelled: stands for kopf's `queueing.watcher`.

        kopf ends the whole operator when a watch ends with an error; here it begins anew.
        """
        stream = WatchStream(delivery, self._client, self._metrics, self._on_refused)
        patience = replace(settings.networking, error_backoffs=_STREAM_BACKOFFS_SECONDS)
        settings = replace(settings, networking=patience)
        quiet_seconds = settings.watching.inactivity_timeout or 0.0
        pause_seconds, failures, loop = _RESTART_FIRST_SECONDS, 0, asyncio.get_running_loop()
        while True:
            failed, began = False, loop.time()
            try:
                if stream.must_list:
                    await self._availability.wait_for(delivery)
                    await self._availability.until_stored(delivery.watched)
                if delivery.watched.version != resource.version:
                    # Another watcher streams; this one goes on when its version is chosen again.
                    stream.forget()
                    self._look.set()
                    await delivery.until_version(resource.version)
                    continue
                self._streams[delivery] = stream
                async with watching.streaming_block(
                    resource=resource, namespace=namespace, operator_paused=operator_paused
                ) as pause_waiter:
                    await stream.run(_watch_of(settings, resource, namespace, pause_waiter))
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                # kopf's inactivity limit, passed while an event was being handled: the process was
                # stopped, or the machine suspended. The stream is closed like any that is silent.
            except Exception as error:  # noqa: BLE001 - whatever it is, the kind must be watched
                failed = True
                failures = 1 if stream.gave_news else failures + 1
                self._metrics.watch_failures.labels(delivery.watched.kind).inc()
                if failures % _FAILURES_A_LINE == 1:
                    logger.warning(
                        "watching %s failed, beginning anew: %s", resource, in_words(error)
                    )
            if not failed:
                failures = 0
            if failed or delivery.silence_seconds() < quiet_seconds:
                # It was not closed for being quiet: a server of another release may answer now.
                self._look.set()
            lasted = not failed and loop.time() - began > _WELL_SECONDS
            pause_seconds = _next_pause(
                pause_seconds, failed=failed, well=stream.gave_news or lasted
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
        """Look for kinds whenever what defines them changes, until cancelled.

        Without the right to watch it, kinds are looked for as seldom as the clock says.
        """
        patience = replace(settings.networking, error_backoffs=_STREAM_BACKOFFS_SECONDS)
        settings = replace(settings, networking=patience)
        path = f"/apis/{resource.group}/{resource.version}/{resource.plural}?limit=1"
        since, failed = "", False
        while True:
            pause_seconds = _REOPEN_LONGEST_SECONDS
            try:
                if not since:
                    page = await self._client.get(path)
                    since = str(page["metadata"]["resourceVersion"])
                async with watching.streaming_block(
                    resource=resource, namespace=namespace, operator_paused=operator_paused
                ) as pause_waiter:
                    watch = _watch_of(settings, resource, namespace, pause_waiter)
                    since = await self._take_definitions(watch, since)
                    failed = False
            except asyncio.CancelledError:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
            except Exception as error:  # noqa: BLE001 - the clock looks for kinds as well
                since, pause_seconds = "", _DEFINITIONS_RETRY_SECONDS
                if not failed:
                    logger.info("changes of %s are not watched: %s", resource, in_words(error))
                failed = True
            await asyncio.sleep(pause_seconds * (1 + self._jitter()))

    async def _take_definitions(self, watch: Watch, since: str) -> str:
        """Ask for a look after each change, until the stream ends; where the next one begins."""
        async with aclosing(watch(since)) as events:
            async for event in events:
                event_type, obj = _taken_apart(event)
                if event_type not in _EVENT_TYPES | {"BOOKMARK"}:
                    self._look.set()
                    return ""
                since = _seen(obj)[1] or since
                if event_type != "BOOKMARK":
                    self._look.set()
        return since


def _register_definitions(
    registry: kopf.OperatorRegistry, group: str, version: str, plural: str
) -> None:
    @kopf.on.event(group, version, plural, registry=registry, id=plural)
    async def on_event(**_: Any) -> None:
        """Have kopf watch the kind; the lane takes its events."""


def _next_pause(pause_seconds: float, *, failed: bool, well: bool) -> float:
    """The seconds until the next round; `well`: this one gave news, or lasted as quiet ones do."""
    if well:
        return _RESTART_FIRST_SECONDS if failed else _REOPEN_SECONDS
    return min(2 * pause_seconds, _RESTART_LONGEST_SECONDS if failed else _REOPEN_LONGEST_SECONDS)


def _watch_of(
    settings: configuration.OperatorSettings,
    resource: references.Resource,
    namespace: references.Namespace,
    pause_waiter: aiotasks.Future,
) -> Watch:
    listing = replace(settings, watching=replace(settings.watching, initial_streaming=True))

    async def watch(since: str | None) -> AsyncGenerator[Any, None]:
        """Kopf's stream; its errors become those that say whether the server is only away."""
        events = watching.watch_objs(
            settings=listing,
            resource=resource,
            namespace=namespace,
            since=since,
            operator_pause_waiter=pause_waiter,
        )
        try:
            async with aclosing(events):  # type: ignore[type-var]
                async for event in events:
                    yield event
        except (errors.APITooManyRequestsError, errors.APISessionClosed) as away:
            raise ConnectionError(repr(away)) from away
        except errors.APIError as refused:
            if since is None:  # pages will show whether the server is away
                text = refused.message or str(refused)
                status = {"code": refused.status, "message": text}
                raise StreamRefused(_status_text(status)) from refused
            if isinstance(refused, errors.APIServerError):
                raise ConnectionError(repr(refused)) from refused
            raise

    return watch


def _event(line: str) -> object:
    event: object = orjson.loads(line)
    if len(line) > LARGE_EVENT_CHARACTERS and isinstance(event, dict):
        return LargeEvent(event)
    return event


class _Orjson:
    """The functions of the json module that kopf's streams use."""

    loads = staticmethod(_event)
    JSONDecodeError = orjson.JSONDecodeError


class LargeEvent(dict[str, Any]):
    """An event of an object that takes long to parse, as a stream gives it."""


class WatchError(SchedulerError):
    """The API server ended a watch with an error."""


class StreamRefused(SchedulerError):  # noqa: N818 - named for what the server did
    """The API server does not begin a watch with a list."""


class WatchStream:
    """One kind's list and the watch that follows it: what was seen last, and where to go on.

    The lane runs it round after round: a round lists where there is nothing to go on from, and
    watches until the stream ends. Lists are streamed; after a stream that was refused, or broke
    before its list had ended, the list is read by pages. A stream is resumed one event early, and
    the server must repeat that event. Before that, the server is asked for its version, by a list
    of one object: it must not be behind.
    """

    def __init__(
        self,
        delivery: Delivery,
        client: ClusterClient,
        metrics: Metrics,
        on_refused: Callable[[str, str], None] = lambda _plural, _reason: None,
    ) -> None:
        """Know nothing of the kind.

        `on_refused` gets the plural of a list that was not streamed, and why, once the list was
        read by pages: only then is it known that the server is not away.
        """
        self._delivery = delivery
        self._client = client
        self._metrics = metrics
        self._on_refused = on_refused
        self._refusal = ""
        """Why the server did not stream the list that is being read by pages."""
        self._since: str | None = None
        """To watch from; None: list first."""
        self._echo: tuple[str | None, str] | None = None
        """The uid and version of the event after `_since`; None: nothing was seen since."""
        self._latest = 0
        """The highest version that the server has shown of the kind."""
        self._pages_next = False
        """Whether the next list is read by pages, since a stream has not shown one to its end."""
        self.gave_news = False
        """Whether the last round has given anything that was not known."""

    def forget(self) -> None:
        """List first in the next round; this one ends before its next event, or as it is quiet."""
        self._since = None

    @property
    def must_list(self) -> bool:
        """Whether the next round begins with a list."""
        return self._since is None

    async def run(self, watch: Watch) -> None:
        """One round: list, or look whether to go on; then watch until the stream ends.

        Raises:
            Exception: whatever has ended the round.
        """
        self.gave_news = False
        try:
            if self._since is not None and not await self._same_server():
                self._since = None
            if self._since is None and not await self._list(watch):
                return
            async with aclosing(watch(self._since)) as events:
                await self._follow(events)
        except (Unavailable, Throttled, OSError):  # the server is away: what was seen still holds
            raise
        except Exception:
            self._pages_next = self._since is None and not self._pages_next
            self._since = None
            raise

    async def _list(self, watch: Watch) -> bool:
        """List the kind; whether it is still to be watched, which a stream may have done, too."""
        if self._pages_next:
            await self._read_pages()
            return True
        first = not self._delivery.synced
        async with aclosing(watch(None)) as events:
            version = await self._read_stream(events)
            if version and first:
                await self._end_list(version)
                await self._follow(events)
                return False
        if version:
            # To apply what a later list has changed takes time, in which the stream would be quiet.
            await self._end_list(version)
        else:
            await self._read_pages()
        return True

    async def _read_stream(self, events: AsyncIterator[Any]) -> str:
        """Hand the list that a stream begins with to the delivery; its version, empty if refused.

        Raises:
            NotAList: it is something else, as of a server that knows no streamed lists.
            WatchError: it ended early, or in an error.
        """
        delivery, kind = self._delivery, self._delivery.watched.api_kind
        act, count, is_news = f"list {kind} objects", 0, False
        delivery.begin_listing()
        try:
            async for event in self._prepared(events):
                event_type, obj = _taken_apart(event)
                if event_type == "BOOKMARK":
                    return _listed_version(act, obj)
                if event_type == "ERROR":
                    raise _list_error(obj, is_first=not count)
                if event_type not in _EVENT_TYPES:
                    raise NotAList(act, f"the answer is no event but {event!r:.80}")
                if isinstance(obj, dict) and obj.get("kind", kind) != kind:
                    raise NotAList(act, f"the list has an item of the kind {obj['kind']!r:.80}")
                # What is listed is added: what happens meanwhile comes after all that.
                is_news = is_news or event_type != "ADDED"
                if is_news:
                    delivery.deliver(event_type, obj)
                else:
                    delivery.listed(obj)
                count += 1
                if count % EVENTS_PER_SLICE == 0:
                    delivery.heard()
                    await asyncio.sleep(0)
                if count % _PAGE_ITEMS == 0 and not delivery.synced:
                    garbage.freeze()
        except StreamRefused as refused:
            self._refusal = str(refused)
            logger.debug("%s are listed by pages: %s", delivery.watched.plural, refused)
            return ""
        raise WatchError("the stream ended before the list did")

    async def _read_pages(self) -> None:
        """Hand the whole list to the delivery, page by page."""
        delivery, kind = self._delivery, self._delivery.watched.api_kind
        since, count = "", 0
        delivery.begin_listing()
        path = delivery.watched.path
        async with aclosing(pages(self._client.get, path, limit=_PAGE_ITEMS, ahead=True)) as found:
            async for page in found:
                checked = checked_page(page, kind)
                since = since or checked["metadata"]["resourceVersion"]
                delivery.heard()
                for obj in checked["items"] or ():
                    delivery.listed(obj)
                    count += 1
                    if count % EVENTS_PER_SLICE == 0:
                        await asyncio.sleep(0)
                if not delivery.synced:
                    garbage.freeze()
        await self._end_list(since)
        if self._refusal:
            self._on_refused(delivery.watched.plural, self._refusal)
            self._refusal = ""

    async def _end_list(self, version: str) -> None:
        """The delivery has the whole list: from its version on the kind is watched."""
        await self._delivery.end_listing()
        self._since, self._echo, self._latest = version, None, _number(version)
        self._pages_next = False

    async def _same_server(self) -> bool:
        """Whether the server has come as far as we have seen it."""
        watched = self._delivery.watched
        page = await self._client.get(f"{watched.collection_path}?limit=1")
        version = checked_page(page, watched.api_kind)["metadata"]["resourceVersion"]
        self._delivery.heard()
        if _number(version) >= self._latest:
            return True
        self._restored(f"it is at version {version}, and has been at {self._latest}")
        return False

    async def _follow(self, events: AsyncIterator[Any]) -> None:
        """Watch until the stream ends, and note whether the next round is to begin with a list."""
        if not await self._watch(events):
            self._since = None

    async def _watch(self, events: AsyncIterator[Any]) -> bool:
        """Deliver until the stream ends; whether the next one may go on from there."""
        expected, slice_ = self._echo, StreamSlice()
        async for event in self._prepared(events):
            self._delivery.heard()
            began_seconds = time.monotonic()
            if expected is None and self._usual(event):
                if slice_.used_up(began_seconds):
                    await asyncio.sleep(0)
                continue
            event_type, obj = _taken_apart(event)
            if event_type == "ERROR":
                if isinstance(obj, dict) and obj.get("code") == _EXPIRED:
                    return False
                raise WatchError(f"an error in the stream: {obj!r:.500}")
            seen = _seen(obj)
            if expected is not None:
                if seen != expected:
                    self._restored(f"it does not repeat the last event, {expected}, but {seen}")
                    return False
                expected = None
                self._delivery.deliver(event_type, obj)
                continue
            self.gave_news = True
            self._advance(seen, bookmark=event_type == "BOOKMARK")
            if event_type in _EVENT_TYPES:
                self._delivery.deliver(event_type, obj)
            elif event_type != "BOOKMARK":
                self._delivery.skip_event(event)
        return expected is None or not self._is_restored_in_silence(expected)

    def _is_restored_in_silence(self, expected: tuple[str | None, str]) -> bool:
        """Whether the server had time to repeat an event, and did not.

        It has caught up by changes of other kinds, and may have nothing to say for long.
        """
        silent = self._delivery.silence_seconds() > _REPEATED_SECONDS
        if silent:
            self._restored(f"it has not repeated the last event, {expected}")
        return silent

    async def _prepared(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The same events; a large one comes when its object has been parsed beside the loop.

        Those of a watch end once it is to begin with a list.
        """
        listing = self._since is None
        async for event in events:
            if self._since is None and not listing:
                return
            if event.__class__ is not LargeEvent:
                yield event
                continue
            # What was parsed is there to be taken for as long as it is kept.
            kept = await self._delivery.prepare(event.get("object") or {})
            yield event
            # A quiet stream would hold what it gave last until there is news.
            del kept
            event.clear()

    def _usual(self, event: JsonObject) -> bool:
        """Deliver an event as nearly all are, without further looks; whether it was one."""
        try:
            event_type, obj = event["type"], event["object"]
            metadata = obj["metadata"]
            uid, shown = metadata["uid"], metadata["resourceVersion"]
            version = int(shown)
            if event_type not in _EVENT_TYPES or version <= self._latest:
                return False
        except (LookupError, TypeError, ValueError):
            return False
        self.gave_news = True
        if self._echo is not None:
            self._since = self._echo[1]
        self._echo, self._latest = (uid, shown), version
        self._delivery.deliver(event_type, obj)
        return True

    def _advance(self, seen: tuple[str | None, str], *, bookmark: bool) -> None:
        """Note how far the server has come; what it repeats or sends late changes nothing."""
        version = _number(seen[1])
        if bookmark:
            if version >= self._latest:
                self._since, self._echo, self._latest = seen[1], None, version
        elif version > self._latest:
            if self._echo is not None:
                self._since = self._echo[1]
            self._echo, self._latest = seen, version

    def _restored(self, reason: str) -> None:
        kind = self._delivery.watched.kind
        self._metrics.watch_restores.labels(kind).inc()
        logger.warning(
            "the API server has another history of %s, listing them anew: %s", kind, reason
        )


def _taken_apart(event: object) -> tuple[Any, Any]:
    """The type and the object of an event, as far as it has them."""
    if not isinstance(event, dict):
        return None, None
    event_type = event.get("type")
    return event_type if isinstance(event_type, str) else None, event.get("object")


def _list_error(obj: object, *, is_first: bool) -> SchedulerError:
    """The error for an ERROR event in a list; in place of its first object it is a refusal.

    A server on etcd 3.4 refuses so, behind a status 200.
    """
    if is_first:
        return StreamRefused(_status_text(obj))
    return WatchError(f"an error in the stream: {obj!r:.500}")


def _status_text(obj: object) -> str:
    """The code and the message of a Status, as a line of a log shows them."""
    fields = obj if isinstance(obj, dict) else {}
    return cut(printable(f"{fields.get('code')} {fields.get('message')}"), _REASON_CHARACTERS)


def _seen(obj: object) -> tuple[str | None, str]:
    """The uid and the version of an event's object, as far as it has them."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return None, ""
    return metadata.get("uid"), metadata.get("resourceVersion") or ""


def _listed_version(act: str, bookmark: object) -> str:
    """The version of the list that a bookmark ends.

    Raises:
        NotAList: it ends none.
    """
    metadata = bookmark.get("metadata") if isinstance(bookmark, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict) or annotations.get(_LIST_END) != "true":
        raise NotAList(act, "the stream has a bookmark, and not that of a list's end")
    if not _number(version := _seen(bookmark)[1]):
        raise NotAList(act, "the list has no resourceVersion")
    return version


def _number(version: object) -> int:
    """The version as a number that grows with each change; 0 where it is none."""
    if isinstance(version, str) and version.isdecimal() and len(version) <= _LONGEST_VERSION:
        return int(version)
    return 0
