"""Watch streams: which events a client sees, bookmarks, initial events, the end of the stream.

`WatchFeed` is pure: it turns store events into lines for one client. `WatchServer` pumps them into
an HTTP response. Invariant: a client sees every change after its version exactly once and in order,
or an ERROR event that says 410.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from stellwerk_cluster.apimachinery.conversion import is_converted
from stellwerk_cluster.apimachinery.failures import expired
from stellwerk_cluster.apimachinery.json_text import go_json
from stellwerk_cluster.apimachinery.objects import with_value
from stellwerk_cluster.registry.entries import (
    ADDED,
    DELETED,
    MODIFIED,
    Entry,
    StoreEvent,
    event_line,
)
from stellwerk_cluster.registry.watchers import Watcher
from stellwerk_kube.schema.decoder import zero
from stellwerk_kube.schema.types import types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random  # noqa: TID251  (its type only: the generator is injected)

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apiserver.listing import ListOptions
    from stellwerk_cluster.apiserver.rendering import Renderer, ResponseFormat
    from stellwerk_cluster.registry.store import Collection, Store
    from stellwerk_kube.clock import Clock
    from stellwerk_kube.json_values import JsonObject

_BOOKMARK_SECONDS: Final = 60.0
"""Time between two bookmarks of a watch (`defaultBookmarkFrequency`)."""
_LAST_BOOKMARK_SECONDS: Final = 2.0
"""Time before the end of a watch at which its last bookmark comes."""
_MIN_BOOKMARKED_SECONDS: Final = 10.0
"""Length of a watch below which it gets no bookmark."""
_MIN_DEFAULT_SECONDS: Final = 1800
"""Shortest length of a watch that names none; the longest is twice as long
(`--min-request-timeout`)."""
_GAP: Final = b"\0"
"""Stands for the object in the line of an event that is sent in pieces."""
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
_SLICE_BYTES: Final = 64 << 10
"""Bytes that are written to one watcher before others get theirs. A thousand watchers that do not
read hold so much each, and no copy of what they watch."""


class WatchFeed:
    """Turns changes of the store into the lines of one watch."""

    def __init__(
        self,
        store: Store,
        kind: ResourceKind,
        options: ListOptions,
        form: ResponseFormat,
        renderer: Renderer,
    ) -> None:
        """Feed a watch of `kind` as `options` ask for it."""
        self._store = store
        self._kind = kind
        self._collection: Collection = store.collection(kind.storage_name)
        self._options = options
        self._form = form
        self._renderer = renderer
        self._after = options.revision
        self._converts = bool(form.transform) or is_converted(kind)
        self._columns_sent = False

    def first_lines(self) -> tuple[Iterator[bytes], bool]:
        """The lines that are sent at once, and whether the stream goes on after them.

        A long line comes in pieces. It shows the collection as it was when this was called.
        """
        options = self._options
        if options.send_initial_events:
            return self._present_state(then_bookmark=options.bookmarks), True
        if options.resource_version in ("", "0") and options.send_initial_events is None:
            return self._present_state(), True
        if options.resource_version in ("", "0"):
            self._after = self._store.revision
            return iter(()), True
        gone = self._gone()
        if gone is not None:
            return iter((gone,)), False
        return iter(self.lines(self._collection.since(self._after))), True

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
        """A plain bookmark at the present version; changes up to it must have been sent."""
        return self._bookmark(self._store.revision, initial_end=False)

    def _present_state(self, *, then_bookmark: bool = False) -> Iterator[bytes]:
        revision = self._after = self._store.revision
        selection = self._options.selection
        entries = self._collection.entries(selection.namespace)

        def lines() -> Iterator[bytes]:
            for entry in filter(selection.selects, entries):
                if self._converts or len(entry.data) < _SLICE_BYTES:
                    yield self._rendered(ADDED, entry)
                    continue
                # A line would be a copy for each watcher.
                before, after = event_line(ADDED, _GAP).split(_GAP)
                yield before
                yield entry.data
                yield after
            if then_bookmark:
                yield self._bookmark(revision, initial_end=True)

        return lines()

    def _line(self, event: StoreEvent) -> bytes | None:
        selection = self._options.selection
        if selection.namespace is not None and event.entry.key[0] != selection.namespace:
            return None
        return self._line_of(event.type, event) if selection.everything else self._selected(event)

    def _selected(self, event: StoreEvent) -> bytes | None:
        """The event as the selection sees it: ADDED on entering; DELETED, as it was, on leaving."""
        selection, previous = self._options.selection, event.previous
        was = previous is not None and selection.selects(previous)
        if event.type == DELETED:
            return self._line_of(DELETED, event) if was else None
        if selection.selects(event.entry):
            return self._line_of(MODIFIED if was else ADDED, event)
        if not was or previous is None:
            return None
        left = with_value(previous.obj, ("metadata", "resourceVersion"), str(event.revision))
        return self._rendered(DELETED, Entry(previous.key, left, event.revision))

    def _line_of(self, type_: str, event: StoreEvent) -> bytes:
        """A change as a line, made once for all watches of the same kind and form."""
        if not self._converts:
            return event.line if type_ == event.type else event_line(type_, event.entry.data)
        representation = (type_, self._kind.api_version, self._form, self._columns_sent)
        return event.line_as(representation, lambda: self._rendered(type_, event.entry))

    def _rendered(self, type_: str, entry: Entry) -> bytes:
        if not self._converts:
            return event_line(type_, entry.data)
        shown = self._renderer.watched(
            self._kind, entry.obj, self._form, with_columns=not self._columns_sent
        )
        self._columns_sent = True
        return event_line(type_, go_json(shown))

    def _bookmark(self, revision: int, *, initial_end: bool) -> bytes:
        metadata: JsonObject = {"resourceVersion": str(revision)}
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


class Signal:
    """Wakes the reader of one stream: for news, and at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._set = False
        self._waiting: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the reader, now or when it next waits."""
        self._set = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return once the signal is set, or after a time."""
        if not self._set:
            self._waiting = self._loop.create_future()
            timer = self._loop.call_later(seconds, self.set)
            try:
                await self._waiting
            finally:
                timer.cancel()
        self._set = False


class WatchServer:
    """Answers watch requests, and ends all streams when the server closes."""

    def __init__(self, store: Store, clock: Clock, random: Random, renderer: Renderer) -> None:
        """Serve watches of `store`; `random` spreads the ends of streams that gave no timeout."""
        self._store = store
        self._clock = clock
        self._random = random
        self._renderer = renderer
        self._closed = False
        self._signals: set[Signal] = set()

    def open(self) -> None:
        """Serve streams (again)."""
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether streams are to end."""
        return self._closed

    @contextmanager
    def signal(self) -> Iterator[Signal]:
        """A signal that is also set when the server closes."""
        signal = Signal()
        self._signals.add(signal)
        try:
            yield signal
        finally:
            self._signals.discard(signal)

    def close(self) -> None:
        """End all streams, and those that begin before it is opened again."""
        self._closed = True
        for signal in self._signals:
            signal.set()

    async def stream(
        self,
        request: web.BaseRequest,
        kind: ResourceKind,
        options: ListOptions,
        form: ResponseFormat,
    ) -> web.StreamResponse:
        """Answer one watch request until its timeout, its client or the server ends it."""
        response = web.StreamResponse(headers={"Content-Type": _content_type(form)})
        response.enable_chunked_encoding()
        await response.prepare(request)
        feed = WatchFeed(self._store, kind, options, form, self._renderer)
        signal = Signal()
        watcher = Watcher(signal.set, partial(_abort, request), trigger=options.selection.trigger)
        watchers = self._store.collection(kind.storage_name).watchers
        lines, goes_on = feed.first_lines()
        watchers.append(watcher)
        self._signals.add(signal)
        try:
            await _write(response, lines)
            if goes_on:
                await self._pump(response, feed, watcher, signal, options)
            await response.write_eof()
        except (ConnectionError, asyncio.CancelledError):
            # The client closed the connection, or the server ends: the stream has no reader.
            return response
        finally:
            self._signals.discard(signal)
            watchers.remove(watcher)
        return response

    async def _pump(
        self,
        response: web.StreamResponse,
        feed: WatchFeed,
        watcher: Watcher,
        signal: Signal,
        options: ListOptions,
    ) -> None:
        timeout = options.timeout_seconds or self._random.randint(
            _MIN_DEFAULT_SECONDS, 2 * _MIN_DEFAULT_SECONDS
        )
        end = self._clock.monotonic() + timeout
        bookmark_at = self._next_bookmark(options, timeout, end)
        while (
            (now := self._clock.monotonic()) < end and not self._closed and not watcher.overflowed
        ):
            lines = feed.lines(watcher.drain())
            if now >= bookmark_at:
                lines.append(feed.bookmark())
                bookmark_at = self._next_bookmark(options, end - now, end)
            if lines:
                await _write(response, lines)
            else:
                await signal.wait(min(end, bookmark_at) - now)

    def _next_bookmark(self, options: ListOptions, left_seconds: float, end: float) -> float:
        if not options.bookmarks or left_seconds < _MIN_BOOKMARKED_SECONDS:
            return end
        return min(self._clock.monotonic() + _BOOKMARK_SECONDS, end - _LAST_BOOKMARK_SECONDS)


def _abort(request: web.BaseRequest) -> None:
    """Cut off a client that does not read what it watches."""
    if request.transport is not None:
        request.transport.abort()


async def _write(response: web.StreamResponse, pieces: Iterable[bytes]) -> None:
    """Hand lines to the socket together, and long ones in slices, between which others go on."""
    batch: list[bytes] = []
    size = 0
    for piece in pieces:
        if len(piece) < _SLICE_BYTES:
            batch.append(piece)
            size += len(piece)
        if batch and (size >= _SLICE_BYTES or len(piece) >= _SLICE_BYTES):
            await response.write(b"".join(batch))
            batch, size = [], 0
            await asyncio.sleep(0)
        if len(piece) >= _SLICE_BYTES:
            view = memoryview(piece)
            for start in range(0, len(piece), _SLICE_BYTES):
                await response.write(view[start : start + _SLICE_BYTES])
                await asyncio.sleep(0)
    if batch:
        await response.write(b"".join(batch))


def _content_type(form: ResponseFormat) -> str:
    return form.media_type
