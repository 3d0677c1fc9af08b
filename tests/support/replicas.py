"""Several operators on one cluster, each a process with a line of its own, and what became of it.

For flows and for the benchmark of failovers. Invariant: the cluster runs in this process and notes
every binding and every holder of the lease when it takes them.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.registry.entries import StoreEvent
from tests.support.builders import make_pod
from tests.support.invariants import check_capacity
from tests.support.line import Line, line_to
from tests.support.processes import Process, running
from tests.support.rights import operator_token

PATIENCE_SECONDS = 60.0
OWN_LEASE = (
    "--leader-elect-resource-name=stellwerk",
    "--leader-elect-resource-namespace=stellwerk",
)
"""The lease that the manifests give a right to."""


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
        """The identity in the lease; empty: it is free."""
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

    def check(self, pods: int) -> None:
        """None is lost, none bound twice, and no node over-committed."""
        assert len(self.bound) == pods, "none is lost"
        assert set(self.bound.values()) == {1}, "none is bound twice"
        check_capacity(self.cluster.api.all("nodes"), self.cluster.api.all("pods", "default"))


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
async def replica(
    history: History,
    directory: Path,
    name: str,
    flags: Sequence[str],
    *,
    delay_seconds: float = 0.0,
    spread: float = 0.0,
) -> AsyncIterator[Replica]:
    """One operator; `name` is that of its files."""
    kubeconfig, token = directory / f"{name}.kubeconfig", operator_token(history.cluster)
    opened = line_to(
        history.cluster.url, token, kubeconfig, delay_seconds=delay_seconds, spread=spread
    )
    arguments = ("--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1:0", *flags)
    async with opened as line, running(directory / f"{name}.log", "run", *arguments) as process:
        yield Replica(process, line)


@asynccontextmanager
async def replicas(
    history: History,
    directory: Path,
    count: int,
    flags: Sequence[str],
    *,
    delay_seconds: float = 0.0,
) -> AsyncIterator[list[Replica]]:
    """Operators that have their lists; the first one leads, the others stand by."""
    async with AsyncExitStack() as stack:
        started = [
            await stack.enter_async_context(
                replica(history, directory, str(number), flags, delay_seconds=delay_seconds)
            )
            for number in range(count)
        ]
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
    """Names of pods that are not created yet."""
    return [f"p{number}" for number in range(start, end)]
