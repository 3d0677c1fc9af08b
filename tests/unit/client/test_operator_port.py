"""Questions to the operator's port: the newest token with each, no redirect, no endless answer."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from stellwerk.answers.answer import MalformedAnswer
from stellwerk.answers.decisions import DecisionsPage
from stellwerk.answers.queue import QueuePage
from stellwerk.client import operator_port
from stellwerk.client.operator_port import NoAnswer, OperatorPort, PortRefusal

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_each_request_sends_the_token_of_the_moment() -> None:
    seen: list[str] = []
    tokens = iter(["Bearer first", "Bearer second", None])

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", "none"))
        return web.json_response({})

    async def authorization() -> str | None:
        return next(tokens)

    async with served(handler) as url, aiohttp.ClientSession() as session:
        port = OperatorPort(session, url, authorization)
        await port.ask_json("/queue")
        await port.ask_json("/what-if", {})
        await port.ask_json("/queue")
    assert seen == ["Bearer first", "Bearer second", "none"]


async def test_json_that_is_another_kind_of_answer_is_said_in_one_line() -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response({"total": 0, "items": [], "counts": {"active": "none"}, "new": 1})

    async with served(handler) as url, aiohttp.ClientSession() as session:
        with pytest.raises(MalformedAnswer, match=r"counts\.active: .* integer") as raised:
            await OperatorPort(session, url).get("/queue", QueuePage)
        decisions = await OperatorPort(session, url).get("/decisions", DecisionsPage)
    assert "\n" not in str(raised.value)
    assert decisions == DecisionsPage(total=0, items=[]), "unknown fields are passed over"


async def test_a_redirect_is_not_followed_and_takes_the_token_nowhere() -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPFound("/elsewhere")

    async def authorization() -> str | None:
        return "Bearer secret"

    async with served(handler) as url, aiohttp.ClientSession() as session:
        with pytest.raises(PortRefusal, match="302"):
            await OperatorPort(session, url, authorization).ask_json("/queue")
    assert asked == ["/queue"]


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            web.HTTPUnprocessableEntity(text="x" * 300 + ": unknown field"),
            r"x{300}: unknown field \(422\)$",
        ),
        (web.HTTPNotFound(text="there is no profile sh"), r"^there is no profile sh$"),
        (web.HTTPNotFound(), r"^not an operator's answer: 404: Not Found \(404\)$"),
        (
            web.HTTPBadGateway(text="<html>bad</html>", content_type="text/html"),
            r"^not an operator's answer: <html>bad</html> \(502\)$",
        ),
    ],
)
async def test_a_refusal_of_the_operator_is_said_whole_and_another_server_is_named_as_such(
    refusal: web.HTTPException, said: str
) -> None:
    async def handler(_: web.Request) -> web.Response:
        raise refusal

    async with served(handler) as url, aiohttp.ClientSession() as session:
        with pytest.raises(PortRefusal, match=said):
            await OperatorPort(session, url).ask_json("/what-if", {})


async def test_an_answer_without_an_end_is_not_read_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator_port, "MAX_PORT_ANSWER_BYTES", 1 << 20)

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)

    async with served(handler) as url, aiohttp.ClientSession() as session:
        with pytest.raises(NoAnswer, match="larger than 1 MiB"):
            await OperatorPort(session, url).ask_json("/queue")
