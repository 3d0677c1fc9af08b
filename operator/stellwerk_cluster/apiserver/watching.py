"""Watch streams: which events a client sees, bookmarks, initial events, the end of the stream.

`WatchFeed` is pure: it turns store events into lines for one client. `WatchServer` pumps them into
an HTTP response. Invariant: a client sees every change after its version exactly once and in order,
or an ERROR event that says 410.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from stellwerk_cluster.apimachinery.failures import expired
from stellwerk_cluster.apimachinery.objects import with_value
from stellwerk_cluster.apimachinery.schema import types, zero
from stellwerk_cluster.apimachinery.views import is_view
from stellwerk_cluster.registry.store import (
    ADDED,
    DELETED,
    MODIFIED,
    Collection,
    Entry,
    Store,
    StoreEvent,
    Watcher,
    event_line,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random  # noqa: TID251  (its type only: the generator is injected)

    from stellwerk.clock import Clock
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apiserver.listing import ListOptions
    from stellwerk_cluster.apiserver.rendering import Form, Renderer

_BOOKMARK_SECONDS: Final = 60.0
_LAST_BOOKMARK_SECONDS: Final = 2.0
_SHORTEST_BOOKMARKED_SECONDS: Final = 10.0
_SHORTEST_DEFAULT_SECONDS: Final = 1800
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_WRITE_BYTES: Final = 1 << 20
"""At most about so much is handed to the socket at once."""


class WatchFeed:
    """Turns changes of the store into the lines of one watch."""

    def __init__(
        self, store: Store, kind: ResourceKind, options: ListOptions, form: Form, renderer: Renderer
    ) -> None:
        """Feed a watch of `kind` as `options` ask for it."""
        self._store = store
        self._kind = kind
        self._collection: Collection = store.collection(kind.storage_name)
        self._options = options
        self._form = form
        self._renderer = renderer
        self._after = options.revision
        self._converts = bool(form.transform) or is_view(kind)
        self._columns_sent = False

    def first_lines(self) -> tuple[list[bytes], bool]:
        """What is sent at once, and whether the stream goes on after it."""
        options = self._options
        if options.send_initial_events:
            lines = self._present_state()
            if options.bookmarks:
                lines.append(self._bookmark(initial_end=True))
            return lines, True
        if options.resource_version in ("", "0") and options.send_initial_events is None:
            return self._present_state(), True
        if options.resource_version in ("", "0"):
            self._after = self._store.revision
            return [], True
        gone = self._gone()
        if gone is not None:
            return [gone], False
        return self.lines(self._collection.since(self._after)), True

    def lines(self, events: Iterable[StoreEvent]) -> list[bytes]:
        """The lines for a number of changes."""
        lines = []
        for event in events:
            if event.revision > self._after:
                line = self._line(event)
                if line is not None:
                    lines.append(line)
        return lines

    def bookmark(self) -> bytes:
        """A plain bookmark at the present version."""
        return self._bookmark(initial_end=False)

    def _present_state(self) -> list[bytes]:
        self._after = self._store.revision
        entries = self._collection.entries(self._options.selection.namespace)
        return [
            self._render(ADDED, entry.obj, entry)
            for entry in entries
            if self._options.selection.matches(entry.obj)
        ]

    def _line(self, event: StoreEvent) -> bytes | None:
        selection = self._options.selection
        key = event.entry.key
        if selection.namespace is not None and key[0] != selection.namespace:
            return None
        if selection.everything:
            return (
                event.line
                if not self._converts
                else self._render(event.type, event.entry.obj, event.entry)
            )
        return self._selected_line(event)

    def _selected_line(self, event: StoreEvent) -> bytes | None:
        """What enters the selection is ADDED; what leaves it is DELETED, with its old content."""
        selection, previous = self._options.selection, event.previous
        was = previous is not None and selection.matches(previous.obj)
        if event.type == DELETED:
            return self._render(DELETED, event.entry.obj, event.entry) if was else None
        matches = selection.matches(event.entry.obj)
        if matches:
            return self._render(MODIFIED if was else ADDED, event.entry.obj, event.entry)
        if not was or previous is None:
            return None
        left = with_value(previous.obj, ("metadata", "resourceVersion"), str(event.revision))
        return self._render(DELETED, left, None)

    def _render(self, type_: str, obj: JsonObject, entry: Entry | None) -> bytes:
        if not self._converts:
            return event_line(type_, orjson.dumps(obj) if entry is None else entry.data)
        shown = self._renderer.watched(
            self._kind, obj, self._form, with_columns=not self._columns_sent
        )
        self._columns_sent = True
        return event_line(type_, orjson.dumps(shown))

    def _bookmark(self, *, initial_end: bool) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(self._store.revision)}
        if initial_end:
            metadata["annotations"] = {_INITIAL_EVENTS_END: "true"}
        if self._kind.custom or self._kind.type_name not in types():
            body: JsonObject = {}
        else:
            body = dict(zero(self._kind.type_name))
        body = {
            **body,
            "kind": self._kind.kind,
            "apiVersion": self._kind.api_version,
            "metadata": metadata,
        }
        if self._converts:
            body = self._renderer.watched(
                self._kind, body, self._form, with_columns=not self._columns_sent
            )
            self._columns_sent = True
        return event_line("BOOKMARK", orjson.dumps(body))

    def _gone(self) -> bytes | None:
        """The error for a version that is too old."""
        collection = self._collection
        if self._after < collection.forgotten:
            message = f"too old resource version: {self._after} ({collection.forgotten})"
        elif not self._kind.watch_cache and self._after < collection.compacted:
            message = "The resourceVersion for the provided watch is too old."
        else:
            return None
        return event_line("ERROR", orjson.dumps(expired(message).body()))


class WatchServer:
    """Answers watch requests, and ends all streams when the server closes."""

    def __init__(self, store: Store, clock: Clock, random: Random, renderer: Renderer) -> None:
        """Serve watches of `store`; `random` spreads the ends of streams that gave no timeout."""
        self._store = store
        self._clock = clock
        self._random = random
        self._renderer = renderer
        self._closing = asyncio.Event()

    def open(self) -> None:
        """Serve streams (again)."""
        self._closing.clear()

    def close(self) -> None:
        """End all streams, and those that begin before it is opened again."""
        self._closing.set()

    async def stream(
        self, request: web.BaseRequest, kind: ResourceKind, options: ListOptions, form: Form
    ) -> web.StreamResponse:
        """Answer one watch request until its timeout, its client or the server ends it."""
        response = web.StreamResponse(headers={"Content-Type": _content_type(form)})
        response.enable_chunked_encoding()
        await response.prepare(request)
        feed = WatchFeed(self._store, kind, options, form, self._renderer)
        wake = asyncio.Event()
        watcher = Watcher(wake.set)
        watchers = self._store.collection(kind.storage_name).watchers
        lines, goes_on = feed.first_lines()
        watchers.append(watcher)
        try:
            await _write(response, lines)
            if goes_on:
                await self._pump(response, feed, watcher, wake, options)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # The client closed the connection, or the server ends: the stream has no reader.
            return response
        finally:
            watchers.remove(watcher)
        return response

    async def _pump(
        self,
        response: web.StreamResponse,
        feed: WatchFeed,
        watcher: Watcher,
        wake: asyncio.Event,
        options: ListOptions,
    ) -> None:
        timeout = options.timeout_seconds or self._random.randint(
            _SHORTEST_DEFAULT_SECONDS, 2 * _SHORTEST_DEFAULT_SECONDS
        )
        end = self._clock.monotonic() + timeout
        bookmark_at = self._next_bookmark(options, timeout, end)
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            while (
                (now := self._clock.monotonic()) < end
                and not closing.done()
                and not watcher.overflowed
            ):
                if now >= bookmark_at:
                    await _write(response, [feed.bookmark()])
                    bookmark_at = self._next_bookmark(options, end - now, end)
                waiting = asyncio.ensure_future(wake.wait())
                await asyncio.wait(
                    (waiting, closing),
                    timeout=min(end, bookmark_at) - now,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                waiting.cancel()
                wake.clear()
                await _write(response, feed.lines(watcher.drain()))
        finally:
            closing.cancel()

    def _next_bookmark(self, options: ListOptions, left_seconds: float, end: float) -> float:
        if not options.bookmarks or left_seconds < _SHORTEST_BOOKMARKED_SECONDS:
            return end
        return min(self._clock.monotonic() + _BOOKMARK_SECONDS, end - _LAST_BOOKMARK_SECONDS)


async def _write(response: web.StreamResponse, lines: list[bytes]) -> None:
    """Hand lines to the socket in few large pieces."""
    start, size = 0, 0
    for position, line in enumerate(lines, start=1):
        size += len(line)
        if size >= _WRITE_BYTES or position == len(lines):
            await response.write(b"".join(lines[start:position]))
            start, size = position, 0


def _content_type(form: Form) -> str:
    return form.media_type
