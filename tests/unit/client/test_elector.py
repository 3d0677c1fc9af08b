"""How one candidate acquires, renews, loses and releases a lease, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from stellwerk.client.elector import MAX_LEASE_SECONDS
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import LeaseLostError
from tests.support.lease_election import Candidate, Fate, LeaseServer, OwnClock, record
from tests.support.skipped_time import run_skipping

ME, OTHER = "host_me", "host_other"

Flow = Callable[[VirtualClock], Coroutine[Any, Any, None]]


def in_virtual_time(flow: Flow) -> Callable[[], None]:
    """A test that runs on a loop whose time is skipped."""

    def test() -> None:
        run_skipping(flow)

    test.__name__ = flow.__name__
    return test


def script(*fates: Fate) -> Any:
    """These fates, and good ones from then on."""
    yield from fates
    while True:
        yield Fate.ANSWERED


def lost(candidate: Candidate) -> str:
    failure = candidate.task.exception()
    assert isinstance(failure, LeaseLostError)
    assert not candidate.fence.is_open
    return str(failure)


@in_virtual_time
async def test_a_lease_that_does_not_exist_is_created_as_by_client_go(
    clock: VirtualClock,
) -> None:
    server = LeaseServer()
    me = Candidate(server, clock, ME)
    await me.leads()
    assert me.fence.is_open
    (made,) = server.records
    assert (made.holder_identity, made.lease_duration_seconds, made.lease_transitions) == (
        ME,
        15,
        0,
    )
    assert made.acquire_time == made.renew_time
    assert server.reports == ["host_me became leader"]
    assert me.metrics.leader_election_master_status.labels("kube-scheduler").current() == 1
    await me.kill()


@in_virtual_time
async def test_it_is_renewed_every_retry_period_and_keeps_its_beginning(
    clock: VirtualClock,
) -> None:
    server = LeaseServer()
    me = Candidate(server, clock, ME)
    await asyncio.sleep(21)
    assert len(server.records) == 11
    assert me.lease.asked.count("get") == 1, "the record seen last is renewed without reading it"
    assert len({each.acquire_time for each in server.records}) == 1
    assert len({each.renew_time for each in server.records}) == 11
    assert {each.lease_transitions for each in server.records} == {0}
    await me.kill()


@in_virtual_time
async def test_a_follower_waits_from_when_it_last_saw_the_record_change(
    clock: VirtualClock,
) -> None:
    server = LeaseServer()
    server.put(record(OTHER, renewed="1999-01-01T00:00:00.000000Z"))
    me = Candidate(server, clock, ME, watchable=False)
    await asyncio.sleep(9)
    assert me.led_at_seconds is None, "whatever time stands in the record"
    server.put(record(OTHER, renewed="1999-01-01T00:00:01.000000Z"))
    await me.leads()
    # Seen at the next attempt, a retry period later at most.
    assert 9 + 15 <= clock.monotonic() <= 9 + 15 + 2.1
    assert server.records[-1].lease_transitions == 4
    await me.kill()


@in_virtual_time
async def test_with_a_watch_a_crashed_holder_is_followed_within_its_lease(
    clock: VirtualClock,
) -> None:
    server = LeaseServer()
    first = Candidate(server, clock, OTHER)
    await first.leads()
    me = Candidate(server, clock, ME, jitter=lambda: 0.99)
    await asyncio.sleep(20.3)
    renewed_at_seconds = 20.0
    await first.kill()
    await me.leads()
    assert renewed_at_seconds + 15 <= clock.monotonic() < renewed_at_seconds + 15.1
    await me.kill()


@pytest.mark.parametrize("watchable", [True, False], ids=["watched", "by attempts"])
def test_a_released_lease_is_taken(*, watchable: bool) -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        first = Candidate(server, clock, OTHER)
        await first.leads()
        me = Candidate(server, clock, ME, watchable=watchable, jitter=lambda: 0.99)
        await asyncio.sleep(7.2)
        await first.stop()
        released = server.records[-1]
        assert (released.holder_identity, released.lease_duration_seconds) == ("", 1)
        assert released.acquire_time == released.renew_time
        assert released.lease_transitions == 0
        stopped_at_seconds = clock.monotonic()
        await me.leads()
        waited_seconds = clock.monotonic() - stopped_at_seconds
        assert waited_seconds < (0.05 if watchable else 2 * 2.2)
        assert server.records[-1].lease_transitions == 1
        await me.kill()

    run_skipping(flow)


@pytest.mark.parametrize(
    ("fates", "seconds"),
    [
        pytest.param([Fate.ANSWER_LOST], 2.1, id="an answer of the creation"),
        pytest.param([Fate.ANSWERED, Fate.ANSWER_LOST], 2.1, id="the answer of a write"),
        pytest.param([Fate.REFUSED] * 3, 6.1, id="three requests in a row"),
        pytest.param([Fate.HUNG], 7.1, id="a request that hangs"),
    ],
)
def test_what_is_lost_on_the_way_to_the_lease_is_a_delay(fates: list[Fate], seconds: float) -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        me = Candidate(server, clock, ME, fates=script(*fates))
        await me.leads()
        assert clock.monotonic() <= seconds
        assert me.fence.is_open
        assert {each.holder_identity for each in server.records} == {ME}
        assert len({each.acquire_time for each in server.records}) == 1
        await me.kill()

    run_skipping(flow)


@pytest.mark.parametrize(
    ("fates", "slow"),
    [
        pytest.param([Fate.REFUSED], 1, id="refused"),
        pytest.param([Fate.ANSWER_LOST], 1, id="applied, but not answered"),
        pytest.param([Fate.HUNG], 1, id="hung"),
        pytest.param([Fate.HUNG, Fate.REFUSED, Fate.REFUSED], 1, id="for seven seconds"),
        pytest.param([Fate.LATE, Fate.LATE], 0, id="late"),
    ],
)
def test_a_renewal_that_fails_is_tried_again_before_the_deadline(
    fates: list[Fate], slow: int
) -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        me = Candidate(server, clock, ME, fates=script(Fate.ANSWERED, Fate.ANSWERED, *fates))
        await asyncio.sleep(30)
        assert not me.task.done()
        assert me.fence.is_open
        slow_paths = me.metrics.leader_election_slowpath.labels("kube-scheduler").value
        assert slow_paths == slow
        await me.kill()

    run_skipping(flow)


@pytest.mark.parametrize("fate", [Fate.REFUSED, Fate.LOST, Fate.HUNG, Fate.ANSWER_LOST])
def test_without_a_renewal_the_fence_closes_at_the_deadline_and_the_process_ends(
    fate: Fate,
) -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        good = [Fate.ANSWERED] * 2
        me = Candidate(server, clock, ME, fates=iter([*good, *[fate] * 100]))
        await me.leads()
        sent_at_seconds = 0.006
        await asyncio.sleep(sent_at_seconds + 9.9 - clock.monotonic())
        assert me.fence.is_open
        assert not me.task.done()
        await asyncio.sleep(0.2)
        assert lost(me) == "lost the lease kube-system/kube-scheduler: failed to renew it in time"
        assert me.metrics.leader_election_master_status.labels("kube-scheduler").current() == 0

    run_skipping(flow)


@pytest.mark.parametrize(
    ("holder", "reason"),
    [
        pytest.param(OTHER, "host_other has it", id="another holder"),
        pytest.param("", "it was released by another", id="no holder"),
    ],
)
def test_a_holder_that_sees_that_it_is_none_ends_at_once(holder: str, reason: str) -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        me = Candidate(server, clock, ME)
        await me.leads()
        await asyncio.sleep(1)
        server.put(record(holder))
        await asyncio.sleep(1.1)
        assert lost(me).endswith(reason)

    run_skipping(flow)


@in_virtual_time
async def test_a_lease_deleted_under_its_holder_is_made_again(clock: VirtualClock) -> None:
    server = LeaseServer()
    me = Candidate(server, clock, ME)
    await me.leads()
    server.delete()
    await asyncio.sleep(5)
    assert me.fence.is_open
    lease = server.lease()
    assert lease is not None
    assert lease.record.holder_identity == ME
    await me.kill()


@in_virtual_time
async def test_a_follower_waits_for_the_holder_of_a_deleted_lease(clock: VirtualClock) -> None:
    server = LeaseServer()
    server.put(record(OTHER))
    me = Candidate(server, clock, ME)
    await asyncio.sleep(1)
    server.delete()
    await me.leads()
    assert clock.monotonic() >= 15
    await me.kill()


@in_virtual_time
async def test_a_process_that_was_paused_beyond_its_lease_asks_nothing(clock: VirtualClock) -> None:
    server = LeaseServer()
    me = Candidate(server, clock, ME)
    await me.leads()
    asked = len(me.lease.asked)
    clock.advance(60)  # no callback has run meanwhile
    assert not me.fence.is_open, "before anything of the process has run"
    await asyncio.sleep(0.001)
    assert "failed to renew it in time" in lost(me)
    assert len(me.lease.asked) == asked


@in_virtual_time
async def test_a_renewal_counts_from_when_it_was_sent(clock: VirtualClock) -> None:
    """The machine is suspended while the answer is on its way; its timers know nothing of it."""
    server, own = LeaseServer(), OwnClock(clock)
    me = Candidate(server, own, ME, fates=script(Fate.ANSWERED, Fate.ANSWERED, Fate.LATE_ANSWER))
    await me.leads()
    await asyncio.sleep(2.5)
    assert len(server.records) == 2, "applied, not yet answered"
    own.suspended(60)
    await asyncio.sleep(3)
    assert "failed to renew it in time" in lost(me)


@pytest.mark.parametrize("jump_seconds", [3600.0, -3600.0])
def test_jumps_of_the_wall_clock_change_nothing(jump_seconds: float) -> None:
    async def flow(clock: VirtualClock) -> None:
        server = LeaseServer()
        own = OwnClock(clock), OwnClock(clock)
        first = Candidate(server, own[0], OTHER)
        await first.leads()
        second = Candidate(server, own[1], ME)
        for mine in own:
            await asyncio.sleep(5)
            mine.wall_offset_seconds = jump_seconds
            await asyncio.sleep(30)
            assert first.fence.is_open
            assert not second.fence.is_open
        await first.kill()
        await second.kill()

    run_skipping(flow)


@in_virtual_time
async def test_a_follower_that_is_stopped_leaves_the_lease_alone(clock: VirtualClock) -> None:
    server = LeaseServer()
    before = server.put(record(OTHER))
    me = Candidate(server, clock, ME)
    await asyncio.sleep(5)
    await me.stop()
    assert server.lease() == before


@in_virtual_time
async def test_a_lease_taken_with_a_lost_answer_is_released_too(clock: VirtualClock) -> None:
    server = LeaseServer()
    fates = script(Fate.ANSWERED, Fate.ANSWER_LOST)
    me = Candidate(server, clock, ME, fates=fates, watchable=False)
    await asyncio.sleep(0.1)
    assert me.led_at_seconds is None
    await me.stop()
    assert server.records[-1].holder_identity == ""


@in_virtual_time
async def test_a_lease_is_not_released_while_a_write_may_still_arrive(clock: VirtualClock) -> None:
    server = LeaseServer()
    me = Candidate(server, clock, ME)
    await me.leads()
    me.fence.begin()
    me.fence.end(answered=False)
    await asyncio.sleep(1)
    await me.stop()
    assert server.records[-1].holder_identity == ME, "it runs out instead"


@in_virtual_time
async def test_a_release_that_meets_a_late_renewal_is_tried_again(clock: VirtualClock) -> None:
    server = LeaseServer()
    me = Candidate(server, clock, ME)
    await me.leads()
    await me.kill()
    lease = server.lease()
    assert lease is not None
    releasing = asyncio.create_task(me.elector.release())
    await asyncio.sleep(0.007)  # it has read the lease, and not yet written it
    server.put(record(ME))
    await releasing
    assert server.records[-1].holder_identity == ""


@in_virtual_time
async def test_the_health_check_fails_for_a_holder_that_neither_renews_nor_ends(
    clock: VirtualClock,
) -> None:
    server = LeaseServer()
    me = Candidate(server, clock, ME)
    await me.leads()
    me.freezer.stop()
    await asyncio.sleep(34)
    assert me.elector.watchdog() is None
    await asyncio.sleep(2)
    complaint = "failed election to renew leadership on lease kube-scheduler"
    assert me.elector.watchdog() == complaint
    await me.kill()


@in_virtual_time
async def test_the_health_check_of_a_follower_passes(clock: VirtualClock) -> None:
    server = LeaseServer()
    server.put(record(OTHER, duration_seconds=1000))
    me = Candidate(server, clock, ME)
    await asyncio.sleep(100)
    assert me.elector.watchdog() is None
    await me.kill()


@in_virtual_time
async def test_a_lease_of_a_stranger_that_lasts_for_68_years_is_taken_after_an_hour(
    clock: VirtualClock,
) -> None:
    server = LeaseServer()
    server.put(record("x" * 1_000_000, duration_seconds=(1 << 31) - 1, renewed="9999-12-31"))
    me = Candidate(server, clock, ME)
    await asyncio.sleep(MAX_LEASE_SECONDS - 10)
    assert me.led_at_seconds is None
    await asyncio.sleep(20)
    await me.leads()
    assert server.records[-1].lease_duration_seconds == 15
    await me.kill()


@in_virtual_time
async def test_a_number_of_transitions_that_is_the_largest_is_followed_by_none(
    clock: VirtualClock,
) -> None:
    server = LeaseServer()
    server.put(replace(record("", renewed="no time"), lease_transitions=(1 << 31) - 1))
    me = Candidate(server, clock, ME)
    await me.leads()
    taken = server.records[-1]
    assert (taken.holder_identity, taken.lease_transitions) == (ME, 0)
    await me.kill()
