"""The process ends when it is told to, however the API server behaves, with the status it should.

docs/reliability.md lists them; test_high_availability.py has SIGTERM (0) and the lost lease (1).
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from stellwerk.cli import USAGE_ERROR
from stellwerk.clock import SystemClock
from stellwerk.supervision import ENDED_AT_ONCE
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.faults.plan import FaultPlan
from stellwerk_cluster.faults.table import FaultTable
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.processes import running
from tests.support.rights import ENFORCED, write_operator_kubeconfig
from tests.support.running_operator import install, is_active, until


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


@pytest.mark.parametrize(
    ("number", "status"),
    [
        pytest.param(signal.SIGINT, 130, id="SIGINT"),
        pytest.param(signal.SIGTERM, -signal.SIGTERM, id="SIGTERM, which a shell reports as 143"),
    ],
)
async def test_a_signal_before_there_is_anything_to_end(
    number: signal.Signals, status: int, tmp_path: Path
) -> None:
    async with silent_server(tmp_path / "kubeconfig") as connected:
        arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--bind-address", "127.0.0.1:0")
        async with running(tmp_path / "run.log", "run", *arguments) as operator:
            await asyncio.wait_for(connected.wait(), 60)
            operator.process.send_signal(number)
            assert await asyncio.wait_for(operator.process.wait(), 60) == status
        said = (tmp_path / "run.log").read_text(encoding="utf-8")
        assert "Traceback" not in said


async def test_without_an_api_server_it_ends_with_one_line(tmp_path: Path) -> None:
    async with silent_server(tmp_path / "kubeconfig"):
        pass  # and now the port is free again
    arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--bind-address", "127.0.0.1:0")
    async with running(tmp_path / "run.log", "run", *arguments) as operator:
        assert await asyncio.wait_for(operator.process.wait(), 60) == USAGE_ERROR
    (line,) = [
        line
        for line in (tmp_path / "run.log").read_text(encoding="utf-8").splitlines()
        if line.startswith("stellwerk: ")
    ]
    assert "127.0.0.1" in line


async def test_sigint_ends_in_order(tmp_path: Path) -> None:
    async with (
        cluster_for_operator(tmp_path) as (cluster, arguments),
        running(tmp_path / "run.log", "run", *arguments) as operator,
    ):
        await until(lambda: is_active(cluster, "default-scheduler"))
        operator.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(operator.process.wait(), 60) == 0
    assert "Traceback" not in (tmp_path / "run.log").read_text(encoding="utf-8")
