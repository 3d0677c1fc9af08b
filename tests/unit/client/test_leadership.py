"""When a process schedules, and when it gives the lease away."""

import asyncio

import pytest

from stellwerk.client.connection import Fence, open_fence
from stellwerk.client.leadership import Leadership, fence_for
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import LeaseLostError
from tests.support.lease_election import OPTIONS, Candidate, LeaseServer, record
from tests.support.skipped_time import run_skipping


async def synced() -> None:
    """The lists are complete."""


class Process:
    """A leadership on a lease in memory."""

    def __init__(self, server: LeaseServer, clock: VirtualClock) -> None:
        self.fence: Fence = fence_for(OPTIONS, clock)
        candidate = Candidate(server, clock, "host_me", fence=self.fence)
        candidate.task.cancel()  # its elector is what is wanted
        self.leadership = Leadership(candidate.elector, self.fence)
        self.confirmed = True
        self.task = asyncio.create_task(self.leadership.run(synced, lambda: self.confirmed))


async def test_without_leader_election_a_process_leads_from_the_start() -> None:
    leadership = Leadership(None, open_fence())
    assert leadership.leading.is_set()
    assert leadership.is_leading
    assert leadership.watchdog() is None


def test_a_process_without_its_lists_does_not_stand() -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        process = Process(server, clock)
        process.task.cancel()
        complete = asyncio.Event()

        async def lists() -> None:
            await complete.wait()

        task = asyncio.create_task(process.leadership.run(lists, lambda: True))
        await asyncio.sleep(60)
        assert server.obj is None
        complete.set()
        await process.leadership.leading.wait()
        assert process.leadership.is_leading
        task.cancel()
        await asyncio.wait({task})

    run_skipping(flow)


def test_the_lease_is_released_when_the_last_write_was_answered_and_seen() -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        process = Process(server, clock)
        await process.leadership.leading.wait()
        process.fence.begin()
        process.confirmed = False
        process.task.cancel()
        await asyncio.sleep(0.1)
        assert not process.fence.is_open, "nothing new is begun"
        process.fence.end(answered=True)
        await asyncio.sleep(0.1)
        assert server.records[-1].holder_identity == "host_me", "the watches have yet to show it"
        process.confirmed = True
        await asyncio.wait({process.task})
        assert server.records[-1].holder_identity == ""

    run_skipping(flow)


@pytest.mark.parametrize(
    ("answered", "holder"),
    [
        pytest.param(True, "", id="a binding that no watch shows holds it up for a second"),
        pytest.param(False, "host_me", id="with a write that hangs it runs out"),
    ],
)
def test_the_end_does_not_wait_for_ever(*, answered: bool, holder: str) -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        process = Process(server, clock)
        await process.leadership.leading.wait()
        process.confirmed = False
        process.fence.begin()
        if answered:
            process.fence.end(answered=True)
        began_at_seconds = clock.monotonic()
        process.task.cancel()
        await asyncio.wait({process.task})
        assert clock.monotonic() - began_at_seconds < 1.1
        assert server.records[-1].holder_identity == holder

    run_skipping(flow)


def test_a_lost_lease_is_not_released() -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        process = Process(server, clock)
        await process.leadership.leading.wait()
        server.put(record("host_other"))
        await asyncio.wait({process.task})
        assert isinstance(process.task.exception(), LeaseLostError)
        assert server.records[-1].holder_identity == "host_other"

    run_skipping(flow)
