"""Counts what the peers of one port hold, and chooses the connection that gives way to another.

A LimitedSite asks `admit` for each new connection, a LimitedConnection reports bytes and answers,
the middleware counts requests. Invariant: the counts are those of the connections in
`_connections`; a connection on which a user was identified is never closed for another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Final, NoReturn

from aiohttp import web

from stellwerk_kube.errors import in_words
from stellwerk_kube.listening.accepted import AcceptedConnection
from stellwerk_kube.listening.descriptors import Descriptors
from stellwerk_kube.listening.limits import RETRY_AFTER_SECONDS

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from stellwerk_kube.listening.accepted import ServedConnection
    from stellwerk_kube.listening.limits import Limits

logger = logging.getLogger(__name__)

REPORT_SECONDS: Final = 60.0
"""Seconds for whose refusals the log has one line."""
MAX_COUNTED_ADDRESSES: Final = 4096
"""Addresses whose new connections are counted. Above it, those that have opened none lately are
forgotten."""
TRIM_CONNECTIONS: Final = 100
"""Refusals, or connections of which half have gone, after which memory goes back to the system:
for fewer it is not worth the milliseconds that `malloc_trim` takes."""
TRIM_DELAY_SECONDS: Final = 8.0
"""Seconds between that moment and `malloc_trim`, in which further connections close."""


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
        """The time at which the log last said that there is no descriptor."""
        self._told = refused
        self._connections: dict[AcceptedConnection, None] = {}
        """The connections, ordered by their last answer, or by their arrival without one."""
        self._by_address: Counter[str] = Counter()
        self._opened: dict[str, tuple[float, float]] = {}
        """By address, the number of connections opened lately, and when that was counted."""
        self._users: Counter[str] = Counter()
        self._unidentified = 0
        self._reserved = 0
        self._since_trimmed = 0
        self._peak_connections = 0
        """The largest number of connections since the last time that memory was given back."""
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
        if most is None:
            return
        unread_bytes = sum(accepted.unread_bytes for accepted in self._connections)
        if self._received_bytes + unread_bytes > most:
            self.turn_away("memory", f"more than {most} bytes wait for slow peers")

    def refused(self, reason: str) -> None:
        """Count a refusal, and report it in the next line of the log, one a minute.

        A line for each would fill the log: a flood opens 166,440 connections in two minutes.
        """
        if self._told is not None:
            self._told(reason)
        self._unreported[reason] += 1
        self._since_trimmed += 1
        if self._since_trimmed == TRIM_CONNECTIONS:
            self._trim_later()
        now_seconds = time.monotonic()
        if now_seconds - self._reported_seconds < REPORT_SECONDS:
            return
        self._reported_seconds = now_seconds
        counts = ", ".join(f"{why} {count}" for why, count in sorted(self._unreported.items()))
        self._unreported.clear()
        logger.info("the port refused peers or broke with them, by reason: %s", counts)

    def turn_away(self, reason: str, text: str) -> NoReturn:
        """Refuse a request that may come again later.

        Raises:
            HTTPTooManyRequests: always.
        """
        self.refused(reason)
        raise web.HTTPTooManyRequests(
            text=f"too many requests: {text}\n", headers={"Retry-After": str(RETRY_AFTER_SECONDS)}
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

    def admit(self, sock: socket.socket, address: str) -> AcceptedConnection | None:
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
        most = self.limits.unidentified_connections
        is_full = (most is not None and self._unidentified >= most) or (
            self.connections - self._reserved >= self.limits.connections
        )
        if is_short or is_full:
            others = [each for each in self._connections if not each.reserved]
            reason = "descriptors" if is_short else "connections"
            reserved = not self._give_up_one(reason, others)
        if reserved and self._reserved >= self.limits.reserved:
            probing = [each for each in self._connections if each.reserved]
            if not self._give_up_one("connections", probing):
                self.refused("connections")
                return None
        accepted = AcceptedConnection(sock, address, reserved)
        self._connections[accepted] = None
        self._peak_connections = max(self._peak_connections, len(self._connections))
        self._by_address[address] += 1
        self._unidentified += not reserved
        self._reserved += reserved
        return accepted

    def _may_open(self, address: str) -> bool:
        """Count a new connection of an address, unless it has opened too many lately.

        A token bucket by address: a peer that reconnects as soon as it is closed would otherwise
        cost a handshake of a millisecond each time.
        """
        rate = self.limits.address_connections
        if rate is None:
            return True
        now_seconds = time.monotonic()
        count, at_seconds = self._opened.get(address, (0.0, now_seconds))
        count = max(0.0, count - rate * (now_seconds - at_seconds))
        is_allowed = count < 2 * rate
        self._opened[address] = (count + is_allowed, now_seconds)
        if len(self._opened) > MAX_COUNTED_ADDRESSES:
            self._opened = {
                each: (opened, seconds)
                for each, (opened, seconds) in self._opened.items()
                if opened > rate * (now_seconds - seconds)
            }
        return is_allowed

    def holds(self, accepted: AcceptedConnection) -> bool:
        """Return whether a connection has not been given up."""
        return accepted in self._connections

    def gone(self, accepted: AcceptedConnection) -> bool:
        """Stop counting a connection; return whether it was counted."""
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
        if self._peak_connections >= TRIM_CONNECTIONS and left <= self._peak_connections // 2:
            self._peak_connections = left
            self._trim_later()
        return True

    def identified(self, accepted: AcceptedConnection) -> None:
        """Note that something was allowed to a user of a connection."""
        if accepted in self._connections and not (accepted.identified or accepted.reserved):
            accepted.identified = True
            self._unidentified -= 1

    def connected(self, accepted: AcceptedConnection, connection: ServedConnection) -> bool:
        """Note that a handshake has ended; return whether the connection is still counted."""
        accepted.connection = connection
        return accepted in self._connections

    def idle(self, accepted: AcceptedConnection) -> None:
        """Note that a connection's request was answered."""
        if accepted in self._connections:
            del self._connections[accepted]
            self._connections[accepted] = None

    def received(self, accepted: AcceptedConnection, size: int) -> bool:
        """Count bytes of a request; return whether there is room for them."""
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
        asyncio.get_running_loop().call_later(TRIM_DELAY_SECONDS, self._trim)

    def _trim(self) -> None:
        """Give back to the system what closed connections have left in malloc's heap.

        glibc keeps freed memory below pieces that are in use, and what a flood took would stay with
        the process. With it the embedded API has 118, 137 and 119 MiB before, in and after a flood
        of 3,500 peers (docs/security.md).
        """
        self._since_trimmed = 0
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc; in a thread, since it may take a while
            self._trimming = asyncio.get_running_loop().run_in_executor(None, trim, 0)

    def _give_up_one(self, reason: str, of: Sequence[AcceptedConnection]) -> bool:
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
