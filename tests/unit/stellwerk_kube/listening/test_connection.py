"""What a port takes from a peer: requests as they are sent, and nothing beyond its limits."""

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_kube.listening.limits import Limits
from tests.support.echoing_port import GET, POST, SHORT, answer_to, listening

pytestmark = pytest.mark.skips_time


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
