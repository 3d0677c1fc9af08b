"""Carries out the faults of a plan before a handler of requests.

The embedded cluster and the tests' proxy put it before what answers. Invariant: where no fault
strikes, the handler's answer leaves as it is.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import zlib
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

import orjson
from aiohttp import web

from stellwerk_cluster.faults.plan import parse_request
from stellwerk_cluster.faults.table import (
    Delay,
    Drip,
    EndlessPages,
    FalseSuccess,
    GzipBomb,
    HalfAnswer,
    Hang,
    HttpDate,
    InjectedAnswer,
    LostAnswer,
    Reset,
    StreamFault,
)
from stellwerk_cluster.faults.watch_lines import LineSchedule, status_body
from stellwerk_cluster.faults.watch_writer import DisturbedWriter, reset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.faults.plan import FaultPlan, Strike
    from stellwerk_cluster.faults.table import Outage
    from stellwerk_kube.clock import Clock

_log = logging.getLogger(__name__)
_JSON: Final = "application/json"
_POLL_SECONDS: Final = 0.02
"""Pause between two looks at a condition for which an outage waits."""
_BOMB_BLOCK_BYTES: Final = 1 << 22
"""Bytes that are packed at a time for a `GzipBomb`."""
_GZIP_BITS: Final = 31
"""zlib's number for the form of gzip, with the largest window."""

_FIRST_AGAIN: Final = "first-again-"
"""The beginning of a `continue` token that leads to the first page again."""

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
RequestFactory: TypeAlias = Callable[..., web.BaseRequest]


class VersionHistory(Protocol):
    """The past versions that a server knows, and can lose in an outage."""

    revision: int
    """The present version."""

    def forget(self) -> None:
        """Forget all changes; objects and versions stay."""
        ...

    def rewind(self, revision: int) -> None:
        """Go back to a version."""
        ...


class FaultInjector:
    """A handler with faults before it; `handle` and `request` are given to aiohttp."""

    def __init__(
        self,
        handler: Handler,
        plan: FaultPlan,
        clock: Clock,
        history: VersionHistory | None = None,
    ) -> None:
        """Strike the requests of `handler`.

        Raises:
            ValueError: an outage is to lose history, but there is none to lose.
        """
        lossy = [title for title, fault in plan.outages if fault.history != "kept"]
        if lossy and history is None:
            raise ValueError(f"entry {lossy[0]}: only an embedded API can lose its history")
        self._handler = handler
        self._plan = plan
        self._clock = clock
        self._history = history
        self._away = 0
        self._rounds = itertools.count(1)
        """Numbers of the pages after which `EndlessPages` begins anew."""
        self._busy: dict[int, asyncio.Transport] = {}

    def request(self, factory: RequestFactory) -> RequestFactory:
        """The factory of requests whose answers can be disturbed."""

        def make(*args: Any) -> web.BaseRequest:
            message, payload, protocol, writer, task = args
            return factory(message, payload, protocol, DisturbedWriter(writer, self._clock), task)

        return make

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request, or do what the faults say in place of it."""
        if self._away:
            return _reset(request)
        agent = request.headers.get("User-Agent", "")
        asked = parse_request(request.method, request.path, request.query, agent)
        strikes = self._plan.strikes(asked)
        with self._in_progress(request):
            if not strikes:
                return await self._handler(request)
            _log.debug("%s: struck by %s", asked.identity, [strike.title for strike in strikes])
            return await self._struck(request, strikes)

    async def run_outages(self) -> None:
        """Take the server away when that is due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for title, outage in self._plan.outages:
                tasks.create_task(self._take_away(title, outage), name=f"outage {title}")

    @contextmanager
    def _in_progress(self, request: web.BaseRequest) -> Iterator[None]:
        transport = request.transport
        if transport is not None:
            self._busy[id(request)] = transport
        try:
            yield
        finally:
            self._busy.pop(id(request), None)

    async def _take_away(self, title: str, outage: Outage) -> None:
        await self._until(lambda: self._plan.is_due(outage))
        self._plan.struck[title] += 1
        self._away += 1
        revision = 0 if self._history is None else self._history.revision
        for transport in list(self._busy.values()):
            reset(transport)
        await self._until(lambda: not self._plan.is_due(outage))
        if self._history is not None:
            if outage.history == "forgotten":
                self._history.forget()
            elif outage.history == "older":
                self._history.rewind(revision - outage.revisions)
        self._away -= 1

    @staticmethod
    async def _until(condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 the plan may be armed and disarmed meanwhile
            await asyncio.sleep(_POLL_SECONDS)

    async def _struck(self, request: web.BaseRequest, strikes: list[Strike]) -> web.StreamResponse:
        after_seconds = 0.0
        for strike in strikes:
            if isinstance(strike.fault, Delay):
                seconds = strike.draws.within(strike.fault.seconds)
                if strike.fault.moment == "after":
                    after_seconds += seconds
                else:
                    await asyncio.sleep(seconds)
        answer = await self._in_its_place(request, strikes)
        if answer is not None:
            return answer
        self._disturb_bytes(request, strikes)
        of_stream = [strike for strike in strikes if isinstance(strike.fault, StreamFault)]
        if of_stream:
            return await self._disturbed(request, of_stream)
        response = await self._handler(request)
        await asyncio.sleep(after_seconds)
        return response

    async def _in_its_place(
        self, request: web.BaseRequest, strikes: list[Strike]
    ) -> web.StreamResponse | None:
        """The response of the first fault that keeps the API's answer from the client."""
        for strike in strikes:
            match strike.fault:
                case Reset() | Hang() | LostAnswer() as fault:
                    if isinstance(fault, Hang):
                        await asyncio.sleep(strike.draws.within(fault.seconds))
                    elif isinstance(fault, LostAnswer):
                        await self._handler(request)
                    return _reset(request)
                case InjectedAnswer() as fault:
                    return self._made_up(fault, strike.number)
                case FalseSuccess():
                    return await _false_success(request)
                case GzipBomb() | EndlessPages() as fault:
                    return await self._never_ending(request, fault)
                case _:
                    pass
        return None

    @staticmethod
    def _disturb_bytes(request: web.BaseRequest, strikes: list[Strike]) -> None:
        """Have the writer send what the handler answers in pieces, or half of it."""
        of_bytes = [strike for strike in strikes if isinstance(strike.fault, Drip | HalfAnswer)]
        if not of_bytes:
            return
        writer = _disturbed_writer(request)
        for strike in of_bytes:
            match strike.fault:
                case Drip() as fault:
                    writer.drip(fault)
                case HalfAnswer() as fault:
                    writer.halve(strike.draws.within(fault.seconds))
                case _:
                    pass

    async def _never_ending(
        self, request: web.BaseRequest, fault: GzipBomb | EndlessPages
    ) -> web.StreamResponse:
        """Answer with a bomb, or with a page after which more come: after the last, the first."""
        if isinstance(fault, GzipBomb):
            return await _gzip_bomb(request, fault.bytes)
        token = request.query.get("continue", "")
        if token.startswith(_FIRST_AGAIN):
            request = request.clone(rel_url=request.rel_url.without_query_params("continue"))
        response = await self._handler(request)
        if not isinstance(response, web.Response) or not isinstance(response.body, bytes):
            return response
        try:
            page = orjson.loads(response.body)
            page["metadata"].setdefault("continue", f"{_FIRST_AGAIN}{next(self._rounds)}")
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
            return response  # a refusal, or a list in another form
        return _json(page, response.status, {})

    def _made_up(self, fault: InjectedAnswer, number: int) -> web.Response:
        form = fault.retry_after[number % len(fault.retry_after)]
        headers: dict[str, str] = {}
        if isinstance(form, HttpDate):
            headers["Retry-After"] = form.header(self._clock.now())
        elif form is not None:
            headers["Retry-After"] = form
        if isinstance(fault.body, str):
            return web.Response(status=fault.code, text=fault.body, headers=headers)
        body = fault.body
        if body is None:
            body = status_body(fault.code, fault.reason, fault.message)
        return _json(body, fault.code, headers)

    async def _disturbed(
        self, request: web.BaseRequest, strikes: list[Strike]
    ) -> web.StreamResponse:
        """A watch whose lines leave as a schedule says."""
        writer = _disturbed_writer(request)
        writer.disturb(LineSchedule(strikes, self._plan, self._clock.monotonic()))
        answering = asyncio.ensure_future(self._handler(request))
        pumping = asyncio.ensure_future(writer.pump())
        try:
            await asyncio.wait({answering, pumping}, return_when=asyncio.FIRST_COMPLETED)
            if writer.closing:
                await pumping
        except ConnectionError:
            pass  # the client has gone before
        finally:
            pumping.cancel()
            if not answering.done():
                answering.cancel()
            await asyncio.wait({answering, pumping})
        if answering.cancelled():
            if request.transport is not None:
                request.transport.close()  # what was written leaves first
            return _nowhere()
        response = answering.result()
        if not response.prepared:
            writer.disturb(None)  # it was no stream: a refusal, as a whole
        return response


def _disturbed_writer(request: web.BaseRequest) -> DisturbedWriter:
    writer = request.writer
    if not isinstance(writer, DisturbedWriter):
        raise TypeError("the server was not given the factory of requests")
    return writer


async def _gzip_bomb(request: web.BaseRequest, size: int) -> web.StreamResponse:
    """Send so many packed spaces, of which no more than a block is held at a time."""
    response = web.StreamResponse(headers={"Content-Type": _JSON, "Content-Encoding": "gzip"})
    response.enable_chunked_encoding()
    await response.prepare(request)
    packer = zlib.compressobj(wbits=_GZIP_BITS)
    while size > 0:
        packed = packer.compress(b" " * min(size, _BOMB_BLOCK_BYTES))
        size -= _BOMB_BLOCK_BYTES
        if packed:
            await response.write(packed)
        await asyncio.sleep(0)
    await response.write(packer.flush())
    await response.write_eof()
    return response


async def _false_success(request: web.BaseRequest) -> web.Response:
    """As if the write had been done: the object of the request, or a Status."""
    content = await request.read()
    status = 201 if request.method == "POST" else 200
    is_object = request.method in {"POST", "PUT"} and not request.path.endswith("/binding")
    try:
        body = orjson.loads(content) if is_object else None
    except orjson.JSONDecodeError:
        body = None
    return _json(body or status_body(status, None, ""), status, {})


def _json(body: object, status: int, headers: dict[str, str]) -> web.Response:
    return web.Response(
        status=status, body=orjson.dumps(body), headers={"Content-Type": _JSON, **headers}
    )


def _reset(request: web.BaseRequest) -> web.Response:
    """Reset the connection."""
    reset(request.transport)
    return _nowhere()


def _nowhere() -> web.Response:
    """The response that aiohttp is given for a connection that has ended."""
    return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR)
