"""A scripted API server: answers what the test queued, and keeps what it was asked."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk.client.credentials import Credentials, load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.transport import RetryPolicy
from stellwerk.metrics import Metrics
from stellwerk_cluster.apimachinery import protobuf
from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from stellwerk_kube.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from tests.support.fake_watch import FakeWatchApi

FAST = RetryPolicy(
    attempts=4, first_delay_seconds=0.001, longest_delay_seconds=0.2, timeout_seconds=60.0
)


@dataclass
class Answer:
    """What to answer, once `hold` is set; a status of 0 cuts the connection instead."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    after_seconds: float = 0.0
    hold: asyncio.Event | None = None


@dataclass
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


def refusal(status: int, message: str, reason: str = "", **details: Any) -> Answer:
    """Return an answer with a Status, as the API server sends it."""
    body = {"kind": "Status", "code": status, "reason": reason, "message": message}
    return Answer(status, body | ({"details": details} if details else {}))


def scheduled_event(name: str = "web.1") -> dict[str, Any]:
    """Return an event as the recorder writes it, with few of its fields."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "default", "name": name},
        "eventTime": "2026-11-30T01:02:03.000004Z",
        "reason": "Scheduled",
    }


def object_in(content: bytes, content_type: str) -> Any:
    """Read a body, in JSON or in protobuf, as the object that it holds."""
    if content_type != protobuf.MEDIA_TYPE:
        return orjson.loads(content)
    envelope = protobuf.open_envelope(content)
    named = (envelope.api_version, envelope.kind)
    kinds = (each for each in built_in_kinds() if (each.api_version, each.kind) == named)
    type_name = next((each.type_name for each in kinds), envelope.kind)
    message = protobuf.read_message(type_name, envelope.raw)
    return {"apiVersion": envelope.api_version, "kind": envelope.kind, **message}


class FakeApi:
    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.asked: list[Asked] = []
        self.concurrent = 0
        self.most_concurrent = 0
        self.url = ""
        self.decide: Callable[[Asked], Answer | None] = lambda _: None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        content = await request.read()
        asked = Asked(
            request.method,
            request.path,
            dict(request.query),
            dict(request.headers),
            object_in(content, request.content_type) if content else None,
        )
        self.asked.append(asked)
        answer = self.decide(asked) or (self.answers.popleft() if self.answers else Answer())
        self.concurrent += 1
        self.most_concurrent = max(self.most_concurrent, self.concurrent)
        await asyncio.sleep(answer.after_seconds)
        if answer.hold is not None:
            await answer.hold.wait()
        self.concurrent -= 1
        if answer.status == 0:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        body = answer.body if answer.body is not None else {"kind": "Status", "status": "Success"}
        if isinstance(body, bytes):
            return web.Response(status=answer.status, body=body, headers=answer.headers)
        text = body if isinstance(body, str) else orjson.dumps(body).decode()
        return web.Response(status=answer.status, text=text, headers=answer.headers)


@asynccontextmanager
async def fake_api() -> AsyncIterator[FakeApi]:
    api = FakeApi()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", api.handle)
    server = TestServer(app)
    await server.start_server()
    api.url = str(server.make_url("")).rstrip("/")
    try:
        yield api
    finally:
        await server.close()


def kubeconfig(server: str, user: dict[str, Any] | None = None, **cluster: Any) -> dict[str, Any]:
    """Return a kubeconfig with one context, named "main"."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server} | cluster}],
        "users": [{"name": "u", "user": user or {}}],
    }


async def credentials_for(api: FakeApi | FakeWatchApi, directory: Path) -> Credentials:
    path = directory / "kubeconfig"
    path.write_bytes(orjson.dumps(kubeconfig(api.url)))
    return await load_credentials(str(path))


@asynccontextmanager
async def client_of(
    api: FakeApi | FakeWatchApi,
    directory: Path,
    *,
    metrics: Metrics | None = None,
    retry: RetryPolicy = FAST,
) -> AsyncIterator[KubernetesClient]:
    credentials = await credentials_for(api, directory)
    async with KubernetesClient(
        credentials,
        clock=SystemClock(),
        metrics=metrics or Metrics(),
        jitter=lambda: 0.0,
        retry=retry,
    ) as client:
        yield client
