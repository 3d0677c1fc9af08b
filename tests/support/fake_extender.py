"""An extender on a local port that answers as the test says, and keeps what it was sent."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass
class Call:
    """One request."""

    verb: str
    body: bytes
    headers: Mapping[str, str]
    port: int
    """Of the client: calls with one port came over one connection."""
    at_seconds: float

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)


@dataclass
class FakeExtender:
    """See the module docstring."""

    answers: dict[str, Any] = field(default_factory=dict)
    """By verb: JSON, bytes as they are, an HTTP status, or a function of the body."""
    delays_seconds: dict[str, float] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    hold: asyncio.Event | None = None
    """Nothing is answered before it is set."""
    url: str = ""
    on_call: Callable[[Call], None] = lambda _: None

    async def handle(self, request: web.Request) -> web.Response:
        verb = request.path.rsplit("/", 1)[1]
        assert request.transport is not None
        port = request.transport.get_extra_info("peername")[1]
        now = asyncio.get_running_loop().time()
        call = Call(verb, await request.read(), dict(request.headers), port, now)
        self.calls.append(call)
        self.on_call(call)
        await asyncio.sleep(self.delays_seconds.get(verb, 0))
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answers.get(verb, 404)
        if callable(answer):
            answer = answer(call.json)
        if isinstance(answer, int):
            return web.Response(status=answer, text="boom")
        body = answer if isinstance(answer, bytes) else orjson.dumps(answer)
        return web.Response(body=body, content_type="application/json")

    def verbs(self) -> list[str]:
        """The verbs that were called, in order."""
        return [call.verb for call in self.calls]


@asynccontextmanager
async def fake_extender(
    answers: dict[str, Any] | None = None, context: ssl.SSLContext | None = None
) -> AsyncIterator[FakeExtender]:
    """An extender that serves until the block ends."""
    extender = FakeExtender(answers or {})
    application = web.Application()
    application.router.add_post("/x/{verb}", extender.handle)
    server = TestServer(application, scheme="https" if context else "http")
    await server.start_server(ssl=context)
    extender.url = str(server.make_url("/x"))
    try:
        yield extender
    finally:
        await server.close()
