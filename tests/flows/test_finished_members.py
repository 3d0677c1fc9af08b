"""Members of a gang that has run succeed, fail, are deleted or replaced.

In virtual time, and once over HTTP. What a Job with completions would expect: each pod that it
makes anew runs, whatever became of the others, and whether or not the operator was restarted. The
group is scheduled for good once it was.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import pytest

from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cluster.apimachinery.feature_gates import GANGS
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.in_process import make_profile
from tests.support.pod_groups import make_group, make_member
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, until
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

FATES = ("succeeds", "fails", "is deleted", "is replaced")
WAITING = "scheduling.stellwerk.dev/Waiting"
Story = Callable[[VirtualCluster], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    """Tell a story on one node with room for the gangs of CASES, no more."""

    async def flow(clock: VirtualClock) -> None:
        options = ClusterOptions(seed=1, heartbeats=False, feature_gates=GANGS)
        async with open_virtual_cluster(
            clock, [make_node("n", cpu=str(4 * len(CASES)), pods="500")], options
        ) as world:
            patch = {"spec": {"gangScheduling": True}}
            world.patch(PLURAL, "default-scheduler", patch, GROUP)
            await story(world)

    run_skipping(flow)


def member(group: str, name: str, role: str = "") -> JsonObject:
    pod = make_member(f"{group}-{name}", group, cpu="1", scheduler_name="default-scheduler")
    if role:
        pod["metadata"]["labels"] = {"scheduling.stellwerk.dev/role": role}
    return pod


def conditions(world: VirtualCluster, group: str) -> dict[str, JsonObject]:
    found = world.api.find("podgroups.scheduling.k8s.io", "default", group)
    assert found is not None
    return {each["type"]: each for each in (found.get("status") or {}).get("conditions") or ()}


def is_running(world: VirtualCluster, *names: str) -> bool:
    return all(name in world.pods and world.phase_of(name) == "Running" for name in names)


def meet(world: VirtualCluster, name: str, fate: str) -> None:
    """A member succeeds, fails, goes at once, or ends as `kubectl delete` has it."""
    if fate in {"succeeds", "fails"}:
        phase = "Succeeded" if fate == "succeeds" else "Failed"
        world.patch_status("pods", name, {"status": {"phase": phase}})
    elif fate == "is deleted":
        remove(world, name)
    else:
        world.delete("pods", name)


def remove(world: VirtualCluster, name: str) -> None:
    """`kubectl delete --force`."""
    kind = world.api.kinds.resource("pods")
    delete(world.api, kind, ("default", name), DeleteOptions(grace_period_seconds=0))


def members_of(world: VirtualCluster, group: str) -> list[str]:
    """The pods of a group that have not ended."""
    names = [each for each in world.pods if each.startswith(f"{group}-")]
    return [each for each in names if world.phase_of(each) in {"Pending", "Running"}]


CASES = {
    f"g{size}-{number}": fates
    for size in (1, 2, 3)
    for number, fates in enumerate(combinations_with_replacement(FATES, size))
}
"""What becomes of one, two or three members of each gang of four."""


def successors(group: str, fates: tuple[str, ...]) -> list[JsonObject]:
    """What a Job makes in the place of those that did not succeed."""
    return [
        member(group, f"{number}-again")
        for number, fate in enumerate(fates)
        if fate in {"fails", "is deleted"}
    ]


@pytest.mark.parametrize("restarts", [False, True], ids=["", "with a restart"])
@pytest.mark.parametrize("seconds", [0.1, 2.0, 30.0])
def test_what_a_job_makes_anew_runs(seconds: float, *, restarts: bool) -> None:
    async def story(world: VirtualCluster) -> None:
        for group in CASES:
            world.apply(make_group(group, 4), *(member(group, str(each)) for each in range(4)))
        await world.settle()
        await asyncio.sleep(seconds)
        for group, fates in CASES.items():
            for number, fate in enumerate(fates):
                meet(world, f"{group}-{number}", fate)
                if fate == "is replaced":
                    world.apply(member(group, f"{number}-again"))
        if restarts:
            await world.restart_operator()
        await asyncio.sleep(2.5)
        for group, fates in CASES.items():
            assert conditions(world, group)["PodGroupScheduled"]["status"] == "True", fates
            world.apply(*successors(group, fates))
        await asyncio.sleep(20)
        for group, fates in CASES.items():
            names = members_of(world, group)
            assert len(names) == 4 - fates.count("succeeds"), fates
            assert {world.phase_of(name) for name in names} == {"Running"}, (fates, names)
            found = conditions(world, group)
            assert found["PodGroupScheduled"]["status"] == "True", fates
            assert found.get(WAITING, {"status": "False"})["status"] == "False", fates

    play(story)


@pytest.mark.parametrize("restarts", [False, True], ids=["", "with a restart"])
def test_a_group_that_lost_all_its_pods_says_what_it_waits_for(*, restarts: bool) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(make_group("g", 4), *(member("g", str(number)) for number in range(4)))
        await world.settle()
        await asyncio.sleep(2)
        for number, fate in enumerate(("succeeds", "succeeds", "fails", "is deleted")):
            meet(world, f"g-{number}", fate)
        if restarts:
            await world.restart_operator()
        world.apply(member("g", "2-again"))
        await asyncio.sleep(5)
        found = conditions(world, "g")
        assert found["PodGroupScheduled"]["status"] == "True"
        assert found[WAITING]["status"] == "True"
        assert found[WAITING]["reason"] == "WaitingForPods"
        assert found[WAITING]["message"].endswith("minCount pods of the gang: 3 of 4 exist")
        world.apply(member("g", "3-again"))
        await asyncio.sleep(5)
        assert len(members_of(world, "g")) == 2
        assert {world.phase_of(name) for name in members_of(world, "g")} == {"Running"}
        found = conditions(world, "g")
        assert found["PodGroupScheduled"]["status"] == "True"
        assert (found[WAITING]["status"], found[WAITING]["reason"]) == ("False", "Scheduled")

    play(story)


BEFORE_THE_CRASH = {
    "nothing": (),
    "no room": (
        {
            "type": "PodGroupScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/1 nodes are available",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
    ),
}
"""What the condition of a group said when its members were bound, and its writer crashed."""


@pytest.mark.parametrize("before", BEFORE_THE_CRASH)
@pytest.mark.parametrize("fates", [("succeeds",) * 4, ("succeeds", "succeeds", "fails", "fails")])
def test_members_that_ran_to_their_end_while_nothing_said_so_count_after_a_restart(
    fates: tuple[str, ...], before: str
) -> None:
    async def story(world: VirtualCluster) -> None:
        world.client.end()
        await world.stop_operator()
        world.apply(make_group("g", 4))
        if before != "nothing":
            status = {"status": {"conditions": list(BEFORE_THE_CRASH[before])}}
            world.patch_status("podgroups", "g", status, "scheduling.k8s.io")
        for number in range(4):
            pod = member("g", str(number))
            pod["spec"]["nodeName"] = "n"
            world.apply(pod)
        await asyncio.sleep(2)
        for number, fate in enumerate(fates):
            meet(world, f"g-{number}", fate)
        await asyncio.sleep(2)
        world.begin_operator()
        await asyncio.sleep(3)
        found = conditions(world, "g")
        assert found["PodGroupScheduled"]["status"] == "True"
        assert WAITING not in found
        world.apply(*(member("g", f"{each}-again") for each in range(4) if fates[each] == "fails"))
        await asyncio.sleep(3)
        names = members_of(world, "g")
        assert len(names) == fates.count("fails")
        assert {world.phase_of(name) for name in names} <= {"Running"}
        assert conditions(world, "g")["PodGroupScheduled"]["status"] == "True"

    play(story)


def test_members_that_never_had_a_node_do_not_count_after_a_restart() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(make_group("g", 4), *(member("g", str(number)) for number in range(3)))
        await world.settle()
        for number in range(3):
            world.patch_status("pods", f"g-{number}", {"status": {"phase": "Failed"}})
        await world.restart_operator()
        world.apply(member("g", "3"))
        await asyncio.sleep(5)
        assert world.node_of("g-3") is None
        assert conditions(world, "g")["PodGroupScheduled"]["status"] == "False"

    play(story)


def test_a_condition_that_was_taken_back_before_counts_as_never_run_without_a_member() -> None:
    async def story(world: VirtualCluster) -> None:
        taken_back = {"type": "PodGroupScheduled", "status": "False", "reason": "WaitingForPods"}
        for group in ("left", "none"):
            world.apply(make_group(group, 4))
            status = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "", **taken_back}
            world.patch_status(
                "podgroups", group, {"status": {"conditions": [status]}}, "scheduling.k8s.io"
            )
        for group in ("left", "none"):
            for number in range(3):
                pod = member(group, str(number))
                pod["spec"]["nodeName"] = "n"
                world.apply(pod)
        await world.settle()
        for number in range(2):
            meet(world, f"left-{number}", "succeeds")
        for number in range(3):
            meet(world, f"none-{number}", "succeeds")
        await world.restart_operator()
        world.apply(member("left", "3"), member("none", "3"))
        await asyncio.sleep(5)
        assert world.node_of("left-3") == "n"
        assert world.node_of("none-3") is None

    play(story)


async def test_a_gang_goes_on_after_a_restart_over_http(tmp_path: Path) -> None:
    options = ClusterOptions(
        controllers=False,
        kubelet=None,
        heartbeats=False,
        identity=ENFORCED,
        feature_gates=GANGS,
    )
    async with EmbeddedCluster([make_node("n", cpu="4")], options=options) as cluster:
        api = cluster.api
        install(cluster, make_profile("default-scheduler", gangScheduling=True))

        def create(plural: str, obj: JsonObject) -> None:
            group = "scheduling.k8s.io" if plural == "podgroups" else ""
            obj["metadata"].pop("uid", None)
            api.create(api.kinds.resource(plural, group), "default", obj)

        def says(kind: str) -> str:
            found = api.find("podgroups.scheduling.k8s.io", "default", "g")
            known = ((found or {}).get("status") or {}).get("conditions") or ()
            return next((each["status"] for each in known if each["type"] == kind), "")

        def has_node(name: str) -> bool:
            pod = api.find("pods", "default", name)
            return bool(pod and pod["spec"].get("nodeName"))

        def end(name: str, phase: str) -> None:
            status = {"status": {"phase": phase}}
            api.patch(api.kinds.resource("pods"), ("default", name), status, subresource="status")

        async with operator_on(cluster, tmp_path):
            await until(lambda: is_active(cluster, "default-scheduler"))
            create("podgroups", make_group("g", 4))
            for number in range(4):
                create("pods", member("g", str(number)))
            await until(lambda: says("PodGroupScheduled") == "True")
            await until(lambda: all(has_node(f"g-{number}") for number in range(4)))
        for number, phase in enumerate(("Succeeded", "Succeeded", "Succeeded", "Failed")):
            end(f"g-{number}", phase)
        create("pods", member("g", "3-again"))
        async with operator_on(cluster, tmp_path):
            await until(lambda: has_node("g-3-again"))
            end("g-3-again", "Failed")
            create("pods", member("g", "3-last"))
            await until(lambda: has_node("g-3-last"))
            assert says("PodGroupScheduled") == "True"
            assert says(WAITING) != "True"
