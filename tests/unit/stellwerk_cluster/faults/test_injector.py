"""Faults as a client sees them over a socket, in the embedded API and through the proxy."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import FaultTable
from stellwerk_kube.clock import Clock, SystemClock, VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.fault_proxy import fault_proxy
from tests.support.in_process import eventually

pytestmark = pytest.mark.skips_time

ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
_SILENCE_SECONDS = 0.3


def _after(seconds: float) -> float:
    return asyncio.get_running_loop().time() + seconds


class Client:
    def __init__(
        self, cluster: EmbeddedCluster, url: str, session: aiohttp.ClientSession, plan: FaultPlan
    ) -> None:
        self.cluster = cluster
        self.url = url
        self.session = session
        self.plan = plan

    async def get(self, path: str) -> aiohttp.ClientResponse:
        async with self.session.get(self.url + path) as response:
            await response.read()
            return response

    async def bind(self) -> aiohttp.ClientResponse:
        body = {"target": {"kind": "Node", "name": "n1"}, "metadata": {"name": "web"}}
        async with self.session.post(f"{self.url}{PODS}/web/binding", json=body) as response:
            await response.read()
            return response

    async def until_served(self) -> None:
        """Until requests are answered again."""
        async with asyncio.timeout(60):
            while True:
                try:
                    assert (await self.get(NODES)).status == 200
                except aiohttp.ClientError:
                    await asyncio.sleep(0.01)
                else:
                    return

    def is_bound(self) -> bool:
        (pod,) = self.cluster.api.all("pods", "default")
        return bool(pod["spec"].get("nodeName"))

    async def watch(
        self, path: str = f"{NODES}?watch=true", *, stays_open_after: int | None = None
    ) -> list[Any]:
        """The lines of a watch until it ends; what remains is the last, as bytes.

        One that is to stay open ends with "open" once it is silent after so many lines.
        """
        rest = b""
        lines: list[Any] = []
        try:
            async with asyncio.timeout(60) as limit, self.session.get(self.url + path) as response:
                if stays_open_after == 0:
                    limit.reschedule(_after(_SILENCE_SECONDS))
                async for chunk in response.content.iter_any():
                    *whole, rest = (rest + chunk).split(b"\n")
                    lines += map(json.loads, whole)
                    if stays_open_after is not None and len(lines) >= stays_open_after:
                        limit.reschedule(_after(_SILENCE_SECONDS))
        except TimeoutError:
            return [*lines, "open"]
        except aiohttp.ClientError:
            return [*lines, rest, "reset"] if rest else [*lines, "reset"]
        return lines


@pytest.fixture(params=["in the API", "by the proxy"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def client_under(
    where: str, *faults: dict[str, Any], armed: bool = True, clock: Clock | None = None
) -> AsyncIterator[Client]:
    """A client of a faulty cluster; `clock` is the plan's, and tells when an entry is due."""
    table = FaultTable.model_validate({"faults": faults})
    plan = FaultPlan(table, 1, clock or SystemClock())
    options = replace(ALONE, faults=plan if where == "in the API" else None)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(
            EmbeddedCluster([make_node("n1"), make_node("n2")], options=options)
        )
        pods = cluster.api.kinds.resource("pods")
        cluster.api.create(pods, "default", make_pod("web"))
        url = cluster.url
        if where == "by the proxy":
            url = await stack.enter_async_context(fault_proxy(cluster.url, plan))
        if armed:
            plan.arm()
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Client(cluster, url, session, plan)


async def test_without_a_strike_the_answer_is_the_apis(where: str) -> None:
    async with client_under(where, {"fault": "reset", "resources": ["pods"]}) as client:
        assert (await client.get(NODES)).status == 200
        assert (await client.bind()).status == 201
        assert client.is_bound()
        lines = await client.watch(stays_open_after=2)
        assert [line["type"] for line in lines[:-1]] == ["ADDED", "ADDED"]
        assert lines[-1] == "open"


async def test_a_delay_before_and_after(where: str) -> None:
    faults = [
        {"fault": "delay", "seconds": 0.1},
        {"fault": "delay", "seconds": 0.1, "moment": "after"},
    ]
    async with client_under(where, *faults) as client:
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await client.bind()).status == 201
        assert client.is_bound()
        assert loop.time() - began >= 0.2


@pytest.mark.parametrize(
    ("moment", "is_bound"),
    [pytest.param("before", False, id="before"), pytest.param("after", True, id="after")],
)
async def test_a_delay_is_before_or_after_the_handling(
    where: str, moment: str, *, is_bound: bool
) -> None:
    delay = {"fault": "delay", "seconds": 600, "moment": moment}
    async with client_under(where, delay) as client:
        binding = asyncio.create_task(client.bind())
        await eventually(lambda: client.plan.struck)
        if is_bound:
            await eventually(client.is_bound)
        await asyncio.sleep(_SILENCE_SECONDS)
        assert client.is_bound() is is_bound
        assert not binding.done()
        binding.cancel()
        await asyncio.wait({binding})


async def test_a_reset_is_not_handled(where: str) -> None:
    async with client_under(where, {"fault": "reset"}) as client:
        with pytest.raises(aiohttp.ClientError):
            await client.bind()
        assert not client.is_bound()


async def test_a_lost_answer_is_handled(where: str) -> None:
    async with client_under(where, {"fault": "lostAnswer"}) as client:
        with pytest.raises(aiohttp.ClientError):
            await client.bind()
        assert client.is_bound()


async def test_a_false_success_is_not_handled(where: str) -> None:
    async with client_under(where, {"fault": "falseSuccess"}) as client:
        assert (await client.bind()).status == 201
        assert not client.is_bound()


async def test_no_answer_for_a_while(where: str) -> None:
    async with client_under(where, {"fault": "hang", "seconds": 0.2}) as client:
        with pytest.raises(aiohttp.ClientError):
            await client.bind()
        assert not client.is_bound()


async def test_an_answer_with_each_form_of_retry_after(where: str) -> None:
    forms = [None, 1, -1, "soon", {"date": -100}]
    fault = {"fault": "answer", "code": 429, "retryAfter": forms}
    async with client_under(where, fault) as client:
        answers = [await client.get(NODES) for _ in forms]
        assert {answer.status for answer in answers} == {429}
        *plain, date = [answer.headers.get("Retry-After") for answer in answers]
        assert plain == [None, "1", "-1", "soon"]
        assert date is not None
        assert date.endswith("GMT")


async def test_an_answer_of_another_shape(where: str) -> None:
    fault = {"fault": "answer", "code": 200, "body": "<html>"}
    async with (
        client_under(where, fault) as client,
        client.session.get(client.url + NODES) as response,
    ):
        assert (response.status, await response.text()) == (200, "<html>")


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        pytest.param({"fault": "endWatch", "afterEvents": 1}, ["ADDED"], id="it ends"),
        pytest.param({"fault": "endWatch", "afterSeconds": 0.1}, ["ADDED", "ADDED"], id="later"),
        pytest.param({"fault": "cutLine", "afterEvents": 1}, ["ADDED", bytes, "reset"], id="cut"),
        pytest.param(
            {"fault": "silence", "afterEvents": 1, "seconds": 0.1}, ["ADDED", "reset"], id="silent"
        ),
        pytest.param(
            {"fault": "silence", "afterEvents": 1, "seconds": 9}, ["ADDED", "open"], id="half open"
        ),
        pytest.param({"fault": "streamError", "afterEvents": 1}, ["ADDED", "ERROR"], id="error"),
        pytest.param({"fault": "repeat", "share": 1}, ["ADDED"] * 4 + ["open"], id="repeated"),
        pytest.param({"fault": "drop"}, ["open"], id="dropped"),
        pytest.param({"fault": "late", "seconds": 9}, ["open"], id="late"),
    ],
)
async def test_what_becomes_of_a_watch(where: str, fault: dict[str, Any], expected: Any) -> None:
    async with client_under(where, fault) as client:
        stays_open_after = len(expected) - 1 if expected[-1] == "open" else None
        lines = await client.watch(stays_open_after=stays_open_after)
    assert [_shape(line) for line in lines] == expected


def _shape(line: Any) -> Any:
    if isinstance(line, dict):
        return line["type"]
    return bytes if isinstance(line, bytes) else line


async def test_a_refused_watch_that_is_struck_is_refused(where: str) -> None:
    async with client_under(where, {"fault": "drop"}) as client:
        assert (await client.get(f"{NODES}?watch=true&timeoutSeconds=x")).status == 400


async def test_in_an_outage_nothing_answers_and_streams_break(where: str) -> None:
    clock, outage = VirtualClock(), {"fault": "outage", "between": [1, 2]}
    async with client_under(where, outage, clock=clock) as client:
        watching = asyncio.create_task(client.watch())
        assert (await client.get(NODES)).status == 200
        clock.advance(1)
        assert (await watching)[-1] == "reset"
        with pytest.raises(aiohttp.ClientError):
            await client.get(NODES)
        clock.advance(1)
        await client.until_served()


async def test_a_watch_that_was_delayed_into_an_outage_leaves_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = VirtualClock()
    delay = {"fault": "delay", "seconds": _SILENCE_SECONDS, "verbs": ["watch"]}
    outage = {"fault": "outage", "between": [1, 2]}
    async with client_under("in the API", delay, outage, clock=clock) as client:
        watching = asyncio.create_task(client.watch())
        await eventually(lambda: client.plan.struck)
        clock.advance(1)
        assert await watching == ["reset"]
        await asyncio.sleep(2 * _SILENCE_SECONDS)  # until its answer would begin
    assert "Traceback" not in caplog.text


async def test_an_outage_that_forgets() -> None:
    clock, outage = VirtualClock(), _lossy_outage(history="forgotten")
    async with client_under("in the API", outage, armed=False, clock=clock) as client:
        version = client.cluster.store.revision - 1
        path = f"{NODES}?watch=true&resourceVersion={version}"
        assert await client.watch(path, stays_open_after=0) == ["open"]
        await live_through(client, clock)
        (error,) = await client.watch(path)
        assert error["object"]["code"] == 410


async def test_an_outage_that_brings_back_an_older_state() -> None:
    clock, outage = VirtualClock(), _lossy_outage(history="older", revisions=1)
    async with client_under("in the API", outage, armed=False, clock=clock) as client:
        before = client.cluster.store.revision
        assert (await client.bind()).status == 201
        assert client.is_bound()
        await live_through(client, clock)
        assert client.cluster.store.revision == before
        assert not client.is_bound()
        assert (await client.bind()).status == 201


def _lossy_outage(**fields: Any) -> dict[str, Any]:
    return {"fault": "outage", "between": [0, 1], **fields}


async def live_through(client: Client, clock: VirtualClock) -> None:
    """Until the only outage of the table, which begins with it, is over."""
    client.plan.arm()
    await eventually(lambda: client.plan.struck)
    clock.advance(1)
    await client.until_served()


async def test_a_proxy_cannot_take_history_away() -> None:
    outage = {"fault": "outage", "between": [0, 1], "history": "older"}
    with pytest.raises(ValueError, match=r"entry 1 \(outage\): only an embedded API"):
        async with client_under("by the proxy", outage):
            pass


async def test_bytes_come_one_at_a_time(where: str) -> None:
    async with client_under(where, {"fault": "drip", "bytes": 100, "seconds": 0.01}) as client:
        async with client.session.get(client.url + NODES) as response:
            pieces = [piece async for piece in response.content.iter_any()]
        assert max(map(len, pieces)) < 1000 < sum(map(len, pieces))
        assert len(json.loads(b"".join(pieces))["items"]) == 2
        first, second, still = await client.watch(stays_open_after=2)
        assert (first["type"], second["type"], still) == ("ADDED", "ADDED", "open")


async def test_half_an_answer_leaves_the_connection_open_and_resets_it_at_last(where: str) -> None:
    async with client_under(where, {"fault": "halfAnswer", "seconds": 5}) as client:
        began = asyncio.get_running_loop().time()
        with pytest.raises(aiohttp.ClientError):
            await client.get(NODES)
        assert asyncio.get_running_loop().time() - began >= 5
        *_, half, end = await client.watch()
        assert half
        assert end == "reset"


async def test_a_bomb_is_small_until_it_is_unpacked(where: str) -> None:
    fault = {"fault": "gzipBomb", "bytes": 10_000_000}
    async with (
        client_under(where, fault) as client,
        client.session.get(client.url + NODES) as response,
    ):
        assert response.headers["Content-Encoding"] == "gzip"
        assert await response.read() == b" " * 10_000_000


async def test_a_list_whose_pages_never_end(where: str) -> None:
    async with client_under(where, {"fault": "endlessPages"}) as client:
        names, token = [], ""
        for _ in range(4):
            path = f"{NODES}?limit=1&continue={token}"
            async with client.session.get(client.url + path) as response:
                page = await response.json()
            names += [each["metadata"]["name"] for each in page["items"]]
            token = page["metadata"]["continue"]
        assert names == ["n1", "n2", "n1", "n2"]
