"""HTTP for what plugins read: JSON, bounded in time and size, and no word of a password."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk.client.web import WebClient, WebError


async def answer(request: web.Request) -> web.StreamResponse:
    kind = request.match_info["kind"]
    if kind == "slow":
        await asyncio.sleep(5)
    if kind == "elsewhere":
        raise web.HTTPFound("/json")
    if kind == "long":
        return web.Response(body=b"[" + b"1," * 1000 + b"1]")
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
async def client() -> AsyncIterator[WebClient]:
    client = WebClient(limit_seconds=0.3, limit_bytes=1000)
    yield client
    await client.close()


async def test_it_asks_with_query_and_token(server: TestServer, client: WebClient) -> None:
    found = await client.get(str(server.make_url("/json")), query={"query": "up"}, token="t")
    assert found == {"query": "up", "token": "Bearer t"}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        pytest.param("slow", "no answer within 0.3 s", id="slow"),
        pytest.param("long", "more than 1000 bytes", id="long"),
        pytest.param("text", "no JSON", id="no JSON"),
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
