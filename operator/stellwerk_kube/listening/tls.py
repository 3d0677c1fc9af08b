"""TLS of one connection of a port, with one receive buffer for all connections."""

from __future__ import annotations

import asyncio
import logging
from asyncio import sslproto
from typing import TYPE_CHECKING, Any

from stellwerk_kube.errors import in_words

if TYPE_CHECKING:
    import socket
    import ssl

logger = logging.getLogger(__name__)


class TlsProtocol(sslproto.SSLProtocol):
    """asyncio's TLS of one connection, which reads a record at a time into a common buffer.

    The plain version is the TLS of the event loop, `connect_accepted_socket(ssl=…)`. uvloop's has a
    buffer of 256 KiB for each connection and as much again for what it decrypts, so that 64 peers
    who send without end fill 33 to 52 MiB, and 6 MiB here (docs/security.md names the test).
    A common buffer is right because the loop hands what it has received to TLS before it reads from
    another connection. `_ssl_buffer` and `_ssl_buffer_view` are private parts of asyncio.
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
        connection: asyncio.Protocol,
        context: ssl.SSLContext,
        sock: socket.socket,
        seconds: float,
    ) -> None:
        """Shake hands, or fail to; neither that nor the end of TLS takes longer than `seconds`.

        The error of a failed handshake is not raised: this frame would be in its traceback, and the
        error in this frame. That is a cycle for each of thousands of peers, and the collector runs
        rarely.

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
