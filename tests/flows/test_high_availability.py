"""Two operators on one cluster: one schedules, and when it ends the other does, without a mistake.

Each is a process of its own, over loopback and in real time, with a lease much shorter than the
default. The embedded cluster notes every binding and every holder of the lease.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from stellwerk_cluster.apiserver.store import StoreEvent
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.invariants import check_capacity
from tests.support.line import Line, line_to
from tests.support.processes import Process, running
from tests.support.running_operator import install

LEASE_SECONDS = 2.0
FLAGS = (
    "--leader-elect=true",
    f"--leader-elect-lease-duration={LEASE_SECONDS:g}s",
    "--leader-elect-renew-deadline=1300ms",
    "--leader-elect-retry-period=900ms",
    "--leader-elect-resource-name=stellwerk",
)
PATIENCE_SECONDS = 30.0
LOAD_SECONDS = 0.9
"""What a busy machine may add; candidates that only ask would need up to 2 s more."""
PODS = 300
NODES = [make_node(f"n{number}", cpu="30") for number in range(10)]
"""Just enough for the pods, which leave no room for one that is counted twice or nowhere."""
ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)


class History:
    """What the cluster has taken, with the loop's time."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self.bound: Counter[str] = Counter()
        self.bound_at: list[float] = []
        self.holders: list[tuple[float, str]] = []
        """Whenever the holder changed."""
        self.renewed_at = 0.0
        cluster.api.store.listeners.append(self._on_change)

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        now, obj = asyncio.get_running_loop().time(), event.entry.obj
        if storage_name == "pods" and event.previous is not None:
            before, after = event.previous.obj["spec"], obj["spec"]
            if before.get("nodeName") != after.get("nodeName"):
                self.bound[obj["metadata"]["name"]] += 1
                self.bound_at.append(now)
        elif obj["metadata"]["name"] == "stellwerk" and "holderIdentity" in obj.get("spec", {}):
            holder = obj["spec"]["holderIdentity"]
            self.renewed_at = now
            if holder != self.holder:
                self.holders.append((now, holder))

    @property
    def holder(self) -> str:
        """Who has the lease; empty: nobody."""
        return self.holders[-1][1] if self.holders else ""

    async def until(self, condition: Callable[[], bool], *alive: Process) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():
                for process in alive:
                    process.check_alive()
                await asyncio.sleep(0.005)

    def create(self, names: Iterable[str]) -> None:
        for name in names:
            pod = make_pod(name, cpu="1")
            del pod["metadata"]["uid"]
            self.cluster.api.create(self.cluster.api.kinds.resource("pods"), "default", pod)

    async def create_steadily(self, names: Iterable[str], pause_seconds: float) -> None:
        """Also while no operator is there."""
        for name in names:
            self.create([name])
            await asyncio.sleep(pause_seconds)

    def first_binding_after(self, moment: float) -> float:
        return min(each for each in self.bound_at if each >= moment)

    def check(self) -> None:
        assert len(self.bound) == PODS, "none is lost"
        assert set(self.bound.values()) == {1}, "none is bound twice"
        check_capacity(self.cluster.api.all("nodes"), self.cluster.api.all("pods", "default"))


@pytest.fixture
async def history() -> AsyncIterator[History]:
    async with EmbeddedCluster(NODES, options=ALONE) as cluster:
        install(cluster, make_profile("default-scheduler"))
        yield History(cluster)


@dataclass
class Replica:
    """An operator, and its own line to the cluster."""

    process: Process
    line: Line

    def log(self) -> str:
        return self.process.log.read_text(encoding="utf-8")

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.process.pid, number)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.process.wait(), PATIENCE_SECONDS)


@asynccontextmanager
async def replicas(
    history: History, directory: Path, count: int, *, delay_seconds: float = 0.0
) -> AsyncIterator[list[Replica]]:
    """Operators that have their lists; the first one leads, the others stand by."""
    async with AsyncExitStack() as stack:
        started = []
        for number in range(count):
            kubeconfig = directory / f"{number}.kubeconfig"
            line = await stack.enter_async_context(
                line_to(history.cluster.url, kubeconfig, delay_seconds=delay_seconds)
            )
            arguments = ("--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1:0", *FLAGS)
            log = directory / f"{number}.log"
            process = await stack.enter_async_context(running(log, "run", *arguments))
            started.append(Replica(process, line))
        processes = [each.process for each in started]
        await history.until(
            lambda: (
                all("attempting to acquire" in each.log() for each in started)
                and any(leads(each) for each in started)
            ),
            *processes,
        )
        yield sorted(started, key=leads, reverse=True)


def leads(replica: Replica) -> bool:
    return "successfully acquired" in replica.log()


def pod_names(start: int, end: int) -> list[str]:
    return [f"p{number}" for number in range(start, end)]


async def test_a_clean_stop_hands_over_at_once_and_a_crash_within_the_lease(
    history: History, tmp_path: Path
) -> None:
    async with (
        replicas(history, tmp_path, 3) as (first, *others),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(history.create_steadily(pod_names(0, PODS), 0.012))
        await history.until(lambda: len(history.bound) > PODS // 6)
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0
        await history.until(lambda: len(history.holders) == 3)
        (_, _), (released_at, nobody), (taken_at, heir) = history.holders
        assert nobody == ""
        assert taken_at - released_at < LOAD_SECONDS
        await history.until(lambda: history.bound_at[-1] > taken_at)
        assert history.first_binding_after(taken_at) - taken_at < LOAD_SECONDS

        (second,) = filter(leads, others)
        second.signal(signal.SIGKILL)
        renewed_at = history.renewed_at
        await history.until(lambda: len(history.holders) == 4)
        taken_at, last = history.holders[3]
        assert last not in {"", heir}
        assert LEASE_SECONDS <= taken_at - renewed_at < LEASE_SECONDS + LOAD_SECONDS
        await history.until(lambda: len(history.bound) == PODS)
    history.check()


async def test_a_paused_process_that_wakes_with_bindings_queued_sends_none(
    history: History, tmp_path: Path
) -> None:
    async with replicas(history, tmp_path, 2, delay_seconds=0.05) as (first, second):
        history.create(pod_names(0, PODS))
        await history.until(lambda: len(history.bound) > PODS // 15, first.process)
        first.signal(signal.SIGSTOP)
        await asyncio.sleep(0.6)  # what it has sent arrives
        sent = len(first.line.bindings)
        assert sent < PODS - 50, "many are queued"
        await history.until(lambda: len(history.bound) == PODS, second.process)
        first.signal(signal.SIGCONT)
        assert await first.ended() == 1
        assert first.line.bindings[sent:] == []
        assert "stellwerk: lost the lease kube-system/stellwerk: " in first.log()
    history.check()


async def test_a_process_that_is_cut_off_ends_and_nothing_of_it_arrives_later(
    history: History, tmp_path: Path
) -> None:
    async with (
        replicas(history, tmp_path, 2) as (first, second),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(history.create_steadily(pod_names(0, PODS), 0.012))
        await history.until(lambda: len(history.bound) > PODS // 6, first.process)
        first.line.cut()
        cut_at = asyncio.get_running_loop().time()
        await history.until(lambda: len(history.holders) == 2, second.process)
        assert history.holders[1][0] - cut_at < LEASE_SECONDS + LOAD_SECONDS
        assert await first.ended() == 1
        first.line.mend()
        await history.until(lambda: len(history.bound) == PODS, second.process)
        await asyncio.sleep(0.1)
    history.check()
