"""Requests on the wire: pooled connections, bounded patience, and our own errors.

`kubernetes` builds requests and sends them through it. Reads, the lease, and all that needs a proxy
take one aiohttp session, other writes the short way of `connection`, which looks at the fence where
it sends. One AdaptiveLimiter is for bindings and evictions, one for conditions of pods that wait
and one for events. Invariant: a request either returns the server's answer or raises one error of
`stellwerk_kube.errors`, within bounded time; 404 and 409 are answers and never sent again, 429,
5xx and broken connections are, with jitter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aiohttp
import orjson
from yarl import URL

from stellwerk.client.connection import ConnectionPool, fence_traces
from stellwerk.client.credentials import USER_AGENT
from stellwerk_kube.errors import ApiError, NotLeader, Throttled, Unavailable, api_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from stellwerk.client.connection import Fence
    from stellwerk.client.credentials import Credentials
    from stellwerk.metrics import Metrics
    from stellwerk.series import Counter, Histogram
    from stellwerk_kube.clock import Clock

JSON: Final = "application/json"
_LATE_SECONDS: Final = 0.01
"""Where conditions and events wait for longer, so would a binding that is sent now."""

_DECREASE: Final = 0.7
_TARGET_FACTOR: Final = 4.0
_TARGET_MIN_SECONDS: Final = 0.1
"""Below this nothing is late: what is measured includes the delays of our own busy event loop."""
_TARGET_MAX_SECONDS: Final = 1.0
_BASELINE_WINDOW_SECONDS: Final = 30.0
_LATENCY_WEIGHT: Final = 0.1
_SHARE: Final = 64


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The patience with a request that may succeed later."""

    attempts: int = 5
    first_delay_seconds: float = 0.1
    longest_delay_seconds: float = 10.0
    """Also the longest Retry-After that is waited for; a longer one is left to the caller."""
    timeout_seconds: float = 30.0
    """Of one attempt, connecting included."""
    patience_seconds: float = 60.0
    """After so long, no further attempt is begun."""
    connect_timeout_seconds: float = 10.0

    def delay_seconds(self, attempt: int) -> float:
        """Return the pause after a failed `attempt` (1 is the first), before jitter."""
        return min(self.longest_delay_seconds, self.first_delay_seconds * 2.0 ** (attempt - 1))


class Lane(Enum):
    """Requests of one lane share a limit of their own."""

    SCHEDULING = "scheduling"
    REPORTS = "reports"
    EVENTS = "events"
    COLD = "cold"
    """Few and various; not limited."""


class ApiRequest(NamedTuple):
    """A request; `act` names it in errors, with its object: "bind default/web to node-7"."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    act: str = ""
    content_type: str = JSON
    accept: str = ""
    """The forms of the answer that are asked for; empty: JSON."""
    lane: Lane = Lane.COLD
    wants_answer: bool = True
    """False where the body of a success holds nothing of use, and is not worth parsing."""
    fenced: bool = True
    """Whether, if it writes, only the holder of the lease may send it; not so for the lease itself,
    for events and for questions that are put as a POST."""


class Transport:
    """Sends requests to one API server: each takes a slot of its lane; some are sent repeatedly."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        metrics: Metrics,
        jitter: Callable[[], float],
        retry: RetryPolicy,
        fence: Fence,
    ) -> None:
        """Open no connection yet; `jitter` returns a number in [0, 1) and spreads retries."""
        self.server = credentials.server
        self._clock = clock
        self._jitter = jitter
        self._retry = retry
        self._session = credentials.new_session(
            timeout=self._timeout(retry.timeout_seconds), traces=fence_traces(fence)
        )
        self._credentials = credentials
        self._pool = ConnectionPool(
            credentials.server,
            ssl_context=credentials.ssl_context,
            tls_server_name=credentials.tls_server_name,
            user_agent=USER_AGENT,
            connect_timeout_seconds=retry.connect_timeout_seconds,
            fence=fence,
        )
        self._fence = fence
        fence.on_closed(self._drop_queued)
        self._measured = _RequestMetrics(metrics, URL(credentials.server).authority)
        scheduling = AdaptiveLimiter(clock, initial=48, minimum=16, maximum=192)
        behind = partial(
            AdaptiveLimiter, clock, minimum=2, yields_to=scheduling, late_seconds=_LATE_SECONDS
        )
        self._limiters = {
            Lane.SCHEDULING: scheduling,
            Lane.REPORTS: behind(initial=8, maximum=32),
            Lane.EVENTS: behind(initial=16, maximum=64),
        }
        for lane, limiter in self._limiters.items():
            metrics.concurrency_limit.labels(lane.value).set_function(limiter.current_limit)
            metrics.requests_in_flight.labels(lane.value).set_function(limiter.requests_in_flight)

    async def close(self) -> None:
        """Close every connection."""
        self._pool.close()
        await self._session.close()

    async def send(self, request: ApiRequest, *, attempts: int | None = None) -> dict[str, Any]:
        """Send until answered or patience ends; return the answer's JSON.

        Raises:
            ApiError: the request was refused, or never answered. Its `earlier` is the failed
                attempt before it, if there was one.
        """
        wire = _Wire.of(request)
        last = attempts or self._retry.attempts
        give_up_at_seconds = self._clock.monotonic() + self._retry.patience_seconds
        attempt = 1
        earlier: ApiError | None = None
        while True:
            try:
                return await self._attempt(wire, self._limiters.get(request.lane))
            except ApiError as error:
                error.earlier = earlier
                delay_seconds = self._delay_seconds(error, attempt)
                if attempt >= last or delay_seconds is None:
                    raise
                if self._clock.monotonic() + delay_seconds > give_up_at_seconds:
                    raise
                # Its frames hold it: one of them is this call.
                earlier = error.with_traceback(None)
            self._measured.retry(
                wire.method, "<error>" if earlier.status is None else str(earlier.status)
            )
            await asyncio.sleep(delay_seconds)
            attempt += 1

    async def stream(self, path: str) -> AsyncGenerator[bytes]:
        """Give the lines of an answer that does not end, as they come; a watch.

        Raises:
            ApiError: it was refused, or broke.
        """
        act = f"watch {path}"
        try:
            async with self._session.get(
                URL(self.server + path, encoded=True), timeout=self._timeout(None)
            ) as response:
                if response.status != HTTPStatus.OK:
                    raise _refusal(act, response.status, await response.read(), None)
                async for line in response.content:
                    yield line
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = type(error).__name__
            raise api_error(act, None, reason, _network_message(error)) from _frameless(error)

    def _timeout(self, total_seconds: float | None) -> aiohttp.ClientTimeout:
        return aiohttp.ClientTimeout(
            total=total_seconds, sock_connect=self._retry.connect_timeout_seconds
        )

    def _delay_seconds(self, error: ApiError, attempt: int) -> float | None:
        """Return the pause before the next attempt; None if there should not be one."""
        if not isinstance(error, Throttled | Unavailable):
            return None
        wanted_seconds = error.retry_after_seconds or 0.0
        if wanted_seconds > self._retry.longest_delay_seconds:
            return None
        delay_seconds = max(self._retry.delay_seconds(attempt), wanted_seconds)
        return delay_seconds * (1.0 + self._jitter())

    async def _attempt(self, wire: _Wire, limiter: AdaptiveLimiter | None) -> dict[str, Any]:
        """Send once: with a slot of the lane, and while the fence is open.

        Few coroutines lie between here and the socket: each is entered again with the answer.
        """
        if limiter is not None and not limiter.take():
            await limiter.acquire()
        fence = None if wire.fenced is None else self._fence
        started_at_seconds = self._clock.monotonic()
        overloaded = begun = answered = False
        try:
            if fence is not None:
                fence.check(wire.act)
                fence.begin()
                begun = True
            answer = await self._exchange(wire, started_at_seconds)
            answered = True
        except ApiError as error:
            overloaded = isinstance(error, Throttled | Unavailable)
            # After a 5xx the store may still apply what it was given.
            refused = error.status is not None and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
            answered = refused or isinstance(error, NotLeader)
            raise
        finally:
            if begun:
                self._fence.end(answered=answered)
            if limiter is not None:
                limiter.release(started_at_seconds, overloaded=overloaded)
        return answer

    def _drop_queued(self) -> None:
        for lane in (Lane.SCHEDULING, Lane.REPORTS):
            self._limiters[lane].drop_waiting(lambda: NotLeader("send what was queued"))

    async def _exchange(self, wire: _Wire, started_at_seconds: float) -> dict[str, Any]:
        """Have the answer, counted and measured, or the error that it is."""
        try:
            status, content, retry_after = await self._answer(wire)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._measured.request(wire.method, "<error>")
            reason = type(error).__name__
            message = _network_message(error)
            raise api_error(wire.act, None, reason, message) from _frameless(error)
        self._measured.request(wire.method, str(status))
        self._measured.duration(wire.method, self._clock.monotonic() - started_at_seconds)
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(wire.act, status, content, retry_after)
        return _parsed(wire.act, status, content) if wire.wants_answer else {}

    def _answer(self, wire: _Wire) -> Awaitable[tuple[int, bytes, str | None]]:
        """Give status, body and Retry-After."""
        if wire.hot and wire.body is not None and not self._credentials.proxied:
            return self._hot_answer(wire, wire.body)
        return self._session_answer(wire)

    async def _session_answer(self, wire: _Wire) -> tuple[int, bytes, str | None]:
        total_seconds = self._retry.timeout_seconds
        if wire.fenced is not None:
            total_seconds = self._fence.within_lease(total_seconds)
        async with self._session.request(
            wire.method,
            URL(self.server + wire.path, encoded=True),
            data=wire.body,
            headers=wire.headers,
            allow_redirects=False,
            timeout=self._timeout(total_seconds),
            trace_request_ctx=wire.fenced,
        ) as response:
            content = await response.read()
            return response.status, content, response.headers.get("Retry-After")

    async def _hot_answer(self, wire: _Wire, body: bytes) -> tuple[int, bytes, str | None]:
        """Take the short way; with newer credentials, if there are, after a refusal."""
        credentials = self._credentials
        authorization = credentials.known
        if self._clock.monotonic() >= credentials.fresh_until_seconds:
            authorization = await credentials.authorization()
        while True:
            answer = await self._pool.exchange(
                wire.method,
                wire.path,
                body=body,
                content_type=wire.content_type,
                authorization=authorization,
                timeout_seconds=self._retry.timeout_seconds,
                fenced=wire.fenced,
            )
            if answer.status == HTTPStatus.UNAUTHORIZED:
                authorization = await credentials.renewed(authorization)
                if authorization is not None:
                    continue
            return answer.status, answer.body, answer.retry_after


class _Wire(NamedTuple):
    """A request encoded once, however often it is sent."""

    method: str
    path: str
    body: bytes | None
    content_type: str
    act: str
    hot: bool
    wants_answer: bool
    fenced: str | None
    """What it is, for the fence; None if it passes it."""
    accept: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request beside those that the session sends with each."""
        headers = {} if self.body is None else {"Content-Type": self.content_type}
        return headers | ({"Accept": self.accept} if self.accept else {})

    @classmethod
    def of(cls, request: ApiRequest) -> _Wire:
        act = request.act or f"{request.method} {request.path}"
        fenced = request.fenced and request.method != "GET" and request.lane is not Lane.EVENTS
        return cls(
            request.method,
            request.path,
            # Manifests that are constants are read-only mappings, which orjson knows not.
            None if request.body is None else orjson.dumps(request.body, default=dict),
            request.content_type,
            act,
            fenced or request.lane is not Lane.COLD,
            request.wants_answer,
            act if fenced else None,
            request.accept,
        )


class _RequestMetrics:
    """The request metrics of one host, their series bound once."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._metrics = metrics
        self._host = host
        self._requests: dict[tuple[str, str], Counter] = {}
        self._durations: dict[str, Histogram] = {}

    def request(self, method: str, code: str) -> None:
        series = self._requests.get((method, code))
        if series is None:
            family = self._metrics.rest_client_requests
            series = self._requests[method, code] = family.labels(code, method, self._host)
        series.inc()

    def retry(self, method: str, code: str) -> None:
        self._metrics.rest_client_request_retries.labels(code, method, self._host).inc()

    def duration(self, method: str, duration_seconds: float) -> None:
        series = self._durations.get(method)
        if series is None:
            family = self._metrics.rest_client_request_duration
            series = self._durations[method] = family.labels(method, self._host)
        series.observe(duration_seconds)


def _parsed(act: str, status: int, content: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise api_error(act, status, "InvalidAnswer", "the answer is not JSON") from error
    return answer if isinstance(answer, dict) else {"items": answer}


def _refusal(act: str, status: int, content: bytes, retry_after: str | None) -> ApiError:
    """Translate an answer that is an error; the API sends a Status, proxies send text."""
    try:
        body = orjson.loads(content)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        text = content[:200].decode(errors="replace").strip()
        body = {"message": " ".join(text.split())}
    details = body.get("details")
    if retry_after is None and isinstance(details, dict):
        retry_after = details.get("retryAfterSeconds")
    return api_error(
        act,
        status,
        str(body.get("reason") or ""),
        str(body.get("message") or _phrase(status)),
        retry_after_seconds=_seconds(retry_after),
    )


def _phrase(status: int) -> str:
    """Return what a status means; proxies have some of their own that no standard knows."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _seconds(retry_after: object) -> float | None:
    """Return a Retry-After in seconds; the API never sends the form with a date."""
    try:
        return float(str(retry_after))
    except ValueError:
        return None


def _frameless(error: BaseException) -> BaseException:
    """Return an error of the network without the frames that it, and what caused it, came through.

    Some of these frames hold the error: such cycles wait for a search, and beside an API server
    that is away there would be megabytes of them.
    """
    cause: BaseException | None = error
    passed = set[int]()
    while cause is not None and id(cause) not in passed:
        passed.add(id(cause))
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return error


def _network_message(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return " ".join(str(error).split())


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
        late_seconds: float = _TARGET_MIN_SECONDS,
    ) -> None:
        """Start with `initial` slots; the limit stays within `minimum` and `maximum`.

        While requests wait at the limiter that this one yields to, it lets one pass for every 64
        of those: what the server can take is theirs, and still no request starves. The best answer
        to either of the two is what answers are compared with.

        Answers are late above four times the best of the last minute; below `late_seconds` none is.

        Raises:
            ValueError: the three numbers are not in order.
        """
        if not 0 < minimum <= initial <= maximum:
            raise ValueError(f"not in order: {minimum} <= {initial} <= {maximum}")
        self._clock = clock
        self._minimum = minimum
        self._maximum = maximum
        self._yields_to = yields_to
        self._yielding: list[AdaptiveLimiter] = []
        if yields_to is not None:
            yields_to.yielded_by(self)
        self.served = 0
        """How many requests have ended."""
        self._passes_at = 0
        """How many the other must have served before this one may pass while the other is busy."""
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
        """The quickest answer of the last half to whole minute; infinite without any."""
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
        """Take a slot if one is free, and no request waits for one; whether it was."""
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
        """Give a slot back, and learn from how its request went.

        Args:
            started_at_seconds: the monotonic time at which the request was sent.
            overloaded: the server refused for load: 429, or no answer at all.
        """
        now_seconds = self._clock.monotonic()
        in_use = 2 * self._in_flight >= self._limit  # a limit that is not reached stays
        self._in_flight -= 1
        self.served += 1
        late = self._latency.add(now_seconds - started_at_seconds, now_seconds)
        if overloaded or late:
            # One decrease per round trip: requests sent before it do not show its effect.
            if started_at_seconds > self._decreased_at:
                self._decreased_at = now_seconds
                self._limit = max(self._minimum, self._limit * _DECREASE)
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

    def _take(self) -> None:
        self._in_flight += 1
        if self._yields_to is not None:
            self._passes_at = self._yields_to.served + _SHARE

    def wake(self) -> None:
        """Give slots to as many waiting requests as the limit allows."""
        while self._waiters and self._in_flight < self.limit:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._take()
                waiter.set_result(None)


class _Latency:
    """Recent latency, compared with the best of the last half to whole minute."""

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
        self._window_end = now_seconds + _BASELINE_WINDOW_SECONDS

    def best(self, now_seconds: float) -> float:
        """The least latency in seconds; infinite where there was no sample for a minute."""
        if now_seconds >= self._window_end:
            was_silent = now_seconds >= self._window_end + _BASELINE_WINDOW_SECONDS
            self._best_before = float("inf") if was_silent else self._best
            self._best = float("inf")
            self._window_end = now_seconds + _BASELINE_WINDOW_SECONDS
        return min(self._best, self._best_before)

    def add(self, latency_seconds: float, now_seconds: float) -> bool:
        """Take one sample; True if answers have become late."""
        best_seconds = min(self.best(now_seconds), latency_seconds)
        self._best = min(self._best, latency_seconds)
        self._recent += _LATENCY_WEIGHT * (latency_seconds - self._recent)
        if self._other_best_seconds is not None:
            best_seconds = min(best_seconds, self._other_best_seconds(now_seconds))
        target_seconds = max(self._floor_seconds, _TARGET_FACTOR * best_seconds)
        return self._recent > min(_TARGET_MAX_SECONDS, target_seconds)
