"""The three kinds of ports that have limits, open in process, and peers that send them bytes.

Invariant: a peer's bytes arrive as they are, from the address that the test names.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

from stellwerk.serving.http import LIMITS, HttpServer, Probes
from stellwerk.serving.port import PortOptions, guarded_port
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.listening.limits import Limits
from tests.support.fake_api import Answer, Asked, client_of, fake_api
from tests.support.page_window import opened
from tests.support.processes import trusting

LOCAL = "127.0.0.1"
ELSEWHERE = "127.0.0.2"


@dataclass
class LimitedPort:
    """An open port, and what has been refused at it."""

    number: int
    tls: bool
    live: str
    """The path that everybody may ask for."""
    takes_body: bytes = b""
    """The beginning of a request that may have a body, up to its headers' end."""
    refused: list[str] = field(default_factory=list)
    asked: int = 0
    """How many requests are being answered."""
    reviews: asyncio.Event = field(default_factory=asyncio.Event)
    """Unset: the API server does not say whose token it is."""
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)

    async def connect(
        self, address: str = LOCAL, *, handshake: bool = True
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection from an address; without a handshake, no more than TCP's."""
        context = trusting() if self.tls and handshake else None
        reader, writer = await asyncio.open_connection(
            LOCAL, self.number, ssl=context, local_addr=(address, 0)
        )
        self._writers.add(writer)
        return reader, writer

    def abort(self, writer: asyncio.StreamWriter) -> None:
        """End one connection of a peer."""
        writer.transport.abort()
        self._writers.discard(writer)

    async def hang_up(self) -> None:
        """End all connections of the peers."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.sleep(0.02)

    async def answer(self, request: bytes, address: str = LOCAL) -> bytes:
        """All that comes back for these bytes."""
        reader, writer = await self.connect(address)
        try:
            writer.write(request)
            return await asyncio.wait_for(reader.read(), 20)
        except ConnectionError:
            return b""
        finally:
            self.abort(writer)
            await asyncio.sleep(0)

    def get(self, path: str, token: str = "", *, method: str = "GET", body: bytes = b"") -> bytes:
        """A request in bytes, after which the connection ends."""
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {token}\r\n" if token else ""
        head += f"Content-Length: {len(body)}\r\n" if body else ""
        return f"{head}\r\n".encode() + body


@asynccontextmanager
async def operators_port(
    directory: Path, limits: Limits | None = None
) -> AsyncIterator[LimitedPort]:
    """The operator's port with TLS; a token is its user's name, /slow takes a second."""
    options = PortOptions(limits=LIMITS if limits is None else limits)
    port = LimitedPort(0, tls=True, live="/livez")
    port.takes_body = port.get("/what-if", "ada", method="POST")[:-2]
    port.reviews.set()

    def reviewed(asked: Asked) -> Answer:
        spec = (asked.body or {}).get("spec", {})
        if asked.path.endswith("/tokenreviews"):
            user = {"username": spec["token"], "groups": ["system:authenticated"]}
            known = {"authenticated": True, "user": user}
            return Answer(201, {"status": known}, hold=port.reviews)
        if asked.path.endswith("/subjectaccessreviews"):
            return Answer(201, {"status": {"allowed": spec["user"] != "system:anonymous"}})
        return Answer(404, {"kind": "Status", "code": 404, "message": "none"})

    async def slow(_: web.Request) -> web.Response:
        port.asked += 1
        await asyncio.sleep(1)
        port.asked -= 1
        return web.Response(text="slow\n")

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    async def large(_: web.Request) -> web.Response:
        return web.Response(body=bytes(16 << 20))

    async with fake_api() as api, client_of(api, directory) as client:
        api.decide = reviewed
        async with guarded_port(options, client, SystemClock()) as guard:
            routes = [web.get("/slow", slow), web.post("/what-if", echo), web.get("/large", large)]
            server = HttpServer(
                Probes(),
                lambda: b"metrics\n",
                list,
                routes=routes,
                guard=guard,
                limits=options.limits,
                refused=port.refused.append,
            )
            port.number = await server.start(f"{LOCAL}:0")
            try:
                yield port
            finally:
                await port.hang_up()
                await server.close()


@asynccontextmanager
async def pages_port(_: Path) -> AsyncIterator[LimitedPort]:
    """The page of `stellwerk page`."""
    async with opened() as window:
        number = int(window.origin.rpartition(":")[2])
        port = LimitedPort(number, tls=False, live="/static/page.js")
        port.takes_body = port.get("/what-if", method="POST")[:-2]
        yield port
        await port.hang_up()


@asynccontextmanager
async def embedded_port(_: Path) -> AsyncIterator[LimitedPort]:
    """The API of an embedded cluster."""
    async with EmbeddedCluster(1) as cluster:
        port = LimitedPort(int(cluster.url.rpartition(":")[2]), tls=False, live="/version")
        collection = "/api/v1/namespaces/default/configmaps"
        port.takes_body = port.get(collection, method="POST")[:-2]
        port.takes_body += b"Content-Type: application/json\r\n"
        yield port
        await port.hang_up()
