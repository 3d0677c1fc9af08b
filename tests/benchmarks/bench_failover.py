"""How long nothing is scheduled when the leader stops, dies, is paused or is cut off.

Run as `python -m tests.benchmarks.bench_failover`, with kube-scheduler's durations; a few minutes.
Two operators, the embedded cluster in this process, fifty pods a second; each row is the worst of
its runs.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.builders import make_node
from tests.support.in_process import make_profile
from tests.support.replicas import OWN_LEASE, History, Replica, pod_names, replicas
from tests.support.rights import ENFORCED
from tests.support.running_operator import install

PAUSE_SECONDS = 0.02
WARM_SECONDS = 3.0
KINDS = {
    "SIGTERM": "clean stop",
    "SIGKILL": "crash",
    "SIGSTOP": "paused beyond the lease, then woken",
    "cut": "cut off from the API server, then reconnected",
}


@dataclass
class Outcome:
    """What one failover cost."""

    gap_seconds: float
    """From the last binding before it to the first after it."""
    decided_seconds: float
    """From the new lease to the first binding."""
    stale: int
    """Bindings that the old leader asked for after the new one had the lease."""
    status: int
    """How the old leader ended."""
    pods: int


async def failover(kind: str, lease_seconds: float, nodes: int) -> Outcome:
    """Take the leader away, one way or the other."""
    flags = [
        "--leader-elect=true",
        f"--leader-elect-lease-duration={lease_seconds:g}s",
        f"--leader-elect-renew-deadline={lease_seconds * 2 / 3:g}s",
        f"--leader-elect-retry-period={lease_seconds * 2 / 15:g}s",
        *OWN_LEASE,
    ]
    manifests = [make_node(f"n{number}", cpu="110") for number in range(nodes)]
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedCluster(manifests, options=options) as cluster:
            install(cluster, make_profile("default-scheduler"))
            history = History(cluster)
            async with replicas(history, Path(directory), 2, flags) as (first, second):
                return await _watch(history, kind, first, second)


async def _watch(history: History, kind: str, first: Replica, second: Replica) -> Outcome:
    names = pod_names(0, 100_000)
    creating = asyncio.create_task(history.create_steadily(names, PAUSE_SECONDS))
    await asyncio.sleep(WARM_SECONDS)
    held = len(history.holders)
    if kind == "cut":
        first.line.cut()
    else:
        first.signal(signal.Signals[kind])
    await history.until(
        lambda: len(history.holders) > held and history.holder != "", second.process
    )
    taken_at = history.holders[-1][0]
    sent = len(first.line.bindings)
    await history.until(lambda: history.bound_at[-1] > taken_at, second.process)
    if kind == "SIGSTOP":
        first.signal(signal.SIGCONT)
    first.line.mend()
    status = await first.ended()
    await asyncio.sleep(1)
    creating.cancel()
    await asyncio.wait({creating})
    pods = sum(1 for _ in history.cluster.api.all("pods", "default"))
    await history.until(lambda: len(history.bound) == pods, second.process)
    history.check(pods)
    resumed_at = history.first_binding_after(taken_at)
    before = max(each for each in history.bound_at if each < taken_at)
    stale = len(first.line.bindings) - sent
    return Outcome(resumed_at - before, resumed_at - taken_at, stale, status, pods)


async def main(lease_seconds: float, runs: int, nodes: int, kinds: Sequence[str]) -> None:
    """Print a row for each way of failing."""
    print("| the leader | without a binding for | decides after the lease | stale writes | exit |")
    print("|---|---|---|---|---|")
    for kind in kinds:
        outcomes = [await failover(kind, lease_seconds, nodes) for _ in range(runs)]
        gap = max(each.gap_seconds for each in outcomes)
        decided = max(each.decided_seconds for each in outcomes)
        stale = sum(each.stale for each in outcomes)
        statuses = ", ".join(sorted({str(each.status) for each in outcomes}))
        print(f"| {KINDS[kind]} | {gap:.3f} s | {decided * 1000:.0f} ms | {stale} | {statuses} |")
        sys.stdout.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lease-seconds", type=float, default=15.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    asyncio.run(main(given.lease_seconds, given.runs, given.nodes, given.kinds))
