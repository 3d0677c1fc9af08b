"""A port with three endpoints and short limits, and peers that send bytes to it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from stellwerk_kube.listening.limits import Limits
from stellwerk_kube.listening.middleware import within_limits
from stellwerk_kube.listening.port_use import PortUse
from stellwerk_kube.listening.site import LimitedSite

SHORT = Limits(
    handshake_seconds=0.3,
    headers_seconds=0.3,
    body_seconds=0.3,
    idle_seconds=0.5,
    answer_seconds=0.5,
    stalled_seconds=0.4,
    body_bytes={"/echo": 1 << 10},
)
GET = b"GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = GET.replace(b"GET", b"POST")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def echo(request: web.Request) -> web.Response:
    return web.Response(body=await request.read() or b"nothing")


async def slow(_: web.Request) -> web.Response:
    await asyncio.sleep(5)
    return web.Response()


async def large(_: web.Request) -> web.Response:
    return web.Response(body=bytes(50 << 20))


async def anybody(_: web.Request) -> str:
    return ""


@asynccontextmanager
async def listening(limits: Limits, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """A port with three endpoints."""
    use = PortUse(limits)
    application = web.Application(middlewares=[within_limits(use, anybody)])
    application.router.add_route("*", "/echo", echo)
    application.router.add_get("/slow", slow)
    application.router.add_get("/large", large)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    tls = None if context is None else lambda: context
    await runner.setup()
    await LimitedSite(runner, "127.0.0.1", 0, use, tls=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def answer_to(port: int, *parts: bytes, pause_seconds: float = 0.0) -> tuple[bytes, float]:
    """Send parts one after the other; all that comes back, and after how long the end came."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_seconds)
        answer = await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    return answer, loop.time() - started
