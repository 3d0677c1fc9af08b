"""The endpoints as a kubelet and a Prometheus see them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
import pytest

from stellwerk.metrics import Metrics
from stellwerk.serving.exposition import exposition
from stellwerk.serving.http import HttpServer, Probes, Watchdog, parse_address
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ConfigurationError


@asynccontextmanager
async def serving(
    probes: Probes | None = None, metrics: Metrics | None = None
) -> AsyncIterator[str]:
    text = partial(exposition, metrics or Metrics())
    server = HttpServer(probes or Probes(), text, lambda: [b"kube_pod_resource_request 1\n"])
    port = await server.start("127.0.0.1:0")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.close()


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.text()


async def test_metrics_are_served_as_prometheus_reads_them() -> None:
    metrics = Metrics()
    metrics.pending_pods.labels("active").set(3)
    async with (
        serving(metrics=metrics) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics") as response,
    ):
        assert response.content_type == "text/plain"
        assert 'scheduler_pending_pods{queue="active"} 3.0' in await response.text()


async def test_resource_metrics_are_served() -> None:
    async with serving() as url:
        assert await get(f"{url}/metrics/resources") == (200, "kube_pod_resource_request 1\n")


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_probes_say_ok(path: str) -> None:
    async with serving() as url:
        assert await get(url + path) == (200, "ok")


async def test_not_ready_before_the_lists_are_complete() -> None:
    missing: str | None = "waiting for Pod, Node"
    probes = Probes(live={"ping": lambda: None}, ready={"sync": lambda: missing})
    async with serving(probes) as url:
        assert await get(f"{url}/readyz") == (
            503,
            "[+]ping ok\n[-]sync failed: waiting for Pod, Node\nreadyz check failed\n",
        )
        assert await get(f"{url}/livez") == (200, "ok")
        missing = None
        assert await get(f"{url}/readyz") == (200, "ok")


async def test_verbose_names_every_check() -> None:
    async with serving(Probes(live={"ping": lambda: None})) as url:
        assert await get(f"{url}/livez?verbose") == (200, "[+]ping ok\nlivez check passed\n")


async def test_one_check_can_be_asked_alone() -> None:
    probes = Probes(live={"good": lambda: None, "bad": lambda: "broken"})
    async with serving(probes) as url:
        assert await get(f"{url}/livez/good") == (200, "ok")
        assert (await get(f"{url}/livez/bad"))[0] == 503
        assert (await get(f"{url}/livez/unknown"))[0] == 404


async def test_a_check_that_raises_fails_the_probe() -> None:
    def broken() -> str | None:
        raise RuntimeError("oops")

    async with serving(Probes(live={"broken": broken})) as url:
        status, text = await get(f"{url}/livez")
    assert status == 503
    assert "oops" in text


async def test_liveness_fails_when_the_scheduling_loop_is_stuck() -> None:
    clock = VirtualClock()
    beats = [clock.monotonic()]
    probes = Probes(live={"scheduling": Watchdog(clock, lambda: beats[-1])})
    async with serving(probes) as url:
        clock.advance(20)
        assert (await get(f"{url}/livez"))[0] == 200
        clock.advance(1)
        status, text = await get(f"{url}/livez")
        assert status == 503
        assert "has not moved for 21 s" in text
        beats.append(clock.monotonic())
        assert (await get(f"{url}/livez"))[0] == 200


async def test_a_taken_address_is_a_configuration_error() -> None:
    async with serving() as url:
        taken = url.removeprefix("http://")
        server = HttpServer(Probes(), bytes, list)
        with pytest.raises(ConfigurationError, match=f"cannot listen on {taken}"):
            await server.start(taken)


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        pytest.param("127.0.0.1:10259", ("127.0.0.1", 10259), id="IPv4"),
        pytest.param("[::1]:80", ("::1", 80), id="IPv6"),
        pytest.param(":8080", ("0.0.0.0", 8080), id="all interfaces"),  # noqa: S104
        pytest.param("localhost:0", ("localhost", 0), id="name, any port"),
    ],
)
def test_addresses(address: str, parsed: tuple[str, int]) -> None:
    assert parse_address(address) == parsed


@pytest.mark.parametrize("address", ["", "localhost", "a:b", "1.2.3.4:99999", "::1:80"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an address"):
        parse_address(address)


async def test_the_watchdog_of_leader_election_fails_readyz_and_healthz_but_not_livez() -> None:
    checks = {"leaderElection": lambda: "failed election to renew leadership on lease x"}
    probes = Probes(live={"ping": lambda: None}, ready=checks, healthy=checks)
    async with serving(probes) as url:
        assert (await get(f"{url}/livez"))[0] == 200
        for path in ("/readyz", "/healthz"):
            status, text = await get(f"{url}{path}")
            assert status == 503
            assert "[-]leaderElection failed: failed election to renew" in text
        assert (await get(f"{url}/healthz/leaderElection"))[0] == 503


async def test_without_tls_only_the_machine_itself_is_served() -> None:
    server = HttpServer(Probes(), lambda: b"", list)
    with pytest.raises(ConfigurationError, match="plain HTTP is only for this machine"):
        await server.start("0.0.0.0:0")


async def test_other_work_has_its_turn_between_pieces() -> None:
    turns: list[int] = []

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            asyncio.get_running_loop().call_soon(turns.append, number)
            yield f"{turns}\n".encode()

    server = HttpServer(Probes(), lambda: b"", pieces)
    port = await server.start("127.0.0.1:0")
    try:
        text = await get(f"http://127.0.0.1:{port}/metrics/resources")
        assert text == (200, "[]\n[0]\n[0, 1]\n")
    finally:
        await server.close()


async def test_slis_count_how_each_check_ended() -> None:
    wrong: list[str | None] = ["waiting for Pod", None, None]
    probes = Probes(live={"ping": lambda: None}, ready={"sync": lambda: wrong.pop(0)})
    async with serving(probes) as url:
        await get(f"{url}/readyz")
        failed = await get(f"{url}/metrics/slis")
        await get(f"{url}/readyz?verbose")
        await get(f"{url}/readyz/sync")
        mended = await get(f"{url}/metrics/slis")
    assert 'kubernetes_healthcheck{name="sync",type="readyz"} 0.0' in failed[1]
    assert 'kubernetes_healthcheck{name="sync",type="readyz"} 1.0' in mended[1]
    error, success = (
        f'kubernetes_healthchecks_total{{name="sync",status="{status}",type="readyz"}}'
        for status in ("error", "success")
    )
    assert f"{error} 1.0" in mended[1]
    assert f"{success} 2.0" in mended[1]
    assert 'name="ping",status="success",type="readyz"} 2.0' in mended[1]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("localhost:10259", 200, id="this machine"),
        pytest.param("127.0.0.1", 200, id="its address"),
        pytest.param("rebound.example", 403, id="a name that leads here"),
        pytest.param("", 403, id="none"),
    ],
)
async def test_without_tls_other_names_for_this_machine_get_nothing(host: str, status: int) -> None:
    async with (
        serving() as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/metrics", headers={"Host": host}) as response,
    ):
        assert response.status == status
