"""HTTP/1.1 as it comes: whole, in pieces, chunked, broken off, or not HTTP at all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.client.connection import BrokenAnswerError, ConnectionPool, HttpResponse, parse
from tests.support.in_process import eventually

pytestmark = pytest.mark.skips_time

CREATED = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"
    b"5\r\nhello\r\nA;why=not\r\n, chunks: \r\n1\r\n!\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(
    ("received", "answer"),
    [
        pytest.param(CREATED, HttpResponse(201, b"{}", None, keep_alive=True), id="with a length"),
        pytest.param(
            CHUNKED, HttpResponse(200, b"hello, chunks: !", None, keep_alive=True), id="in chunks"
        ),
        pytest.param(
            CHUNKED.replace(b"0\r\n\r\n", b"0\r\nDigest: x\r\n\r\n"),
            HttpResponse(200, b"hello, chunks: !", None, keep_alive=True),
            id="in chunks with a trailer",
        ),
        pytest.param(
            b"HTTP/1.1 429 Too Many\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n",
            HttpResponse(429, b"", "7", keep_alive=True),
            id="lower-case headers",
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx",
            HttpResponse(200, b"x", None, keep_alive=False),
            id="closing",
        ),
        pytest.param(
            b"HTTP/1.1 100 Continue\r\n\r\n" + CREATED,
            HttpResponse(201, b"{}", None, keep_alive=True),
            id="after an informational one",
        ),
        pytest.param(
            b"HTTP/1.1 204 No Content\r\n\r\n",
            HttpResponse(204, b"", None, keep_alive=True),
            id="empty",
        ),
        pytest.param(
            CREATED + b"HTTP",
            HttpResponse(201, b"{}", None, keep_alive=False),
            id="with more behind it",
        ),
    ],
)
def test_answers_are_read(received: bytes, answer: HttpResponse) -> None:
    assert parse(received) == answer


@given(st.sampled_from([CREATED, CHUNKED]), st.data())
def test_an_incomplete_answer_is_waited_for(whole: bytes, data: st.DataObject) -> None:
    assert parse(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(b"SSH-2.0-OpenSSH\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\n", id="an older version"),
        pytest.param(b"HTTP/1.1 abc\r\n\r\n", id="no status"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="no length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", id="a negative length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nwhat\r\n\r\n", id="a line without a colon"),
        pytest.param(CHUNKED.replace(b"hello", b"hello!"), id="a longer chunk than announced"),
        pytest.param(CHUNKED.replace(b"5\r\n", b"x\r\n"), id="a chunk size that is no number"),
        pytest.param(CHUNKED.replace(b"5\r\n", b"-5\r\n"), id="a negative chunk size"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, id="an endless head"),
    ],
)
def test_what_is_no_answer_is_refused(received: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse(received)


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def pool_to(
    serve: Serve, prefix: str = ""
) -> AsyncIterator[tuple[ConnectionPool, list[int]]]:
    """Yield a pool to a server, and a list that grows with each connection made."""
    made: list[int] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.append(len(made))
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = ConnectionPool(
        f"http://127.0.0.1:{port}{prefix}",
        ssl_context=None,
        tls_server_name=None,
        user_agent="test",
        connect_timeout_seconds=60,
    )
    try:
        yield pool, made
    finally:
        pool.close()
        server.close()
        await asyncio.sleep(0.01)


async def ask(pool: ConnectionPool, timeout_seconds: float = 60) -> HttpResponse:
    return await pool.exchange(
        "POST",
        "/api/v1/pods",
        body=b"{}",
        content_type="application/json",
        accept="application/json",
        authorization="Bearer token",
        timeout_seconds=timeout_seconds,
    )


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(2)


def always(answer: bytes, requests: list[bytes] | None = None) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                request = await read_request(reader)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            if requests is not None:
                requests.append(request)
            writer.write(answer)

    return serve


async def test_the_request_is_whole_and_below_the_servers_path() -> None:
    requests: list[bytes] = []
    async with pool_to(always(CREATED, requests), prefix="/clusters/c-1/") as (pool, _):
        await ask(pool)
    lines = requests[0].split(b"\r\n")
    assert lines[0] == b"POST /clusters/c-1/api/v1/pods HTTP/1.1"
    assert lines[1].startswith(b"Host: 127.0.0.1:")
    assert set(lines[2:-2]) == {
        b"User-Agent: test",
        b"Accept: application/json",
        b"Authorization: Bearer token",
        b"Content-Type: application/json",
        b"Content-Length: 2",
    }
    assert lines[-1] == b"{}"


async def test_a_connection_is_used_again() -> None:
    async with pool_to(always(CREATED)) as (pool, made):
        for _ in range(5):
            assert (await ask(pool)).body == b"{}"
    assert len(made) == 1


async def test_there_are_as_many_connections_as_requests_at_once() -> None:
    async with pool_to(always(CREATED)) as (pool, made):
        for _ in range(3):
            await asyncio.gather(*(ask(pool) for _ in range(4)))
    assert len(made) == 4


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(CREATED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"), id="to close"),
        pytest.param(CREATED.replace(b"201 Created", b"401 Unauthorized"), id="refused"),
        pytest.param(CREATED + b"more", id="with more behind it"),
    ],
)
async def test_a_connection_is_not_used_again_after_an_answer(answer: bytes) -> None:
    async with pool_to(always(answer)) as (pool, made):
        await ask(pool)
        await ask(pool)
    assert len(made) == 2


async def test_a_connection_closed_while_idle_is_replaced() -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CREATED)

    async with pool_to(once) as (pool, made):
        await ask(pool)
        await eventually(lambda: not pool._open)  # noqa: SLF001 what the pool knows of it
        await ask(pool)
    assert len(made) == 2


async def test_an_answer_that_breaks_off_is_a_connection_error() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CREATED[:-1])

    async with pool_to(half) as (pool, _):
        with pytest.raises(ConnectionError):
            await ask(pool)


async def test_what_is_no_http_is_a_connection_error() -> None:
    async with pool_to(always(b"220 mail.example ESMTP\r\n")) as (pool, _):
        with pytest.raises(BrokenAnswerError, match="not an HTTP"):
            await ask(pool)


async def test_no_answer_in_time_ends_the_connection() -> None:
    late: list[bytes] = []
    async with pool_to(always(b"", late)) as (pool, made):
        for _ in range(2):
            began = asyncio.get_running_loop().time()
            with pytest.raises(TimeoutError):
                await ask(pool, timeout_seconds=0.5)
            assert 0.5 <= asyncio.get_running_loop().time() - began < 0.6
    assert len(made) == 2
    assert len(late) == 2


async def test_a_cancelled_request_leaves_no_connection_with_half_an_answer() -> None:
    requests: list[bytes] = []
    async with pool_to(always(b"", requests)) as (pool, made):
        for number in (1, 2):
            task = asyncio.create_task(ask(pool))
            await eventually(lambda: len(requests) == number)  # noqa: B023 called in this turn
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert len(made) == 2


@pytest.mark.parametrize("turns", range(3))
async def test_a_connection_that_is_made_while_the_pool_closes_is_closed(turns: int) -> None:
    async with pool_to(always(CREATED)) as (pool, _):
        asking = asyncio.create_task(ask(pool))
        for _ in range(turns):
            await asyncio.sleep(0)
        pool.close()
        with pytest.raises(ConnectionError):
            await asking
        await eventually(lambda: not pool._open)  # noqa: SLF001
        with pytest.raises(ConnectionError):
            await ask(pool)
        await eventually(lambda: not pool._open)  # noqa: SLF001


async def test_an_answer_without_a_request_ends_the_connection() -> None:
    answered = [asyncio.Event(), asyncio.Event()]

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CREATED)
        await answered[len(made) - 1].wait()
        writer.write(CREATED.replace(b"{}", b"[]"))
        await reader.read()

    async with pool_to(talkative) as (pool, made):
        await ask(pool)
        assert pool._open  # noqa: SLF001
        answered[0].set()
        await eventually(lambda: not pool._open)  # noqa: SLF001
        assert (await ask(pool)).body == b"{}"
        answered[1].set()  # so that its task ends
    assert len(made) == 2


async def test_a_long_answer_in_many_pieces_is_joined() -> None:
    body = b"x" * 200_000
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        whole = head + body
        for start in range(0, len(whole), 30_000):
            writer.write(whole[start : start + 30_000])
            await writer.drain()
            await asyncio.sleep(0)

    async with pool_to(slowly) as (pool, _):
        assert (await ask(pool)).body == body


async def test_no_server_listening_is_an_os_error() -> None:
    async with pool_to(always(CREATED)) as (pool, _):
        pass
    with pytest.raises(OSError, match=r"\d"):
        await ask(pool)
