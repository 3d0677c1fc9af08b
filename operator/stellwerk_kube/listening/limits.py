"""The numbers of a port's limits: a port is opened with one Limits, and each part reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRY_AFTER_SECONDS: Final = 1
"""The Retry-After of a refusal that is due to the requests of others."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that peers may send, their time and their number.

    The defaults are the operator's port's.
    """

    methods: frozenset[str] = frozenset({"GET", "HEAD", "POST", "PUT"})
    request_line_bytes: int = 8 << 10
    header_fields: int = 64
    header_bytes: int = 32 << 10
    """The bytes of all fields of one request together."""
    body_bytes: Mapping[str, int] | None = field(default_factory=dict)
    """The largest body by path, as the path is sent; 0 for a path that is not there. None: the
    handlers limit bodies."""
    json_depth: int = 64
    json_tokens: int = 20_000
    handshake_seconds: float = 5.0
    headers_seconds: float = 10.0
    """Time from the first byte of a request to the end of its headers."""
    body_seconds: float = 20.0
    idle_seconds: float = 30.0
    """Time without a request after which an open connection is closed."""
    answer_seconds: float = 60.0
    """Time that `within_limits` gives a request until the peer has its whole answer."""
    stalled_seconds: float | None = 20.0
    """Time for which a peer may read nothing of what is written to it; None: without end."""
    connections: int = 256
    address_connections: int | None = 32
    """Connections of one address, and its new connections in a second after twice as many at once;
    None: as many as there may be in all."""
    unidentified_connections: int | None = 64
    """Connections on which nothing has been allowed to a user yet; None: as many as there may be in
    all."""
    reserved: int = 8
    """Connections beyond `connections`, for probes alone, when none can be closed for them."""
    requests: int = 32
    """Requests that are answered at once, probes apart; `within_limits` counts them."""
    user_requests: int = 8
    """Requests of one user that are answered at once."""
    buffered_bytes: int | None = 16 << 20
    """Bytes received in requests without an answer yet, and written in answers that peers have not
    read, on all connections."""
