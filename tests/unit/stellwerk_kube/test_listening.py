"""What a port takes from a peer: requests as they are sent, and nothing beyond its limits."""

import asyncio
import errno
import itertools
import logging
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from stellwerk.serving.self_signed import self_signed
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.listening import (
    MIN_FREE_DESCRIPTORS,
    Descriptors,
    LimitedSite,
    Limits,
    PortUse,
    _peer,
    json_within,
    within_limits,
)

pytestmark = pytest.mark.skips_time

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


def with_fields(number: int, size: int = 10) -> bytes:
    fields = b"".join(b"X-%d: %s\r\n" % (each, b"x" * size) for each in range(number))
    return GET[:-2] + fields + b"\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        pytest.param(with_fields(63), b"200", id="as many fields as may be"),
        pytest.param(with_fields(64), b"431", id="one more"),
        pytest.param(with_fields(3, 10_000), b"200", id="as many bytes as may be"),
        pytest.param(with_fields(4, 10_000), b"431", id="more"),
        pytest.param(with_fields(1, 1 << 20)[: 1 << 19], b"431", id="a field without end"),
        pytest.param(GET.replace(b"echo", b"echo?" + b"x" * 8_000), b"200", id="a long line"),
        pytest.param(GET.replace(b"echo", b"echo?" + b"x" * 8_200), b"414", id="a longer line"),
        pytest.param(b"GET /" + b"x" * 100_000, b"414", id="a line without end"),
        pytest.param(
            POST[:-2] + b"Transfer-Encoding: chunked\r\n\r\nno size\r\n", b"400", id="a bad chunk"
        ),
        pytest.param(
            POST[:-2] + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"X: y\r\n" * 6_000,
            b"431",
            id="trailers without end",
        ),
    ],
)
async def test_a_head_beyond_its_limits_is_refused(request_: bytes, status: bytes) -> None:
    async with listening(SHORT) as port:
        answer, _ = await answer_to(port, request_)
    assert answer.startswith(b"HTTP/1.1 " + status + b" "), answer


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        pytest.param([GET[at : at + 1] for at in range(10)], b"408", id="headers, byte by byte"),
        pytest.param([GET + GET[:20]], b"200", id="a second request that never ends"),
        pytest.param([POST[:-2] + b"Content-Length: 9\r\n\r\nx"], b"", id="a body"),
        pytest.param(
            [POST[:-2] + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"], b"", id="a chunk of one"
        ),
        pytest.param([b""], b"", id="nothing"),
        pytest.param([GET], b"200", id="nothing after a request"),
    ],
)
async def test_what_does_not_come_in_time_ends_the_connection(
    parts: list[bytes], status: bytes
) -> None:
    async with listening(SHORT) as port:
        answer, seconds = await answer_to(port, *parts, pause_seconds=0.05)
    assert seconds < 3
    assert answer[:13] == (b"HTTP/1.1 " + status + b" " if status else b""), answer


async def test_half_a_handshake_is_closed(tmp_path: Path) -> None:
    (tmp_path / "pem").write_bytes(self_signed("localhost", datetime.now(UTC)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    async with listening(SHORT, context) as port:
        for begun in (b"", b"\x16\x03\x01\x02\x00\x01\x00"):
            answer, seconds = await answer_to(port, begun)
            assert (answer, seconds < 2) == (b"", True)


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async with listening(SHORT) as port:
        answer, seconds = await answer_to(port, GET.replace(b"echo", b"slow"))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.endswith(b"\r\n\r\nnot answered within 0.5 s\n")
    assert seconds < 2


@pytest.mark.parametrize("limits", [SHORT, Limits(stalled_seconds=0.4)], ids=["answer", "stall"])
async def test_a_peer_that_reads_nothing_is_closed(limits: Limits) -> None:
    async with listening(limits) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
        writer.write(GET.replace(b"echo", b"large"))
        await asyncio.sleep(2)
        read = 0
        try:
            while part := await asyncio.wait_for(reader.read(1 << 20), 10):
                read += len(part)
        except ConnectionError:
            pass
        writer.close()
    assert 0 < read < 50 << 20


def bodies() -> st.SearchStrategy[list[tuple[bytes, bool]]]:
    return st.lists(st.tuples(st.binary(max_size=40), st.booleans()), min_size=1, max_size=4)


@given(requests=bodies(), cuts=st.lists(st.integers(0, 500), max_size=6))
async def test_requests_arrive_as_they_were_sent_however_they_are_cut(
    requests: list[tuple[bytes, bool]], cuts: list[int]
) -> None:
    sent = b""
    for body, is_chunked in requests:
        if is_chunked:
            chunk = b"%x;a=b\r\n%s\r\n" % (len(body), body) if body else b""
            framed = b"Transfer-Encoding: Chunked\r\n\r\n" + chunk + b"0\r\nX-T: t\r\n\r\n"
        else:
            framed = b"Content-Length: %d\r\n\r\n" % len(body) + body
        sent += b"\r\nPOST /echo HTTP/1.1\r\nHost: localhost\r\n" + framed
    sent += GET[:-2] + b"Connection: close\r\n\r\n"
    at = sorted({0, len(sent), *(min(cut, len(sent)) for cut in cuts)})
    async with listening(SHORT) as port:
        parts = [sent[begin:end] for begin, end in itertools.pairwise(at)]
        answer, _ = await answer_to(port, *parts)
    assert answer.count(b"HTTP/1.1 200 OK") == len(requests) + 1
    found = [part.partition(b"\r\n\r\n")[2] for part in answer.split(b"HTTP/1.1 200 OK")[1:]]
    assert found == [body or b"nothing" for body, _ in requests] + [b"nothing"]


async def test_the_embedded_api_has_limits_and_its_watches_stay_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = Limits(idle_seconds=0.3, headers_seconds=0.3, stalled_seconds=None)
    monkeypatch.setattr("stellwerk_cluster.cluster._LIMITS", limits)
    async with EmbeddedCluster(1) as cluster:
        port = int(cluster.url.rpartition(":")[2])
        answer, _ = await answer_to(port, with_fields(200))
        assert answer.startswith(b"HTTP/1.1 431 ")
        answer, _ = await answer_to(port, b"GET /" + b"x" * 10_000)
        assert answer.startswith(b"HTTP/1.1 414 ")
        answer, seconds = await answer_to(port, GET.replace(b"/echo", b"/version"))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert seconds < 2
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET.replace(b"/echo", b"/api/v1/nodes?watch=true"))
        await asyncio.sleep(1)
        read = await asyncio.wait_for(reader.read(1 << 20), 10)
        assert b'"ADDED"' in read
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1 << 20), 1)
        writer.close()


def test_json_is_counted_before_it_is_made() -> None:
    limits = Limits(json_depth=3, json_tokens=12)
    assert json_within(limits, b'{"a": [[1, "]]]]]]]]]]]]]]]"]]}') == {"a": [[1, "]" * 15]]}
    for body, text in (
        (b"[[[[]]]]", "the JSON is nested deeper than 3\n"),
        (b"[" * 250_000, "the JSON is nested deeper than 3\n"),
        (b"[1, 2, 3, 4, 5, 6]", "the JSON has more than 12 tokens\n"),
        (b'"' + b'\\"' * 130_000, None),
        (b'["' + b"\\" * 250_000, None),
        (b"{}}", None),
    ):
        started = time.monotonic()
        with pytest.raises(web.HTTPBadRequest) as refused:
            json_within(limits, body)
        assert time.monotonic() - started < 0.5
        assert text in {None, refused.value.text}


def test_addresses_of_one_machine_count_together() -> None:
    assert _peer("10.0.0.1") == "10.0.0.1"
    assert _peer("::ffff:10.0.0.1") == "10.0.0.1"
    assert _peer("2001:db8::1%eth0") == _peer("2001:db8::ffff:2") == "2001:db8::/64"
    assert _peer("2001:db8:0:1::1") == "2001:db8:0:1::/64"


async def test_memory_goes_back_once_most_of_many_connections_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr("stellwerk_kube.listening._TRIM_SECONDS", 0.0)
    monkeypatch.setattr(PortUse, "_trim", lambda use: trimmed.append(use.connections))
    use = PortUse(Limits(connections=1000, address_connections=None, unidentified_connections=None))
    with socket.socket() as sock:
        for count in (90, 200):
            opened = [use.admit(sock, "192.0.2.1") for _ in range(count)]
            for accepted in opened:
                assert accepted is not None
                use.gone(accepted)
            await asyncio.sleep(0.01)
            assert bool(trimmed) is (count == 200), "few connections leave nothing worth the work"


def test_descriptors_are_counted_where_they_are_few() -> None:
    open_now = sum(1 for _ in Path("/proc/self/fd").iterdir()) - 1
    assert Descriptors(open_now + MIN_FREE_DESCRIPTORS).missing() == 0
    assert Descriptors(open_now + MIN_FREE_DESCRIPTORS - 3).missing() == 3
    assert not Descriptors(resource.RLIM_INFINITY).are_counted
    assert Descriptors(1 << 20).missing() == 0


class Few(Descriptors):
    """As many are missing as a test says."""

    lacking = 0

    @override
    def missing(self) -> int:
        return self.lacking


async def test_where_descriptors_are_few_idle_connections_are_closed_the_oldest_first() -> None:
    few = Few()
    use = PortUse(Limits(), descriptors=few)
    pairs = [socket.socketpair() for _ in range(6)]
    try:
        kept = [use.admit(pair[0], f"192.0.2.{at}") for at, pair in enumerate(pairs[:5])]
        few.lacking = 1
        kept.append(use.admit(pairs[5][0], "192.0.2.9"))
        holds = [each is not None and use.holds(each) for each in kept]
        assert holds == [False, True, True, True, True, True]
        few.lacking = 2
        assert use.free_descriptors()
        holds = [each is not None and use.holds(each) for each in kept]
        assert holds == [False, False, False, True, True, True]
        few.lacking = 0
        assert not use.free_descriptors()
    finally:
        for pair in pairs:
            for each in pair:
                each.close()


async def test_a_lack_of_descriptors_is_reported_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    use = PortUse(Limits())
    first, second = socket.socketpair()
    with first, second:
        assert use.admit(first, "192.0.2.1") is not None
        spent = OSError(errno.EMFILE, "Too many open files")
        assert [use.free_descriptors(spent) for _ in range(20)] == [True] + 19 * [False]
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1
