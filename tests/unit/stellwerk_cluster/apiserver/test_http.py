"""A client that is gone leaves no error in the embedded API's log; other connections do."""

import asyncio
import logging
import socket
import struct
from collections.abc import Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web

from stellwerk_cluster.apiserver.http import while_connected
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.in_process import eventually

PODS = "/api/v1/namespaces/default/pods"
ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)


async def test_a_client_that_dies_while_it_sends_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster(options=ALONE) as cluster:
        host, port = cluster.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {PODS} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\n\r\n"
        writer.write(head.encode() + b"{")
        await writer.drain()
        await asyncio.sleep(0.1)
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()  # with a reset, as when a process is killed with answers unread
        assert await _status(f"{cluster.url}/version") == 200
    assert "Traceback" not in caplog.text


async def test_an_error_of_another_connection_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(_: web.BaseRequest) -> web.StreamResponse:
        raise ConnectionRefusedError("a webhook is away")

    caplog.set_level(logging.ERROR)
    assert await _status_from(while_connected(fails)) == 500
    await eventually(lambda: "a webhook is away" in caplog.text)


async def _status(url: str) -> int:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status


async def _status_from(handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> int:
    server = web.ServerRunner(web.Server(handler))
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()
    try:
        return await _status(f"http://127.0.0.1:{server.addresses[0][1]}/")
    finally:
        await server.cleanup()
