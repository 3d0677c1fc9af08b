"""Gangs of which some members are bound and others not: whole again before what came later.

Every cause is played: a process that is killed between two bindings, a standby that takes over,
bindings that are refused or lost, an API that is away, a node that goes. Beside the gang wait
single pods of its priority whose names come before its own.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

import pytest

from stellwerk.explain.pod_groups import explain_group
from stellwerk.explain.steps import finished
from stellwerk.models.pod_group import PodGroupKey
from stellwerk.scheduler.gangs.group_conditions import ROOM_NOT_GRANTED
from stellwerk.world.gangs.group_reservation import MIN_NODES_FOR_PARTLY_BOUND
from stellwerk.world.gangs.queue_order import MAX_PLACES_KEPT
from stellwerk_kube.errors import ApiError
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.in_process import InProcess, eventually, make_profile
from tests.support.pod_groups import make_member
from tests.support.successive_operators import (
    LISTED,
    PODS,
    SIZE,
    MortalStore,
    Replicas,
    gang,
    half_bound,
    nodes,
    singles,
    story,
)

EVIL: Final = 24
KEPT_SECONDS: Final = 300


def said(replicas: Replicas, group: str, namespace: str = "default") -> str:
    """The reason why no room is kept for a group, as its condition says it."""
    path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups/{group}"
    conditions = replicas.store.objects[path]["status"]["conditions"]
    found = next(each for each in conditions if each["type"] == ROOM_NOT_GRANTED)
    return str(found["message"])


# --- the causes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bindings", [1, SIZE - 1])
@pytest.mark.parametrize("first", ["a", "m"], ids=["singles listed first", "gang listed first"])
@pytest.mark.parametrize(
    "kinds", [LISTED, ("SchedulerProfile", "Pod", "Node", "PodGroup")], ids=["", "pods first"]
)
def test_a_gang_is_whole_after_its_leader_was_killed_between_two_bindings(
    bindings: int, first: str, kinds: Sequence[str]
) -> None:
    async def play(replicas: Replicas) -> None:
        await replicas.killed_after(bindings, *nodes(), *gang())
        assert replicas.bound("m") == bindings
        replicas.leader.apply(*singles())
        replicas.follow(kinds, first)
        await asyncio.sleep(5)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)

    story(play)


def test_a_standby_that_has_queued_the_singles_first_takes_over() -> None:
    async def play(replicas: Replicas) -> None:
        # Its queue is filled while it stands by; what another process has bound comes last.
        replicas.leader.apply(*nodes())
        group, *members = gang()
        replicas.store.bindings_left = 0
        replicas.leader.apply(*singles(), *members, group)
        await eventually(replicas.store.is_over.is_set)
        standby = InProcess(replicas.clock, store=MortalStore)
        standby.apply(make_profile("stellwerk", gangScheduling=True), *nodes())
        standby.apply(*singles(), *members, group)
        await asyncio.sleep(30)
        standby.apply({**members[3], "spec": {**members[3]["spec"], "nodeName": "n5"}})
        replicas.lead(standby)
        await asyncio.sleep(5)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)

    story(play)


@pytest.mark.parametrize("refused", [1, 3])
def test_members_whose_bindings_are_refused_keep_their_nodes(refused: int) -> None:
    async def play(replicas: Replicas) -> None:
        for number in range(refused):
            error = ApiError("bind", 403, "Forbidden", "not yet")
            replicas.store.failures[f"{PODS}/m-{number}/binding"] = error
        replicas.leader.apply(*nodes(), *gang())
        await asyncio.sleep(0.5)
        assert replicas.bound("m") == SIZE - refused
        assert replicas.kept() == refused
        replicas.leader.apply(*singles())
        await asyncio.sleep(10)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)
        assert replicas.kept() == 0

    story(play)


def test_a_gang_is_whole_after_the_api_was_away_between_two_bindings() -> None:
    async def play(replicas: Replicas) -> None:
        replicas.store.goes_away = True
        await replicas.killed_after(1, *nodes(), *gang())
        await asyncio.sleep(0.5)
        assert (replicas.bound("m"), replicas.kept()) == (1, SIZE - 1)
        replicas.leader.apply(*singles())
        await asyncio.sleep(30)
        replicas.store.bindings_left = sys.maxsize
        await asyncio.sleep(15)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)

    story(play)


def test_a_node_that_goes_while_a_gang_is_bound_to_it() -> None:
    async def play(replicas: Replicas) -> None:
        replicas.leader.apply(*nodes(), *gang())
        await asyncio.sleep(1)
        gone = replicas.leader.node_of("m-3")
        replicas.leader.delete("Node", str(gone))
        replicas.leader.delete("Pod", "m-3")
        replicas.leader.apply(*singles())
        await asyncio.sleep(2)
        # Its controller makes another one, and in time there is another node.
        replicas.leader.apply(make_member("m-again", "m", cpu="1"))
        await asyncio.sleep(5)
        replicas.leader.apply(make_node("another", cpu="1"))
        await asyncio.sleep(15)
        assert replicas.leader.node_of("m-again") == "another"
        assert replicas.bound("a") == 0

    story(play)


def test_a_binding_that_the_api_has_lost_again() -> None:
    async def play(replicas: Replicas) -> None:
        replicas.leader.apply(*nodes(), *gang())
        await asyncio.sleep(1)
        replicas.leader.apply(*singles())
        path = f"{PODS}/m-3"
        lost = replicas.store.objects[path]
        spec = {name: value for name, value in lost["spec"].items() if name != "nodeName"}
        replicas.store.put(path, {**lost, "spec": spec})
        await asyncio.sleep(30)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)

    story(play)


# --- what comes before, and what keeps room -------------------------------------------------------


def test_pods_of_a_higher_priority_go_first() -> None:
    async def play(replicas: Replicas) -> None:
        await replicas.killed_after(1, *nodes(), *gang())
        replicas.leader.apply(*singles("z", 2, priority=10), *singles())
        replicas.follow()
        await asyncio.sleep(5)
        assert (replicas.bound("m"), replicas.bound("z"), replicas.bound("a")) == (1, 2, 0)
        # Room is kept on the five nodes that are left.
        assert replicas.kept() == 5
        explained = explain_group(replicas.leader.operator.world, "default", "m")
        assert explained is not None
        left_seconds = finished(explained).room_is_kept_seconds
        assert left_seconds is not None
        assert KEPT_SECONDS - 10 <= left_seconds < KEPT_SECONDS
        for number in range(2):
            replicas.leader.delete("Pod", f"z-{number:02}")
            await asyncio.sleep(12)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)

    story(play)


def test_a_gang_does_not_wait_for_its_backoff_while_later_pods_come() -> None:
    async def play(replicas: Replicas) -> None:
        await replicas.killed_after(1, *nodes(), *gang())
        replicas.leader.apply(*singles("z", 3, priority=10))
        replicas.follow()
        for number in range(3):
            # Each attempt but the last one is without success, and the next backoff is longer.
            await asyncio.sleep(0.2)
            replicas.leader.delete("Pod", f"z-{number:02}")
            replicas.leader.apply(*singles(f"a{number}", 4))
        await asyncio.sleep(0.2)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)

    story(play)


def test_members_are_tried_for_the_room_that_is_kept_though_one_before_them_has_none() -> None:
    async def play(replicas: Replicas) -> None:
        profile = make_profile("stellwerk", gangScheduling=True, compatibility="1.37")
        group, *members = half_bound("m", 4, ["n0"])
        members[1] = make_member("m-1", "m", cpu="64")
        replicas.leader.apply(profile, *nodes(), group, *members)
        await asyncio.sleep(5)
        assert replicas.kept() == 2

    story(play)


def test_room_for_a_gang_that_can_never_be_whole_is_kept_once_and_for_some_time() -> None:
    async def play(replicas: Replicas) -> None:
        group, *members = half_bound("m", 4, ["n0"])
        members[3] = make_member("m-3", "m", cpu="64")
        replicas.leader.apply(*nodes(), group, *members, *singles())
        await asyncio.sleep(KEPT_SECONDS - 10)
        # Seven nodes are free, and two members would get one.
        assert (replicas.bound("m"), replicas.bound("a"), replicas.kept()) == (1, 5, 2)
        await asyncio.sleep(20)
        assert (replicas.bound("m"), replicas.bound("a"), replicas.kept()) == (1, 7, 0)
        replicas.leader.delete("Pod", "a-00")
        for number in range(5):
            await asyncio.sleep(100)
            assert replicas.kept() == 0, number
        assert replicas.bound("a") == 7
        assert said(replicas, "m").endswith("for 300 s, and did not suffice")

    story(play)


def test_room_is_kept_while_members_are_made_anew_and_no_longer() -> None:
    async def play(replicas: Replicas) -> None:
        await replicas.killed_after(1, *nodes(), *gang())
        replicas.leader.apply(*singles("z", 1, priority=10))
        replicas.follow()
        await asyncio.sleep(5)
        assert (replicas.bound("m"), replicas.kept()) == (1, 6)
        waiting = [f"m-{each}" for each in range(SIZE) if not replicas.leader.node_of(f"m-{each}")]
        replicas.leader.delete("Pod", waiting[0])
        replicas.leader.apply(*singles())
        await asyncio.sleep(KEPT_SECONDS - 20)
        # A slow controller: the other one that waits has the node of the one that is gone.
        assert (replicas.bound("a"), replicas.kept()) == (0, 6)
        await asyncio.sleep(40)
        assert replicas.bound("a") == 6
        assert replicas.kept() == 0

    story(play)


def test_a_new_process_keeps_room_while_members_are_missing() -> None:
    async def play(replicas: Replicas) -> None:
        await replicas.killed_after(3, *nodes(), *gang())
        waiting = [f"m-{each}" for each in range(SIZE) if not replicas.leader.node_of(f"m-{each}")]
        replicas.leader.delete("Pod", waiting[0])
        replicas.leader.apply(*singles())
        replicas.follow()
        await asyncio.sleep(30)
        # Four are kept for those that are there; what the missing one asks for is not known.
        assert (replicas.bound("m"), replicas.bound("a"), replicas.kept()) == (3, 1, 4)
        message = 'waiting for enough pods of the pod group "m" to exist'
        assert replicas.leader.condition(waiting[1]) == ("WaitingForPods", message)
        replicas.leader.apply(make_member("m-again", "m", cpu="1"))
        await asyncio.sleep(1)
        taken = [f"a-{each:02}" for each in range(12) if replicas.leader.node_of(f"a-{each:02}")]
        replicas.leader.delete("Pod", taken[0])
        await asyncio.sleep(15)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)

    story(play)


def test_room_that_comes_while_members_are_missing_is_kept() -> None:
    async def play(replicas: Replicas) -> None:
        await replicas.killed_after(1, *nodes(), *gang())
        replicas.leader.apply(*singles("z", 7, priority=10))
        waiting = [f"m-{each}" for each in range(SIZE) if not replicas.leader.node_of(f"m-{each}")]
        replicas.leader.delete("Pod", waiting[0])
        replicas.follow()
        replicas.leader.apply(*singles())
        for number in range(7):
            await asyncio.sleep(5)
            replicas.leader.delete("Pod", f"z-{number:02}")
        await asyncio.sleep(15)
        assert (replicas.bound("m"), replicas.bound("a"), replicas.kept()) == (1, 1, 6)
        for seconds in (KEPT_SECONDS, KEPT_SECONDS):
            await asyncio.sleep(seconds)
            assert (replicas.bound("a"), replicas.kept()) == (7, 0)

    story(play)


def test_members_that_come_late_find_the_room_of_the_others() -> None:
    async def play(replicas: Replicas) -> None:
        await replicas.killed_after(1, *nodes(), *gang())
        replicas.leader.apply(*singles("z", 1, priority=10))
        replicas.follow()
        await asyncio.sleep(5)
        waiting = [f"m-{each}" for each in range(SIZE) if not replicas.leader.node_of(f"m-{each}")]
        replicas.leader.delete("Pod", waiting[-1])
        replicas.leader.delete("Pod", "z-00")
        replicas.leader.apply(*singles())
        await asyncio.sleep(60)
        replicas.leader.apply(make_member("m-again", "m", cpu="1"))
        await asyncio.sleep(5)
        # A single has what nobody kept; the next room is the gang's.
        assert (replicas.bound("m"), replicas.bound("a")) == (1, 1)
        taken = [f"a-{each:02}" for each in range(12) if replicas.leader.node_of(f"a-{each:02}")]
        replicas.leader.delete("Pod", taken[0])
        await asyncio.sleep(15)
        assert (replicas.bound("m"), replicas.bound("a")) == (SIZE, 0)

    story(play)


def test_of_two_gangs_the_older_one_is_whole_first() -> None:
    async def play(replicas: Replicas) -> None:
        younger = half_bound("b", 4, ["n0"], created="2025-12-31T23:30:00Z")
        older = half_bound("m", 4, ["n1"])
        replicas.leader.apply(*nodes(6), *younger, *older, *singles())
        await asyncio.sleep(10)
        assert (replicas.bound("m"), replicas.bound("b"), replicas.bound("a")) == (4, 1, 0)
        for name in ("m-1", "m-2"):
            replicas.leader.delete("Pod", name)
        await asyncio.sleep(20)
        assert (replicas.bound("b"), replicas.bound("a")) == (4, 0)

    story(play)


def test_a_gang_with_enough_bound_members_has_no_privilege() -> None:
    async def play(replicas: Replicas) -> None:
        group, *members = half_bound("m", 4, ["n0", "n1"])
        group["spec"]["schedulingPolicy"]["gang"]["minCount"] = 2
        replicas.leader.apply(*nodes(3), *singles("a", 1), group, *members)
        await asyncio.sleep(10)
        assert (replicas.bound("a"), replicas.bound("m")) == (1, 2)
        assert replicas.kept() == 0

    story(play)


def test_a_role_that_lacks_members_counts_as_too_few() -> None:
    async def play(replicas: Replicas) -> None:
        group, *members = half_bound("m", 3, ["n0", "n1"])
        group["spec"]["schedulingPolicy"]["gang"]["minCount"] = 2
        group["metadata"]["annotations"] = {
            "scheduling.stellwerk.dev/min-count-by-role": "launcher=1"
        }
        members[2]["metadata"]["labels"] = {"scheduling.stellwerk.dev/role": "launcher"}
        replicas.leader.apply(*nodes(3), *singles("a", 3), group, *members)
        await asyncio.sleep(10)
        assert (replicas.bound("a"), replicas.bound("m")) == (0, 3)

    story(play)


def test_members_of_a_profile_that_places_no_groups_have_no_privilege() -> None:
    async def play(replicas: Replicas) -> None:
        replicas.leader.apply(make_profile("plain"))
        group, *members = half_bound("m", 2, ["n0"], scheduler_name="plain")
        replicas.leader.apply(*nodes(2), *singles("a", 1), group, *members)
        await asyncio.sleep(10)
        assert (replicas.bound("a"), replicas.bound("m")) == (1, 1)

    story(play)


# --- whom it costs --------------------------------------------------------------------------------


def test_many_gangs_that_somebody_binds_in_part_cost_others_little() -> None:
    def evil(number: int) -> list[JsonObject]:
        """One member is bound by hand, one would fit, one never will."""
        name = f"e{number:03}"
        group, *members = half_bound(name, 3, ["full"])
        members[2] = make_member(f"{name}-2", name, cpu="2000")
        for each in (group, *members):
            each["metadata"]["namespace"] = "evil"
        return [group, *members]

    async def play(replicas: Replicas) -> None:
        leader, small = replicas.leader, 2 * MIN_NODES_FOR_PARTLY_BOUND
        leader.apply(*nodes(small), make_node("full", cpu=str(EVIL)))
        for number in range(EVIL):
            leader.apply(*evil(number))
        await asyncio.sleep(10)
        assert len(leader.queue.group_came_at) == MAX_PLACES_KEPT
        assert replicas.kept() == MIN_NODES_FOR_PARTLY_BOUND
        leader.apply(*singles("a", small - 5))
        await asyncio.sleep(1)
        assert replicas.bound("a") == small - MIN_NODES_FOR_PARTLY_BOUND
        await asyncio.sleep(KEPT_SECONDS)
        assert (replicas.bound("a"), replicas.kept()) == (small - 5, 0)
        # For twice that time the namespace keeps nothing, whatever it makes anew.
        for number in range(EVIL):
            for each in range(3):
                leader.delete("Pod", f"e{number:03}-{each}", "evil")
            leader.delete("PodGroup", f"e{number:03}", "evil")
        assert not leader.queue.group_came_at
        assert not leader.operator.world.pod_groups.partly_bound
        leader.apply(*evil(0))
        await asyncio.sleep(KEPT_SECONDS)
        assert replicas.kept() == 0
        assert said(replicas, "e000", "evil").endswith("for 300 s, and is again 600 s later")

    story(play)


def test_places_are_given_on_to_the_next_gang_of_a_namespace() -> None:
    async def play(replicas: Replicas) -> None:
        replicas.leader.apply(make_node("large", cpu="1"))
        names = [f"g{number:02}" for number in range(MAX_PLACES_KEPT + 2)]
        for number, name in enumerate(names):
            created = f"2025-12-31T23:00:{59 - number:02}Z"
            replicas.leader.apply(*half_bound(name, 2, ["large"], created=created))
        queue = replicas.leader.queue

        def placed() -> set[str]:
            return {key.name for key in queue.group_came_at}

        assert placed() == set(names[2:])
        replicas.leader.delete("Pod", f"{names[-1]}-0")
        assert placed() == set(names[1:-1])
        assert PodGroupKey("scheduling.k8s.io", "default", names[-1]) not in queue.group_came_at

    story(play)
