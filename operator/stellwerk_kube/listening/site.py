"""The accept loop of a port: connections are admitted, and their handshakes begun.

The operator's port, the page and the embedded API each start a LimitedSite on aiohttp's runner.
Invariant: no connection costs a handshake or a protocol before PortUse has admitted it
(`LimitedSite._take` says what a refused peer sees).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web
from typing_extensions import override

from stellwerk_kube.listening.connection import LimitedConnection
from stellwerk_kube.listening.tls import TlsProtocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from stellwerk_kube.listening.accepted import AcceptedConnection
    from stellwerk_kube.listening.port_use import PortUse

logger = logging.getLogger(__name__)

MAX_ACCEPTS_PER_STEP: Final = 64
"""Connections accepted before the event loop runs other tasks."""
MAX_HANDSHAKES_PER_STEP: Final = 4
"""Handshakes begun before the event loop runs other tasks; each takes a millisecond."""
ACCEPT_PAUSE_SECONDS: Final = 0.2
"""Pause before the next `accept` after an error, if no connection could be closed against it."""
DESCRIPTOR_CHECK_SECONDS: Final = 1.0
"""Time between two counts of the free descriptors: the rest of the process takes some, too."""
IPV6_PREFIX_BITS: Final = 64
"""Bits of an IPv6 address by which peers are counted: one machine has all addresses below them."""


class LimitedSite(web.TCPSite):
    """An address that a runner's server listens on, each connection within the limits.

    The plain version is `web.TCPSite`, for which the event loop accepts whatever waits and begins
    each handshake at once. It knows no limit of connections, and a flood's handshakes, a
    millisecond each, would hold the loop.
    """

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
        self._waiting: dict[str, deque[AcceptedConnection]] = {}
        """By address, the connections whose handshakes are to begin; the first address is next."""
        self._beginning: asyncio.Task[None] | None = None

    @override
    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be listened on.
        """
        await super(web.TCPSite, self).start()
        sockets = await _listening_sockets(self._host or "", self._port, self._backlog)
        self._server = cast("asyncio.AbstractServer", _ListeningSockets(sockets))
        self._accepting = [
            asyncio.create_task(self._accept(sock), name="accepting connections")
            for sock in sockets
        ]
        if self._use.descriptors.are_counted:
            keeping = asyncio.create_task(self._keep_descriptors(), name="keeping descriptors")
            self._accepting.append(keeping)

    @override
    async def stop(self) -> None:
        """Stop listening; half handshakes end, and the runner ends the connections."""
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
        while True:
            try:
                await _connection_waits(listening)
                # Where descriptors are counted, those that were given up are closed in between.
                at_once = 1 if self._use.descriptors.are_counted else MAX_ACCEPTS_PER_STEP
                for _ in range(at_once):
                    # Nothing is awaited between the two, so that `stop` finds each accepted
                    # connection in PortUse. `loop.sock_accept`, cancelled as one comes, loses it.
                    sock, address = listening.accept()
                    self._take(sock, _peer(address[0]))
            except (BlockingIOError, ConnectionError):
                pass  # none waits any more, or the peer has gone before it was accepted
            except OSError as error:
                if not self._use.free_descriptors(error):
                    await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
            except Exception:
                logger.exception("a connection could not be accepted")
                await asyncio.sleep(ACCEPT_PAUSE_SECONDS)
            await asyncio.sleep(0)

    async def _keep_descriptors(self) -> None:
        """Close idle connections also while none comes: the process may need theirs."""
        while True:
            await asyncio.sleep(DESCRIPTOR_CHECK_SECONDS)
            self._use.free_descriptors()

    def _take(self, sock: socket.socket, address: str) -> None:
        """Queue an accepted connection for its handshake, or close it if `PortUse` refuses it.

        A refused peer sees its connection closed before a handshake, without a byte: an answer
        would cost the handshake that the limits are there to save. The reason is in the log and in
        the metric of refusals alone (`PortUse.refused`).
        """
        accepted = self._use.admit(sock, address)
        if accepted is None:
            sock.close()
            return
        self._waiting.setdefault(address, deque()).append(accepted)
        if self._beginning is None:
            self._beginning = asyncio.create_task(self._begin(), name="beginning handshakes")

    async def _begin(self) -> None:
        """Begin the handshakes of accepted connections, a few in a step; addresses take turns.

        Handshakes in order of arrival would have another address wait for all of a flood's.
        """
        while self._waiting:
            begun = 0
            while self._waiting and begun < MAX_HANDSHAKES_PER_STEP:
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

    async def _shake_hands(self, accepted: AcceptedConnection) -> None:
        server, loop = self._runner.server, asyncio.get_running_loop()
        if server is None:
            raise RuntimeError("the runner is not set up")
        context = None if self._tls is None else self._tls()
        accepted.sock.setblocking(False)  # noqa: FBT003 as socket has it
        connection = LimitedConnection(server, self._use, accepted)
        try:
            if context is None:
                await loop.connect_accepted_socket(lambda: connection, accepted.sock)
            else:
                seconds = self._use.limits.handshake_seconds
                await TlsProtocol.begin(loop, connection, context, accepted.sock, seconds)
        except OSError as error:
            logger.debug("a peer has gone: %s", error)
        if accepted.connection is None:
            connection.let_go()
            if self._use.gone(accepted):
                self._use.refused("handshake")


class _ListeningSockets:
    """The listening sockets, as aiohttp's runners look at them and close them."""

    def __init__(self, sockets: Sequence[socket.socket]) -> None:
        self.sockets = sockets

    def close(self) -> None:
        for sock in self.sockets:
            sock.close()


async def _listening_sockets(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host.

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


async def _connection_waits(listening: socket.socket) -> None:
    """Wait until a connection can be accepted."""
    loop = asyncio.get_running_loop()
    waits = asyncio.Event()
    loop.add_reader(listening, waits.set)
    try:
        await waits.wait()
    finally:
        loop.remove_reader(listening)


def _peer(address: str) -> str:
    """Return the address by which a peer's connections are counted."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.IPv6Network((parsed, IPV6_PREFIX_BITS), strict=False))
