"""`pods/log`: the lines of a pod's log as the options of a request want them, once or as they come.

The HTTP server hands requests over; what the lines say is the hollow kubelet's. Invariant: a stream
shows every line once, in the order in which they came, and ends with its pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import web

from stellwerk_cluster.apimachinery.failures import StatusError, bad_request
from stellwerk_cluster.apimachinery.objects import parse_timestamp, timestamp
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.apimachinery.query import flag
from stellwerk_cluster.registry.entries import DELETED
from stellwerk_cluster.registry.watchers import Watcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.apiserver.responses import Answer
    from stellwerk_cluster.apiserver.watching import Signal, WatchServer
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_RECHECK_SECONDS: Final = 60.0
"""Longest wait before a log that is followed is looked at without a sign of news."""
_TEXT: Final = {"Content-Type": "text/plain"}


LogLine: TypeAlias = tuple[str, str]
"""A line of a log: its time (RFC 3339, in UTC) and its text."""
PodLog: TypeAlias = "Callable[[JsonObject, str, bool], Sequence[LogLine]]"
"""The log of a container of a pod (empty: of its only one), of the run before if so asked.

Raises StatusError (400) where there is none.
"""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The query of a request for a log."""

    container: str = ""
    previous: bool = False
    follow: bool = False
    timestamps: bool = False
    since: str = ""
    """Lines before it are left out."""
    tail: int | None = None
    most_bytes: int | None = None

    def chosen(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """The lines that are wanted of those that are there at first."""
        kept = self.recent(lines)
        return kept if self.tail is None else kept[max(0, len(kept) - self.tail) :]

    def recent(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """The lines that are not too old."""
        return [line for line in lines if line[0] >= self.since]

    def text(self, lines: Iterable[LogLine]) -> bytes:
        """Lines as they are sent."""
        written = [f"{at} {text}\n" if self.timestamps else f"{text}\n" for at, text in lines]
        return "".join(written).encode()


def parse_log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """The options that a query asks for.

    Raises:
        StatusError: one of them is none (400).
    """
    since = query.get("sinceTime", "")
    seconds = _count(query, "sinceSeconds")
    try:
        if seconds is not None:
            since = timestamp(now - timedelta(seconds=seconds))
        elif since:
            since = timestamp(parse_timestamp(since))
    except (ValueError, OverflowError) as error:
        raise bad_request(f"sinceTime is not a time: {error}") from error
    return LogOptions(
        query.get("container", ""),
        flag(query, "previous"),
        flag(query, "follow"),
        flag(query, "timestamps"),
        since,
        _count(query, "tailLines"),
        _count(query, "limitBytes"),
    )


def _count(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal():
        raise bad_request(f'{name}: Invalid value: "{text[:40]}": must be a number, 0 or more')
    return int(text[:19])


class PodLogs:
    """Answers requests for logs."""

    def __init__(self, api: Api, log: PodLog, watches: WatchServer) -> None:
        """`log` tells what a pod has to tell; streams end when those of `watches` do."""
        self._api = api
        self._log = log
        self._watches = watches

    async def answer(self, request: web.BaseRequest, kind: ResourceKind, key: Key) -> Answer:
        """The log of one pod.

        Raises:
            StatusError: the pod does not exist (404), or an option or container is none (400).
        """
        options = parse_log_options(request.query, self._api.now())
        pod = self._api.get(kind, *key).obj
        lines = self._log(pod, options.container, options.previous)
        if options.follow and not options.previous and request.method == "GET":
            return await self._follow(request, kind, key, options)
        content = options.text(options.chosen(lines))[: options.most_bytes]
        return web.Response(body=content, headers=_TEXT)

    async def _follow(
        self, request: web.BaseRequest, kind: ResourceKind, key: Key, options: LogOptions
    ) -> Answer:
        response = web.StreamResponse(headers=_TEXT)
        response.enable_chunked_encoding()
        await response.prepare(request)
        collection = self._api.store.collection(kind.storage_name)
        with self._watches.signal() as signal:
            trigger = ("metadata.name", key[1])
            watcher = Watcher(signal.set, partial(_cut_off, request), trigger=trigger)
            collection.watchers.append(watcher)
            try:
                await self._stream(response, watcher, signal, key, options)
                await response.write_eof()
            except ConnectionError:
                return response  # the client has read enough
            finally:
                collection.watchers.remove(watcher)
        return response

    async def _stream(
        self,
        response: web.StreamResponse,
        watcher: Watcher,
        signal: Signal,
        key: Key,
        options: LogOptions,
    ) -> None:
        """Write lines until the pod has ended, or as many bytes as are wanted."""
        pod: JsonObject | None = self._api.find("pods", *key)
        sent: set[LogLine] = set()
        left = options.most_bytes
        while pod is not None and not watcher.overflowed and not self._watches.closed:
            lines = self._lines(pod, options)
            wanted = options.recent(lines) if sent else options.chosen(lines)
            new = [line for line in wanted if line not in sent]
            sent.update(lines)
            content = options.text(new)[:left]
            if content:
                await response.write(content)
            if left is not None:
                left -= len(content)
            if is_finished(pod) or left == 0:
                return
            await signal.wait(_RECHECK_SECONDS)
            uid = pod["metadata"]["uid"]
            for event in watcher.drain():
                same = event.entry.key == key and event.entry.uid == uid
                pod = event.entry.obj if same else pod
                if same and event.type == DELETED:
                    gone = (timestamp(self._api.now()), f"pod {key[1]} is gone")
                    await response.write(options.text([gone])[:left])
                    return

    def _lines(self, pod: JsonObject, options: LogOptions) -> Sequence[LogLine]:
        try:
            return self._log(pod, options.container, options.previous)
        except StatusError:
            return []  # an update has taken the container away


def _cut_off(request: web.BaseRequest) -> None:
    """End the stream of a client that does not read."""
    if request.transport is not None:
        request.transport.abort()
