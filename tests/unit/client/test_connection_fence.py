"""When a fence lets writes pass."""

import pytest

from stellwerk.client.connection import Fence
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import NotLeader


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def fence(clock: VirtualClock) -> Fence:
    return Fence(clock.monotonic, guarding=True, margin_seconds=5)


def test_without_leader_election_everything_passes(clock: VirtualClock) -> None:
    fence = Fence(clock.monotonic, guarding=False)
    clock.advance(1e9)
    fence.check("bind")
    assert fence.within_lease(30) == 30
    assert fence.admits_event("Warning")


def test_before_the_first_lease_nothing_passes(fence: Fence) -> None:
    with pytest.raises(NotLeader, match="cannot bind web: NotLeader this process does not hold"):
        fence.check("bind web")
    assert not fence.admits_event("Normal")


def test_it_is_open_until_its_deadline(clock: VirtualClock, fence: Fence) -> None:
    assert fence.extend(10)
    clock.advance(9.999)
    fence.check("bind")
    clock.advance(0.001)
    with pytest.raises(NotLeader):
        fence.check("bind")


def test_a_time_out_ends_with_the_lease(clock: VirtualClock, fence: Fence) -> None:
    assert fence.extend(10)
    clock.advance(9)
    assert fence.within_lease(30) == 6
    assert fence.within_lease(2) == 2
    clock.advance(100)
    assert fence.within_lease(30) == 0


def test_one_that_has_closed_never_opens_again(clock: VirtualClock, fence: Fence) -> None:
    assert fence.extend(10)
    clock.advance(10)
    assert not fence.extend(20)
    assert not fence.is_open


def test_one_that_was_closed_never_opens_again(fence: Fence) -> None:
    fence.close()
    assert not fence.extend(10)
    assert not fence.is_open


def test_an_answer_that_comes_too_late_does_not_use_up_the_chance(
    clock: VirtualClock, fence: Fence
) -> None:
    clock.advance(60)
    assert not fence.extend(10)
    assert fence.extend(70)


def test_what_went_well_is_told_after_the_loss_and_what_failed_is_not(
    clock: VirtualClock, fence: Fence
) -> None:
    assert fence.extend(10)
    assert fence.admits_event("Warning")
    clock.advance(10)
    assert fence.admits_event("Normal")
    assert not fence.admits_event("Warning")


def test_it_is_settled_when_everything_was_answered(fence: Fence) -> None:
    assert fence.extend(10)
    fence.begin()
    assert not fence.is_settled
    fence.end(answered=True)
    assert fence.is_settled


def test_what_was_not_answered_within_the_margin_never_arrives(
    clock: VirtualClock, fence: Fence
) -> None:
    assert fence.extend(10)
    fence.begin()
    fence.end(answered=False)
    clock.advance(5)
    assert not fence.is_settled
    clock.advance(0.1)
    assert fence.is_settled
