"""The limits of a port: what peers may send, how long they may take, and how many there may be.

The operator's port, the page and the embedded API listen through `LimitedSite`. Invariant: what a
connection costs is bounded before aiohttp parses anything; what keeps to the limits reaches it as
it was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import ipaddress
import logging
import math
import os
import re
import resource
import socket
import time
from asyncio import sslproto
from collections import Counter, deque
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import orjson
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from typing_extensions import override

from stellwerk_kube.errors import in_words

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from aiohttp.typedefs import Middleware

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Gate = Callable[[web.Request], Awaitable[str]]

logger = logging.getLogger(__name__)

LINGER_SECONDS: Final = 1.0
"""So long what a refused peer still sends is read and dropped, so that it sees the answer."""
REPORT_SECONDS: Final = 60.0
"""The log has one line for all refusals of so long."""
RETRY_SECONDS: Final = 1
"""After so long those may ask again who were turned away because others ask."""
_ACCEPTED_AT_ONCE: Final = 64
"""Connections taken before other work has its turn."""
_BEGUN_AT_ONCE: Final = 4
"""Handshakes begun before other work has its turn; each takes a millisecond."""
_ADDRESSES: Final = 4096
"""Of more, those that have opened no connection lately are forgotten."""
_PIECE_BYTES: Final = 64 << 10
"""Written of an answer before the peer has to read."""
_LOOKS: Final = 4
"""At a peer that reads nothing, until it is given up."""
_MANY: Final = 100
_TRIM_SECONDS: Final = 8.0
"""So long after many refusals, or after most of many connections have gone, their memory goes back
to the system."""
_NO_DESCRIPTOR_SECONDS: Final = 0.2
_DESCRIPTOR_LOOK_SECONDS: Final = 1.0
"""Between two looks at how many descriptors are free: the rest of the process takes them, too."""
MIN_FREE_DESCRIPTORS: Final = 16
"""Kept for probes and the rest of the process, which connects to the API server; more where there
are more, up to the next."""
MAX_FREE_DESCRIPTORS: Final = 128
_FREE_SHARE: Final = 8
"""An eighth of the descriptors is kept."""
_ENOUGH_DESCRIPTORS: Final = 4096
"""With so many, a port cannot use them up within its limits, and they are not counted."""
_DESCRIPTORS: Final = ("/proc/self/fd", "/dev/fd")
_IPV6_PREFIX: Final = 64
"""A machine has all addresses below one."""
_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"([!#-'*+\-.^_`|~\w]+) ([^ ?#]*)", re.ASCII)
_LENGTH: Final = re.compile(rb"\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r?\n")
_CHUNKED: Final = re.compile(rb"\ntransfer-encoding:[^\n]*chunked")
_CHUNK_SIZE: Final = re.compile(rb"[ \t]*([0-9a-f]{1,16})[ \t]*(?:;[^\n]*)?\r?\n", re.IGNORECASE)
_LONGEST_CHUNK_LINE: Final = 1 << 10
_JSON_TOKEN: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL
)
"""Never tried twice at one place, so that reading is linear whatever the body."""
USER: Final[web.RequestKey[str]] = web.RequestKey("user", str)
"""Who asks, as the gate of `within_limits` said; empty: any peer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that peers may send, their time and their number.

    The defaults are the operator's port's.
    """

    methods: frozenset[str] = frozenset({"GET", "HEAD", "POST", "PUT"})
    request_line_bytes: int = 8 << 10
    header_fields: int = 64
    header_bytes: int = 32 << 10
    """All fields of one request together."""
    body_bytes: Mapping[str, int] | None = field(default_factory=dict)
    """By path, as it is sent; 0 for a path that is not there. None: the handlers see to it."""
    json_depth: int = 64
    json_tokens: int = 20_000
    handshake_seconds: float = 5.0
    headers_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_seconds: float = 20.0
    idle_seconds: float = 30.0
    """Without a request, on a connection that stays open."""
    answer_seconds: float = 60.0
    """What `within_limits` gives a request until the peer has its whole answer."""
    stalled_seconds: float | None = 20.0
    """How long a peer may read nothing of what is written to it; None: without end."""
    connections: int = 256
    address_connections: int | None = 32
    """From one address, and as many new ones in a second after twice as many at once; None: as
    many as there may be in all."""
    unidentified_connections: int | None = 64
    """On which nothing has been allowed to a user yet; None: as many as there may be in all."""
    reserved: int = 8
    """Connections beyond these, for probes alone, when none can be closed for them."""
    requests: int = 32
    """Being answered at once, probes apart; `within_limits` counts them, and those of a user."""
    user_requests: int = 8
    buffered_bytes: int | None = 16 << 20
    """Received in requests without an answer yet, and not read of answers, on all connections."""


class Descriptors:
    """The descriptors of the process, of which a port leaves some free for everything else."""

    def __init__(self, limit: int | None = None) -> None:
        """Count up to the limit of the process, or of a test."""
        if limit is None:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._limit = limit
        self.are_counted = 0 <= limit < _ENOUGH_DESCRIPTORS  # RLIM_INFINITY is -1
        self._kept = min(MAX_FREE_DESCRIPTORS, max(MIN_FREE_DESCRIPTORS, limit // _FREE_SHARE))

    def missing(self) -> int:
        """How many more have to be free."""
        if not self.are_counted:
            return 0
        for directory in _DESCRIPTORS:
            try:
                # Without the one that lists; a Path for each would take ten times as long.
                used = len(os.listdir(directory)) - 1  # noqa: PTH208
            except FileNotFoundError:
                continue
            except OSError:  # not even one for the list
                return self._kept
            return max(0, self._kept - (self._limit - used))
        return 0


class PortUse:
    """Connections, requests and memory of one port by peer; it counts refusals."""

    def __init__(
        self,
        limits: Limits,
        refused: Callable[[str], None] | None = None,
        descriptors: Descriptors | None = None,
    ) -> None:
        """Begin with no connection.

        Args:
            limits: how much there may be.
            refused: is called with the reason of each refusal, a word of ours.
            descriptors: of the process, unless a test has others.
        """
        self.limits = limits
        self.descriptors = descriptors or Descriptors()
        self._spent_seconds = -math.inf
        """When it was last said that there is no descriptor."""
        self._told = refused
        self._connections: dict[_Accepted, None] = {}
        """In the order of their last answer, or of their arrival without one."""
        self._by_address: Counter[str] = Counter()
        self._opened: dict[str, tuple[float, float]] = {}
        """How many connections an address has opened lately, and when that was counted."""
        self._users: Counter[str] = Counter()
        self._unidentified = 0
        self._reserved = 0
        self._since_trimmed = 0
        self._most_connections = 0
        """Since they were few."""
        self._trimming: asyncio.Future[int] | None = None
        self._received_bytes = 0
        self._unreported: Counter[str] = Counter()
        self._reported_seconds = self._failed_seconds = -math.inf

    @property
    def connections(self) -> int:
        """The number of connections, half handshakes among them."""
        return len(self._connections)

    @contextlib.contextmanager
    def request_of(self, user: str) -> Iterator[None]:
        """Count a request while it is answered.

        Raises:
            HTTPTooManyRequests: there are as many as may be, of all or of the user.
        """
        limits = self.limits
        if self._users.total() >= limits.requests:
            self.turn_away("requests", f"{limits.requests} requests are being answered")
        if self._users[user] >= limits.user_requests:
            self.turn_away("user_requests", f"{limits.user_requests} of yours are being answered")
        self.check_room()
        self._users[user] += 1
        try:
            yield
        finally:
            self._users[user] -= 1
            if not self._users[user]:
                del self._users[user]

    def check_room(self) -> None:
        """Return if there is memory for one more answer.

        Raises:
            HTTPTooManyRequests: peers have left too much unread.
        """
        most = self.limits.buffered_bytes
        if most is not None and self._received_bytes + self._unread_bytes() > most:
            self.turn_away("memory", f"more than {most} bytes wait for slow peers")

    def refused(self, reason: str) -> None:
        """Count a refusal, and report it in the next line of the log, one a minute."""
        if self._told is not None:
            self._told(reason)
        self._unreported[reason] += 1
        self._since_trimmed += 1
        if self._since_trimmed == _MANY:
            self._trim_later()
        now_seconds = time.monotonic()
        if now_seconds - self._reported_seconds < REPORT_SECONDS:
            return
        self._reported_seconds = now_seconds
        counts = ", ".join(f"{why} {count}" for why, count in sorted(self._unreported.items()))
        self._unreported.clear()
        logger.info("peers were refused at a limit of the port, by reason: %s", counts)

    def turn_away(self, reason: str, text: str) -> NoReturn:
        """Refuse a request that may come again later.

        Raises:
            HTTPTooManyRequests: always.
        """
        self.refused(reason)
        raise web.HTTPTooManyRequests(
            text=f"too many requests: {text}\n", headers={"Retry-After": str(RETRY_SECONDS)}
        )

    def failed(self, error: BaseException | None) -> None:
        """Report, once a minute at most, that a request without a user has failed by our fault."""
        self.refused("error")
        now_seconds = time.monotonic()
        if now_seconds - self._failed_seconds >= REPORT_SECONDS:
            self._failed_seconds = now_seconds
            logger.error("a request without a user failed: %s", in_words(error))

    def free_descriptors(self, error: OSError | None = None) -> bool:
        """Close idle connections without a user until enough descriptors are free.

        Returns whether any was closed. With the error of an `accept`, which is reported once a
        minute, all of them are closed.
        """
        idle = [each for each in self._connections if not (each.identified or each.busy)]
        closed = len(idle) if error is not None else min(self.descriptors.missing(), len(idle))
        for _ in range(closed):
            self._give_up_one("descriptors", list(self._connections))
        now_seconds = time.monotonic()
        if error is not None and now_seconds - self._spent_seconds >= REPORT_SECONDS:
            self._spent_seconds = now_seconds
            logger.warning(
                "no connection can be accepted, %d idle ones were closed: %s", closed, error
            )
        return closed > 0

    def admit(self, sock: socket.socket, address: str) -> _Accepted | None:
        """Return the connection that was taken, perhaps for another that is closed; None: refused.

        Where connections have to be given up, it is the one that has been idle longest of those on
        which no user was identified, of the address that has most of them.
        """
        if not self._may_open(address):
            self.refused("rate")
            return None
        most_here = self.limits.address_connections
        if most_here is not None and self._by_address[address] >= most_here:
            here = [each for each in self._connections if each.address == address]
            if not self._give_up_one("address", here):
                self.refused("address")
                return None
        reserved = False
        is_short = self.descriptors.missing() > 0
        if is_short or self._is_full():
            others = [each for each in self._connections if not each.reserved]
            reason = "descriptors" if is_short else "connections"
            reserved = not self._give_up_one(reason, others)
        if reserved and self._reserved >= self.limits.reserved:
            probing = [each for each in self._connections if each.reserved]
            if not self._give_up_one("connections", probing):
                self.refused("connections")
                return None
        accepted = _Accepted(sock, address, reserved)
        self._connections[accepted] = None
        self._most_connections = max(self._most_connections, len(self._connections))
        self._by_address[address] += 1
        self._unidentified += not reserved
        self._reserved += reserved
        return accepted

    def _may_open(self, address: str) -> bool:
        """Count a new connection of an address, unless it has opened too many lately."""
        rate = self.limits.address_connections
        if rate is None:
            return True
        now_seconds = time.monotonic()
        count, at_seconds = self._opened.get(address, (0.0, now_seconds))
        count = max(0.0, count - rate * (now_seconds - at_seconds))
        is_allowed = count < 2 * rate
        self._opened[address] = (count + is_allowed, now_seconds)
        if len(self._opened) > _ADDRESSES:
            self._opened = {
                each: (opened, seconds)
                for each, (opened, seconds) in self._opened.items()
                if opened > rate * (now_seconds - seconds)
            }
        return is_allowed

    def holds(self, accepted: _Accepted) -> bool:
        """Whether a connection has not been given up."""
        return accepted in self._connections

    def gone(self, accepted: _Accepted) -> bool:
        """Count a connection no more; whether it was counted."""
        if accepted not in self._connections:
            return False
        self.received(accepted, -accepted.received_bytes)
        del self._connections[accepted]
        self._by_address[accepted.address] -= 1
        if not self._by_address[accepted.address]:
            del self._by_address[accepted.address]
        self._unidentified -= not (accepted.identified or accepted.reserved)
        self._reserved -= accepted.reserved
        left = len(self._connections)
        if self._most_connections >= _MANY and left <= self._most_connections // 2:
            self._most_connections = left
            self._trim_later()
        return True

    def identified(self, accepted: _Accepted) -> None:
        """Note that something was allowed to a user of a connection."""
        if accepted in self._connections and not (accepted.identified or accepted.reserved):
            accepted.identified = True
            self._unidentified -= 1

    def connected(self, accepted: _Accepted, connection: _Connection) -> bool:
        """Note that a handshake has ended; whether the connection has not been given up since."""
        accepted.connection = connection
        return accepted in self._connections

    def idle(self, accepted: _Accepted) -> None:
        """Note that a connection's request was answered."""
        if accepted in self._connections:
            del self._connections[accepted]
            self._connections[accepted] = None

    def received(self, accepted: _Accepted, size: int) -> bool:
        """Count bytes of a request; whether there is room for them."""
        if accepted in self._connections:
            accepted.received_bytes += size
            self._received_bytes += size
        most = self.limits.buffered_bytes
        return most is None or self._received_bytes <= most

    def end_handshakes(self) -> None:
        """Give up the connections that are in their handshakes."""
        for accepted in list(self._connections):
            if accepted.connection is None:
                accepted.abort()

    def end_certified(self) -> None:
        """Close connections whose peers have shown a certificate, or may be about to."""
        self.end_handshakes()
        for accepted in list(self._connections):
            if accepted.connection is not None and accepted.connection.is_certified:
                accepted.abort()

    def _trim_later(self) -> None:
        asyncio.get_running_loop().call_later(_TRIM_SECONDS, self._trim)

    def _trim(self) -> None:
        """Give back to the system what closed connections have left in malloc's heap."""
        self._since_trimmed = 0
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc; in a thread, since it may take a while
            self._trimming = asyncio.get_running_loop().run_in_executor(None, trim, 0)

    def _is_full(self) -> bool:
        limits = self.limits
        most = limits.unidentified_connections
        return (most is not None and self._unidentified >= most) or (
            self.connections - self._reserved >= limits.connections
        )

    def _unread_bytes(self) -> int:
        return sum(accepted.unread_bytes for accepted in self._connections)

    def _give_up_one(self, reason: str, of: Sequence[_Accepted]) -> bool:
        idle = [each for each in of if not (each.identified or each.busy)]
        if not idle:
            return False
        self.refused(reason)
        if reason == "descriptors":
            # There are so few that one in its handshake, as a probe may be, would never end it.
            idle = [each for each in idle if each.connection is not None] or idle
        most, _ = Counter(each.address for each in idle).most_common(1)[0]
        given_up = next(each for each in idle if each.address == most)
        self.gone(given_up)
        given_up.abort()
        return True


@dataclass(eq=False, slots=True)
class _Accepted:
    """A connection from the moment that it was accepted, before its handshake."""

    sock: socket.socket
    address: str
    reserved: bool
    """Whether it was accepted for a probe alone."""
    identified: bool = False
    connection: _Connection | None = None
    """None: it is in its handshake, or has gone."""
    received_bytes: int = 0
    """Of requests that are not answered."""
    unwritten_bytes: int = 0
    """Of the answer that is being written."""

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.connection is not None and self.connection.unanswered > 0

    @property
    def unread_bytes(self) -> int:
        """Bytes of answers that the peer has not read."""
        written = 0 if self.connection is None else self.connection.unread_bytes
        return self.unwritten_bytes + written

    def abort(self) -> None:
        """Close it at once."""
        if self.connection is not None:
            self.connection.abort()
            return
        with contextlib.suppress(OSError):  # the handshake, which has the socket, sees its end
            self.sock.shutdown(socket.SHUT_RDWR)


def within_limits(use: PortUse, gate: Gate, probes: frozenset[str] = frozenset()) -> Middleware:
    """Let a request pass a gate, and answer it to the last byte while there is room and time.

    Args:
        use: of the port.
        gate: returns the name of the user who may ask, an empty one for any peer; it raises for
            those who may not. The user is `request[USER]` from there on.
        probes: first parts of the paths that every peer may ask for, beside all other requests.
    """

    @web.middleware
    async def within(request: web.Request, handler: Handler) -> web.StreamResponse:
        limit = asyncio.timeout(use.limits.answer_seconds)
        try:
            async with limit:
                if request.path.partition("/")[2].partition("/")[0] in probes:
                    return await _written(request, handler)
                accepted = _accepted(request)
                if accepted is not None and accepted.reserved:
                    use.turn_away("connections", "this connection is for probes")
                user = await gate(request)
                request[USER] = user
                if user and accepted is not None:
                    use.identified(accepted)
                with use.request_of(user):
                    return await _written(request, handler)
        except web.RequestPayloadError as error:
            raise web.HTTPBadRequest(
                text=f"the body cannot be read: {in_words(error)}\n"
            ) from error
        except TimeoutError:
            if not limit.expired():
                raise
            use.refused("slow_answer")
            if request.writer.output_size and request.transport is not None:
                request.transport.abort()
            status = HTTPStatus.REQUEST_TIMEOUT
            text = f"not answered within {use.limits.answer_seconds:g} s\n"
            answer = web.Response(status=status, text=text)
            answer.force_close()
            return answer

    return within


def check_room(request: web.Request) -> None:
    """Return if the port of a request has memory for one more answer.

    Raises:
        HTTPTooManyRequests: peers have left too much unread.
    """
    if isinstance(request.protocol, _Connection):
        request.protocol.use.check_room()


def identify(request: web.BaseRequest) -> None:
    """Note that the user of a request is known: its connection is not given up for others."""
    if isinstance(request.protocol, _Connection):
        request.protocol.use.identified(request.protocol.accepted)


def json_within(limits: Limits, body: bytes) -> Any:  # noqa: ANN401 JSON
    """Return the value that a body says.

    Raises:
        HTTPBadRequest: it is no JSON, or too deep, or has too many tokens.
    """
    depth = 0
    for tokens, token in enumerate(_JSON_TOKEN.finditer(body), 1):
        depth += (token[0] in {b"{", b"["}) - (token[0] in {b"}", b"]"})
        if depth > limits.json_depth:
            raise web.HTTPBadRequest(text=f"the JSON is nested deeper than {limits.json_depth}\n")
        if tokens > limits.json_tokens:
            raise web.HTTPBadRequest(text=f"the JSON has more than {limits.json_tokens} tokens\n")
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from error


async def _written(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer to the last byte, in pieces: what a peer has not read is not seen through TLS."""
    response, accepted = await handler(request), _accepted(request)
    body = response.body if isinstance(response, web.Response) else None
    if accepted is None or request.method == "HEAD" or not isinstance(body, bytes):
        await response.prepare(request)
        await response.write_eof()
        return response
    whole = web.StreamResponse(status=response.status, headers=response.headers)
    whole.content_length = len(body)
    try:
        accepted.unwritten_bytes = len(body)
        await whole.prepare(request)
        for begin in range(0, len(body), _PIECE_BYTES):
            await whole.write(memoryview(body)[begin : begin + _PIECE_BYTES])
            accepted.unwritten_bytes = max(0, len(body) - begin - _PIECE_BYTES)
        await whole.write_eof()
    finally:
        accepted.unwritten_bytes = 0
    return whole


def _accepted(request: web.Request) -> _Accepted | None:
    protocol = request.protocol
    return protocol.accepted if isinstance(protocol, _Connection) else None


class LimitedSite(web.TCPSite):
    """An address that a runner's server listens on, each connection within the limits."""

    __slots__ = ("_accepting", "_beginning", "_handshakes", "_tls", "_use", "_waiting")

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        use: PortUse,
        *,
        tls: Callable[[], ssl.SSLContext] | None = None,
        backlog: int = 1024,
    ) -> None:
        """Prepare to listen; `tls` is asked for the context of each connection."""
        super().__init__(runner, host, port, backlog=backlog)
        self._use = use
        self._tls = tls
        self._accepting: list[asyncio.Task[None]] = []
        self._handshakes: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, deque[_Accepted]] = {}
        """Connections whose handshakes are to begin, by address; the first address is next."""
        self._beginning: asyncio.Task[None] | None = None

    @override
    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on.
        """
        await super(web.TCPSite, self).start()
        sockets = await _listening_sockets(self._host or "", self._port, self._backlog)
        self._server = cast("asyncio.AbstractServer", _Listening(sockets))
        self._accepting = [
            asyncio.create_task(self._accept(sock), name="accepting connections")
            for sock in sockets
        ]
        if self._use.descriptors.are_counted:
            keeping = asyncio.create_task(self._keep_descriptors(), name="keeping descriptors")
            self._accepting.append(keeping)

    @override
    async def stop(self) -> None:
        """Listen no more; half handshakes end, and the runner ends the connections."""
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)
        self._use.end_handshakes()
        if self._beginning is not None:
            await self._beginning
        if self._handshakes:
            await asyncio.wait(self._handshakes)
        await super().stop()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                # Where descriptors are counted, those that were given up are closed in between.
                at_once = 1 if self._use.descriptors.are_counted else _ACCEPTED_AT_ONCE
                for _ in range(at_once):
                    sock, address = await loop.sock_accept(listening)
                    self._take(sock, _peer(address[0]))
            except ConnectionError:
                continue  # the peer has gone before it was accepted
            except OSError as error:
                if not self._use.free_descriptors(error):
                    await asyncio.sleep(_NO_DESCRIPTOR_SECONDS)
            except Exception:
                logger.exception("a connection could not be taken")
            await asyncio.sleep(0)

    async def _keep_descriptors(self) -> None:
        """Close idle connections also while none comes: the process may need theirs."""
        while True:
            await asyncio.sleep(_DESCRIPTOR_LOOK_SECONDS)
            self._use.free_descriptors()

    def _take(self, sock: socket.socket, address: str) -> None:
        accepted = self._use.admit(sock, address)
        if accepted is None:
            sock.close()
            return
        self._waiting.setdefault(address, deque()).append(accepted)
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin(), name="beginning handshakes")

    async def _begin(self) -> None:
        """Begin the handshakes of what was accepted, a few at once; addresses take turns."""
        while self._waiting:
            begun = 0
            while self._waiting and begun < _BEGUN_AT_ONCE:
                address = next(iter(self._waiting))
                waiting = self._waiting.pop(address)
                accepted = waiting.popleft()
                if waiting:
                    self._waiting[address] = waiting  # behind all others
                if not self._use.holds(accepted):
                    accepted.sock.close()
                    continue
                begun += 1
                task = asyncio.create_task(self._shake_hands(accepted), name="handshake")
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)
            await asyncio.sleep(0)
        self._beginning = None

    async def _shake_hands(self, accepted: _Accepted) -> None:
        server, loop = self._runner.server, asyncio.get_running_loop()
        if server is None:
            raise RuntimeError("the runner is not set up")
        context = None if self._tls is None else self._tls()
        accepted.sock.setblocking(False)  # noqa: FBT003 as socket has it
        connection = _Connection(server, self._use, accepted)
        try:
            if context is None:
                await loop.connect_accepted_socket(lambda: connection, accepted.sock)
            else:
                seconds = self._use.limits.handshake_seconds
                await _TLSConnection.begin(loop, connection, context, accepted.sock, seconds)
        except OSError as error:
            logger.debug("a peer has gone: %s", error)
        if accepted.connection is None:
            connection.let_go()
            if self._use.gone(accepted):
                self._use.refused("handshake")


class _TLSConnection(sslproto.SSLProtocol):
    """TLS of one connection that reads a record at a time.

    uvloop's own has a buffer of 256 KiB for each connection and as much again for what it decrypts,
    so that 64 peers who send without end fill 50 MiB. Here all connections receive into one buffer,
    which is given to TLS before the loop reads from the next: an idle one costs half as much.
    """

    max_size = 16 << 10
    _received = bytearray(max_size)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ssl_buffer = self._received
        self._ssl_buffer_view = memoryview(self._received)

    @classmethod
    async def begin(
        cls,
        loop: asyncio.AbstractEventLoop,
        connection: _Connection,
        context: ssl.SSLContext,
        sock: socket.socket,
        seconds: float,
    ) -> None:
        """Shake hands, or fail to; neither that nor the end of TLS takes longer than `seconds`.

        The error of a failed handshake is not raised: this frame would be in its traceback, and the
        error in this frame, a cycle for each of thousands of peers; cycles are sought seldom.

        Raises:
            OSError: the socket cannot be read.
        """
        shaken = loop.create_future()
        protocol = cls(
            loop,
            connection,
            context,
            shaken,
            server_side=True,
            ssl_handshake_timeout=seconds,
            ssl_shutdown_timeout=seconds,
        )
        await loop.connect_accepted_socket(lambda: protocol, sock)
        await asyncio.wait([shaken])
        error = shaken.exception()
        if error is not None:
            logger.debug("a handshake failed: %s", in_words(error))


class _Listening:
    """The listening sockets, as aiohttp's runners look at them and close them."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = sockets

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


async def _listening_sockets(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets of all addresses of a host.

    Raises:
        OSError: one of them cannot be listened on.
    """
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setblocking(False)  # noqa: FBT003 as socket has it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(backlog)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _peer(address: str) -> str:
    """The address that a peer's connections are counted by."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, _IPV6_PREFIX), strict=False))


class _Refused(Exception):  # noqa: N818 no error of this process
    """A request that goes beyond a limit."""

    def __init__(self, status: HTTPStatus, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class _Framing:
    """The place in a request that a connection has reached, from the bytes that it has sent.

    It finds the ends of heads and bodies, and checks the sizes of heads.
    """

    __slots__ = (
        "_allowed_bytes",
        "_chunked",
        "_left",
        "_limits",
        "_seen",
        "_trailer_bytes",
        "requests",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen = bytearray()
        """Of the head, or of the line between chunks, that has not ended."""
        self._left = 0
        """Bytes of the body, or of the chunk, that are still to come."""
        self._chunked = False
        self._trailer_bytes: int | None = None
        """Behind the last chunk; None: it has not come."""
        self._allowed_bytes: int | None = None
        """How many more bytes the body may have; None: as many as there are."""
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

    def feed(self, data: bytes) -> int:
        """Go on by these bytes, at most to the end of a request; return how many it took.

        Raises:
            _Refused: a request is beyond a limit, or a body not framed as HTTP has it.
        """
        at = 0
        while at < len(data):
            begun = self.in_body
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            elif self._chunked:
                at = self._between_chunks(data, at)
            else:
                before = self.requests
                at = self._head(data, at)
                begun = self.requests > before
            if begun and not self.in_body:
                break
        return at

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
                "request_line",
                f"a request line has at most {limits.request_line_bytes} bytes",
            )
        fields = head.count(b"\n", line_bytes + 1) - ended
        too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        if fields > limits.header_fields:
            text = f"a request has at most {limits.header_fields} header fields"
            raise _Refused(too_large, "headers", text)
        if len(head) - line_bytes > limits.header_bytes:
            text = f"the headers of a request have at most {limits.header_bytes} bytes"
            raise _Refused(too_large, "headers", text)

    def _begin_body(self, head: bytes) -> None:
        limits, lower, line = self._limits, head.lower(), _REQUEST_LINE.match(head)
        method, path = ("", "") if line is None else (line[1].decode(), line[2].decode("latin-1"))
        if line is not None and method not in limits.methods:
            text = f"methods here are {', '.join(sorted(limits.methods))}"
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "method", text)
        if limits.body_bytes is not None:
            takes_none = method in {"GET", "HEAD"}
            self._allowed_bytes = 0 if takes_none else limits.body_bytes.get(path, 0)
        self._chunked = _CHUNKED.search(lower) is not None
        length = None if self._chunked else _LENGTH.search(lower)
        self._left = self._within_allowed(int(length[1])) if length is not None else 0

    def _within_allowed(self, size: int) -> int:
        """Count so many bytes of a body, and return them."""
        if self._allowed_bytes is not None:
            if size > self._allowed_bytes:
                text = "the body is larger than this path and method take"
                raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", text)
            self._allowed_bytes -= size
        return size

    def _between_chunks(self, data: bytes, at: int) -> int:
        """Read the line before a chunk, or what is behind the last one."""
        line_end = data.find(b"\n", at)
        end = line_end + 1 if line_end >= 0 else len(data)
        self._seen += data[at:end]
        if len(self._seen) > _LONGEST_CHUNK_LINE:
            text = "a chunk begins with a line that is too long"
            raise _Refused(HTTPStatus.BAD_REQUEST, "malformed", text)
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
                raise _Refused(too_large, "headers", "too much stands behind the last chunk")
            return end
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise _Refused(HTTPStatus.BAD_REQUEST, "malformed", "a chunk begins with no size")
        length = int(size[1], 16)
        if length:
            self._left = self._within_allowed(length) + len(b"\r\n")
        else:
            self._trailer_bytes = 0
        return end


class _Connection(web.RequestHandler):
    """aiohttp's protocol, which gets nothing that is beyond the limits, and no more time."""

    __slots__ = (
        "_deadline",
        "_framing",
        "_held",
        "_look",
        "_refused",
        "_socket",
        "_timed",
        "accepted",
        "unanswered",
        "use",
    )

    def __init__(self, server: web.Server, use: PortUse, accepted: _Accepted) -> None:
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
        """Requests whose head has ended."""
        self._framing = _Framing(limits)
        self._held = b""
        """Behind a request that is not answered."""
        self._socket: asyncio.Transport | None = None
        """Also while it is closing, when aiohttp has let go of it."""
        self._deadline: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        self._timed = (0, False, False)
        """What the deadline is for: the number of the request, and whether its head or body."""
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
        self._look_again(0)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self.use.gone(self.accepted)
        self.accepted.connection = self._socket = None
        self._held = b""
        for timer in (self._deadline, self._look):
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
            self._refuse(_Refused(HTTPStatus.SERVICE_UNAVAILABLE, "memory", text))
            return
        self._held = self._held + data if self._held else data
        self._pass_on()

    def _pass_on(self) -> None:
        """Give aiohttp what is held, to the end of a request that is not answered."""
        framing = self._framing
        while self._held and (framing.in_body or not self.unanswered):
            held, before = self._held, framing.requests
            try:
                end = framing.feed(held)
            except _Refused as refused:
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
        late = _Refused(HTTPStatus.REQUEST_TIMEOUT, "slow_headers", "the headers are late")
        if framing.in_head:
            self._deadline = self._loop.call_later(limits.headers_seconds, self._refuse, late)
        elif framing.in_body:
            late = _Refused(HTTPStatus.REQUEST_TIMEOUT, "slow_body", "the body is late")
            self._deadline = self._loop.call_later(limits.body_seconds, self._refuse, late)

    def _refuse(self, refused: _Refused) -> None:
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
            fields["Retry-After"] = str(RETRY_SECONDS)
        head = [f"HTTP/1.1 {refused.status.value} {refused.status.phrase}"]
        head += [f"{name}: {value}" for name, value in fields.items()]
        self.keep_alive(val=False)
        transport.write("\r\n".join([*head, "", ""]).encode() + text)
        if transport.can_write_eof():
            transport.write_eof()
        self._loop.call_later(LINGER_SECONDS, transport.abort)

    def _look_again(self, unread_bytes: int, stalled_looks: int = 0) -> None:
        """Close the connection of a peer that has read nothing since several looks."""
        seconds = self.use.limits.stalled_seconds
        if seconds is None or self._socket is None:
            return
        unread = self.accepted.unread_bytes
        stalled_looks = stalled_looks + 1 if unread and unread >= unread_bytes > 0 else 0
        if stalled_looks == _LOOKS:
            self.use.refused("unread")
            self.abort()
            return
        pause_seconds = seconds / _LOOKS
        self._look = self._loop.call_later(pause_seconds, self._look_again, unread, stalled_looks)
