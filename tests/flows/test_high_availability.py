"""Two operators on one cluster: one schedules, and when it ends the other does, without a mistake.

Each is a process of its own, over loopback and in real time, with a lease much shorter than the
default. The embedded cluster notes every binding and every holder of the lease.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stellwerk.client.lease import Lease, public_key
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.builders import make_node
from tests.support.in_process import make_profile
from tests.support.replicas import OWN_LEASE, History, pod_names, replicas
from tests.support.rights import ENFORCED
from tests.support.running_operator import install

LEASE_SECONDS = 7.0
RENEW_SECONDS = 5.5
"""So long a process may be kept from the processor by other work, and still leads."""
LONG_SECONDS = 90.0
"""A lease of which nothing is seen but its release: candidates that only ask do so after 40 s."""
LOAD_SECONDS = 20.0
"""What a busy machine may add. test_elector.py holds the moments, in virtual time."""
PODS = 300
NODES = [make_node(f"n{number}", cpu="30") for number in range(10)]
"""Just enough for the pods, which leave no room for one that is counted twice or nowhere."""
ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)


@pytest.fixture
async def history() -> AsyncIterator[History]:
    async with EmbeddedCluster(NODES, options=ALONE) as cluster:
        install(cluster, make_profile("default-scheduler"))
        yield History(cluster)


def flags(lease_seconds: float, renew_seconds: float, retry_seconds: float) -> tuple[str, ...]:
    return (
        "--leader-elect=true",
        f"--leader-elect-lease-duration={lease_seconds:g}s",
        f"--leader-elect-renew-deadline={renew_seconds:g}s",
        f"--leader-elect-retry-period={retry_seconds:g}s",
        *OWN_LEASE,
    )


SHORT = flags(LEASE_SECONDS, RENEW_SECONDS, 2)


def key_in_lease(history: History) -> str:
    """By which key users know the port of the holder."""
    api = history.cluster.api
    leases = api.kinds.resource("leases", "coordination.k8s.io")
    return public_key(Lease.of(api.get(leases, "stellwerk", "stellwerk").obj))


async def test_a_clean_stop_hands_over_at_once(history: History, tmp_path: Path) -> None:
    lease = flags(LONG_SECONDS, 60, 40)
    async with (
        replicas(history, tmp_path, 2, lease) as (first, second),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(history.create_steadily(pod_names(0, PODS), 0.012))
        await history.until(lambda: len(history.bound) > PODS // 6)
        first_key = key_in_lease(history)
        first.signal(signal.SIGTERM)
        assert await first.ended() == 0
        await history.until(lambda: len(history.holders) == 3, second.process)
        (_, _), (released_at, free), (taken_at, _) = history.holders
        assert free == ""
        assert taken_at - released_at < LOAD_SECONDS
        await history.until(lambda: len(history.bound) == PODS, second.process)
        assert history.first_binding_after(taken_at) - taken_at < LOAD_SECONDS
        assert first_key.startswith("sha256:")
        assert key_in_lease(history) not in {"", first_key}, "the new holder says its own"
    history.check(PODS)


async def test_after_a_crash_another_one_leads_when_the_lease_has_run_out(
    history: History, tmp_path: Path
) -> None:
    async with (
        replicas(history, tmp_path, 2, SHORT) as (first, second),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(history.create_steadily(pod_names(0, PODS), 0.012))
        await history.until(lambda: len(history.bound) > PODS // 6)
        first.signal(signal.SIGKILL)
        renewed_at = history.renewed_at
        await history.until(lambda: len(history.holders) == 2, second.process)
        (_, dead), (taken_at, heir) = history.holders
        assert heir not in {"", dead}
        assert LEASE_SECONDS <= taken_at - renewed_at < LEASE_SECONDS + LOAD_SECONDS
        await history.until(lambda: len(history.bound) == PODS, second.process)
    history.check(PODS)


async def test_a_paused_process_that_wakes_with_bindings_queued_sends_none(
    history: History, tmp_path: Path
) -> None:
    async with replicas(history, tmp_path, 2, SHORT, delay_seconds=0.05) as (first, second):
        history.create(pod_names(0, PODS))
        await history.until(lambda: len(history.bound) > PODS // 15, first.process)
        first.signal(signal.SIGSTOP)
        sent = -1
        while sent != len(first.line.bindings):  # what it has sent arrives
            sent = len(first.line.bindings)
            await asyncio.sleep(0.6)
        assert sent < PODS - 50, "many are queued"
        await history.until(lambda: len(history.bound) == PODS, second.process)
        first.signal(signal.SIGCONT)
        assert await first.ended() == 1
        assert first.line.bindings[sent:] == []
        assert "stellwerk: lost the lease stellwerk/stellwerk: " in first.log()
    history.check(PODS)


async def test_a_process_that_is_cut_off_ends_and_nothing_of_it_arrives_later(
    history: History, tmp_path: Path
) -> None:
    async with (
        replicas(history, tmp_path, 2, SHORT) as (first, second),
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
    history.check(PODS)
