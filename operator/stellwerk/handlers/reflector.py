"""Lists one kind and watches it from there: client-go's Reflector, for one Delivery.

`watching` runs a Reflector round after round, each on a stream of kopf's. A round lists the kind
if there is no version to resume from, and then watches until the stream ends. kopf's own lists are
not used, because they take any answer for a list. No list is due by time: as long as streams can be
resumed, only the audit finds what a watch has missed, and of nodes and pods alone
(`scheduler.observers.audit`).

Two versions say where the watch stands. `_resume_version` is the resourceVersion that the next
stream is resumed from, one event before the last. `_last_event` is the event after it, which a
server with the same history repeats first. Invariants: the delivery gets the events of an object in
their order; a stream is resumed only on the history that was seen before, on any other the kind is
listed anew.

A round that ends with an expired version (410) or another error lists in the next one. The version
is kept only while the server is away (Unavailable, Throttled, OSError). Objects that were deleted
before that list are reported as deleted when the list ends (`Delivery.end_listing`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import TYPE_CHECKING, Any, Final

import orjson

from stellwerk import garbage
from stellwerk.client.paging import checked_page, pages
from stellwerk.handlers.delivery import MAX_EVENTS_PER_SLICE
from stellwerk.memory import MemoryUse, memory_use
from stellwerk_kube.errors import NotAList, SchedulerError, Throttled, Unavailable
from stellwerk_kube.untrusted_text import cut, printable

if TYPE_CHECKING:
    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.delivery import Delivery
    from stellwerk.metrics import Metrics
    from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

_ITEMS_PER_PAGE: Final = 250
"""Objects on a page of a list. A page is parsed at once, which stalls the event loop, and the next
one arrives while this one is handled: pages of 500 would take 9 MiB more."""
MAX_STREAM_SECONDS: Final = 120.0
"""Time after which a streamed list that has not ended is read by pages: a million pods take less
than a minute."""
MAX_MEMORY_SHARE: Final = 0.95
"""Share of the process's memory above which a list is given up. The kernel ends a process that goes
beyond its limit, and then nothing says why."""
_MAX_REASON_CHARACTERS: Final = 200
"""Characters of a server's refusal that the log shows."""
_MAX_VERSION_DIGITS: Final = 20
"""Digits of an unsigned integer of 64 bits; a longer resourceVersion is no number of etcd's."""
_EXPIRED: Final = 410
"""The code of an ERROR event that says that the server has forgotten the version."""
_MAX_REPETITION_SECONDS: Final = 10.0
"""Longest wait for the event that the server must repeat. It is the first of a stream, and a
stream without any event ends after 25 s."""
EVENT_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_LIST_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that follows the last object of a list."""
LARGE_EVENT_CHARACTERS: Final = 1 << 17
"""Events longer than this are parsed in a thread, because they would stall the event loop. Objects
that people write have a tenth of that."""

STREAM_SLICE_SECONDS: Final = 0.002
"""Time after which a stream's slice ends, however few its events are: a pod that is unlike all
others takes longer."""
MAX_SLICE_FACTOR: Final = 4
"""Longest slice of a stream that is behind, as a multiple of an ordinary one. Bindings wait for
it."""

Watch = Callable[[str | None], AbstractAsyncContextManager[AsyncIterator[Any]]]
"""Opens a watch from a resourceVersion on, or, with None, the list that a watch follows. The events
end when the connection does. What opening and reading raise comes out of the block."""
EventId = tuple[str | None, str]
"""The uid and the resourceVersion of an event's object."""


class LargeEvent(dict[str, Any]):
    """An event of an object that takes long to parse, as a stream gives it."""


def parse_event(line: str | bytes) -> object:
    """Parse a line of a stream: an event of 2.8 KB in 12 µs, for which json would need 30.

    kopf calls this where it would call `json.loads` (`watching` puts it there).

    Raises:
        ValueError: the line is not JSON.
    """
    event: object = orjson.loads(line)
    if len(line) > LARGE_EVENT_CHARACTERS and isinstance(event, dict):
        return LargeEvent(event)
    return event


class WatchError(SchedulerError):
    """The API server ended a watch with an error."""


class StreamRefused(SchedulerError):  # noqa: N818 - named for what the server did
    """The API server does not begin a watch with a list."""


class StreamSlice:
    """The events that one stream handles before the event loop runs other tasks.

    A stream that uses up its slice is behind. Its slices double until they suffice: otherwise
    unread events would pile up while the scheduler decides on pods that are known already.
    Invariant: after a round of the loop without events, the next slice is an ordinary one.
    """

    __slots__ = ("_began_seconds", "_events", "_length", "_used_up")

    def __init__(self) -> None:
        self._events = 0
        """Events handled since the loop last ran other tasks."""
        self._began_seconds = 0.0
        self._used_up = False
        self._length = 1

    def used_up(self, began_seconds: float) -> bool:
        """Return whether other tasks should run now, after an event that began at this time."""
        events = self._events = self._events + 1
        if events == 1:
            self._began_seconds = began_seconds
            asyncio.get_running_loop().call_soon(self._end)
        length = self._length
        self._used_up = (
            events >= length * MAX_EVENTS_PER_SLICE
            or time.monotonic() - self._began_seconds >= length * STREAM_SLICE_SECONDS
        )
        return self._used_up

    def _end(self) -> None:
        """End the slice: other tasks have run, or the stream has no more events."""
        self._length = min(2 * self._length, MAX_SLICE_FACTOR) if self._used_up else 1
        self._events, self._used_up = 0, False


class ListWithoutEnd(SchedulerError):  # noqa: N818 - named for what the server sends
    """A list was given up, because it takes too long or more memory than there is."""


class Reflector:
    """One kind's list, the watch that follows it, and the version from which it is resumed.

    A list is streamed. After a stream that was refused, or broke before its list had ended, the
    list is read by pages. Before a stream is resumed, the server is asked for its version by a list
    of one object: it must not be behind `_highest_version`.
    """

    def __init__(
        self,
        delivery: Delivery,
        client: ClusterClient,
        metrics: Metrics,
        on_refused: Callable[[str, str], None] = lambda _plural, _reason: None,
        memory: Callable[[], MemoryUse] = memory_use,
    ) -> None:
        """Know nothing of the kind.

        `on_refused` gets the plural of a list that was not streamed, and why, once the list was
        read by pages: only then is it known that the server is not away. `memory` says how much the
        process takes, and may take.
        """
        self._delivery = delivery
        self._kind = delivery.watched.api_kind
        self._memory = memory
        self._client = client
        self._metrics = metrics
        self._on_refused = on_refused
        self._refusal = ""
        """The reason for which the server did not stream the list that is being read by pages."""
        self._resume_version: str | None = None
        """The version that the next stream begins after; None: the next round lists."""
        self._last_event: EventId | None = None
        """The event after `_resume_version`, which the next stream must repeat; None: there was
        none, or only a bookmark."""
        self._highest_version = 0
        """The highest version that the server has shown of the kind."""
        self._pages_next = False
        """Whether the next list is read by pages, because a stream did not show one to its end."""
        self.gave_news = False
        """Whether the last round has given anything that was not known."""

    def forget(self) -> None:
        """List in the next round; this round ends before its next event, or when it is quiet."""
        self._resume_version = None

    @property
    def must_list(self) -> bool:
        """Whether the next round begins with a list."""
        return self._resume_version is None

    async def run(self, watch: Watch) -> None:
        """Do one round: list, or check that the watch may be resumed; then watch until it ends.

        Raises:
            Exception: whatever has ended the round.
        """
        self.gave_news = False
        try:
            if self._resume_version is not None and not await self._is_same_server():
                self._resume_version = None
            if self._resume_version is None and not await self._list(watch):
                return
            async with watch(self._resume_version) as events:
                await self._follow(events)
        except (Unavailable, Throttled, OSError):  # the server is away: what was seen still holds
            raise
        except ListWithoutEnd:
            await self._delivery.drop_listing()
            self._pages_next, self._resume_version = not self._pages_next, None
            raise
        except Exception:
            self._pages_next = self._resume_version is None and not self._pages_next
            self._resume_version = None
            raise

    async def _list(self, watch: Watch) -> bool:
        """List the kind; return whether it is still to be watched.

        The first list of a kind is streamed and watched on the same stream.
        """
        if self._pages_next:
            await self._read_pages()
            return True
        first, version = not self._delivery.synced, ""
        try:
            async with watch(None) as events:
                version = await self._read_stream(events)
                if first:
                    await self._end_list(version)
                    await self._follow(events)
                    return False
        except StreamRefused as refused:
            if version:  # the list was shown: it is the watch after it that has failed
                raise
            self._refusal = str(refused)
            logger.debug("%s are listed by pages: %s", self._delivery.watched.plural, refused)
        if version:
            # A later list takes time to apply, and meanwhile this stream would seem to be quiet.
            # The watch gets a stream of its own.
            await self._end_list(version)
        else:
            await self._read_pages()
        return True

    async def _read_stream(self, events: AsyncIterator[Any]) -> str:
        """Deliver the list that a stream begins with; return its version.

        Raises:
            StreamRefused: the server does not stream it.
            NotAList: it is something else, as of a server that knows no streamed lists.
            WatchError: it ended early, or in an error.
            ListWithoutEnd: it does not end.
        """
        delivery, kind = self._delivery, self._kind
        act, count, is_news = f"list {kind} objects", 0, False
        began_seconds = time.monotonic()
        delivery.begin_listing()
        async for event in self._prepared(events):
            event_type, obj = type_and_object(event)
            if event_type == "BOOKMARK":
                return _listed_version(act, obj)
            if event_type == "ERROR":
                if not count:  # a server on etcd 3.4 refuses so, behind a status 200
                    raise StreamRefused(status_text(obj))
                raise WatchError(f"an error in the stream: {obj!r:.500}")
            if event_type not in EVENT_TYPES:
                raise NotAList(act, f"expected an event, got {event!r:.80}")
            if (other := self._other_kind(obj)) is not None:
                raise NotAList(act, f"the list has an item of the kind {other!r:.80}")
            # What is listed is added: what happens meanwhile comes after all that.
            is_news = is_news or event_type != "ADDED"
            if is_news:
                delivery.deliver(event_type, obj)
            else:
                delivery.listed(obj)
            count += 1
            if count % MAX_EVENTS_PER_SLICE == 0:
                delivery.heard()
                await asyncio.sleep(0)
            self._check_stream(act, count, began_seconds)
        raise WatchError("the stream ended before the list did")

    async def _read_pages(self) -> None:
        """Deliver the whole list, page by page.

        Raises:
            ApiError: a page cannot be read, or there are pages without end.
            ListWithoutEnd: it takes more memory than there is.
        """
        delivery, kind = self._delivery, self._kind
        version, count = "", 0
        delivery.begin_listing()
        path = delivery.watched.path
        async with aclosing(
            pages(self._client.get, path, limit=_ITEMS_PER_PAGE, ahead=True)
        ) as found:
            async for page in found:
                checked = checked_page(page, kind)
                version = version or checked["metadata"]["resourceVersion"]
                delivery.heard()
                for obj in checked["items"] or ():
                    delivery.listed(obj)
                    count += 1
                    if count % MAX_EVENTS_PER_SLICE == 0:
                        await asyncio.sleep(0)
                self._check_memory(f"list {kind} objects", count)
        await self._end_list(version)
        if self._refusal:
            self._on_refused(delivery.watched.plural, self._refusal)
            self._refusal = ""

    def _check_stream(self, act: str, count: int, began_seconds: float) -> None:
        """Check after each object of a streamed list that it may go on.

        Raises:
            ListWithoutEnd: it takes too long, or more memory than there is.
        """
        if time.monotonic() - began_seconds > MAX_STREAM_SECONDS:
            seconds = f"{MAX_STREAM_SECONDS:.0f} s"
            raise ListWithoutEnd(f"{act}: no end after {count:,} objects and {seconds}")
        if count % _ITEMS_PER_PAGE == 0:
            self._check_memory(act, count)

    def _check_memory(self, act: str, count: int) -> None:
        """Note how far a list is; what it has made so far is not looked through for cycles again.

        Raises:
            ListWithoutEnd: the process has little memory left.
        """
        use = self._memory()
        if use.share > MAX_MEMORY_SHARE:
            raise ListWithoutEnd(f"{act}: given up after {count:,} objects, with {use}")
        if not self._delivery.synced:
            self._delivery.not_listed(count)
            garbage.freeze()

    async def _end_list(self, version: str) -> None:
        """Complete the list in the delivery, and watch the kind from the list's version on."""
        await self._delivery.end_listing()
        self._resume_version, self._last_event = version, None
        self._highest_version = _number(version)
        self._pages_next = False

    async def _is_same_server(self) -> bool:
        """Return whether the server is at least at the highest version that it has shown."""
        watched = self._delivery.watched
        page = await self._client.get(f"{watched.collection_path}?limit=1")
        version = checked_page(page, watched.api_kind)["metadata"]["resourceVersion"]
        self._delivery.heard()
        if _number(version) >= self._highest_version:
            return True
        self._report_restore(f"it is at version {version}, and has been at {self._highest_version}")
        return False

    async def _follow(self, events: AsyncIterator[Any]) -> None:
        """Watch until the stream ends, and list in the next round if it cannot be resumed."""
        if not await self._watch(events):
            self._resume_version = None

    async def _watch(self, events: AsyncIterator[Any]) -> bool:
        """Deliver until the stream ends; return whether the next stream may resume from there."""
        to_repeat, slice_ = self._last_event, StreamSlice()
        async for event in self._prepared(events):
            began_seconds = time.monotonic()
            if to_repeat is None and self._deliver_usual(event):
                if slice_.used_up(began_seconds):
                    await asyncio.sleep(0)
                continue
            self._delivery.heard()
            event_type, obj = type_and_object(event)
            if self._says_expired(event_type, obj):
                return False
            this_event = event_id(obj)
            if to_repeat is not None:
                if this_event != to_repeat:
                    reason = f"it does not repeat the last event, {to_repeat}, but {this_event}"
                    self._report_restore(reason)
                    return False
                to_repeat = None
                self._delivery.deliver(event_type, obj)
                continue
            self.gave_news = True
            self._advance(this_event, is_bookmark=event_type == "BOOKMARK")
            if event_type in EVENT_TYPES:
                self._delivery.deliver(event_type, obj)
            elif event_type != "BOOKMARK":
                self._delivery.skip_event(event)
        if to_repeat is not None and self._delivery.silence_seconds() > _MAX_REPETITION_SECONDS:
            # The server had time to repeat the event. It has caught up by changes of other kinds,
            # and may have nothing to say for long.
            self._report_restore(f"it has not repeated the last event, {to_repeat}")
            return False
        return True

    def _says_expired(self, event_type: str | None, obj: object) -> bool:
        """Return whether an event says that the server has forgotten the version.

        Raises:
            WatchError: it says another error, or is of another kind.
        """
        if event_type == "ERROR":
            if isinstance(obj, dict) and obj.get("code") == _EXPIRED:
                return True
            raise WatchError(f"an error in the stream: {obj!r:.500}")
        if (other := self._other_kind(obj)) is not None:
            raise WatchError(f"an event of another kind in the stream: {other!r:.80}")
        return False

    async def _prepared(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """Yield the events, a large one when its object has been parsed beside the loop.

        The events of a watch end early if `forget` was called meanwhile.
        """
        listing = self._resume_version is None
        async for event in events:
            if self._resume_version is None and not listing:
                return
            if event.__class__ is not LargeEvent:
                yield event
                continue
            # What was parsed can be taken for as long as it is referred to.
            kept = await self._delivery.prepare(event.get("object") or {})
            yield event
            # A quiet stream would hold what it gave last until there is news.
            del kept
            event.clear()

    def _deliver_usual(self, event: JsonObject) -> bool:
        """Deliver an event if it is a usual one, as nearly all are; return whether it was.

        Usual is a change of a known type with a version above all others. Here for speed: the
        checks of `_watch`, `type_and_object`, `event_id` and `_advance` cost as much again as
        parsing the event, and for such an event they come to the same.
        """
        try:
            event_type, obj = event["type"], event["object"]
            metadata = obj["metadata"]
            uid, shown = metadata["uid"], metadata["resourceVersion"]
            version = int(shown)
            if event_type not in EVENT_TYPES or version <= self._highest_version:
                return False
            if obj.get("kind", self._kind) != self._kind:
                return False
        except (LookupError, TypeError, ValueError):
            return False
        self.gave_news = True
        if self._last_event is not None:
            self._resume_version = self._last_event[1]
        self._last_event, self._highest_version = (uid, shown), version
        self._delivery.heard()
        self._delivery.deliver(event_type, obj)
        return True

    def _other_kind(self, obj: object) -> object:
        """Return the kind that an object says, if it is another one; None if it says none."""
        said = obj.get("kind", self._kind) if isinstance(obj, dict) else self._kind
        return None if said == self._kind else said

    def _advance(self, this_event: EventId, *, is_bookmark: bool) -> None:
        """Note how far the server has come; what it repeats or sends late changes nothing."""
        shown = this_event[1]
        version = _number(shown)
        if is_bookmark:
            if version >= self._highest_version:
                self._resume_version, self._last_event, self._highest_version = shown, None, version
        elif version > self._highest_version:
            if self._last_event is not None:
                self._resume_version = self._last_event[1]
            self._last_event, self._highest_version = this_event, version

    def _report_restore(self, reason: str) -> None:
        """Count and log that the server has another history than before, as after a restore."""
        kind = self._delivery.watched.kind
        self._metrics.watch_restores.labels(kind).inc()
        logger.warning(
            "the API server has another history of %s, listing them again: %s", kind, reason
        )


def type_and_object(event: object) -> tuple[Any, Any]:
    """Return the type and the object of an event; None for what it lacks."""
    if not isinstance(event, dict):
        return None, None
    event_type = event.get("type")
    return event_type if isinstance(event_type, str) else None, event.get("object")


def status_text(obj: object) -> str:
    """Return the code and the message of a Status, as a line of the log shows them."""
    fields = obj if isinstance(obj, dict) else {}
    return cut(printable(f"{fields.get('code')} {fields.get('message')}"), _MAX_REASON_CHARACTERS)


def event_id(obj: object) -> EventId:
    """Return the uid and the version of an event's object; None and empty if it lacks them."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return None, ""
    return metadata.get("uid"), metadata.get("resourceVersion") or ""


def _listed_version(act: str, bookmark: object) -> str:
    """Return the version of the list that a bookmark ends.

    Raises:
        NotAList: the bookmark ends no list.
    """
    metadata = bookmark.get("metadata") if isinstance(bookmark, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict) or annotations.get(_LIST_END) != "true":
        raise NotAList(act, "the stream has a bookmark that does not end the list")
    if not _number(version := event_id(bookmark)[1]):
        raise NotAList(act, "the list has no resourceVersion")
    return version


def _number(version: object) -> int:
    """Return the version as a number that grows with each change; 0 if it is none."""
    if isinstance(version, str) and version.isdecimal() and len(version) <= _MAX_VERSION_DIGITS:
        return int(version)
    return 0
