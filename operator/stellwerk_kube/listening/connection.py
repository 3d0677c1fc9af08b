"""aiohttp's protocol of one connection, behind the limits of its port.

A LimitedSite makes a LimitedConnection for each accepted connection. Bytes go through its framing
to aiohttp, and each part of a request has a deadline. Invariant: aiohttp is given one request at a
time, and the next one when that is answered.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from stellwerk_kube.listening.framing import BeyondLimitError, RequestFraming
from stellwerk_kube.listening.limits import RETRY_AFTER_SECONDS

if TYPE_CHECKING:
    from stellwerk_kube.listening.accepted import AcceptedConnection
    from stellwerk_kube.listening.port_use import PortUse

LINGER_SECONDS: Final = 1.0
"""Seconds for which bytes of a refused peer are read and dropped. Closing at once would send a
reset, and the peer would not see the answer."""
STALL_CHECKS: Final = 4
"""Checks of a connection in `stalled_seconds`. A peer that has read nothing between as many in a
row is given up, so up to a quarter of the time later."""


class LimitedConnection(web.RequestHandler):
    """aiohttp's protocol, which gets nothing that is beyond the limits, and no more time.

    It relies on parts of aiohttp that are private: `_parser`, `_messages`, `_request_in_progress`,
    `_reading_paused`, `_buffer_paused`, `_pause_transport_reading` and
    `_resume_transport_reading`. tests/unit/stellwerk_kube/listening/test_connection.py fails where
    one of them means something else.
    """

    __slots__ = (
        "_deadline",
        "_framing",
        "_held",
        "_refused",
        "_socket",
        "_stall_timer",
        "_timed",
        "accepted",
        "unanswered",
        "use",
    )

    def __init__(self, server: web.Server, use: PortUse, accepted: AcceptedConnection) -> None:
        limits = use.limits
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=limits.idle_seconds,
            access_log=None,  # type: ignore[arg-type]  # as runners have it for none
            max_line_size=limits.request_line_bytes,
            max_headers=limits.header_fields,
            max_field_size=limits.header_bytes,
        )
        self.use = use
        self.accepted = accepted
        self.unanswered = 0
        """Requests whose head has ended and that are not answered."""
        self._framing = RequestFraming(limits)
        self._held = b""
        """Bytes behind a request that is not answered. aiohttp would parse them all at once."""
        self._socket: asyncio.Transport | None = None
        """The transport, also while it is closing, when aiohttp has let go of it."""
        self._deadline: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._timed = (0, False, False)
        """The part that has a deadline: the number of the request, and whether its head or body."""
        self._refused = False

    @property
    def unread_bytes(self) -> int:
        """Bytes written that the peer has not read, as far as TLS says."""
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    @property
    def is_certified(self) -> bool:
        """Whether TLS has verified a certificate of the peer."""
        return self._socket is not None and bool(self._socket.get_extra_info("peercert"))

    def abort(self) -> None:
        """Close it at once."""
        if self._socket is not None:
            self._socket.abort()

    def let_go(self) -> None:
        """Drop the parser of a connection that was not made: the two hold each other."""
        self._parser = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._socket = cast("asyncio.Transport", transport)
        if not self.use.connected(self.accepted, self):
            self.abort()
            return
        self._check_stall(0)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self.use.gone(self.accepted)
        self.accepted.connection = self._socket = None
        self._held = b""
        for timer in (self._deadline, self._stall_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        """Pass on what was received; aiohttp itself calls it with nothing, to go on."""
        if self._refused:
            return
        if not data:
            super().data_received(data)
            return
        if not self.use.received(self.accepted, len(data)):
            text = "too much is being received at once"
            self._refuse(BeyondLimitError(HTTPStatus.SERVICE_UNAVAILABLE, "memory", text))
            return
        self._held = self._held + data if self._held else data
        self._pass_on()

    def _pass_on(self) -> None:
        """Give aiohttp the held bytes, at most to the end of the next request."""
        framing = self._framing
        while self._held and (framing.in_body or not self.unanswered):
            held, before = self._held, framing.requests
            try:
                end = framing.feed(held)
            except BeyondLimitError as refused:
                self._refuse(refused)
                return
            self._held = held[end:]
            self.unanswered += framing.requests - before
            self._set_deadline()
            super().data_received(held if end == len(held) else held[:end])
        if self._held:
            self._pause_transport_reading()

    @override
    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Take the next request when this one is answered."""
        finished = await super().finish_response(request, resp, start_time)
        self.unanswered = 0
        self.use.received(self.accepted, len(self._held) - self.accepted.received_bytes)
        self.use.idle(self.accepted)
        if self._held and not self._refused:
            self._pass_on()
            if not (self._reading_paused or self._buffer_paused):
                self._resume_transport_reading()
        return finished

    @override
    def _resume_transport_reading(self) -> None:
        if not self._held:
            super()._resume_transport_reading()

    @override
    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log an error with its traceback unless a peer without a name may have made it."""
        error = kw.get("exc_info")
        if isinstance(error, ConnectionError):
            return  # the peer has gone
        if isinstance(error, HttpProcessingError | web.RequestPayloadError):
            self.use.refused("malformed")
        elif self.accepted.identified or self.use.limits.unidentified_connections is None:
            super().log_exception(*args, **kw)
        else:
            self.use.failed(error)

    def _set_deadline(self) -> None:
        framing, limits = self._framing, self.use.limits
        timed = (framing.requests, framing.in_head, framing.in_body)
        if timed == self._timed:
            return
        self._timed = timed
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        late = BeyondLimitError(HTTPStatus.REQUEST_TIMEOUT, "slow_headers", "the headers are late")
        if framing.in_head:
            self._deadline = self._loop.call_later(limits.headers_seconds, self._refuse, late)
        elif framing.in_body:
            late = BeyondLimitError(HTTPStatus.REQUEST_TIMEOUT, "slow_body", "the body is late")
            self._deadline = self._loop.call_later(limits.body_seconds, self._refuse, late)

    def _refuse(self, refused: BeyondLimitError) -> None:
        """Answer with a status if nothing else is being answered, and close the connection."""
        self._refused, self._held = True, b""
        self.use.received(self.accepted, -self.accepted.received_bytes)
        self.use.refused(refused.reason)
        transport = self.transport
        if transport is None:
            return
        if self._request_in_progress or self._messages:
            transport.abort()
            return
        text = f"{refused}\n".encode()
        fields = {
            "Content-Type": "text/plain; charset=utf-8",
            "Content-Length": str(len(text)),
            "Connection": "close",
        }
        if refused.status is HTTPStatus.METHOD_NOT_ALLOWED:
            fields["Allow"] = ", ".join(sorted(self.use.limits.methods))
        if refused.status is HTTPStatus.SERVICE_UNAVAILABLE:
            fields["Retry-After"] = str(RETRY_AFTER_SECONDS)
        head = [f"HTTP/1.1 {refused.status.value} {refused.status.phrase}"]
        head += [f"{name}: {value}" for name, value in fields.items()]
        self.keep_alive(val=False)
        transport.write("\r\n".join([*head, "", ""]).encode() + text)
        if transport.can_write_eof():
            transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, transport.abort)

    def _check_stall(self, unread_bytes: int, stalled_checks: int = 0) -> None:
        """Close the connection of a peer that has read nothing since several checks.

        Against peers that ask for large answers and do not read them: aiohttp waits without end.
        """
        seconds = self.use.limits.stalled_seconds
        if seconds is None or self._socket is None:
            return
        unread = self.accepted.unread_bytes
        stalled_checks = stalled_checks + 1 if unread and unread >= unread_bytes > 0 else 0
        if stalled_checks == STALL_CHECKS:
            self.use.refused("unread")
            self.abort()
            return
        pause_seconds = seconds / STALL_CHECKS
        self._stall_timer = self._loop.call_later(
            pause_seconds, self._check_stall, unread, stalled_checks
        )
