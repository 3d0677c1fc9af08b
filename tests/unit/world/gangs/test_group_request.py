"""Groups are taken up as a whole, or put back with a reason; what follows is said by member."""

from dataclasses import replace
from typing import Any

from stellwerk.world.gangs.group_decision import (
    OTHER_FAILED,
    WAITING_FOR_OTHERS,
    GroupDecision,
    decide_group,
    member_failures,
)
from stellwerk.world.gangs.group_request import TakenGroup, Untried, take_members, why_untried
from stellwerk.world.gangs.group_reservation import reserve_nodes
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.group_decisions import GroupWorld, driven
from tests.support.in_process import make_profile
from tests.support.pod_groups import make_group, make_member


def members(count: int, group: str = "g", **spec: Any) -> list[JsonObject]:
    return [make_member(f"{group}{n}", group, **{"cpu": "1", **spec}) for n in range(count)]


def popped(world: GroupWorld, name: str, group: str = "g") -> TakenGroup:
    """The group of a member that is popped, the others not taken yet."""
    book = world.world.pod_groups
    (found,) = [each for key, each in book.groups.items() if key.name == group]
    (uid,) = [uid for uid, pod in found.pods.items() if pod.name == name]
    queued = world.world.queue.pop_with_group(uid)
    assert queued is not None
    return TakenGroup(found, world.served, {uid: queued})


def taken(world: GroupWorld, name: str = "g0", group: str = "g") -> TakenGroup:
    found = popped(world, name, group)
    for _ in take_members(world.world, found):
        pass
    return found


def names(found: TakenGroup) -> list[str]:
    return [each.pod.name for each in found.queued.values()]


def decided(world: GroupWorld, found: TakenGroup) -> GroupDecision:
    return driven(decide_group(world.world, world.served, found.request(world.world)))


def test_the_others_are_taken_along_in_steps() -> None:
    world = GroupWorld(make_group("g", 3), *members(3))
    found = popped(world, "g1")
    assert len(list(take_members(world.world, found))) == 3
    assert names(found) == ["g1", "g0", "g2"]
    assert why_untried(world.world, found) is None


async def test_what_is_deleted_or_assumed_meanwhile_is_left_out() -> None:
    world = GroupWorld(make_node("n", cpu="4"), make_group("g", 1), *members(3))
    found = popped(world, "g0")
    taking = take_members(world.world, found)
    next(taking)
    terminating = members(2)[1]
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    world.apply(terminating)
    (first,) = found.queued.values()
    world.cache.assume_pod(first.pod.with_node("n"))
    for _ in taking:
        pass
    assert names(found) == ["g2"]
    assert [each.pod.name for each in found.skipped] == ["g0", "g1"]


async def test_members_of_two_schedulers_are_not_tried() -> None:
    world = GroupWorld(
        make_group("g", 1),
        make_profile("other", gangScheduling=True),
        *members(1),
        make_member("g1", "g", scheduler_name="other"),
    )
    message = (
        "all pods in a single pod group should have the same .spec.schedulerName set, "
        'got: "other" and "stellwerk"'
    )
    assert why_untried(world.world, taken(world)) == (Untried.PROFILES_DIFFER, message)


def test_a_group_is_not_tried_with_too_few_in_hand() -> None:
    world = GroupWorld(make_group("g", 2), *members(2))
    found = popped(world, "g0")
    assert why_untried(world.world, found) == (Untried.TOO_FEW, "")


def test_a_group_whose_object_has_gone_is_not_tried() -> None:
    world = GroupWorld(make_group("g", 2), *members(2))
    found = taken(world)
    world.world.pod_groups.take_group(found.members.key)
    message = 'waiting for the pod group "g" to exist'
    assert why_untried(world.world, found) == (Untried.TOO_FEW, message)


def test_of_members_that_are_alike_events_wake_one() -> None:
    world = GroupWorld(make_node("n", cpu="1"), make_group("g", 4), *members(4))
    failures = list(member_failures(decided(world, taken(world))).values())
    plugins = [each.unschedulable_plugins for each in failures]
    gang = frozenset({"GangScheduling"})
    assert plugins == [gang, frozenset({"NodeResourcesFit"}), gang, gang]
    assert failures[0].message == WAITING_FOR_OTHERS


def test_where_one_broke_the_others_wait_as_after_an_error() -> None:
    world = GroupWorld(make_node("n", cpu="1"), make_group("g", 2), *members(2))
    decision = decided(world, taken(world))
    decision.attempt.broken = "it broke"
    failures = member_failures(decision).values()
    assert {each.message for each in failures} == {f"{OTHER_FAILED}it broke"}
    assert not any(each.rejected for each in failures)


def test_nodes_are_reserved_for_a_limited_time() -> None:
    world = GroupWorld(
        make_node("n", cpu="2"),
        make_pod("low", node_name="n", cpu="2", priority=-1),
        make_group("g", 2),
        *members(2),
    )
    found = taken(world)
    decision = decided(world, found)
    reservation = reserve_nodes(world.world, world.served, found.members, decision)
    assert reservation is not None
    assert sorted(reservation.nodes.values()) == ["n", "n"]
    assert reservation.left_seconds == 300.0
    assert isinstance(world.world.clock, VirtualClock)
    world.world.clock.advance(300.0)
    assert decision.preemption is not None
    decision.preemption = replace(decision.preemption, victims=())
    over = reserve_nodes(world.world, world.served, found.members, decision)
    assert over is not None
    assert (over.nodes, over.left_seconds) == ({}, 0.0)
