"""What happens to groups in a running operator: they wait, are bound whole, rest, and say why."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from typing_extensions import override

from stellwerk.framework.extension_points import PRE_ENQUEUE
from stellwerk.framework.interface import PostFilterResult
from stellwerk.framework.types import Status
from stellwerk.framework.watch_handlers import Lack
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.scheduler.gangs import group_cycle
from stellwerk.scheduler.gangs.group_conditions import PARTLY_BOUND, ROOM_NOT_GRANTED, WAITING
from stellwerk.serving.exposition import exposition
from stellwerk.snapshot.columns import IntColumn
from stellwerk.world.decide import Decision
from stellwerk.world.extenders import ExtenderFilterResult, Extenders
from stellwerk.world.gangs.group_attempt import GroupRequest, MemberRequest, decided_at_once
from stellwerk.world.gangs.group_decision import Deciding, decide_group
from stellwerk.world.gangs.group_reservation import reservation_limit_seconds
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ApiError, Unavailable
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.findings import hold
from tests.support.group_decisions import GroupWorld
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.pod_groups import constrained_to, make_group, make_member
from tests.support.skipped_time import run_skipping

PLACED = "scheduling.stellwerk.dev/Placed"
COSCHEDULING = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"


def story(play: Callable[[InProcess], Awaitable[None]], **profile: Any) -> None:
    """Run a story with gang scheduling on."""

    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_profile("stellwerk", **{"gangScheduling": True, **profile}))
            await play(world)

    run_skipping(run)


def condition(world: InProcess, group: str, type_: str = "PodGroupScheduled") -> JsonObject:
    path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/{group}"
    status = world.client.objects[path].get("status", {})
    conditions: list[JsonObject] = status.get("conditions", [])
    return next((each for each in conditions if each["type"] == type_), {})


def bound(world: InProcess, *names: str) -> int:
    return sum(world.node_of(name) is not None for name in names)


def test_members_wait_for_each_other_and_say_so() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="4"), make_group("g", 3))
        world.apply(make_member("p1", "g", cpu="1"), make_member("p2", "g", cpu="1"))
        await asyncio.sleep(3)
        assert bound(world, "p1", "p2") == 0
        assert (world.condition("p1") or ("",))[0] == "WaitingForPods"
        assert "2 of 3 exist" in condition(world, "g")["message"]
        assert condition(world, "g", PLACED)["message"] == "0/3 pods are placed"
        assert any("2 of 3" in note for _, _, note in world.notes.about("g"))
        world.apply(make_member("p3", "g", cpu="1"))
        await quiet()
        assert bound(world, "p1", "p2", "p3") == 3
        assert condition(world, "g")["status"] == "True"

    story(play)


def test_without_the_switch_members_are_pods_like_any_other() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="4"), make_member("p1", "g", cpu="1"))
        await quiet()
        assert bound(world, "p1") == 1

    story(play, gangScheduling=False)


def test_the_plugin_by_name_turns_it_on() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="4"), make_member("p1", "g", cpu="1"))
        await quiet()
        assert bound(world, "p1") == 0

    plugins = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}
    story(play, gangScheduling=False, plugins=plugins)


def test_an_annotation_that_cannot_be_used_is_named_in_a_condition() -> None:
    async def play(world: InProcess) -> None:
        wrong = {"scheduling.stellwerk.dev/min-count-by-role": "launcher"}
        world.apply(make_node("n", cpu="4"), make_group("g", 1, wrong))
        world.apply(make_member("p", "g", cpu="1"))
        await asyncio.sleep(3)
        assert bound(world, "p") == 1
        found = condition(world, "g", "scheduling.stellwerk.dev/AnnotationsUsable")
        assert "is not ROLE=NUMBER" in found["message"]

    story(play)


def test_a_group_that_fits_nowhere_rests() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="1"), make_group("g", 2))
        world.apply(make_member("p1", "g", cpu="1"), make_member("p2", "g", cpu="1"))
        await asyncio.sleep(200)
        attempts = [world.queue.entries[f"uid-default-p{n}"].attempts for n in (1, 2)]
        assert attempts == [1, 1]
        world.apply(make_node("m", cpu="1"))
        await asyncio.sleep(20)
        assert bound(world, "p1", "p2") == 2

    story(play)


def test_members_of_a_group_whose_object_goes_are_gated_again() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="1"), make_group("g", 2))
        world.apply(make_member("p1", "g", cpu="1"), make_member("p2", "g", cpu="1"))
        await asyncio.sleep(3)
        world.delete("PodGroup", "g")
        await asyncio.sleep(3)
        assert world.queue.pending()["gated"] == 2
        reason = ("WaitingForPods", 'waiting for the pod group "g" to exist')
        assert world.condition("p1") == reason
        assert ("Warning", *reason) in world.notes.about("p1")

    story(play)


def test_a_terminating_member_does_not_count() -> None:
    async def play(world: InProcess) -> None:
        leaving = make_member("p1", "g", cpu="1")
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        world.apply(make_node("n", cpu="4"), make_group("g", 2), leaving)
        world.apply(make_member("p2", "g", cpu="1"))
        await asyncio.sleep(3)
        assert bound(world, "p2") == 0
        assert "1 of 2 exist" in condition(world, "g")["message"]

    story(play)


def test_a_gated_member_does_not_count() -> None:
    async def play(world: InProcess) -> None:
        gated = make_member("p1", "g", cpu="1", schedulingGates=[{"name": "example.com/wait"}])
        world.apply(make_node("n", cpu="4"), make_group("g", 2), gated)
        world.apply(make_member("p2", "g", cpu="1"))
        await asyncio.sleep(3)
        assert bound(world, "p2") == 0
        del gated["spec"]["schedulingGates"]
        world.apply(gated)
        await quiet()
        assert bound(world, "p1", "p2") == 2

    story(play)


def test_a_group_that_lost_members_waits_by_a_condition_of_its_own() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        world.apply(make_member("p1", "g", cpu="1"), make_member("p2", "g", cpu="1"))
        await quiet()
        world.delete("Pod", "p1")
        await asyncio.sleep(5)
        assert condition(world, "g")["status"] == "True"
        assert condition(world, "g", WAITING)["reason"] == "WaitingForPods"
        world.apply(make_member("p3", "g", cpu="1"))
        await asyncio.sleep(5)
        assert condition(world, "g", WAITING)["status"] == "False"

    story(play)


def test_what_waits_while_the_first_condition_is_on_its_way_does_not_take_it_back() -> None:
    async def play(world: InProcess) -> None:
        patched, patch = asyncio.Event(), world.client.patch

        async def slow(path: str, body: Any, **options: Any) -> JsonObject:
            if "podgroups" in path:
                await patched.wait()
            return await patch(path, body, **options)

        world.client.patch = slow  # type: ignore[method-assign]
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        world.apply(make_member("p1", "g", cpu="1"), make_member("p2", "g", cpu="1"))
        await quiet()
        world.delete("Pod", "p1")
        await asyncio.sleep(5)
        patched.set()
        await asyncio.sleep(5)
        assert condition(world, "g")["status"] == "True"
        assert condition(world, "g", WAITING)["reason"] == "WaitingForPods"

    story(play)


def test_finished_members_count_where_the_group_has_run() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="4"), make_group("g", 3))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(3)))
        await quiet()
        done = world.pod("p0")
        done["status"] = {"phase": "Succeeded"}
        listed = [done]

        async def finished(path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]:
            assert limit
            return (listed if "fieldSelector" in path else []), "1"

        world.client.list = finished  # type: ignore[method-assign]
        world.delete("Pod", "p0")
        world.delete("Pod", "p1")
        world.apply(make_member("p3", "g", cpu="1"))
        await asyncio.sleep(5)
        assert bound(world, "p3") == 1

    story(play)


def test_finished_members_count_for_their_role() -> None:
    async def play(world: InProcess) -> None:
        def of_role(role: str, name: str) -> JsonObject:
            member = make_member(name, "g", cpu="1")
            member["metadata"]["labels"] = {"scheduling.stellwerk.dev/role": role}
            return member

        roles = {"scheduling.stellwerk.dev/min-count-by-role": "launcher=1,worker=2"}
        world.apply(make_node("n", cpu="4"), make_group("g", 3, roles))
        world.apply(*(of_role("worker", f"w{n}") for n in range(2)), of_role("launcher", "l"))
        await quiet()
        done = world.pod("l")
        done["status"] = {"phase": "Succeeded"}

        async def finished(path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]:
            assert limit
            return ([done] if "fieldSelector" in path else []), "1"

        world.client.list = finished  # type: ignore[method-assign]
        world.delete("Pod", "l")
        world.delete("Pod", "w0")
        world.apply(of_role("worker", "w2"))
        await asyncio.sleep(5)
        assert bound(world, "w2") == 1

    story(play)


def test_finished_members_are_asked_for_again_where_there_was_no_answer() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(2)))
        await quiet()
        done = world.pod("p0")
        done["status"] = {"phase": "Succeeded"}
        answers = [[], None, [done]]

        async def finished(path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]:
            assert limit
            assert "fieldSelector" in path
            answer = answers.pop(0)
            if answer == []:
                # Another one goes while the answer is on its way.
                world.delete("Pod", "p1")
            if answer is None:
                raise Unavailable("list", 503, "ServiceUnavailable", "not now")
            return answer, "1"

        world.client.list = finished  # type: ignore[method-assign]
        world.delete("Pod", "p0")
        await asyncio.sleep(20)
        world.apply(make_member("p3", "g", cpu="1"))
        await asyncio.sleep(5)
        assert (bound(world, "p3"), answers) == (1, [])

    story(play)


def test_a_refused_binding_is_tried_again_alone() -> None:
    async def play(world: InProcess) -> None:
        path = "/api/v1/namespaces/default/pods/p1/binding"
        world.client.failures[path] = ApiError("bind", 403, "Forbidden", "not yet")
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        world.apply(make_member("p1", "g", cpu="1"), make_member("p2", "g", cpu="1"))
        await quiet()
        assert bound(world, "p1", "p2") == 1
        await asyncio.sleep(5)
        assert bound(world, "p1", "p2") == 2

    story(play)


def test_what_is_bound_of_a_group_is_given_back_where_it_asks_for_it() -> None:
    async def play(world: InProcess) -> None:
        seconds = {"scheduling.stellwerk.dev/give-back-seconds": "60"}
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": "j",
            "controller": True,
        }
        world.apply(make_node("n", cpu="1"), make_group("g", 2, seconds))
        half = make_member("half", "g", cpu="1", node_name="n")
        half["metadata"]["ownerReferences"] = [owner]
        world.apply(half, make_member("rest", "g", cpu="1"))
        await asyncio.sleep(59)
        assert bound(world, "half") == 1
        await asyncio.sleep(3)
        assert "/api/v1/namespaces/default/pods/half" not in world.client.objects

    story(play)


def test_a_restart_does_not_begin_the_time_anew_after_which_is_given_back() -> None:
    async def play(world: InProcess) -> None:
        owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
        group = make_group("g", 2, {"scheduling.stellwerk.dev/give-back-seconds": "60"})
        half = make_member("half", "g", cpu="1", node_name="n")
        half["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", **owner}]
        since = (world.clock.now() - timedelta(seconds=50)).strftime("%Y-%m-%dT%H:%M:%SZ")
        partly = {"type": PARTLY_BOUND, "status": "True", "lastTransitionTime": since}
        world.apply(make_node("n", cpu="1"), {**group, "status": {"conditions": [partly]}}, half)
        await asyncio.sleep(9)
        assert bound(world, "half") == 1
        await asyncio.sleep(2)
        assert "/api/v1/namespaces/default/pods/half" not in world.client.objects

    story(play)


def test_what_could_not_be_given_back_is_tried_again() -> None:
    async def play(world: InProcess) -> None:
        owner = {"kind": "Job", "name": "j", "uid": "j", "controller": True}
        group = make_group("g", 2, {"scheduling.stellwerk.dev/give-back-seconds": "60"})
        half = make_member("half", "g", cpu="1", node_name="n")
        half["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", **owner}]
        path = "/api/v1/namespaces/default/pods/half"
        world.client.failures[path] = ApiError("delete", 500, "InternalError", "not now")
        world.apply(make_node("n", cpu="1"), group, half)
        await asyncio.sleep(65)
        assert path in world.client.objects
        assert "1/2 pods are bound" in condition(world, "g", PARTLY_BOUND)["message"]
        await asyncio.sleep(60)
        assert path not in world.client.objects

    story(play)


def test_many_groups_that_fit_nowhere_are_hardly_tried() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"))
        for name in "abcdef":
            world.apply(make_group(name, 3))
            world.apply(*(make_member(f"{name}{n}", name, cpu="1") for n in range(3)))
        await asyncio.sleep(20)
        attempts = world.metrics.podgroup_schedule_attempts.labels("unschedulable", "stellwerk")
        assert attempts.value == 6
        for number in range(50):
            # Too little to help any of them.
            world.apply(make_node(f"small-{number}", cpu="500m"))
            await asyncio.sleep(3)
        assert attempts.value == 6
        await asyncio.sleep(600)
        # All are looked at again where nothing has happened for five minutes.
        assert attempts.value <= 6 * 4
        world.apply(make_pod("s", cpu="1", scheduler_name="stellwerk"))
        await asyncio.sleep(3)
        before = attempts.value
        world.delete("Pod", "s")
        await asyncio.sleep(20)
        # What could help one of them is looked at once by each.
        assert attempts.value <= before + 6

    story(play)


def test_what_a_filter_has_left_to_do_for_a_member_is_done_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left: list[int] = []

    def work() -> Iterator[None]:
        for number in range(3):
            left.append(number)
            yield

    def with_something_left(ask: MemberRequest) -> Decision:
        decision = decided_at_once(ask)
        if ask.pod.name == "p2" and not left:
            ask.state.unfinished = work()
        return decision

    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        world.apply(make_member("p1", "g", cpu="1"), make_member("p2", "g", cpu="1"))
        await quiet()
        assert left == [0, 1, 2]
        assert bound(world, "p1", "p2") == 2

    monkeypatch.setattr(group_cycle, "decided_at_once", with_something_left)
    story(play)


class CountingExtenders(Extenders):
    """Let every node pass, and count what they are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, frozenset[str]]] = []
        """(verb, pod, nodes)."""

    @override
    async def accept(self, pod: PodInfo, node_name: str) -> bool:
        return True

    @override
    async def filter(self, pod: PodInfo, node_names: Sequence[str]) -> ExtenderFilterResult:
        if node_names:
            self.asked.append(("filter", pod.name, frozenset(node_names)))
        return ExtenderFilterResult(list(node_names))

    @override
    async def prioritize(self, pod: PodInfo, node_names: Sequence[str]) -> IntColumn:
        self.asked.append(("prioritize", pod.name, frozenset(node_names)))
        return np.zeros(len(node_names), np.int64)

    @override
    async def preempt(self, pod: PodInfo, found: PostFilterResult) -> PostFilterResult:
        return found

    @override
    async def bind(self, pod: PodInfo, node_name: str) -> Status | None:
        return None


def test_the_placement_that_is_taken_is_not_asked_about_again() -> None:
    async def play(world: InProcess) -> None:
        extenders = CountingExtenders()
        await quiet()
        world.operator.world.profiles.served["stellwerk"].extenders = extenders
        for name in "ab":
            world.apply(*(make_node(f"{name}{n}", cpu="1", labels={"zone": name}) for n in "12"))
        world.apply(make_group("g", 2, schedulingConstraints=constrained_to("zone")))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(2)))
        await quiet()
        assert bound(world, "p0", "p1") == 2
        filtered = [each for each in extenders.asked if each[0] == "filter"]
        # Each member once in each of two zones.
        assert len(filtered) == 4

    story(play)


def test_in_another_order_extenders_are_asked_about_no_node_again() -> None:
    async def play(world: InProcess) -> None:
        extenders = CountingExtenders()
        await quiet()
        world.operator.world.profiles.served["stellwerk"].extenders = extenders
        world.apply(make_node("large", cpu="3"), make_node("small", cpu="1"))
        world.apply(make_group("g", 2))
        # The spare is tried first and, by its fullest node, keeps the large one from the other.
        world.apply(make_member("a-light", "g", cpu="1"), make_member("b-heavy", "g", cpu="3"))
        await quiet()
        assert bound(world, "a-light", "b-heavy") == 2
        shown = [(verb, pod, node) for verb, pod, nodes in extenders.asked for node in nodes]
        assert len(shown) == len(set(shown))
        assert {pod for _, pod, _ in shown} == {"a-light", "b-heavy"}

    story(play)


def test_members_of_two_profiles_are_refused() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_profile("other", created=1, gangScheduling=True))
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        world.apply(make_member("p1", "g", cpu="1"))
        world.apply(make_member("p2", "g", cpu="1", scheduler_name="other"))
        await quiet()
        assert bound(world, "p1", "p2") == 0
        reason, message = world.condition("p1") or ("", "")
        assert reason == "SchedulerError"
        assert 'got: "other" and "stellwerk"' in message

    story(play)


def test_a_gang_evicts_once_and_is_bound_on_what_it_freed() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"), make_group("g", 2, priority=100))
        world.apply(*(make_pod(f"v{n}", cpu="1", node_name="n", priority=0) for n in range(2)))
        members = [make_member(f"p{n}", "g", cpu="1", priority=100) for n in range(2)]
        world.apply(*members)
        await quiet()
        deleted = [path for verb, path in world.client.requests if verb == "DELETE"]
        assert len(deleted) == 2
        nominated = [world.pod(f"p{n}")["status"].get("nominatedNodeName") for n in range(2)]
        assert nominated == ["n", "n"]
        for number in range(2):
            world.operator.handlers.on_pod(
                "DELETED", make_pod(f"v{number}", cpu="1", node_name="n", priority=0)
            )
        await asyncio.sleep(20)
        assert bound(world, "p0", "p1") == 2
        assert len([verb for verb, _ in world.client.requests if verb == "DELETE"]) == 2

    story(play)


def deleted(world: InProcess) -> list[str]:
    """The names of the pods whose deletion was asked for, in order."""
    return [path.rpartition("/")[2] for verb, path in world.client.requests if verb == "DELETE"]


def test_the_victims_of_a_group_are_in_the_metric_of_preemption() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"), make_group("g", 2, priority=100))
        world.apply(*(make_pod(f"v{n}", cpu="1", node_name="n", priority=0) for n in range(2)))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", priority=100) for n in range(2)))
        await quiet()
        exposed = exposition(world.metrics)
        assert b"scheduler_preemption_victims_count 1" in exposed
        assert b"scheduler_preemption_victims_sum 2" in exposed

    story(play)


def test_a_member_that_is_left_by_a_quorum_evicts_as_a_pod_of_its_own() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="3"), make_group("g", 2))
        world.apply(make_pod("v", cpu="1", node_name="n", priority=0))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", priority=9) for n in range(3)))
        await quiet()
        assert bound(world, "p0", "p1") == 2
        assert deleted(world) == ["v"]
        assert world.pod("p2")["status"]["nominatedNodeName"] == "n"
        world.operator.handlers.on_pod("DELETED", make_pod("v", cpu="1", node_name="n", priority=0))
        await asyncio.sleep(5)
        assert bound(world, "p2") == 1
        assert deleted(world) == ["v"]

    story(play)


def test_a_member_that_is_left_by_a_quorum_spares_its_own_group() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="1"), make_group("g", 1))
        world.apply(make_member("least", "g", cpu="1", priority=0))
        await quiet()
        world.apply(make_node("m", cpu="1"))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", priority=9) for n in range(2)))
        await quiet()
        assert bound(world, "least", "p0") == 2
        assert deleted(world) == []

    story(play)


def test_nothing_is_evicted_for_a_part_of_a_group_that_goes_whole() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="3"), make_group("g", 2, disruptionMode="PodGroup"))
        world.apply(make_pod("v", cpu="1", node_name="n", priority=0))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", priority=9) for n in range(3)))
        await quiet()
        assert bound(world, "p0", "p1") == 2
        assert deleted(world) == []

    story(play)


def test_members_that_are_left_are_tried_once_and_keep_their_reason() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"), make_group("g", 2))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(4)))
        await asyncio.sleep(100)
        assert bound(world, "p0", "p1") == 2
        _, message = world.condition("p2") or ("", "")
        assert "not eligible due to workload aware preemption enabled" in message
        assert world.queue.entries["uid-default-p2"].attempts == 1
        # One by itself; the other is like it.
        asked = world.metrics.preemption_attempts.labels()
        assert asked.value == 1

    story(play)


def test_a_single_pod_evicts_a_group_whole_or_not_at_all() -> None:
    async def play(world: InProcess) -> None:
        world.apply(*(make_node(f"n{n}", cpu="1") for n in range(2)))
        world.apply(make_group("w", 2, disruptionMode="PodGroup", priority=5))
        for number in range(2):
            world.apply(make_member(f"w{number}", "w", cpu="1", node_name=f"n{number}"))
        world.apply(make_pod("one", cpu="1", priority=3, scheduler_name="stellwerk"))
        await quiet()
        assert not [verb for verb, _ in world.client.requests if verb == "DELETE"]
        world.apply(make_pod("two", cpu="1", priority=9, scheduler_name="stellwerk"))
        await quiet()
        assert len([verb for verb, _ in world.client.requests if verb == "DELETE"]) == 2

    story(play)


def test_a_coscheduling_group_is_placed_by_label_and_shows_its_phase() -> None:
    async def play(world: InProcess) -> None:
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default", "uid": "c"},
            "spec": {"minMember": 2, "minResources": {"cpu": "2"}},
        }
        path = f"{COSCHEDULING}/g"
        world.client.objects[path] = group
        world.operator.handlers.on_object("CoschedulingPodGroup", "ADDED", group)
        label = {"scheduling.x-k8s.io/pod-group": "g"}
        pods = [
            make_pod(f"p{n}", cpu="1", labels=label, scheduler_name="stellwerk") for n in (1, 2)
        ]
        world.apply(make_node("n", cpu="1"), *pods)
        await asyncio.sleep(3)
        assert "minResources" in (world.condition("p1") or ("", ""))[1]
        assert world.client.objects[path]["status"]["phase"] == "PreScheduling"
        world.apply(make_node("m", cpu="1"))
        await asyncio.sleep(5)
        assert bound(world, "p1", "p2") == 2
        assert world.client.objects[path]["status"]["phase"] == "Scheduled"

    story(play)


def test_a_constraint_holds_for_members_that_come_later() -> None:
    async def play(world: InProcess) -> None:
        for name in ("a", "b"):
            world.apply(make_node(name, cpu="2", labels={"zone": name}))
        world.apply(make_group("g", 1, schedulingConstraints=constrained_to("zone")))
        world.apply(make_member("p1", "g", cpu="1"))
        await quiet()
        world.apply(make_member("p2", "g", cpu="1"))
        await quiet()
        assert world.node_of("p1") == world.node_of("p2")

    story(play)


def test_a_group_without_a_placement_waits_for_labels() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"))
        world.apply(make_group("g", 1, schedulingConstraints=constrained_to("zone")))
        world.apply(make_member("p", "g", cpu="1"))
        await asyncio.sleep(20)
        assert world.queue.entries["uid-default-p"].attempts == 1
        world.apply(make_node("n", cpu="2", labels={"zone": "a"}))
        await asyncio.sleep(20)
        assert bound(world, "p") == 1

    story(play)


def test_a_group_that_asks_for_something_else_is_tried_anew() -> None:
    async def play(world: InProcess) -> None:
        racks = {"scheduling.stellwerk.dev/topology": "example.com/rack"}
        world.apply(make_node("n", cpu="2"), make_group("g", 1, racks))
        world.apply(make_member("p", "g", cpu="1"))
        await asyncio.sleep(20)
        assert bound(world, "p") == 0
        world.apply(make_group("g", 1))
        await asyncio.sleep(15)
        assert bound(world, "p") == 1

    story(play)


def test_room_is_kept_no_longer_than_its_time() -> None:
    async def play(world: InProcess) -> None:
        keeps = {"scheduling.stellwerk.dev/reserves-room": "true"}
        world.apply(make_node("n", cpu="2"), ending("v", "n", cpu="1"))
        world.apply(make_group("g", 1, keeps), make_member("p", "g", cpu="2"))
        world.apply(make_pod("small", cpu="1", scheduler_name="stellwerk"))
        await asyncio.sleep(55)
        assert bound(world, "small") == 0
        await asyncio.sleep(30)
        assert bound(world, "small") == 1

    args = {"reservation": {"maxNodes": "100%", "maxSeconds": 60}}
    story(play, pluginConfig=[{"name": "GangScheduling", "args": args}])


def test_room_is_kept_for_a_blocked_group_that_asks_for_it() -> None:
    async def play(world: InProcess) -> None:
        keeps = {"scheduling.stellwerk.dev/reserves-room": "true"}
        running_pods = [ending(f"v{n}", f"n{n // 2}", cpu="1") for n in range(4)]
        world.apply(*(make_node(f"n{n}", cpu="2") for n in range(2)), *running_pods)
        world.apply(make_group("g", 2, keeps))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(2)))
        await asyncio.sleep(3)
        kept = {world.pod(f"p{n}")["status"]["nominatedNodeName"] for n in range(2)}
        assert not [verb for verb, _ in world.client.requests if verb == "DELETE"]
        (node,) = kept
        world.delete("Pod", "v0" if node == "n0" else "v2")
        world.apply(make_pod("small", cpu="1", scheduler_name="stellwerk"))
        await asyncio.sleep(20)
        assert bound(world, "small", "p0", "p1") == 0
        other = "v2" if node == "n0" else "v0"
        world.delete("Pod", other)
        await asyncio.sleep(20)
        assert bound(world, "small", "p0", "p1") == 2

    story(play, **granting(maxNodes="50%", maxSeconds=3600))


def ending(name: str, node_name: str, seconds: int = 50, **spec: Any) -> JsonObject:
    """A pod on a node, which runs since the clock began, that ends after so many seconds."""
    pod = make_pod(name, node_name=node_name, activeDeadlineSeconds=seconds, **spec)
    pod["status"] = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    return pod


def granting(**reservation: Any) -> dict[str, Any]:
    """A profile that grants room to groups that ask for it."""
    return {"pluginConfig": [{"name": "GangScheduling", "args": {"reservation": reservation}}]}


def foreign(name: str, **spec: Any) -> JsonObject:
    """A pod of another tenant, which goes by the same profile."""
    return make_pod(name, namespace="other", scheduler_name="stellwerk", **spec)


def room(world: InProcess, group: str) -> tuple[str, str]:
    found = condition(world, group, ROOM_NOT_GRANTED)
    return found.get("status", ""), found.get("message", "")


def kept_nodes(world: InProcess) -> set[str]:
    nominated = world.operator.world.nominator.by_node
    return {name for name, pods in nominated.items() if pods}


KEEPS = {"scheduling.stellwerk.dev/reserves-room": "true"}


def hungry(name: str, size: int) -> list[JsonObject]:
    """A group that asks for whole nodes, and for room."""
    members = [make_member(f"{name}-{n}", name, cpu="4") for n in range(size)]
    return [make_group(name, size, KEEPS), *members]


@pytest.mark.parametrize(
    ("profile", "reason"),
    [
        pytest.param({}, "grants no room: args.reservation", id="nothing is granted by default"),
        pytest.param(
            granting(), "which is granted 2 of 20", id="more is asked for than is granted"
        ),
        pytest.param(
            granting(namespaces={"matchLabels": {"trusted": "yes"}}, maxNodes="100%"),
            'grants no room to the namespace "default"',
            id="it is granted to others",
        ),
    ],
)
def test_a_group_keeps_no_node_from_others_that_was_not_granted(
    profile: dict[str, Any], reason: str
) -> None:
    async def play(world: InProcess) -> None:
        world.apply(*(make_node(f"n{n}", cpu="4") for n in range(20)))
        world.apply(ending("in-the-way", "n0", cpu="100m"), *hungry("g", 20))
        await asyncio.sleep(3)
        world.apply(*(foreign(f"f{n}", cpu="100m") for n in range(10)))
        await asyncio.sleep(1)
        paths = [f"/api/v1/namespaces/other/pods/f{n}" for n in range(10)]
        assert all(world.client.objects[path]["spec"].get("nodeName") for path in paths)
        hold("nodes kept ungranted", len(kept_nodes(world)))
        status, message = room(world, "g")
        assert (status, reason in message) == ("True", True)

    story(play, **profile)


def test_groups_that_are_made_anew_keep_no_more_than_the_share_of_their_namespace() -> None:
    async def play(world: InProcess) -> None:
        world.apply(*(make_node(f"n{n}", cpu="4") for n in range(20)))
        # They end within the time for which room may be kept, whenever that is.
        spec: dict[str, Any] = {"cpu": "3", "activeDeadlineSeconds": 1}
        world.apply(*(make_pod(f"v{n}", node_name=f"n{n}", **spec) for n in range(20)))
        kept_seconds = 0
        for second in range(150):
            if second % 10 == 0:
                for name in (f"{turn}-{second - 10}" for turn in range(10)):
                    if second:
                        world.delete("PodGroup", name)
                        world.delete("Pod", f"{name}-0")
                for turn in range(10):
                    world.apply(*hungry(f"{turn}-{second}", 1))
            await asyncio.sleep(1)
            kept = kept_nodes(world)
            hold("nodes kept granted", len(kept))
            kept_seconds += bool(kept)
        # 30 s are granted in each 90.
        assert 40 <= kept_seconds <= 62

    story(play, **granting(maxSeconds=30, cooldownSeconds=60))


@pytest.mark.parametrize(
    ("in_the_way", "is_kept"),
    [
        pytest.param({}, False, id="nobody knows when it ends"),
        pytest.param({"activeDeadlineSeconds": 400}, False, id="it may run for too long"),
        pytest.param({"activeDeadlineSeconds": 200}, True, id="it ends in time"),
        pytest.param({"terminating": True}, True, id="it is terminating"),
    ],
)
def test_room_is_kept_only_where_what_is_in_the_way_is_known_to_end(
    in_the_way: dict[str, Any], *, is_kept: bool
) -> None:
    async def play(world: InProcess) -> None:
        deadline = {name: each for name, each in in_the_way.items() if name != "terminating"}
        pod = make_pod("in-the-way", cpu="1", node_name="n0", **deadline)
        if "terminating" in in_the_way:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:10:00Z"
        world.apply(make_node("n0", cpu="4"), make_node("n1", cpu="4"), pod, *hungry("g", 2))
        await asyncio.sleep(3)
        assert kept_nodes(world) == ({"n0", "n1"} if is_kept else set())
        refused, message = room(world, "g")
        assert (refused == "True") is not is_kept
        assert is_kept or "will end in time" in message

    story(play, **granting(maxNodes="100%"))


def test_what_is_deleted_by_others_keeps_no_room_that_is_not_granted() -> None:
    async def play(world: InProcess) -> None:
        leaving = [make_pod(f"v{n}", cpu="100m", node_name=f"n{n}") for n in range(3)]
        for pod in leaving:
            pod["metadata"]["deletionTimestamp"] = "2027-01-01T00:00:00Z"
        world.apply(*(make_node(f"n{n}", cpu="4") for n in range(3)), *leaving, *hungry("g", 3))
        await asyncio.sleep(3)
        assert kept_nodes(world) == set()

    story(play)


@pytest.mark.parametrize(
    ("namespace", "seconds", "is_bound"),
    [
        pytest.param("other", 100, True, id="it ends before"),
        pytest.param("other", 299, False, id="it ends later"),
        pytest.param("other", None, False, id="nobody knows when it ends"),
        pytest.param("default", 100, False, id="it is of the namespace that keeps the room"),
    ],
)
def test_pods_of_others_may_use_room_that_is_kept_if_they_end_before(
    namespace: str, seconds: int | None, *, is_bound: bool
) -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n0", cpu="4"), ending("v", "n0", 250, cpu="1"), *hungry("g", 1))
        # One without a deadline has been judged before: what was found for it is not reused.
        world.apply(foreign("before", cpu="2"))
        await asyncio.sleep(10)
        assert kept_nodes(world) == {"n0"}
        deadline: dict[str, Any] = {} if seconds is None else {"activeDeadlineSeconds": seconds}
        spec: dict[str, Any] = {"cpu": "2", "scheduler_name": "stellwerk", **deadline}
        world.apply(make_pod("filling", namespace=namespace, **spec))
        await asyncio.sleep(5)
        found = world.client.objects[f"/api/v1/namespaces/{namespace}/pods/filling"]
        assert bool(found["spec"].get("nodeName")) is is_bound
        before = world.client.objects["/api/v1/namespaces/other/pods/before"]
        assert "nodeName" not in before["spec"]
        if not is_bound:
            return
        world.delete("Pod", "v")
        await asyncio.sleep(20)
        assert bound(world, "g-0") == 0
        assert kept_nodes(world) == {"n0"}
        world.delete("Pod", "filling", "other")
        await asyncio.sleep(20)
        assert bound(world, "g-0") == 1

    story(play, **granting(maxNodes="100%"))


def test_a_group_may_ask_for_room_for_less_time_than_is_granted_and_never_for_more() -> None:
    assert [
        reservation_limit_seconds(
            GroupWorld().served,
            replace(parse_pod_group(make_group("g", 1)), schedule_timeout_seconds=seconds),
        )
        for seconds in (None, 60, 2**31 - 1)
    ] == [300, 60, 300]


def test_groups_that_wait_are_counted_by_what_they_wait_for() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="1"), make_group("big", 1), make_group("half", 2))
        world.apply(make_member("b", "big", cpu="8"), make_member("h", "half", cpu="1"))
        await asyncio.sleep(100)
        world.operator.gauges.refresh()
        text = exposition(world.metrics).decode()
        assert 'stellwerk_podgroups_waiting{for="pods"} 1' in text
        assert 'stellwerk_podgroups_waiting{for="room"} 1' in text
        assert "stellwerk_podgroup_longest_wait_seconds 100" in text
        result = '{profile="stellwerk",result="unschedulable"}'
        assert f"scheduler_podgroup_schedule_attempts_total{result} 1" in text
        assert f"scheduler_podgroup_scheduling_attempt_duration_seconds_count{result} 1" in text
        assert "scheduler_podgroup_scheduling_algorithm_duration_seconds_count 1" in text

    story(play)


def test_a_group_is_not_bound_that_lost_a_member_while_it_was_decided() -> None:
    async def play(world: InProcess) -> None:
        cycle, lost = world.operator.scheduler.groups, list[str]()

        def losing(world_: World, profile: ServedProfile, request: GroupRequest) -> Deciding:
            decision = yield from decide_group(world_, profile, request)
            if decision.placed and not lost:
                lost.append("p0")
                world.delete("Pod", "p0")
            return decision

        cycle.decide_group = losing
        world.apply(make_node("n", cpu="4"), make_group("g", 3))
        world.apply(*(make_member(f"p{number}", "g", cpu="1") for number in range(3)))
        await quiet()
        assert lost
        assert bound(world, "p1", "p2") == 0
        assert not world.cache.assumed_pods

    story(play)


def newer(group: JsonObject, version: str = "v1beta1") -> JsonObject:
    return {**group, "apiVersion": f"scheduling.k8s.io/{version}"}


@pytest.mark.parametrize("version", ["v1beta1", "v1alpha3"])
def test_a_group_is_reported_on_in_its_version_under_the_name_of_that_release(version: str) -> None:
    async def play(world: InProcess) -> None:
        group = newer(make_group("g", 2), version)
        path = f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups/g"
        world.client.objects[path] = group
        world.operator.handlers.on_object("PodGroup", None, group)
        world.apply(make_node("n", cpu="4"))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(2)))
        await quiet()
        assert bound(world, "p0", "p1") == 2
        found = [each["type"] for each in world.client.objects[path]["status"]["conditions"]]
        assert "PodGroupInitiallyScheduled" in found
        assert "PodGroupScheduled" not in found

    story(play)


def test_members_that_do_not_have_their_groups_priority_fail_as_1_37() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        members = [make_member(f"p{n}", "g", cpu="1", priority=100) for n in range(2)]
        world.apply(*members)
        await asyncio.sleep(3)
        assert bound(world, "p0", "p1") == 0
        assert condition(world, "g")["reason"] == "SchedulerError"
        assert condition(world, "g")["message"].endswith("got 100 and 0")

    story(play, compatibility="1.37")


def test_members_of_a_group_in_a_tree_wait_and_say_so() -> None:
    async def play(world: InProcess) -> None:
        group = make_group("g", 1, parentCompositePodGroupName="tree")
        world.apply(make_node("n", cpu="4"), group, make_member("p", "g", cpu="1"))
        await asyncio.sleep(3)
        assert bound(world, "p") == 0
        assert 'CompositePodGroup "tree"' in condition(world, "g")["message"]
        assert (world.condition("p") or ("",))[0] == "WaitingForPods"

    story(play)


@pytest.mark.parametrize("fewer", [1, 2])
def test_a_group_that_asks_for_fewer_members_is_tried_again(fewer: int) -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"), make_group("g", 3))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(3)))
        await asyncio.sleep(3)
        assert bound(world, "p0", "p1", "p2") == 0
        changed = make_group("g", fewer)
        changed["metadata"]["resourceVersion"] = "9"
        world.operator.handlers.on_object("PodGroup", "MODIFIED", changed)
        await quiet()
        assert bound(world, "p0", "p1", "p2") == 2

    story(play)


ABSENT = Lack("the API serves no podgroups of scheduling.k8s.io")
UNKNOWN = Lack(
    "the API serves podgroups of scheduling.k8s.io in v7, and this version of Stellwerk reads v1",
    unreadable=True,
)


@pytest.mark.parametrize(
    ("lack", "reason"),
    [
        pytest.param(ABSENT, "NotServed", id="nobody serves the group"),
        pytest.param(UNKNOWN, "VersionUnknown", id="it is served in a version of the future"),
    ],
)
def test_pods_of_groups_that_cannot_be_seen_say_why_they_wait(
    lack: Lack, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def play(world: InProcess) -> None:
        world.operator.handlers.on_lack("PodGroup", lack)
        world.apply(make_node("n", cpu="4"))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(2)))
        await asyncio.sleep(3)
        assert bound(world, "p0", "p1") == 0
        for name in ("p0", "p1"):
            said, message = world.condition(name) or ("", "")
            assert said == "WaitingForPods"
            assert lack.reason in message
        assert caplog.text.count("pods name groups of scheduling.k8s.io") == 1
        stated = profile_condition(world, "ObjectsSeen")
        assert (stated["status"], stated["reason"]) == ("False", reason)
        assert lack.reason in stated["message"]
        assert 'stellwerk_kind_missed{kind="PodGroup"} 1' in world.operator.exposition().decode()
        world.operator.handlers.on_lack("PodGroup", None)
        world.apply(make_group("g", 2))
        await asyncio.sleep(3)
        assert bound(world, "p0", "p1") == 2
        assert profile_condition(world, "ObjectsSeen")["status"] == "True"
        assert 'stellwerk_kind_missed{kind="PodGroup"} 0' in world.operator.exposition().decode()

    with caplog.at_level("WARNING"):
        story(play)


def test_a_kind_that_is_not_served_is_no_lack_until_pods_name_it() -> None:
    async def play(world: InProcess) -> None:
        world.operator.handlers.on_lack("PodGroup", ABSENT)
        world.apply(make_node("n", cpu="4"), make_pod("p", cpu="1", scheduler_name="stellwerk"))
        await asyncio.sleep(3)
        assert bound(world, "p") == 1
        assert profile_condition(world, "ObjectsSeen") == {}

    story(play)


def profile_condition(world: InProcess, type_: str) -> JsonObject:
    """A condition of the profile, as its status says it or is about to."""
    [profile] = world.operator.profile_status.described()
    return next(
        (
            {"status": each.status, "reason": each.reason, "message": each.message}
            for each in profile.conditions
            if each.type == type_
        ),
        {},
    )


def test_a_group_evicts_only_those_whom_its_profile_lets_it_evict() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"), make_node("m", cpu="2"))
        world.apply(make_group("g", 2, priority=100))
        world.apply(make_pod("own", cpu="2", node_name="n", priority=0))
        world.apply(make_pod("foreign", cpu="2", node_name="m", priority=0, namespace="other"))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", priority=100) for n in range(2)))
        await quiet()
        assert deleted(world) == ["own"]

    args = {"victims": "SameNamespace"}
    story(play, pluginConfig=[{"name": "DefaultPreemption", "args": args}])


# --- what wakes a group --------------------------------------------------------------------------

BLOCKED: dict[str, Any] = {"taints": [{"key": "blocked", "effect": "NoSchedule"}]}


SSD: dict[str, Any] = {"nodeSelector": {"disk": "ssd"}}


def rack(name: str, cpu: str, disk: str = "ssd", **spec: Any) -> JsonObject:
    return make_node(name, cpu=cpu, labels={"rack": name, "disk": disk}, **spec)


def changed(node: JsonObject) -> JsonObject:
    return {**node, "metadata": {**node["metadata"], "resourceVersion": "99"}}


@pytest.mark.parametrize("release", ["1.36", "1.37", "1.38"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(
            [rack("a", "1"), rack("b", "2", "hdd")],
            rack("b", "2"),
            id="a node gets a label in the placement that took none of them",
        ),
        pytest.param(
            [rack("a", "1"), rack("b", "2", **BLOCKED)],
            rack("b", "2"),
            id="a taint goes in the placement that took none of them",
        ),
        pytest.param(
            [rack("a", "1"), rack("b", "2", "hdd")],
            rack("a", "2"),
            id="a node grows in the placement that took one of them",
        ),
        pytest.param(
            [rack("a", "1", "hdd"), rack("b", "1", "hdd"), rack("c", "1")],
            rack("c", "2"),
            id="a node grows in the placement that was tried last",
        ),
    ],
)
def test_a_group_is_woken_by_the_plugins_that_refused_its_members_in_any_placement(
    release: str, before: list[JsonObject], after: JsonObject
) -> None:
    async def play(world: InProcess) -> None:
        world.apply(*before, make_group("g", 2, schedulingConstraints=constrained_to("rack")))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", **SSD) for n in range(2)))
        await asyncio.sleep(20)
        assert bound(world, "p0", "p1") == 0
        world.operator.handlers.on_node("MODIFIED", changed(after))
        await asyncio.sleep(20)
        assert bound(world, "p0", "p1") == 2

    story(play, compatibility=release)


@pytest.mark.parametrize("release", ["1.36", "1.37", "1.38"])
def test_a_group_that_was_stopped_in_vain_is_woken_by_what_helps_the_member_that_was_refused(
    release: str,
) -> None:
    """The attempt ends at the second member: the third is never asked what refuses it."""

    async def play(world: InProcess) -> None:
        node = make_node("n", cpu="9", **BLOCKED)
        tolerant = {"tolerations": [{"operator": "Exists"}]}
        world.apply(node, make_group("g", 3))
        world.apply(make_member("p0", "g", cpu="1", **tolerant))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in (1, 2)))
        await asyncio.sleep(20)
        assert bound(world, "p0", "p1", "p2") == 0
        grown = make_node("n", cpu="10", **BLOCKED)
        world.operator.handlers.on_node("MODIFIED", changed(grown))
        await asyncio.sleep(20)
        # More room helps nobody whom a taint keeps away: the group rests.
        attempts = world.queue.entries["uid-default-p1"].attempts
        world.operator.handlers.on_node("MODIFIED", changed(make_node("n", cpu="10")))
        await asyncio.sleep(20)
        assert bound(world, "p0", "p1", "p2") == 3
        assert attempts == 1

    story(play, compatibility=release)


def test_one_of_members_that_are_alike_is_woken_and_brings_the_others() -> None:
    async def play(world: InProcess) -> None:
        world.apply(rack("a", "1"), rack("b", "2", "hdd"))
        world.apply(make_group("g", 3, schedulingConstraints=constrained_to("rack")))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", **SSD) for n in range(3)))
        await asyncio.sleep(20)
        entries = [world.queue.entries[f"uid-default-p{n}"] for n in range(3)]
        refused = [each.unschedulable_plugins - {"GangScheduling"} for each in entries]
        assert sum(map(bool, refused)) == 1
        assert {"NodeResourcesFit", "NodeAffinity"} <= frozenset[str]().union(*refused)

    story(play)


@pytest.mark.parametrize("racks", [3, 15])
def test_of_placements_that_are_not_tried_every_filter_may_wake_the_group(racks: int) -> None:
    """Of more than ten placements only the best are tried, and here none can hold the group."""

    async def play(world: InProcess) -> None:
        names = [f"r{number:02}" for number in range(racks)]
        world.apply(*(rack(name, "1", "ssd" if name == "r00" else "hdd") for name in names))
        world.apply(rack("zz", "2", "hdd"))
        world.apply(make_group("g", 2, schedulingConstraints=constrained_to("rack")))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", **SSD) for n in range(2)))
        await asyncio.sleep(20)
        assert bound(world, "p0", "p1") == 0
        world.operator.handlers.on_node("MODIFIED", changed(rack("zz", "2")))
        await asyncio.sleep(20)
        assert bound(world, "p0", "p1") == 2

    story(play)


# --- as 1.38 -------------------------------------------------------------------------------------


def notes_on(world: InProcess, *names: str) -> list[str]:
    """What events say of these pods' preemption."""
    return [
        note
        for name in names
        for _, reason, note in world.notes.about(name)
        if reason == "Preempted"
    ]


def preempted(pod: JsonObject) -> JsonObject:
    """The pod while it ends as a victim."""
    reason = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    times = {"deletionTimestamp": "2026-01-01T00:00:30Z", "resourceVersion": "98"}
    status = {**pod.get("status", {}), "conditions": [reason]}
    return {**pod, "metadata": {**pod["metadata"], **times}, "status": status}


def attempts_of_groups(world: InProcess) -> dict[str, float]:
    attempts = world.metrics.podgroup_schedule_attempts
    results = ("scheduled", "unschedulable", "waiting_on_preemption")
    found = {each: attempts.labels(each, "stellwerk").value for each in results}
    return {result: value for result, value in found.items() if value}


@pytest.mark.parametrize("spec", [{}, {"disruptionMode": "PodGroup"}], ids=["single", "whole"])
def test_what_a_placed_group_leaves_is_tried_again_with_it_and_the_group_preempts(
    spec: dict[str, Any],
) -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="3"), make_group("g", 2, priority=9, **spec))
        world.apply(make_pod("v", cpu="1", node_name="n", priority=0))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", priority=9) for n in range(3)))
        await quiet()
        # Not in the cycle that placed two of them, but in the next one, which placed none.
        assert bound(world, "p0", "p1") == 2
        assert attempts_of_groups(world) == {"scheduled": 1, "waiting_on_preemption": 1}
        assert deleted(world) == ["v"]
        assert [note.split(" ")[:3] for note in notes_on(world, "v")] == [
            ["Preempted", "by", "podgroup"]
        ]
        assert world.pod("p2")["status"]["nominatedNodeName"] == "n"
        world.operator.handlers.on_pod("DELETED", make_pod("v", cpu="1", node_name="n", priority=0))
        await asyncio.sleep(5)
        assert bound(world, "p2") == 1
        assert deleted(world) == ["v"]

    story(play, compatibility="1.38")


def test_what_a_placed_group_leaves_rests_where_nothing_can_be_evicted() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"), make_group("g", 2))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(4)))
        await asyncio.sleep(100)
        assert bound(world, "p0", "p1") == 2
        assert attempts_of_groups(world) == {"scheduled": 1, "unschedulable": 1}
        _, message = world.condition("p2") or ("", "")
        assert "Insufficient cpu" in message
        # The group has what it asked for, and its condition stays.
        assert condition(world, "g")["status"] == "True"
        world.apply(make_node("m", cpu="2"))
        await asyncio.sleep(20)
        assert bound(world, "p2", "p3") == 2

    story(play, compatibility="1.38")


def test_a_member_that_never_preempts_is_left_without_victims() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="2"), make_group("g", 1, priority=9))
        world.apply(make_pod("v", cpu="1", node_name="n", priority=0))
        never = {"preemptionPolicy": "Never"}
        world.apply(*(make_member(f"p{n}", "g", cpu="1", priority=9, **never) for n in range(2)))
        await quiet()
        assert bound(world, "p0") == 1
        assert bound(world, "p1") == 0
        assert deleted(world) == []

    story(play, compatibility="1.38")


@pytest.mark.parametrize(
    ("release", "alone"), [("1.36", 2), ("1.37", 2), ("1.38", 0)], ids=["1.36", "1.37", "1.38"]
)
def test_members_of_a_basic_group_that_come_later_evict_as_the_release_has_it(
    release: str, alone: int
) -> None:
    """The first member's victim is the group's; the others come while it is terminating."""

    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="3"), make_group("g", 0, priority=100))
        victims = {
            name: make_pod(name, cpu="1", node_name="n", priority=10) for name in ("v0", "v1", "v2")
        }
        world.apply(*victims.values(), make_member("p0", "g", cpu="1", priority=100))
        await asyncio.sleep(0.2)
        (first,) = deleted(world)
        world.operator.handlers.on_pod("MODIFIED", preempted(victims[first]))
        world.apply(*(make_member(f"p{n}", "g", cpu="1", priority=100) for n in (1, 2)))
        await quiet()
        # Nobody else goes while the first one is terminating.
        assert deleted(world) == [first]
        is_said = "ongoing preemption on nominated nodes" in condition(world, "g")["message"]
        assert is_said == (release != "1.36")
        ended = 0
        for _ in range(3):
            for name in deleted(world)[ended:]:
                world.operator.handlers.on_pod("DELETED", victims[name])
                ended += 1
            await asyncio.sleep(20)
        assert bound(world, "p0", "p1", "p2") == 3
        # Nobody is evicted twice, whoever evicts.
        assert sorted(deleted(world)) == sorted(victims)
        by = [note.split(" ")[1:3] for note in notes_on(world, *victims)]
        expected = [["by", "podgroup"]] * (3 - alone) + [["by", "pod"]] * alone
        assert sorted(by) == sorted(expected)

    story(play, compatibility=release)


@pytest.mark.parametrize(
    ("release", "text"), [("1.37", "pods's pod group"), ("1.38", "pod's pod group")]
)
def test_the_gate_of_a_group_that_is_missing_speaks_as_the_release(release: str, text: str) -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_node("n", cpu="1"), make_member("p", "g", cpu="1"))
        await asyncio.sleep(3)
        profile = world.operator.handlers.world.profiles.served["stellwerk"]
        gates = PRE_ENQUEUE.among(profile.framework.plugins)
        (gate,) = [each for each in gates if each.name == "GangScheduling"]
        status = gate.pre_enqueue(world.queue.entries["uid-default-p"].pod)
        assert status.reasons == (f'waiting for {text} "g" to appear in scheduling queue',)

    story(play, compatibility=release)


async def test_a_group_that_no_profile_places_as_one_says_so_until_one_does() -> None:
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("n"), make_group("g", 2))
        world.apply(*(make_member(f"p{n}", "g", cpu="1") for n in range(2)))

        def told() -> dict[str, Any]:
            path = next(each for each in world.client.objects if each.endswith("/podgroups/g"))
            conditions = world.client.objects[path].get("status", {}).get("conditions", ())
            found: dict[str, dict[str, Any]] = {each["type"]: each for each in conditions}
            return found.get("scheduling.stellwerk.dev/PlacedOneByOne", {})

        await eventually(lambda: told().get("status") == "True")
        assert told()["reason"] == "GangSchedulingOff"
        assert 'gangScheduling is off in the SchedulerProfile "stellwerk"' in told()["message"]
        assert ("Warning", "GangSchedulingOff", told()["message"]) in world.notes.about("g")
        world.apply(make_profile("stellwerk", generation=2, gangScheduling=True))
        world.apply(make_member("p2", "g", cpu="1"))
        await eventually(lambda: told().get("status") == "False")
