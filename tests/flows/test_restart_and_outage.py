"""The operator stops, dies or loses the API in the middle of its work, and no pod is lost for it.

Over loopback and in real time, against the embedded cluster, which notes every binding it takes:
none comes twice.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import StoreEvent
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.invariants import check_capacity
from tests.support.processes import running
from tests.support.rights import ENFORCED, write_operator_kubeconfig
from tests.support.running_operator import install, is_active, operator_on, until

PODS = 200
NODES = [make_node(f"n{number}", cpu="20") for number in range(10)]
"""Just enough for the pods, which leave no room for one that is counted twice or nowhere."""
OUTAGE_SECONDS = 2.0
ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)


class Bindings:
    """How often each pod was given a node."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.of: Counter[str] = Counter()
        self.halfway = asyncio.Event()
        cluster.api.store.listeners.append(self._on_change)

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        if storage_name != "pods" or event.previous is None:
            return
        before, after = event.previous.obj["spec"], event.entry.obj["spec"]
        if before.get("nodeName") != after.get("nodeName"):
            self.of[event.entry.obj["metadata"]["name"]] += 1
            if len(self.of) >= PODS // 2:
                self.halfway.set()


@asynccontextmanager
async def cluster_with_bindings() -> AsyncIterator[tuple[EmbeddedCluster, Bindings]]:
    async with EmbeddedCluster(NODES, options=ALONE) as cluster:
        install(cluster, make_profile("default-scheduler"))
        yield cluster, Bindings(cluster)
        pods = cluster.api.all("pods", "default")
        check_capacity(cluster.api.all("nodes"), pods)


def create(cluster: EmbeddedCluster, names: Iterable[str]) -> None:
    for name in names:
        pod = make_pod(name, cpu="1")
        del pod["metadata"]["uid"]
        cluster.api.create(cluster.api.kinds.resource("pods"), "default", pod)


async def create_steadily(cluster: EmbeddedCluster, names: Iterable[str]) -> None:
    """Also while no operator is there."""
    for name in names:
        create(cluster, [name])
        await asyncio.sleep(0.005)


def remove(cluster: EmbeddedCluster, name: str) -> None:
    options = DeleteOptions(grace_period_seconds=0)
    delete(cluster.api, cluster.api.kinds.resource("pods"), ("default", name), options)


def pod_names(start: int, end: int) -> list[str]:
    return [f"p{number}" for number in range(start, end)]


@asynccontextmanager
async def dying(cluster: EmbeddedCluster, directory: Path) -> AsyncIterator[None]:
    """The operator as a process, killed without warning when the block ends."""
    kubeconfig = directory / "kubeconfig"
    write_operator_kubeconfig(cluster, kubeconfig)
    arguments = ("--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1:0")
    async with running(directory / "run.log", "run", *arguments) as process:
        yield
        process.process.kill()


@pytest.mark.parametrize("first", [operator_on, dying], ids=["stopped", "killed"])
async def test_a_restart_halfway_binds_every_pod_exactly_once(first: Any, tmp_path: Path) -> None:
    async with cluster_with_bindings() as (cluster, bindings), asyncio.TaskGroup() as tasks:
        operator: AbstractAsyncContextManager[None] = first(cluster, tmp_path)
        async with operator:
            await until(lambda: is_active(cluster, "default-scheduler"))
            tasks.create_task(create_steadily(cluster, pod_names(0, PODS)))
            await bindings.halfway.wait()
        assert len(bindings.of) < PODS, "it ended in the middle"
        async with operator_on(cluster, tmp_path):
            await until(lambda: len(bindings.of) == PODS)
        assert set(bindings.of.values()) == {1}


@pytest.mark.slow
async def test_an_outage_of_the_api_is_a_delay(tmp_path: Path) -> None:
    async with cluster_with_bindings() as (cluster, bindings):
        async with operator_on(cluster, tmp_path):
            await until(lambda: is_active(cluster, "default-scheduler"))
            create(cluster, pod_names(0, PODS))
            await bindings.halfway.wait()
            await cluster.stop()
            # Nobody can be told of it now: one pod goes, and another comes that needs its room.
            remove(cluster, "p0")
            create(cluster, pod_names(PODS, PODS + 1))
            await asyncio.sleep(OUTAGE_SECONDS)
            assert f"p{PODS}" not in bindings.of
            await cluster.start()
            await until(lambda: _all_bound(cluster))
            # And it goes on: the next pod is bound, too.
            remove(cluster, "p1")
            create(cluster, pod_names(PODS + 1, PODS + 2))
            await until(lambda: _all_bound(cluster))
        assert set(bindings.of.values()) == {1}


def _all_bound(cluster: EmbeddedCluster) -> bool:
    pods = list(cluster.api.all("pods", "default"))
    return len(pods) == PODS and all(pod["spec"].get("nodeName") for pod in pods)
