"""The limit of concurrent requests, adapted to the speed of the API server.

`transport` has a limiter for each class of requests, with that class's first, least and largest
limit (`Transport.__init__`). It is also `transport` that takes a slot before each attempt, pauses
and retries; a limiter gives slots, and lowers its limit at signs of load, such as a 429.
`scheduler.binding_tasks` separately limits the bindings in progress, and each of them waits here
for a slot.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_kube.clock import Clock

DECREASE_FACTOR: Final = 0.7
"""Factor of the limit when the server refuses for load or answers late, once a round trip."""
LATE_FACTOR: Final = 4.0
"""Multiple of the best latency above which the average is late."""
MIN_LATE_SECONDS: Final = 0.1
"""Latency below which nothing is late, unless a limiter says otherwise: what is measured includes
the delays of our own busy event loop."""
MAX_LATE_SECONDS: Final = 1.0
"""Latency above which the average is late, however slow the best answer was."""
BEST_WINDOW_SECONDS: Final = 30.0
"""Length of one of the two windows for which the best latency is kept."""
SAMPLE_WEIGHT: Final = 0.1
"""Weight of a new sample in the moving average of the latency."""
REQUESTS_PER_PASS: Final = 64
"""Requests served by the limiter that goes first for one that may pass, while requests wait at
both."""


class AdaptiveLimiter:
    """An AIMD limit on requests of one class in flight, adapted to what the API server can take.

    Additive increase while answers are quick and the limit is what holds requests back,
    multiplicative decrease when the server throttles or answers late. Conditions and events yield
    to bindings, and take answers for late much sooner, for what they send is ahead of the next
    binding in the API server's line. Invariant: never more than `limit` requests in flight, and
    waiters are served in order.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        initial: int = 32,
        minimum: int = 4,
        maximum: int = 256,
        yields_to: AdaptiveLimiter | None = None,
        alone: int = 0,
        late_seconds: float = MIN_LATE_SECONDS,
    ) -> None:
        """Start with `initial` slots; the limit stays within `minimum` and `maximum`.

        Args:
            clock: whose monotonic time the latencies are of.
            initial: slots at first.
            minimum: the lowest limit.
            maximum: the highest limit.
            yields_to: a limiter that goes first. While requests wait there, this one lets a request
                pass for every 64 of those, so that none starves. The best latency of both is what
                answers are compared with.
            alone: a limit up to which late answers do not hold requests back while none of
                `yields_to` is in flight: they delay no binding then, and an API server spends less
                CPU on each request if it gets several at once.
            late_seconds: below this latency no answer is late; above it, those are that take four
                times the best of the last minute.

        Raises:
            ValueError: the three numbers are not in order.
        """
        if not 0 < minimum <= initial <= maximum:
            raise ValueError(f"not in order: {minimum} <= {initial} <= {maximum}")
        self._clock = clock
        self._minimum = minimum
        self._maximum = maximum
        self._yields_to = yields_to
        self._alone = alone
        self._yielding: list[AdaptiveLimiter] = []
        if yields_to is not None:
            yields_to.yielded_by(self)
        self.served = 0
        """The number of requests that have ended."""
        self._passes_at = 0
        """The other limiter's `served` at which this one may pass, if requests wait there."""
        self._limit = float(initial)
        self._in_flight = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        best = None if yields_to is None else yields_to.best_seconds
        self._latency = _Latency(clock.monotonic(), late_seconds, best)
        self._decreased_at = float("-inf")

    @property
    def limit(self) -> int:
        """The number of requests that may be in flight now."""
        other = self._yields_to
        if other is not None and other.is_waited_for:
            return 1 if other.served >= self._passes_at else 0
        return int(self._limit)

    @property
    def is_waited_for(self) -> bool:
        """Whether requests wait for a slot."""
        return bool(self._waiters)

    def best_seconds(self, now_seconds: float) -> float:
        """Return the least latency of the last half to whole minute; infinite without any."""
        return self._latency.best(now_seconds)

    def yielded_by(self, limiter: AdaptiveLimiter) -> None:
        """Wake another limiter, one that yields to this one, whenever a slot is given back."""
        self._yielding.append(limiter)

    def current_limit(self) -> float:
        """Return the limit, for the gauge that shows it."""
        return self._limit

    def requests_in_flight(self) -> float:
        """Return how many requests hold a slot, for the gauge that shows it."""
        return self._in_flight

    @property
    def in_flight(self) -> int:
        """The number of requests that hold a slot."""
        return self._in_flight

    def take(self) -> bool:
        """Take a slot if one is free and no request waits; return whether it was.

        `acquire` does the same and more. Here for speed: most requests find a slot free, and this
        spares them a coroutine.
        """
        free = not self._waiters and self._in_flight < self.limit
        if free:
            self._take()
        return free

    async def acquire(self) -> None:
        """Take a slot, waiting behind requests that came earlier."""
        if self.take():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled() or not waiter.done():
                # It may have been passed over already, by a slot that found it cancelled.
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
            elif waiter.exception() is None:  # the slot was ours already: pass it on
                self._in_flight -= 1
                self.wake()
            raise

    def release(self, started_at_seconds: float, *, overloaded: bool) -> None:
        """Give a slot back, and adapt the limit to how its request went.

        Args:
            started_at_seconds: the monotonic time at which the request was sent.
            overloaded: the server refused for load: 429, or no answer at all.
        """
        now_seconds = self._clock.monotonic()
        # A limit of which less than half is in use stays: quick answers say nothing about it.
        in_use = 2 * self._in_flight >= self._limit
        self._in_flight -= 1
        self.served += 1
        late = self._latency.add(now_seconds - started_at_seconds, now_seconds)
        if overloaded or (late and not self._delays_nobody):
            # One decrease per round trip: requests sent before it do not show its effect.
            if started_at_seconds > self._decreased_at:
                self._decreased_at = now_seconds
                self._limit = max(self._minimum, self._limit * DECREASE_FACTOR)
        elif in_use:
            self._limit = min(self._maximum, self._limit + 1 / self._limit)
        self.wake()
        for limiter in self._yielding:
            limiter.wake()

    def drop_waiting(self, error: Callable[[], Exception]) -> None:
        """End every wait with an error; what is in flight goes on."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(error())

    @property
    def _delays_nobody(self) -> bool:
        other = self._yields_to
        return other is not None and not other.in_flight and self._limit < self._alone

    def _take(self) -> None:
        self._in_flight += 1
        if self._yields_to is not None:
            self._passes_at = self._yields_to.served + REQUESTS_PER_PASS

    def wake(self) -> None:
        """Give slots to as many waiting requests as the limit allows."""
        while self._waiters and self._in_flight < self.limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._take()
                waiter.set_result(None)


class _Latency:
    """A moving average of the latency, compared with the best of the last half to whole minute.

    The best stands for the latency of a server without load. It is kept in two windows of half a
    minute, the current one and the one before, so that a server that has become slower for good is
    measured by its new best within a minute.
    """

    def __init__(
        self,
        now_seconds: float,
        floor_seconds: float,
        other_best_seconds: Callable[[float], float] | None,
    ) -> None:
        self._floor_seconds = floor_seconds
        self._other_best_seconds = other_best_seconds
        self._recent = 0.0
        self._best = self._best_before = float("inf")
        self._window_end = now_seconds + BEST_WINDOW_SECONDS

    def best(self, now_seconds: float) -> float:
        """Return the least latency in seconds; infinite if there was no sample for a minute."""
        if now_seconds >= self._window_end:
            was_silent = now_seconds >= self._window_end + BEST_WINDOW_SECONDS
            self._best_before = float("inf") if was_silent else self._best
            self._best = float("inf")
            self._window_end = now_seconds + BEST_WINDOW_SECONDS
        return min(self._best, self._best_before)

    def add(self, latency_seconds: float, now_seconds: float) -> bool:
        """Take one sample; return whether answers have become late."""
        best_seconds = min(self.best(now_seconds), latency_seconds)
        self._best = min(self._best, latency_seconds)
        self._recent += SAMPLE_WEIGHT * (latency_seconds - self._recent)
        if self._other_best_seconds is not None:
            best_seconds = min(best_seconds, self._other_best_seconds(now_seconds))
        target_seconds = max(self._floor_seconds, LATE_FACTOR * best_seconds)
        return self._recent > min(MAX_LATE_SECONDS, target_seconds)
