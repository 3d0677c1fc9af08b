"""HTTP/1.1 on kept-alive connections, and the fence that writes pass where their bytes are sent.

`transport` sends bindings, other writes and events this way: 15 µs of CPU each, where aiohttp's
client takes 100 µs, and a pod needs two. Reads, and every request that has to go through a proxy,
take aiohttp. Knows no redirects, no compression and no cookies, which the API does not use for
these. The elector opens the fence and moves its deadline; every writer asks it after every wait
and right before every attempt. Invariants: a connection serves one request at a time, and none
after anything unexpected; a fenced request is sent in the instant in which the fence was found
open; a fence that has closed, by its deadline or by `close`, never opens again.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import aiohttp
from typing_extensions import override
from yarl import URL

from stellwerk.client.renewable_context import RenewableContext
from stellwerk_kube.errors import NotLeader

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import SimpleNamespace

_MAX_HEAD_BYTES: Final = 64 * 1024
"""Bytes of an answer's head; what is longer is no answer of an API server."""
_MAX_WRITE_ANSWER_BYTES: Final = 16 * 1024 * 1024
"""Bytes of an answer's body; these are answers to writes, an object each."""
_MAX_IDLE_SECONDS: Final = 60.0
"""Time after which an idle connection is not used again: the API server closes it some time later,
and a request could meet that."""
_USER_TIMEOUT: Final[int | None] = getattr(socket, "TCP_USER_TIMEOUT", None)
"""The socket option (Linux) that limits the time for which sent data is not acknowledged."""
_DISCARD_ON_CLOSE: Final = struct.pack("ii", 1, 0)
"""SO_LINGER for 0 s: what is not delivered when the connection closes is not sent."""
_CLOSED: Final = float("-inf")
"""The deadline of a fence that lets nothing pass."""
_OPEN: Final = float("inf")
"""The deadline of a fence without leader election."""


class HttpResponse(NamedTuple):
    """A response read to its end: status, headers that matter, body."""

    status: int
    body: bytes
    retry_after: str | None
    keep_alive: bool


class BrokenAnswerError(ConnectionError):
    """An answer that is not the HTTP/1.1 that was expected."""


class ConnectionPool:
    """Connections to one server, as many as there are requests at once."""

    def __init__(
        self,
        server: str,
        *,
        ssl_context: ssl.SSLContext | None,
        tls_server_name: str | None,
        user_agent: str,
        connect_timeout_seconds: float,
        fence: Fence | None = None,
    ) -> None:
        """Open no connection yet; without a fence, everything may be sent."""
        url = URL(server)
        self._host = url.host or ""
        self._port = url.port or 0
        self._ssl_context = ssl_context
        self._resuming = ssl_context if isinstance(ssl_context, RenewableContext) else None
        self._tls_server_name = tls_server_name
        self._connect_timeout_seconds = connect_timeout_seconds
        self._fence = fence or open_fence()
        self._prefix = url.raw_path.rstrip("/")
        self._headers = f"Host: {url.authority}\r\nUser-Agent: {user_agent}\r\n"
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._is_closed = False

    async def exchange(
        self,
        method: str,
        path: str,
        *,
        body: bytes,
        content_type: str,
        accept: str,
        authorization: str | None,
        timeout_seconds: float,
        fenced_act: str | None = None,
    ) -> HttpResponse:
        """Send one request and return its answer.

        A write that only the holder of the lease may send says in `fenced_act` what it is.

        Raises:
            NotLeader: it was not sent: the lease is not held.
            OSError: the server cannot be reached, the connection broke, or no answer came in time
                (TimeoutError).
        """
        credentials = f"Authorization: {authorization}\r\n" if authorization else ""
        head = (
            f"{method} {self._prefix}{path} HTTP/1.1\r\n{self._headers}{credentials}"
            f"Accept: {accept}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        connection = self._take()
        is_new = connection is None
        connection = connection or await self._connect()
        if self._is_closed:  # nothing would close it later
            connection.abort()
            raise ConnectionAbortedError("the client was closed")
        try:
            request = head.encode("latin-1") + body
            answer = await connection.send(request, timeout_seconds, fenced_act)
        except BaseException:
            connection.abort()  # half an answer may be under way
            raise
        refused = answer.status == HTTPStatus.UNAUTHORIZED  # it may be the client certificate
        if answer.keep_alive and not refused and not connection.closed:
            connection.rest()
            self._idle.append(connection)
            if is_new and self._resuming is not None:
                connection.resume_later(self._resuming)
        else:
            connection.abort()
        return answer

    def close(self) -> None:
        """Close every connection, also those in use; what is sent from now on fails."""
        self._is_closed = True
        for connection in list(self._open):
            connection.abort()
        self._idle.clear()

    def _take(self) -> _Connection | None:
        """Return the connection used last, so that those too many grow old and are dropped."""
        while self._idle:
            connection = self._idle.pop()
            if connection.closed:
                continue
            if connection.rested_seconds() < _MAX_IDLE_SECONDS:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        name = self._tls_server_name if self._ssl_context is not None else None
        async with asyncio.timeout(self._connect_timeout_seconds):
            _, connection = await loop.create_connection(
                lambda: _Connection(self._open.discard, self._fence),
                self._host,
                self._port,
                ssl=self._ssl_context,
                server_hostname=name,
            )
        if self._fence.guarding:
            connection.give_up_with_the_lease(self._fence.margin_seconds)
        self._open.add(connection)
        return connection


class _Connection(asyncio.Protocol):
    """One connection: it sends a request, collects the answer, and waits for the next request."""

    def __init__(self, on_closed: Callable[[_Connection], None], fence: Fence) -> None:
        self.closed = False
        self._fence = fence
        self._loop = asyncio.get_running_loop()  # asking for it is a system call up to Python 3.11
        self._idle_since_seconds = 0.0
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._waiter: asyncio.Future[HttpResponse] | None = None

    async def send(
        self, request: bytes, timeout_seconds: float, fenced_act: str | None
    ) -> HttpResponse:
        if self._transport is None or self.closed:
            raise ConnectionResetError("the connection is closed")
        if fenced_act is not None:
            timeout_seconds = self._fence.within_lease(timeout_seconds)
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(timeout_seconds, self._fail, TimeoutError())
        try:
            if fenced_act is not None:
                # Nothing waits between here and the socket: both event loops try to send at once.
                self._fence.check(fenced_act)
            self._transport.write(request)
            return await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def resume_later(self, context: RenewableContext) -> None:
        """Have later connections resume the session of this one, which has got an answer."""
        opened = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        if opened is not None:
            context.resume_later(opened)

    def rest(self) -> None:
        """Wait for the next request from now on."""
        self._idle_since_seconds = self._loop.time()

    def rested_seconds(self) -> float:
        """The time since the last answer."""
        return self._loop.time() - self._idle_since_seconds

    def give_up_with_the_lease(self, margin_seconds: float) -> None:
        """Have the kernel drop what it could not deliver before another process may lead.

        It would go on for minutes, also for a process that is paused, and deliver a binding of
        yesterday once a broken line is mended.
        """
        if self._transport is None:
            return
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD_ON_CLOSE)
        if _USER_TIMEOUT is not None:
            sock.setsockopt(socket.IPPROTO_TCP, _USER_TIMEOUT, max(1, int(margin_seconds * 1000)))

    def abort(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()  # an answer without a request
            return
        self._received = self._received + data if self._received else data
        try:
            answer = parse(self._received)
        except ValueError as error:
            self._fail(BrokenAnswerError(str(error)))
            return
        if answer is not None:
            self._received = b""
            self._waiter.set_result(answer)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._on_closed(self)
        self._fail(exc or ConnectionResetError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)


def parse(received: bytes) -> HttpResponse | None:
    """Return the answer at the beginning of `received`, or None while it is incomplete.

    Raises:
        ValueError: this is not a response, or one of a kind that is not expected here.
    """
    end = received.find(b"\r\n\r\n")
    if end < 0:
        if len(received) > _MAX_HEAD_BYTES or not b"HTTP/1.1 ".startswith(received[:9]):
            raise ValueError("not an HTTP/1.1 response")
        return None
    head = received[:end]
    if not head.startswith(b"HTTP/1.1 "):
        raise ValueError("not an HTTP/1.1 response")
    status = int(head[9:12])
    if status < HTTPStatus.OK:
        return parse(received[end + 4 :])  # informational; the answer follows
    headers = _headers(head)
    body = _body(status, headers, received, end + 4)
    if body is None:
        return None
    content, whole = body
    keep_alive = whole and headers.get(b"connection", b"").lower() != b"close"
    retry_after = headers.get(b"retry-after")
    return HttpResponse(
        status, content, None if retry_after is None else retry_after.decode("latin-1"), keep_alive
    )


def _headers(head: bytes) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for line in head.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if not colon:
            raise ValueError("a header line without a colon")
        headers[name.lower()] = value.strip()
    return headers


def _body(
    status: int, headers: dict[bytes, bytes], received: bytes, start: int
) -> tuple[bytes, bool] | None:
    """Return the body, and whether nothing follows it; None while it is incomplete."""
    if len(received) - start > _MAX_WRITE_ANSWER_BYTES:
        raise ValueError("the answer is too long")
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return _chunks(received, start)
    length = headers.get(b"content-length")
    if length is None:
        if status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
            return b"", len(received) == start
        raise ValueError("an answer of unknown length")
    if not length.isdigit():
        raise ValueError("a Content-Length that is not a number")
    end = start + int(length)
    if len(received) < end:
        return None
    return received[start:end], len(received) == end


def _chunks(received: bytes, start: int) -> tuple[bytes, bool] | None:
    """Join the chunks that begin at `start`."""
    chunks: list[bytes] = []
    while (line_end := received.find(b"\r\n", start)) >= 0:
        size = int(received[start:line_end].partition(b";")[0], 16)
        if size < 0:
            raise ValueError("a chunk of a negative length")
        start = line_end + 2
        if size == 0:
            # Trailers, if any, end with an empty line as a head does.
            if received.startswith(b"\r\n", start):
                return b"".join(chunks), len(received) == start + 2
            end = received.find(b"\r\n\r\n", start)
            return None if end < 0 else (b"".join(chunks), len(received) == end + 4)
        if len(received) < start + size + 2:
            return None
        if received[start + size : start + size + 2] != b"\r\n":
            raise ValueError("a chunk whose length differs from its header")
        chunks.append(received[start : start + size])
        start += size + 2
    return None


class Fence:
    """The lease's deadline: open from the first lease until a renewal comes too late.

    Without leader election it is always open. The deadline is a moment on a monotonic clock, so
    that a process that was paused finds it passed as soon as it wakes: the bindings of a leader
    that was deposed meanwhile are not sent, and raise NotLeader.

    These call `check`: `Transport._attempt` before each attempt of a write, `HttpExtender.bind`
    before a binding by an extender, `_Connection.send` in the instant of sending, and
    `fence_traces` in that instant for writes that take a session of aiohttp: extenders' bindings,
    and writes through a proxy. Reads and requests for the lease pass without a check.

    When it closes, writes that wait for a slot are dropped (`Transport._drop_queued`).
    `client.elector` moves and closes it.

    Events are not writes in this sense: no decision depends on them. The recorder asks whether to
    accept one, and writes what it has accepted whatever happens then.
    """

    __slots__ = (
        "_has_been_open",
        "_is_closed",
        "_lease_ends_at_seconds",
        "_now",
        "_on_closed",
        "_unanswered_at_seconds",
        "closes_at_seconds",
        "guarding",
        "in_flight",
        "margin_seconds",
    )

    def __init__(
        self, now_seconds: Callable[[], float], *, guarding: bool, margin_seconds: float = 0.0
    ) -> None:
        """Start closed if it is `guarding`, and open without end if not.

        Args:
            now_seconds: a monotonic clock, the one by which the lease is renewed.
            guarding: whether there is leader election at all.
            margin_seconds: the time between the renew deadline and the end of the lease, in which
                writes that were sent in time arrive or are given up.
        """
        self._now = now_seconds
        self.guarding = guarding
        self.margin_seconds = margin_seconds
        self.closes_at_seconds = _CLOSED if guarding else _OPEN
        """The renew deadline: no write is begun from then on."""
        self._lease_ends_at_seconds = self.closes_at_seconds
        self.in_flight = 0
        """Writes that were begun and are not answered yet."""
        self._has_been_open = not guarding
        self._is_closed = False
        self._unanswered_at_seconds = float("-inf")
        self._on_closed: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        """Whether a write may be begun now."""
        return self._now() < self.closes_at_seconds

    def check(self, act: str) -> None:
        """Let a write pass.

        Raises:
            NotLeader: the lease is not held, or its renew deadline has passed.
        """
        if self._now() >= self.closes_at_seconds:
            raise NotLeader(act)

    def admits_event(self, type_: str) -> bool:
        """Whether to record one: while open all, afterwards those on what went well until then.

        A binding that was sent in time is reported also when its answer comes late; what fails once
        the lease is lost fails for that reason alone, and the next holder tries it again.
        """
        return self._has_been_open and (type_ == "Normal" or self.is_open)

    def within_lease(self, timeout_seconds: float) -> float:
        """Cut a write's time-out so that it ends with the lease; at least 0."""
        left_seconds = self._lease_ends_at_seconds - self._now()
        return timeout_seconds if timeout_seconds < left_seconds else max(0.0, left_seconds)

    # --- what the elector does --------------------------------------------------------------------

    def extend(self, closes_at_seconds: float) -> bool:
        """Open, or stay open until a later moment; False if it is too late for that."""
        now_seconds = self._now()
        has_closed = self._is_closed or (
            self._has_been_open and now_seconds >= self.closes_at_seconds
        )
        if has_closed or now_seconds >= closes_at_seconds:
            return False
        self._has_been_open = True
        self.closes_at_seconds = closes_at_seconds
        self._lease_ends_at_seconds = closes_at_seconds + self.margin_seconds
        return True

    def close(self) -> None:
        """Begin no write any more, and drop those that are queued."""
        self._is_closed = True
        self.closes_at_seconds = _CLOSED
        for notify in self._on_closed:
            notify()

    def on_closed(self, notify: Callable[[], None]) -> None:
        """Have `notify` called when the fence is closed (not when its deadline merely passes)."""
        self._on_closed.append(notify)

    # --- writes under way -------------------------------------------------------------------------

    def begin(self) -> None:
        """Count a write that is about to be sent."""
        self.in_flight += 1

    def end(self, *, answered: bool) -> None:
        """Count it out again; one without an answer may still have its effect."""
        self.in_flight -= 1
        if not answered:
            self._unanswered_at_seconds = self._now()

    @property
    def is_settled(self) -> bool:
        """Whether nothing of this process can still reach the API: only then release a lease."""
        quiet_seconds = self._now() - self._unanswered_at_seconds
        return self.in_flight == 0 and quiet_seconds > self.margin_seconds


def open_fence() -> Fence:
    """Return the fence of a process without leader election: it lets everything pass."""
    return Fence(lambda: 0.0, guarding=False)


def fence_traces(fence: Fence) -> list[aiohttp.TraceConfig]:
    """Return traces of a session that look at the fence when a request has its connection.

    A session waits for credentials and for a connection of its own accord, so that a look before
    the request is not the last one before its bytes leave: extenders' bindings, and proxies.
    Requests that only the holder of the lease may send name their act as `trace_request_ctx`.
    """
    if not fence.guarding:
        return []

    async def look(_: aiohttp.ClientSession, request: SimpleNamespace, __: object) -> None:
        if request.trace_request_ctx is not None:
            fence.check(request.trace_request_ctx)

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(look)
    trace.on_connection_reuseconn.append(look)
    return [trace]
