"""How long nothing is scheduled when the leader stops, dies, is paused or is cut off.

Run as `python -m tests.benchmarks.bench_failover`, with kube-scheduler's durations, less than three
minutes; it prints the table of docs/reliability-runs.md. A run has two operators, an embedded
cluster in this process, and fifty pods a second; each row is the worst of its runs, which go side
by side.
Invariant: no leader is taken away while an operator starts, nor within a second of another one,
and no run is checked before all have recovered.
"""

import argparse
import asyncio
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.benchmarks.provenance import caption, provenance
from tests.support.builders import make_node
from tests.support.in_process import make_profile
from tests.support.replicas import OWN_LEASE, History, Replica, pod_names, replicas
from tests.support.rights import ENFORCED
from tests.support.running_operator import install

PAUSE_SECONDS = 0.02
WARM_SECONDS = 3.0
APART_SECONDS = 1.0
"""Between the failures of two runs that go side by side."""
KINDS = {
    "SIGTERM": "clean stop",
    "SIGKILL": "crash",
    "SIGSTOP": "paused beyond the lease, then woken",
    "cut": "cut off from the API server, then reconnected",
}
LARGE_NODES: Final = 5000
LARGE_KINDS: Final = ("SIGTERM", "SIGKILL")
LARGE_RUNS: Final = 2
_LONGEST_RETRY: Final = 2.2
"""Of the retry period, between two attempts: client-go adds up to 1.2 of it (JitterFactor)."""


class Case(NamedTuple):
    """A row of the table."""

    kind: str
    nodes: int
    runs: int


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


def retry_seconds(lease_seconds: float) -> float:
    """The retry period, as kube-scheduler's stands to its lease."""
    return lease_seconds * 2 / 15


def kube_scheduler_seconds(kind: str, lease_seconds: float) -> float:
    """How long kube-scheduler may have no leader, by the rules of client-go's leader election.

    A release is found at the next attempt; a death is seen as the last renewal, which was found at
    an attempt, plus the lease, and the attempt after that.
    """
    attempt_seconds = _LONGEST_RETRY * retry_seconds(lease_seconds)
    return attempt_seconds if kind == "SIGTERM" else lease_seconds + 2 * attempt_seconds


async def failovers(case: Case, lease_seconds: float) -> list[Outcome]:
    """Take the leader away in several clusters, in one after the other once all are running."""
    ready = asyncio.Barrier(case.runs)
    async with asyncio.TaskGroup() as tasks:
        runs = [
            tasks.create_task(_failover(case, lease_seconds, ready, number * APART_SECONDS))
            for number in range(case.runs)
        ]
    return [run.result() for run in runs]


async def _failover(
    case: Case, lease_seconds: float, ready: asyncio.Barrier, after_seconds: float
) -> Outcome:
    flags = [
        "--leader-elect=true",
        f"--leader-elect-lease-duration={lease_seconds:g}s",
        f"--leader-elect-renew-deadline={lease_seconds * 2 / 3:g}s",
        f"--leader-elect-retry-period={retry_seconds(lease_seconds):g}s",
        *OWN_LEASE,
    ]
    manifests = [make_node(f"n{number}", cpu="110") for number in range(case.nodes)]
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
    with tempfile.TemporaryDirectory() as directory:
        async with EmbeddedCluster(manifests, options=options) as cluster:
            install(cluster, make_profile("default-scheduler"))
            history = History(cluster)
            async with replicas(history, Path(directory), 2, flags) as (first, second):
                await ready.wait()
                return await _watch(history, case.kind, first, second, ready, after_seconds)


async def _watch(
    history: History,
    kind: str,
    first: Replica,
    second: Replica,
    together: asyncio.Barrier,
    after_seconds: float,
) -> Outcome:
    names = pod_names(0, 100_000)
    creating = asyncio.create_task(history.create_steadily(names, PAUSE_SECONDS))
    await asyncio.sleep(WARM_SECONDS + after_seconds)
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
    await together.wait()  # what follows holds up the loop, and with it the other clusters
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


async def main(cases: list[Case], lease_seconds: float) -> None:
    """Print the table with its caption: a row for each way of failing."""
    measured = provenance()
    print(
        "| the leader | kube-scheduler: without a leader for up to | without a binding for "
        "| decides after it has the lease | stale writes | exit |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for case in cases:
        print(row(case, await failovers(case, lease_seconds), lease_seconds), flush=True)
    print(f"\n{caption(measured)}")


def row(case: Case, outcomes: list[Outcome], lease_seconds: float) -> str:
    """The worst of a case's runs."""
    gap = max(each.gap_seconds for each in outcomes)
    decided = max(each.decided_seconds for each in outcomes)
    cells = (
        f"{case.nodes:,} nodes: {KINDS[case.kind]}",
        f"{kube_scheduler_seconds(case.kind, lease_seconds):.1f} s",
        f"{gap:.3f} s",
        f"{decided * 1000:.0f} ms",
        str(sum(each.stale for each in outcomes)),
        ", ".join(sorted({str(each.status) for each in outcomes})),
    )
    return f"| {' | '.join(cells)} |"


def chosen() -> tuple[list[Case], float]:
    """The cases that the command line asks for, and the lease's seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lease-seconds", type=float, default=15.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--nodes", type=int, help="only this size (default: 100, and two of 5000)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    given = parser.parse_args()
    cases = [Case(kind, given.nodes or 100, given.runs) for kind in given.kinds]
    if given.nodes is None:
        large = [kind for kind in LARGE_KINDS if kind in given.kinds]
        cases += [Case(kind, LARGE_NODES, min(given.runs, LARGE_RUNS)) for kind in large]
    return cases, given.lease_seconds


if __name__ == "__main__":
    asyncio.run(main(*chosen()))
