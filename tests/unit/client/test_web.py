"""HTTP for what plugins read: JSON, bounded in time and size, and no word of a password."""

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk.client.web import WebClient, WebError, connector_to, refused_address
from stellwerk_kube.destinations import Destinations, UrlPrefix


async def answer(request: web.Request) -> web.StreamResponse:
    kind = request.match_info["kind"]
    if kind == "slow":
        await asyncio.sleep(5)
    if kind == "elsewhere":
        raise web.HTTPFound("/json")
    if kind == "long":
        return web.Response(body=b"[" + b"1," * 1000 + b"1]")
    if kind == "large":
        return web.Response(body=b"[" + b"1," * 399_999 + b"1]")
    if kind == "text":
        return web.Response(text="no JSON")
    token = request.headers.get("Authorization", "")
    return web.json_response({"query": request.query.get("query"), "token": token})


@pytest.fixture
async def server() -> AsyncIterator[TestServer]:
    app = web.Application()
    app.router.add_get("/{kind}", answer)
    server = TestServer(app)
    await server.start_server()
    yield server
    await server.close()


@pytest.fixture
def client() -> WebClient:
    return WebClient(limit_seconds=0.3, limit_bytes=1000)


async def test_it_asks_with_query_and_token(server: TestServer, client: WebClient) -> None:
    found = await client.get(str(server.make_url("/json")), query={"query": "up"}, token="t")
    assert found == {"query": "up", "token": "Bearer t"}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        pytest.param("slow", "no answer within 0.3 s", id="slow"),
        pytest.param("long", "more than 1000 bytes", id="long"),
        pytest.param("text", "not JSON", id="not JSON"),
        pytest.param("elsewhere", "status 302", id="a redirect"),
        pytest.param("missing/too", "status 404", id="not there"),
    ],
)
async def test_what_is_no_answer_is_refused_in_words(
    server: TestServer, client: WebClient, kind: str, reason: str
) -> None:
    with pytest.raises(WebError, match=reason):
        await client.get(str(server.make_url(f"/{kind}")))


async def test_no_text_shows_a_password(client: WebClient) -> None:
    with pytest.raises(WebError) as refused:
        await client.get("http://user:secret@127.0.0.1:1/watcher")
    assert "secret" not in str(refused.value)
    assert "127.0.0.1:1/watcher" in str(refused.value)


def leading_to(*addresses: str) -> Any:
    """The system's resolver as it answers one address after the other."""
    answers = list(addresses)

    async def getaddrinfo(_: object, __: str, port: int, **___: object) -> list[Any]:
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    return getaddrinfo


@pytest.fixture
def granting(server: TestServer) -> Destinations:
    prefix = UrlPrefix.parse(f"http://extender.x.example:{server.port}")
    local = UrlPrefix.parse(f"http://localhost:{server.port}")
    return Destinations(granted=(prefix, local))


async def test_an_address_that_is_not_granted_is_not_asked(
    server: TestServer, granting: Destinations
) -> None:
    client = WebClient(destinations=granting)
    assert await client.get(f"http://localhost:{server.port}/json") == {"query": None, "token": ""}
    with pytest.raises(WebError, match=r"--extender-allow"):
        await client.get(f"http://127.0.0.1:{server.port}/json")


async def test_a_name_whose_second_answer_differs_leads_nowhere_else(
    server: TestServer, granting: Destinations, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"http://extender.x.example:{server.port}/json"
    loop = type(asyncio.get_running_loop())
    monkeypatch.setattr(loop, "getaddrinfo", leading_to("10.1.2.3", "169.254.169.254"))
    assert await refused_address(url, granting) == ""
    tried: list[object] = []
    monkeypatch.setattr(loop, "sock_connect", lambda *seen: tried.append(seen))
    refused: list[str] = []
    async with aiohttp.ClientSession(
        connector=connector_to(url, granting, refused=refused.append)
    ) as session:
        with pytest.raises(aiohttp.ClientConnectorError, match=r"169\.254\.169\.254 is link-local"):
            await session.get(url)
    assert not tried
    assert ["169.254.169.254 is link-local" in each for each in refused] == [True]


async def test_a_service_is_resolved_by_its_whole_name_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    async def getaddrinfo(_: object, host: str, port: int, **__: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("8.8.8.8", port))]

    monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", getaddrinfo)
    client = WebClient(destinations=Destinations(namespace="stellwerk"))
    with pytest.raises(WebError, match=r"8\.8\.8\.8 is the address of no Service"):
        await client.get("http://stranger.example:1/watcher")
    assert asked == ["stranger.example.svc.cluster.local."]


async def test_of_a_long_answer_what_is_kept_is_made_elsewhere(server: TestServer) -> None:
    calls: list[int] = []

    async def elsewhere(work: Callable[[], object]) -> object:
        calls.append(1)
        return pickle.loads(pickle.dumps(work))()  # noqa: S301 as it goes to another process

    client = WebClient(elsewhere=elsewhere)
    assert await client.get(str(server.make_url("/json")), take=_kind_of) == "dict"
    assert calls == []
    assert await client.get(str(server.make_url("/large")), take=_kind_of) == "list"
    assert calls == [1]
    with pytest.raises(WebError, match="not of this form"):
        await client.get(str(server.make_url("/large")), take=refuse)


def _kind_of(answer: object) -> object:
    return type(answer).__name__


def refuse(_: object) -> object:
    raise ValueError("not of this form")
