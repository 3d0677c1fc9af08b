"""A proxy between a client and any API server, with the faults of a plan.

Speaks HTTP to both; for an API server with TLS, `kubectl proxy` may stand behind it. Invariant:
where no fault strikes, what passes is what was sent, line by line as it comes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from stellwerk_cluster.faults.injector import FaultInjector
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_kube.clock import SystemClock

_OF_THE_CONNECTION = frozenset(
    {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
)


class Forwarder:
    """Hands requests on, and answers back."""

    def __init__(self, upstream: str, session: aiohttp.ClientSession) -> None:
        self._upstream = upstream
        self._session = session

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() not in _OF_THE_CONNECTION
        }
        url = URL(self._upstream + request.raw_path, encoded=True)
        content = await request.read()
        try:
            return await self._forward(request, url, headers, content)
        except aiohttp.ClientError:
            if request.transport is not None:
                request.transport.close()  # it broke behind us, and so it breaks before us
            return web.Response(status=HTTPStatus.BAD_GATEWAY)

    async def _forward(
        self, request: web.BaseRequest, url: URL, headers: dict[str, str], content: bytes
    ) -> web.StreamResponse:
        async with self._session.request(
            request.method, url, headers=headers, data=content, allow_redirects=False
        ) as answer:
            if request.query.get("watch") not in {"true", "1"} or answer.status != HTTPStatus.OK:
                return web.Response(
                    status=answer.status, body=await answer.read(), headers=_kept(answer)
                )
            return await self._stream(request, answer)

    @staticmethod
    async def _stream(
        request: web.BaseRequest, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_kept(answer))
        response.enable_chunked_encoding()
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
        return response


def _kept(answer: aiohttp.ClientResponse) -> dict[str, str]:
    dropped = _OF_THE_CONNECTION | {"content-encoding"}  # aiohttp has decoded the content
    return {name: value for name, value in answer.headers.items() if name.lower() not in dropped}


@asynccontextmanager
async def fault_proxy(upstream: str, plan: FaultPlan) -> AsyncIterator[str]:
    """Stand before the API at `upstream` until the block ends; yields the proxy's URL."""
    async with aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=0)
    ) as session:
        faulty = FaultInjector(Forwarder(upstream, session).handle, plan, SystemClock())
        server = web.Server(faulty.handle, request_factory=faulty.request(_request))
        runner = web.ServerRunner(server, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        outages = asyncio.create_task(faulty.run_outages(), name="outages")
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            outages.cancel()
            await asyncio.wait({outages})
            await runner.cleanup()


def _request(*args: Any) -> web.BaseRequest:
    message, payload, protocol, writer, task = args
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=3 << 20)
