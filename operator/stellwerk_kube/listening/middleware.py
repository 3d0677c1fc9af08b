"""The limits as the handlers of a port see them: a gate, the number of requests, the size of JSON.

`serving.http` and the page wrap their handlers in `within_limits`; the embedded API, which has its
own authentication, calls `identify`. Invariant: a request is answered within its time and counted
while it is, and the peer has read as much of the answer as the limits want.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import orjson
from aiohttp import web

from stellwerk_kube.errors import in_words
from stellwerk_kube.listening.connection import LimitedConnection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aiohttp.typedefs import Middleware

    from stellwerk_kube.listening.accepted import AcceptedConnection
    from stellwerk_kube.listening.limits import Limits
    from stellwerk_kube.listening.port_use import PortUse

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
    Gate = Callable[[web.Request], Awaitable[str]]

ANSWER_PIECE_BYTES: Final = 64 << 10
"""Bytes of an answer that are written before the peer has to read."""
_JSON_TOKEN: Final = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL
)
"""A token of JSON. Its possessive quantifiers try no place twice, so that the time is linear in the
body, whatever it holds."""
USER: Final[web.RequestKey[str]] = web.RequestKey("user", str)
"""The user who asks, as the gate of `within_limits` said; empty: any peer."""


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
    if isinstance(request.protocol, LimitedConnection):
        request.protocol.use.check_room()


def identify(request: web.BaseRequest) -> None:
    """Note that the user of a request is known: its connection is not given up for others."""
    if isinstance(request.protocol, LimitedConnection):
        request.protocol.use.identified(request.protocol.accepted)


def json_within(limits: Limits, body: bytes) -> Any:  # noqa: ANN401 JSON
    """Return the value of a JSON body.

    Depth and tokens are counted first, because a parser makes all values before it can be asked: a
    body of 766 KiB held the loop (docs/security.md, finding 3).

    Raises:
        HTTPBadRequest: it is not JSON, or too deep, or has too many tokens.
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
    """Answer to the last byte, in pieces.

    TLS does not tell how much of a large write the peer has not read, so that such answers would
    not count towards `buffered_bytes`.
    """
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
        for begin in range(0, len(body), ANSWER_PIECE_BYTES):
            await whole.write(memoryview(body)[begin : begin + ANSWER_PIECE_BYTES])
            accepted.unwritten_bytes = max(0, len(body) - begin - ANSWER_PIECE_BYTES)
        await whole.write_eof()
    finally:
        accepted.unwritten_bytes = 0
    return whole


def _accepted(request: web.Request) -> AcceptedConnection | None:
    protocol = request.protocol
    return protocol.accepted if isinstance(protocol, LimitedConnection) else None
