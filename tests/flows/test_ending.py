"""The process ends when it is told to, however the API server behaves."""

import asyncio
from pathlib import Path

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


async def test_a_second_sigterm_ends_at_once(tmp_path: Path) -> None:
    hang = {"fault": "hang", "seconds": 60, "resources": ["pods/binding"]}
    plan = FaultPlan(FaultTable.model_validate({"faults": [hang]}), 1, SystemClock())
    options = ClusterOptions(
        controllers=False, kubelet=None, heartbeats=False, faults=plan, identity=ENFORCED
    )
    async with EmbeddedCluster([make_node("n1")], options=options) as cluster:
        install(cluster, make_profile("default-scheduler"))
        write_operator_kubeconfig(cluster, tmp_path / "kubeconfig")
        plan.arm()
        arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--bind-address", "127.0.0.1:0")
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
