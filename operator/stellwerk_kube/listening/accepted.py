"""A connection of a port as PortUse counts it, from `accept` on.

A LimitedSite has it made for each peer; LimitedConnection and the middleware write down what it
holds. Invariant: it knows its protocol by a role alone, so that what counts connections does not
depend on what serves them.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import Protocol


class ServedConnection(Protocol):
    """A connection whose handshake has ended (LimitedConnection)."""

    unanswered: int
    """Requests whose head has ended and that are not answered."""

    @property
    def unread_bytes(self) -> int:
        """Bytes written that the peer has not read."""
        ...

    @property
    def is_certified(self) -> bool:
        """Whether TLS has verified a certificate of the peer."""
        ...

    def abort(self) -> None:
        """Close it at once."""


@dataclass(eq=False, slots=True)
class AcceptedConnection:
    """A connection from its `accept` on, so also before and during its handshake."""

    sock: socket.socket
    address: str
    reserved: bool
    """Whether it was accepted beyond the limit, for a probe alone."""
    identified: bool = False
    """Whether something was allowed to a user on it."""
    connection: ServedConnection | None = None
    """Its protocol; None: it is in its handshake, or has gone."""
    received_bytes: int = 0
    """Bytes received in requests that are not answered."""
    unwritten_bytes: int = 0
    """Bytes of the answer in progress that are not handed to the transport yet."""

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
