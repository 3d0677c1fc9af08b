"""The limits of a port: how long a peer may take, and how much it may send before it is known.

The operator's port, the page and the embedded API listen through `LimitedSite`. Invariant: what a
connection costs is bounded before aiohttp parses anything; what keeps to the limits reaches it as
it was sent.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from typing_extensions import override

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LINGER_SECONDS: Final = 1.0
"""So long what a refused peer still sends is read and dropped, so that it sees the answer."""
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_LENGTH: Final = re.compile(rb"\ncontent-length:[ \t]*(\d+)[ \t]*\r?\n")
_CHUNKED: Final = re.compile(rb"\ntransfer-encoding:[^\n]*chunked")
_CHUNK_SIZE: Final = re.compile(rb"[ \t]*([0-9a-f]{1,16})[ \t]*(?:;[^\n]*)?\r?\n", re.IGNORECASE)
_LONGEST_CHUNK_LINE: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a peer may send, and its time; the defaults are the operator's port's."""

    request_line_bytes: int = 8 << 10
    header_fields: int = 64
    header_bytes: int = 32 << 10
    """All fields of one request together."""
    handshake_seconds: float = 5.0
    headers_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_seconds: float = 20.0
    idle_seconds: float = 30.0
    """Without a request, on a connection that stays open."""
    answer_seconds: float = 60.0
    """What `answered_in_time` gives a request until the peer has its whole answer."""
    stalled_seconds: float | None = 20.0
    """How long a peer may read nothing of what is written to it; None: without end."""


def answered_in_time(limits: Limits) -> Middleware:
    """Close what is not answered, to the last byte, within the limit."""

    @web.middleware
    async def within(request: web.Request, handler: Handler) -> web.StreamResponse:
        limit = asyncio.timeout(limits.answer_seconds)
        try:
            async with limit:
                response = await handler(request)
                await response.prepare(request)
                await response.write_eof()
                return response
        except TimeoutError:
            if not limit.expired():
                raise
            if request.writer.output_size and request.transport is not None:
                request.transport.abort()
            status = HTTPStatus.REQUEST_TIMEOUT
            text = f"not answered within {limits.answer_seconds:g} s\n"
            answer = web.Response(status=status, text=text)
            answer.force_close()
            return answer

    return within


class LimitedSite(web.TCPSite):
    """An address that a runner's server listens on, each connection within the limits."""

    __slots__ = ("_limits",)

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        limits: Limits,
        *,
        ssl_context: ssl.SSLContext | None = None,
        backlog: int = 128,
    ) -> None:
        super().__init__(runner, host, port, ssl_context=ssl_context, backlog=backlog)
        self._limits = limits

    @override
    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on.
        """
        await super(web.TCPSite, self).start()
        server, limits = self._runner.server, self._limits
        if server is None:
            raise RuntimeError("the runner is not set up")
        with_tls: dict[str, Any] = {}
        if self._ssl_context is not None:
            # The end of TLS is not waited for any longer than its beginning.
            seconds = limits.handshake_seconds
            with_tls = {"ssl_handshake_timeout": seconds, "ssl_shutdown_timeout": seconds}
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(server, limits),
            self._host,
            self._port,
            ssl=self._ssl_context,
            backlog=self._backlog,
            **with_tls,
        )


class _Refused(Exception):  # noqa: N818 no error of this process
    """A request that goes beyond a limit."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _Framing:
    """The place in a request that a connection has reached, from the bytes that it has sent.

    It finds the ends of heads and bodies, and checks the sizes of heads.
    """

    __slots__ = ("_chunked", "_left", "_limits", "_seen", "_trailer_bytes", "requests")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen = bytearray()
        """Of the head, or of the line between chunks, that has not ended."""
        self._left = 0
        """Bytes of the body, or of the chunk, that are still to come."""
        self._chunked = False
        self._trailer_bytes: int | None = None
        """Behind the last chunk; None: it has not come."""
        self.requests = 0
        """Heads that have ended."""

    @property
    def in_body(self) -> bool:
        """Whether more of a body is to come."""
        return self._left > 0 or self._chunked

    @property
    def in_head(self) -> bool:
        """Whether a request has begun whose head has not ended."""
        return not self.in_body and bool(self._seen)

    def feed(self, data: bytes) -> None:
        """Go on by these bytes.

        Raises:
            _Refused: a head is beyond a limit, or a body not framed as HTTP has it.
        """
        at = 0
        while at < len(data):
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            elif self._chunked:
                at = self._between_chunks(data, at)
            else:
                at = self._head(data, at)

    def _head(self, data: bytes, at: int) -> int:
        seen = self._seen
        if not seen:
            while at < len(data) and data[at] in b"\r\n":
                at += 1
        before = len(seen)
        most = self._limits.request_line_bytes + self._limits.header_bytes + 4
        seen += data[at : at + most - before + 1]
        found = _END_OF_HEAD.search(seen, max(0, before - 3))
        if found is None:
            self._check(seen, ended=False)
            return len(data)
        head = bytes(seen[: found.end()])
        seen.clear()
        self._check(head, ended=True)
        self._begin_body(head)
        self.requests += 1
        return at + len(head) - before

    def _check(self, head: bytes | bytearray, *, ended: bool) -> None:
        limits, line_end = self._limits, head.find(b"\n")
        line_bytes = line_end if line_end >= 0 else len(head)
        if line_bytes > limits.request_line_bytes:
            raise _Refused(
                HTTPStatus.REQUEST_URI_TOO_LONG,
                f"a request line has at most {limits.request_line_bytes} bytes",
            )
        fields = head.count(b"\n", line_bytes + 1) - ended
        too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        if fields > limits.header_fields:
            raise _Refused(too_large, f"a request has at most {limits.header_fields} header fields")
        if len(head) - line_bytes > limits.header_bytes:
            reason = f"the headers of a request have at most {limits.header_bytes} bytes"
            raise _Refused(too_large, reason)

    def _begin_body(self, head: bytes) -> None:
        lower = head.lower()
        self._chunked = _CHUNKED.search(lower) is not None
        length = None if self._chunked else _LENGTH.search(lower)
        self._left = int(length[1]) if length is not None else 0

    def _between_chunks(self, data: bytes, at: int) -> int:
        """Read the line before a chunk, or what is behind the last one."""
        line_end = data.find(b"\n", at)
        end = line_end + 1 if line_end >= 0 else len(data)
        self._seen += data[at:end]
        if len(self._seen) > _LONGEST_CHUNK_LINE:
            raise _Refused(HTTPStatus.BAD_REQUEST, "a chunk begins with a line that is too long")
        if line_end < 0:
            return end
        line = bytes(self._seen)
        self._seen.clear()
        if self._trailer_bytes is not None:
            self._trailer_bytes += len(line)
            if not line.strip():
                self._chunked, self._trailer_bytes = False, None
            elif self._trailer_bytes > self._limits.header_bytes:
                too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                raise _Refused(too_large, "too much stands behind the last chunk")
            return end
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise _Refused(HTTPStatus.BAD_REQUEST, "a chunk begins with no size")
        length = int(size[1], 16)
        if length:
            self._left = length + len(b"\r\n")
        else:
            self._trailer_bytes = 0
        return end


class _Connection(web.RequestHandler):
    """aiohttp's protocol, which gets nothing that is beyond the limits, and no more time."""

    __slots__ = ("_deadline", "_framing", "_limits", "_look", "_refused", "_socket", "_timed")

    def __init__(self, server: web.Server, limits: Limits) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_seconds,
            access_log=None,  # type: ignore[arg-type]  # as runners have it for none
            max_line_size=limits.request_line_bytes,
            max_headers=limits.header_fields,
            max_field_size=limits.header_bytes,
        )
        self._limits = limits
        self._framing = _Framing(limits)
        self._socket: asyncio.Transport | None = None
        """Also while it is closing, when aiohttp has let go of it."""
        self._deadline: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._timed = (0, False, False)
        """What the deadline is for: the number of the request, and whether its head or body."""
        self._refused = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._socket = cast("asyncio.Transport", transport)
        self._look_again(0)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._socket = None
        for timer in (self._deadline, self._look):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        """Pass on what was received; aiohttp itself calls it with nothing, to go on."""
        if self._refused:
            return
        if data:
            try:
                self._framing.feed(data)
            except _Refused as refused:
                self._refuse(refused.status, str(refused))
                return
            self._set_deadline()
        super().data_received(data)

    def _set_deadline(self) -> None:
        framing, limits = self._framing, self._limits
        timed = (framing.requests, framing.in_head, framing.in_body)
        if timed == self._timed:
            return
        self._timed = timed
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if framing.in_head:
            self._deadline = self._loop.call_later(limits.headers_seconds, self._late)
        elif framing.in_body:
            self._deadline = self._loop.call_later(limits.body_seconds, self._late)

    def _late(self) -> None:
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request did not end in time")

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        """Answer with a status if nothing else is being answered, and close the connection."""
        self._refused = True
        transport = self.transport
        if transport is None:
            return
        if self._request_in_progress or self._messages:
            transport.abort()
            return
        text = f"{reason}\n".encode()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            "Content-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        )
        self.keep_alive(val=False)
        transport.write(head.encode() + text)
        if transport.can_write_eof():
            transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, transport.abort)

    def _look_again(self, unsent_bytes: int) -> None:
        """Close the connection of a peer that has read nothing since the last look."""
        seconds, transport = self._limits.stalled_seconds, self._socket
        if seconds is None or transport is None:
            return
        unsent = transport.get_write_buffer_size()
        if unsent_bytes and unsent >= unsent_bytes:
            transport.abort()
            return
        self._look = self._loop.call_later(seconds / 2, self._look_again, unsent)
