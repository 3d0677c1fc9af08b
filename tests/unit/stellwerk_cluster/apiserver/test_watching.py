import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Final, cast

import orjson
import pytest

from stellwerk_cluster.apiserver.watching import _write
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.in_process import eventually
from tests.support.skipped_time import clock_of_loop

pytestmark = pytest.mark.skips_time

if TYPE_CHECKING:
    from aiohttp import web

BARE: Final = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
_MEGABYTE: Final = 1_000_000


@asynccontextmanager
async def opened(cluster: EmbeddedCluster, path: str) -> AsyncIterator[asyncio.StreamReader]:
    """A watch whose answer has begun, and of which nothing more is read unless the test does."""
    host, _, port = cluster.url.rpartition("/")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 16)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    try:
        async with asyncio.timeout(300):
            yield reader
    finally:
        writer.transport.abort()


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    async with (
        EmbeddedCluster(0, options=BARE) as cluster,
        opened(cluster, "/api/v1/configmaps?watch=true") as reader,
    ):
        kind = cluster.api.kinds.resource("configmaps")
        watchers = cluster.store.collection("configmaps").watchers
        large = {"metadata": {"name": "large"}, "data": {"a": "x" * _MEGABYTE}}
        entry = cluster.api.create(kind, "default", large)
        await eventually(lambda: list(watchers))
        # How much the sockets and the piece that is being written hold differs from run to run.
        for number in range(1000):
            if not list(watchers):
                break
            cluster.api.patch(kind, entry.key, {"data": {"number": str(number)}})
            await asyncio.sleep(0)
        else:
            pytest.fail("a thousand megabytes are kept for a client that does not read")
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1000 * _MEGABYTE)


async def test_a_stream_ends_with_the_server() -> None:
    cluster = EmbeddedCluster(0, options=BARE)
    await cluster.start()
    async with opened(cluster, "/api/v1/configmaps?watch=true") as reader:
        await cluster.stop()
        assert (await reader.read()).endswith(b"0\r\n\r\n")


async def test_a_stream_ends_when_its_time_is_over() -> None:
    path = "/api/v1/configmaps?watch=true&timeoutSeconds=1"
    cluster = EmbeddedCluster(0, clock=clock_of_loop(), options=BARE)
    async with cluster, opened(cluster, path) as reader:
        began = asyncio.get_running_loop().time()
        assert (await reader.readuntil(b"0\r\n\r\n")).endswith(b"0\r\n\r\n")
        assert asyncio.get_running_loop().time() - began < 2


async def test_a_long_list_comes_whole() -> None:
    async with EmbeddedCluster(0, options=BARE) as cluster:
        kind = cluster.api.kinds.resource("configmaps")
        for number in range(4):
            data = {"a": str(number) * _MEGABYTE}
            body = {"metadata": {"name": f"large-{number}"}, "data": data}
            cluster.api.create(kind, "default", body)
        content = b""
        async with opened(cluster, "/api/v1/namespaces/default/configmaps") as reader:
            while size := int(await reader.readline(), 16):
                content += await reader.readexactly(size)
                await reader.readexactly(2)
        listed = orjson.loads(content)
        assert [len(each["data"]["a"]) for each in listed["items"]] == [_MEGABYTE] * 4


async def test_watchers_of_a_large_object_that_do_not_read_hold_no_copy_of_it() -> None:
    async with EmbeddedCluster(0, options=BARE) as cluster:
        kind = cluster.api.kinds.resource("configmaps")
        large = {"metadata": {"name": "large"}, "data": {"a": "x" * _MEGABYTE}}
        cluster.api.create(kind, "default", large)
        watchers = cluster.store.collection("configmaps").watchers
        tracemalloc.start()
        try:
            async with AsyncExitStack() as stack:
                for _ in range(40):
                    path = "/api/v1/configmaps?watch=true"
                    await stack.enter_async_context(opened(cluster, path))
                await eventually(lambda: len(list(watchers)) == 40)
                held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held < 20 * _MEGABYTE


class _Sink:
    """A response that notes what it is given, and what ran in between."""

    def __init__(self, happened: list[int]) -> None:
        self.happened = happened

    async def write(self, content: bytes) -> None:
        self.happened.append(len(content))


async def test_a_large_change_is_written_in_slices_with_turns_for_others() -> None:
    happened: list[int] = []

    async def other() -> None:
        while len(happened) < 8:
            happened.append(0)
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await _write(cast("web.StreamResponse", _Sink(happened)), [b"x" * 200_000])
    await task
    sizes = [size for size in happened if size]
    assert sum(sizes) == 200_000
    assert max(sizes) <= 64 << 10
    between = happened[: happened.index(sizes[-1])]
    assert between.count(0) >= len(sizes) - 1
