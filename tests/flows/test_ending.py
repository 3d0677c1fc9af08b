"""The process ends when it is told to, however the API server behaves, with the status it should.

docs/reliability.md lists them; test_high_availability.py has SIGTERM (0) and the lost lease (1).
An API server that refuses, says nothing or is not there yet does not end it, however long it lasts.
"""

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from stellwerk.scheduler.observers.instruments import StaleWatches
from stellwerk.supervision import ENDED_AT_ONCE
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import FaultTable
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.processes import Process, running, trusting
from tests.support.replicas import OWN_LEASE
from tests.support.rights import ENFORCED, write_operator_kubeconfig
from tests.support.running_operator import install, is_active, operator_on, until


@asynccontextmanager
async def cluster_for_operator(
    directory: Path, faults: FaultPlan | None = None
) -> AsyncIterator[tuple[EmbeddedCluster, tuple[str, ...]]]:
    """A cluster of one node, and the arguments that lead an operator to it."""
    options = ClusterOptions(
        controllers=False, kubelet=None, heartbeats=False, faults=faults, identity=ENFORCED
    )
    async with EmbeddedCluster([make_node("n1")], options=options) as cluster:
        install(cluster, make_profile("default-scheduler"))
        kubeconfig = directory / "kubeconfig"
        write_operator_kubeconfig(cluster, kubeconfig)
        yield cluster, ("--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1:0")


def last_words(process: Process) -> str:
    """The one line of an error that ends a command."""
    (line,) = [
        line
        for line in process.log.read_text(encoding="utf-8").splitlines()
        if line.startswith("stellwerk: ")
    ]
    return line


def delete_service_account(cluster: EmbeddedCluster) -> None:
    """The operator's own: its token is refused from now on."""
    accounts = cluster.api.kinds.resource("serviceaccounts")
    delete(cluster.api, accounts, ("stellwerk", "stellwerk"), DeleteOptions())


async def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    hang = {"fault": "hang", "seconds": 60, "resources": ["pods/binding"]}
    plan = FaultPlan(FaultTable.model_validate({"faults": [hang]}), 1, SystemClock())
    async with cluster_for_operator(tmp_path, plan) as (cluster, arguments):
        plan.arm()
        async with running(tmp_path / "run.log", "run", *arguments) as operator:
            await until(lambda: is_active(cluster, "default-scheduler"))
            pods = cluster.api.kinds.resource("pods")
            cluster.api.create(pods, "default", make_pod("web"))
            await until(lambda: plan.struck)
            ended = asyncio.create_task(operator.process.wait())
            async with asyncio.timeout(30):
                while not ended.done():
                    operator.process.terminate()  # two at once may arrive as one
                    await asyncio.wait({ended}, timeout=0.5)
            assert ended.result() == ENDED_AT_ONCE


@asynccontextmanager
async def silent_server(kubeconfig: Path) -> AsyncIterator[asyncio.Event]:
    """An API server that takes connections and says nothing; the event: there has been one."""
    connected, over = asyncio.Event(), asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await over.wait()
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    write_kubeconfig(kubeconfig, port)
    async with server:
        yield connected
        over.set()


KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
"""


def write_kubeconfig(path: Path, port: int) -> None:
    path.write_text(KUBECONFIG.format(port=port), encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_before_the_api_server_has_answered(
    number: signal.Signals, tmp_path: Path
) -> None:
    async with silent_server(tmp_path / "kubeconfig") as connected:
        arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--bind-address", "127.0.0.1:0")
        async with running(tmp_path / "run.log", "run", *arguments, is_forked=False) as operator:
            await asyncio.wait_for(connected.wait(), 60)
            operator.process.send_signal(number)
            assert await asyncio.wait_for(operator.process.wait(), 60) == 0
        said = (tmp_path / "run.log").read_text(encoding="utf-8")
        assert "Traceback" not in said


def port_of(process: Process) -> str:
    """The URL of the operator's port, once its log names it; empty: not yet."""
    said = process.log.read_text(encoding="utf-8")
    found = re.search(r"serving probes and metrics on (https://127\.0\.0\.1:\d+)", said)
    return "" if found is None else found[1]


async def asked(url: str) -> str:
    """Status and text of a probe."""
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=trusting()) as answer,
    ):
        return f"{answer.status} {await answer.text()}"


@pytest.mark.parametrize(
    "host",
    [
        pytest.param("127.0.0.1", id="nobody listens there"),
        pytest.param("api.invalid", id="the name does not resolve"),
    ],
)
async def test_without_an_api_server_it_waits_and_its_probes_say_so(
    host: str, tmp_path: Path
) -> None:
    async with silent_server(tmp_path / "kubeconfig"):
        pass  # and now the port is free again
    text = (tmp_path / "kubeconfig").read_text(encoding="utf-8")
    (tmp_path / "kubeconfig").write_text(text.replace("127.0.0.1", host), encoding="utf-8")
    arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--bind-address", "127.0.0.1:0")
    async with running(tmp_path / "run.log", "run", *arguments, "--leader-elect") as operator:
        await until(lambda: port_of(operator))
        await until(lambda: "waiting for the API server" in operator.log.read_text("utf-8"))
        assert await asked(f"{port_of(operator)}/livez") == "200 ok"
        ready = await asked(f"{port_of(operator)}/readyz")
        assert ready.startswith("503 ")
        assert "[-]apiServer failed: waiting for " in ready
        assert f"no usable Kubernetes API at http://{host}:" in ready
        await asyncio.sleep(0.8)  # a question or two more, and not a line for each
        assert operator.log.read_text(encoding="utf-8").count("waiting for the API server") == 1
        assert await operator.stop() == 0
    assert "Traceback" not in operator.log.read_text(encoding="utf-8")
    assert "never awaited" not in operator.log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param({"fault": "reset"}, id="it is away"),
        pytest.param({"fault": "answer", "code": 503}, id="it is starting"),
        pytest.param({"fault": "answer", "code": 401}, id="it does not know the operator yet"),
    ],
)
async def test_an_api_server_that_comes_late_finds_the_operator_waiting(
    refusal: JsonObject, tmp_path: Path
) -> None:
    table = FaultTable.model_validate({"faults": [refusal]})
    plan = FaultPlan(table, 1, SystemClock())
    async with cluster_for_operator(tmp_path, plan) as (cluster, arguments):
        plan.arm()
        async with running(tmp_path / "run.log", "run", *arguments) as operator:
            log = operator.log
            await until(lambda: "waiting for the API server" in log.read_text("utf-8"))
            plan.disarm()
            await until(lambda: is_active(cluster, "default-scheduler"))
            assert "the API server answers again" in log.read_text(encoding="utf-8")
            ready = ""
            async with asyncio.timeout(60):
                while not ready:
                    # Once the authority of clients is known, handshakes that are under way end.
                    with suppress(aiohttp.ClientConnectionError):
                        ready = await asked(f"{port_of(operator)}/readyz/apiServer")
            assert ready == "200 ok"
            assert await operator.stop() == 0


async def test_sigint_ends_in_order(tmp_path: Path) -> None:
    async with (
        cluster_for_operator(tmp_path) as (cluster, arguments),
        running(tmp_path / "run.log", "run", *arguments) as operator,
    ):
        await until(lambda: is_active(cluster, "default-scheduler"))
        operator.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(operator.process.wait(), 60) == 0
    assert "Traceback" not in (tmp_path / "run.log").read_text(encoding="utf-8")


async def test_an_operator_whose_service_account_is_deleted_goes_on_and_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet kind is asked about twice a second here, and may be silent for two."""
    monkeypatch.setattr("stellwerk.handlers.lifecycle._INACTIVITY_SECONDS", 0.5)
    monkeypatch.setattr("stellwerk.app.StaleWatches", partial(StaleWatches, limit_seconds=2.0))
    ports: list[int] = []

    async def probe(path: str) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{ports[0]}{path}") as answer,
        ):
            return f"{answer.status} {await answer.text()}"

    async def until_ready(*, ready: bool) -> str:
        async with asyncio.timeout(60):
            while (said := await probe("/readyz")).startswith("200") != ready:  # noqa: ASYNC110 over HTTP
                await asyncio.sleep(0.2)
        return said

    async with (
        cluster_for_operator(tmp_path) as (cluster, _),
        operator_on(cluster, tmp_path, on_port=ports.append),
    ):
        await until(lambda: is_active(cluster, "default-scheduler"))
        await until_ready(ready=True)
        delete_service_account(cluster)
        assert "[-]watches failed: nothing was received about " in await until_ready(ready=False)
        assert await probe("/livez") == "200 ok"


@pytest.mark.long
async def test_a_leader_whose_service_account_is_deleted_ends_and_then_waits_for_its_credentials(
    tmp_path: Path,
) -> None:
    lease = ("--leader-elect-lease-duration", "6s", "--leader-elect-renew-deadline", "4s")
    election = ("--leader-elect", *lease, "--leader-elect-retry-period", "1s", *OWN_LEASE)
    async with cluster_for_operator(tmp_path) as (cluster, arguments):
        async with running(tmp_path / "first.log", "run", *arguments, *election) as first:
            await until(lambda: is_active(cluster, "default-scheduler"))
            delete_service_account(cluster)
            assert await asyncio.wait_for(first.process.wait(), 60) == 1
        assert last_words(first).startswith("stellwerk: lost the lease stellwerk/stellwerk: ")
        async with running(tmp_path / "second.log", "run", *arguments, *election) as second:
            await until(lambda: "waiting for the API server" in second.log.read_text("utf-8"))
            assert "401" in await asked(f"{port_of(second)}/readyz")
            assert await second.stop() == 0


@pytest.mark.long
async def test_kopf_ending_by_itself_ends_the_process_after_its_bindings(tmp_path: Path) -> None:
    module = "tests.flows.failing_kopf"
    async with cluster_for_operator(tmp_path) as (_, arguments):
        async with running(tmp_path / "run.log", "run", *arguments, module=module) as operator:
            assert await asyncio.wait_for(operator.process.wait(), 60) == 1
        assert last_words(operator) == (
            'stellwerk: the task "kopf\'s own" ended: RuntimeError: a defect in kopf'
        )
    assert "Traceback" not in operator.log.read_text(encoding="utf-8")
