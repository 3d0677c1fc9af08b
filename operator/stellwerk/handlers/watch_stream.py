"""One kind's list and the watch that follows it: what was seen last, and where to go on.

`fastlane` runs it round after round: a round lists where there is nothing to go on from, and
watches until the stream ends. Invariant: a stream is resumed only on a history of the server that
is known to be the one that was seen before; on any other the kind is listed anew.

How that is known: a stream is resumed one event early, and the server must repeat that event.
Before that, the server is asked for its version, by a list of one object: it must not be behind.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from stellwerk.client.paging import checked_page, pages
from stellwerk.errors import SchedulerError, Throttled, Unavailable
from stellwerk.handlers.stream_turn import EVENTS_PER_TURN, StreamTurn

if TYPE_CHECKING:
    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.delivery import Delivery
    from stellwerk.metrics import Metrics
    from stellwerk.models.json_values import JsonObject

logger = logging.getLogger(__name__)

_PAGE_ITEMS: Final = 500
"""A page is parsed between two turns of the loop; a whole list would stall it."""
_LONGEST_VERSION: Final = 20
"""Digits of an unsigned integer of 64 bits."""
_EXPIRED: Final = 410
_EVENT_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


class LargeEvent(dict[str, Any]):
    """An event of an object that takes long to parse, as a stream gives it."""


LARGE_EVENT_CHARACTERS: Final = 1 << 17
"""Objects that people write have a tenth of that."""

Watch = Callable[[str], AsyncGenerator[Any, None]]
"""Opens a watch from a resourceVersion on; ends when the connection does."""


class WatchError(SchedulerError):
    """The API server ended a watch with an error."""


class WatchStream:
    """Lists and watches one kind, for its delivery."""

    def __init__(self, delivery: Delivery, client: ClusterClient, metrics: Metrics) -> None:
        self._delivery = delivery
        self._client = client
        self._metrics = metrics
        self._since: str | None = None
        """To watch from; None: list first."""
        self._echo: tuple[str | None, str] | None = None
        """The uid and version of the event after `_since`; None: nothing was seen since."""
        self._latest = 0
        """The highest version that the server has shown of the kind."""
        self.gave_news = False
        """Whether the last round has given anything that was not known."""

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
            since = self._since
            if since is None or not await self._same_server():
                since = await self._list()
            async with aclosing(watch(since)) as events:
                if not await self._watch(events):
                    self._since = None
        except (Unavailable, Throttled, OSError):  # the server is away: what was seen still holds
            raise
        except Exception:
            self._since = None
            raise

    async def _list(self) -> str:
        """Hand the whole list to the delivery; its version."""
        delivery, kind = self._delivery, self._delivery.watched.api_kind
        since, count = "", 0
        delivery.begin_listing()
        async for page in pages(self._client.get, delivery.watched.path, limit=_PAGE_ITEMS):
            checked = checked_page(page, kind)
            since = since or checked["metadata"]["resourceVersion"]
            delivery.heard()
            for obj in checked["items"] or ():
                delivery.listed(obj)
                count += 1
                if count % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
        await delivery.end_listing()
        self._since, self._echo, self._latest = since, None, _number(since)
        return since

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

    async def _watch(self, events: AsyncIterator[Any]) -> bool:
        """Deliver until the stream ends; whether the next one may go on from there."""
        expected, turn = self._echo, StreamTurn()
        async for event in self._prepared(events):
            self._delivery.heard()
            began_seconds = time.monotonic()
            if expected is None and self._usual(event):
                if turn.used_up(began_seconds):
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
        return True

    async def _prepared(self, events: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The same events; a large one comes when its object has been parsed beside the loop."""
        async for event in events:
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


def _seen(obj: object) -> tuple[str | None, str]:
    """The uid and the version of an event's object, as far as it has them."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return None, ""
    return metadata.get("uid"), metadata.get("resourceVersion") or ""


def _number(version: object) -> int:
    """The version as a number that grows with each change; 0 where it is none."""
    if isinstance(version, str) and version.isdecimal() and len(version) <= _LONGEST_VERSION:
        return int(version)
    return 0
