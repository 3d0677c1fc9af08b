"""Requests on the wire: pooled connections, bounded patience, and our own errors.

`kubernetes` builds requests and sends them through it. Reads, the lease, and all that needs a proxy
take one aiohttp session. Other writes take the pool of `connection`, which checks the fence where
it sends. Bindings and evictions, conditions of waiting pods, and events have an AdaptiveLimiter
each. Invariant: a request either returns the server's answer or raises one error of
`stellwerk_kube.errors`, within bounded time; 404 and 409 are answers and never sent again, 429,
5xx and broken connections are, with jitter. After the last attempt (`RetryPolicy`) the error goes
to the caller; from a binding it is an error of the attempt, and the pod waits in podErrorBackoffQ.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aiohttp
import orjson
from yarl import URL

from stellwerk.client.adaptive_limiter import AdaptiveLimiter
from stellwerk.client.connection import ConnectionPool, fence_traces
from stellwerk.client.credentials import USER_AGENT, TooLargeError
from stellwerk_kube.errors import (
    AnswerTooLarge,
    ApiError,
    NotLeader,
    Throttled,
    Unavailable,
    api_error,
)
from stellwerk_kube.protobuf import PROTOBUF, read_status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from stellwerk.client.allowed_writes import AllowedWrites
    from stellwerk.client.connection import Fence
    from stellwerk.client.credentials import Credentials
    from stellwerk.metrics import Metrics
    from stellwerk.series import Counter, Histogram
    from stellwerk_kube.clock import Clock

JSON: Final = "application/json"
_PROTOBUF: Final = f"{PROTOBUF}, {JSON}"
"""The Accept header of a request in protobuf."""
_REPORTS_LATE_SECONDS: Final = 0.01
"""Latency above which conditions and events are late. A binding that is sent then would wait as
long in the API server, so they give way earlier than MIN_LATE_SECONDS."""

MAX_STREAM_LINE_BYTES: Final = 20 << 20
"""Bytes of a line of a stream. An API server takes objects of 3 MiB, and writes one byte (`<`) in
six: 18 MiB. A longer line is no event of one, and is not held."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The patience with a request that may succeed later."""

    attempts: int = 5
    first_delay_seconds: float = 0.1
    longest_delay_seconds: float = 10.0
    """Longest pause between two attempts. A longer Retry-After is left to the caller."""
    timeout_seconds: float = 30.0
    """Longest time of one attempt, connecting included."""
    patience_seconds: float = 60.0
    """Time after which no further attempt is begun."""
    connect_timeout_seconds: float = 10.0

    def delay_seconds(self, attempt: int) -> float:
        """Return the pause after a failed `attempt` (1 is the first), before jitter."""
        return min(self.longest_delay_seconds, self.first_delay_seconds * 2.0 ** (attempt - 1))


class RequestClass(Enum):
    """Requests of one class share an AdaptiveLimiter; its value is the label `class` of metrics."""

    SCHEDULING = "scheduling"
    REPORTS = "reports"
    EVENTS = "events"
    OTHER = "other"
    """Few and various; not limited."""


class ApiRequest(NamedTuple):
    """A request; `act` names it in errors, with its object: "bind default/web to node-7"."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    act: str = ""
    content_type: str = JSON
    accept: str = ""
    """The Accept header; empty: JSON."""
    protobuf: Callable[[Mapping[str, Any]], bytes] | None = None
    """The encoder of the body as protobuf, for a request that wants no answer. A server that does
    not take protobuf is sent JSON."""
    class_: RequestClass = RequestClass.OTHER
    wants_answer: bool = True
    """False if the body of a success holds nothing of use: parsing it is spared."""
    fenced: bool = True
    """Whether, if it writes, only the holder of the lease may send it; not so for the lease itself,
    for events and for questions that are put as a POST."""


class Transport:
    """Sends requests to one API server: each takes a slot of its class, and some are retried."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        clock: Clock,
        metrics: Metrics,
        jitter: Callable[[], float],
        retry: RetryPolicy,
        fence: Fence,
        allowed_writes: AllowedWrites | None = None,
    ) -> None:
        """Open no connection yet.

        `jitter` returns a number in [0, 1) and spreads retries. `allowed_writes` are those of a
        process that only observes; None: all.
        """
        self.allowed_writes = allowed_writes
        self.server = credentials.server
        self._clock = clock
        self._jitter = jitter
        self._retry = retry
        self._session = credentials.new_session(
            timeout=self._timeout(retry.timeout_seconds), traces=fence_traces(fence)
        )
        self._credentials = credentials
        self._takes_protobuf = True
        """Whether the server has not refused a body in protobuf yet."""
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
        scheduling = AdaptiveLimiter(clock, initial=32, minimum=24, maximum=192)
        behind = partial(
            AdaptiveLimiter,
            clock,
            minimum=2,
            yields_to=scheduling,
            late_seconds=_REPORTS_LATE_SECONDS,
        )
        self._limiters = {
            RequestClass.SCHEDULING: scheduling,
            RequestClass.REPORTS: behind(initial=8, alone=8, maximum=32),
            RequestClass.EVENTS: behind(initial=16, alone=24, maximum=64),
        }
        for each, limiter in self._limiters.items():
            metrics.concurrency_limit.labels(each.value).set_function(limiter.current_limit)
            metrics.requests_in_flight.labels(each.value).set_function(limiter.requests_in_flight)

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
        if self.allowed_writes is not None:
            act = request.act or f"{request.method} {request.path}"
            self.allowed_writes.check(request.method, request.path, request.body, act)
        wire = _Wire.of(request, protobuf=self._takes_protobuf)
        last = attempts or self._retry.attempts
        give_up_at_seconds = self._clock.monotonic() + self._retry.patience_seconds
        attempt = 1
        earlier: ApiError | None = None
        while True:
            try:
                return await self._attempt(wire, self._limiters.get(request.class_))
            except ApiError as error:
                if error.status == HTTPStatus.UNSUPPORTED_MEDIA_TYPE and wire.accept == _PROTOBUF:
                    # The server has not read the body: the next attempt is the first one again.
                    self._takes_protobuf = False
                    wire = _Wire.of(request, protobuf=False)
                    continue
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
        """Yield the lines of a watch, as they come.

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
                async with aclosing(lines_of(response.content)) as lines:
                    async for line in lines:
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
        """Send once: with a slot of the class, and while the fence is open.

        Few coroutines lie between here and the socket, because each is entered again with the
        answer.
        """
        if limiter is not None and not limiter.take():
            await limiter.acquire()
        fence = None if wire.fenced_act is None else self._fence
        started_at_seconds = self._clock.monotonic()
        outcome = _Outcome.NOT_SENT
        try:
            if fence is not None:
                fence.check(wire.act)
                fence.begin()
            outcome = _Outcome.UNKNOWN  # until it is answered: a cancellation changes nothing
            answer = await self._exchange(wire, started_at_seconds)
            outcome = _Outcome.SETTLED
        except ApiError as error:
            if outcome is not _Outcome.NOT_SENT:
                outcome = _Outcome.of_error(error)
            raise
        finally:
            if fence is not None and outcome is not _Outcome.NOT_SENT:
                fence.end(answered=outcome is _Outcome.SETTLED or outcome is _Outcome.THROTTLED)
            if limiter is not None:
                overloaded = outcome is _Outcome.THROTTLED or outcome is _Outcome.UNAVAILABLE
                limiter.release(started_at_seconds, overloaded=overloaded)
        return answer

    def _drop_queued(self) -> None:
        for each in (RequestClass.SCHEDULING, RequestClass.REPORTS):
            self._limiters[each].drop_waiting(lambda: NotLeader("send what was queued"))

    async def _exchange(self, wire: _Wire, started_at_seconds: float) -> dict[str, Any]:
        """Return the answer, counted and measured.

        Raises:
            ApiError: the answer is a refusal, or there was none.
        """
        try:
            if wire.pooled and wire.body is not None and not self._credentials.needs_session:
                status, content, retry_after = await self._pooled_answer(wire, wire.body)
            else:
                status, content, retry_after = await self._session_answer(wire)
        except TooLargeError as error:
            self._measured.failed(wire.method)
            raise AnswerTooLarge(wire.act, HTTPStatus.OK, "AnswerTooLarge", str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._measured.failed(wire.method)
            reason = type(error).__name__
            message = _network_message(error)
            raise api_error(wire.act, None, reason, message) from _frameless(error)
        seconds = self._clock.monotonic() - started_at_seconds
        self._measured.answered(wire.method, str(status), seconds)
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise _refusal(wire.act, status, content, retry_after)
        return _parsed(wire.act, status, content) if wire.wants_answer else {}

    async def _session_answer(self, wire: _Wire) -> tuple[int, bytes, str | None]:
        """Send through aiohttp's session; returns status, body and Retry-After."""
        total_seconds = self._retry.timeout_seconds
        if wire.fenced_act is not None:
            total_seconds = self._fence.within_lease(total_seconds)
        async with self._session.request(
            wire.method,
            URL(self.server + wire.path, encoded=True),
            data=wire.body,
            headers=wire.headers,
            allow_redirects=False,
            timeout=self._timeout(total_seconds),
            trace_request_ctx=wire.fenced_act,
        ) as response:
            content = await response.read()
            return response.status, content, response.headers.get("Retry-After")

    async def _pooled_answer(self, wire: _Wire, body: bytes) -> tuple[int, bytes, str | None]:
        """Do the same through the pool; once more with newer credentials, if any, after a 401."""
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
                accept=wire.accept or JSON,
                authorization=authorization,
                timeout_seconds=self._retry.timeout_seconds,
                fenced_act=wire.fenced_act,
            )
            if answer.status == HTTPStatus.UNAUTHORIZED:
                authorization = await credentials.renewed(authorization)
                if authorization is not None:
                    continue
            return answer.status, answer.body, answer.retry_after


class _Outcome(Enum):
    """The end of one attempt, by which fence and limiter judge effects to come and load."""

    NOT_SENT = "not sent"
    """The fence was closed."""
    SETTLED = "settled"
    """Answered, with a success or a refusal, or dropped before a byte was sent."""
    THROTTLED = "throttled"
    """Answered with 429: settled, and the server is overloaded."""
    UNAVAILABLE = "unavailable"
    """5xx or no answer: the server is overloaded or away, and may still apply the request."""
    UNKNOWN = "unknown"
    """Cancelled, or failed in another way: the server may still apply the request."""

    @classmethod
    def of_error(cls, error: ApiError) -> _Outcome:
        """Return the outcome of an attempt that was sent and failed.

        After a 5xx the store may still apply what it was given.
        """
        refused = error.status is not None and error.status < HTTPStatus.INTERNAL_SERVER_ERROR
        if isinstance(error, Throttled | Unavailable):
            return cls.THROTTLED if refused else cls.UNAVAILABLE
        return cls.SETTLED if refused or isinstance(error, NotLeader) else cls.UNKNOWN


class _Wire(NamedTuple):
    """A request encoded once, however often it is sent."""

    method: str
    path: str
    body: bytes | None
    content_type: str
    act: str
    pooled: bool
    """Whether the pool of `connection` sends it, at 45 µs of CPU in place of the session's 160."""
    wants_answer: bool
    fenced_act: str | None
    """The act, for the fence's error; None if the request need not pass the fence."""
    accept: str = ""

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request beside those that the session sends with each."""
        headers = {} if self.body is None else {"Content-Type": self.content_type}
        return headers | ({"Accept": self.accept} if self.accept else {})

    @classmethod
    def of(cls, request: ApiRequest, *, protobuf: bool) -> _Wire:
        """Encode a request; in protobuf if the server takes it and the request has an encoder."""
        body, content_type, accept = request.body, request.content_type, request.accept
        if body is None:
            encoded = None
        elif protobuf and request.protobuf is not None:
            encoded, content_type, accept = request.protobuf(body), PROTOBUF, _PROTOBUF
        else:
            # Manifests that are constants are read-only mappings, which orjson knows not.
            encoded = orjson.dumps(body, default=dict)
        act = request.act or f"{request.method} {request.path}"
        fenced = (
            request.fenced and request.method != "GET" and request.class_ is not RequestClass.EVENTS
        )
        return cls(
            request.method,
            request.path,
            encoded,
            content_type,
            act,
            fenced or request.class_ is not RequestClass.OTHER,
            request.wants_answer,
            act if fenced else None,
            accept,
        )


class _RequestMetrics:
    """The request metrics of one host, their series bound once."""

    def __init__(self, metrics: Metrics, host: str) -> None:
        self._metrics = metrics
        self._host = host
        self._requests: dict[tuple[str, str], Counter] = {}
        self._durations: dict[str, Histogram] = {}

    def answered(self, method: str, code: str, duration_seconds: float) -> None:
        requests = self._requests.get((method, code))
        if requests is None:
            family = self._metrics.rest_client_requests
            requests = self._requests[method, code] = family.labels(code, method, self._host)
        durations = self._durations.get(method)
        if durations is None:
            of_durations = self._metrics.rest_client_request_duration
            durations = self._durations[method] = of_durations.labels(method, self._host)
        requests.inc()
        durations.observe(duration_seconds)

    def failed(self, method: str) -> None:
        self._metrics.rest_client_requests.labels("<error>", method, self._host).inc()

    def retry(self, method: str, code: str) -> None:
        self._metrics.rest_client_request_retries.labels(code, method, self._host).inc()


def _parsed(act: str, status: int, content: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise api_error(act, status, "InvalidAnswer", "the answer is not JSON") from error
    return answer if isinstance(answer, dict) else {"items": answer}


def _refusal(act: str, status: int, content: bytes, retry_after: str | None) -> ApiError:
    """Translate an answer that is an error; the API sends a Status, proxies send text."""
    try:
        body = read_status(content) or orjson.loads(content)
    except ValueError:  # neither protobuf nor JSON
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
    """Return the phrase of a status; proxies have statuses of their own that no standard knows."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "no reason given"


def _seconds(retry_after: object) -> float | None:
    """Return a Retry-After in seconds; None for none. The API never sends the form with a date."""
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


async def lines_of(content: aiohttp.StreamReader) -> AsyncGenerator[bytes]:
    """Yield the lines of a stream, those that are empty left out.

    kopf's own function joins the beginning of a line to each piece that comes, and looks through
    all of it again. A long line in small pieces costs it the square of its length. aiohttp's own
    lines end with an error at half a MiB, which an object may have.

    Raises:
        AnswerTooLarge: a line is longer than `MAX_STREAM_LINE_BYTES`.
    """
    begun = bytearray()
    async for piece in content.iter_any():
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            line = piece[start:end]
            if begun:
                line = bytes(begun) + line
                begun.clear()
            start = end + 1
            if line:
                yield line
        begun += piece[start:]
        if len(begun) > MAX_STREAM_LINE_BYTES:
            most = f"a line has more than {MAX_STREAM_LINE_BYTES >> 20} MiB"
            raise AnswerTooLarge("read a watch", HTTPStatus.OK, "LineTooLong", most)
    if begun:
        yield bytes(begun)
