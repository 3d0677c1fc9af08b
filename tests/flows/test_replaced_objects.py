"""Objects that are made anew under their name between the operator's decision and its write.

What was decided on the object before is not written to the new one, nor is the new one deleted. The
embedded API answers as the recorded one does: 422 to a patch with another uid, 409 else.
"""

import asyncio
from functools import partial
from typing import Any

import pytest

from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk.scheduler.status_reports import MAX_REPORT_WRITERS
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.errors import Conflict, Throttled
from stellwerk_kube.json_values import JsonObject
from tests.flows import test_device_requests as devices
from tests.flows import test_preemption as preemption
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.virtual_cluster import VirtualCluster

GATES = [{"name": "example.com/wait"}]


def replace_pod(world: VirtualCluster, name: str) -> None:
    """Delete a pod at once, and make another one under its name that waits for a gate."""
    pods = world.cluster.api.kinds.resource("pods")
    delete(world.cluster.api, pods, ("default", name), DeleteOptions(grace_period_seconds=0))
    new = make_pod(name, schedulingGates=GATES)
    del new["metadata"]["uid"]
    world.cluster.api.create(pods, "default", new)


def is_bound(world: VirtualCluster, name: str) -> bool:
    return world.node_of(name) == "a"


def uid_of(world: VirtualCluster, name: str) -> str:
    return str(world.pods[name]["metadata"]["uid"])


def check_untouched(world: VirtualCluster, name: str) -> None:
    """Check that a gated pod's status is what the API server gave it."""
    status = world.pods[name]["status"]
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    assert not {"nominatedNodeName", "extendedResourceClaimStatus"} & status.keys()


def test_a_report_that_waits_is_not_written_to_the_pod_s_successor() -> None:
    async def story(world: VirtualCluster) -> None:
        others = [f"held-{number}" for number in range(MAX_REPORT_WRITERS)]
        held = preemption.HeldCalls(world, "patch_pod_status", *others)
        world.apply(*(preemption.pod(each, "high", cpu="64") for each in others))
        await world.until(lambda: held.came == set(others), 30)
        world.apply(preemption.pod("large", "high", cpu="64"))
        uid = uid_of(world, "large")
        await world.until(lambda: uid in world.operator.world.queue.entries, 30)
        await asyncio.sleep(1)
        replace_pod(world, "large")
        held.release()
        await asyncio.sleep(20)
        check_untouched(world, "large")

    preemption.play([make_node("a", cpu="2")], story)


def test_a_victim_s_successor_is_neither_marked_nor_deleted_by_a_retry() -> None:
    async def story(world: VirtualCluster) -> None:
        # The other one keeps the preemptor waiting while the first is tried again.
        for name in ("victim", "other"):
            world.apply(preemption.pod(name, "low"))
            await world.until(partial(is_bound, world, name), 30)
        patch_pod, replaced = world.client.patch_pod_status, list[str]()

        async def throttled(namespace: str, name: str, patch: Any, **options: Any) -> None:
            if name == "victim" and not replaced:
                replace_pod(world, name)
                replaced.append(uid_of(world, name))
                raise Throttled("patch", 429, "TooManyRequests", "later")
            await patch_pod(namespace, name, patch, **options)

        world.client.patch_pod_status = throttled  # type: ignore[method-assign]
        world.apply(preemption.pod("urgent", "high", cpu="2"))
        await world.until(lambda: world.node_of("urgent") == "a", 60)
        await asyncio.sleep(20)
        assert [uid_of(world, "victim")] == replaced
        check_untouched(world, "victim")

    preemption.play([make_node("a", cpu="2")], story)


def test_the_name_of_a_claim_is_not_written_to_the_pod_s_successor() -> None:
    async def story(world: VirtualCluster, _: list[str]) -> None:
        patch_pod, replaced = world.client.patch_pod_status, list[str]()

        async def replacing(namespace: str, name: str, patch: Any, **options: Any) -> None:
            if "extendedResourceClaimStatus" in patch["status"] and not replaced:
                replace_pod(world, name)
                replaced.append(uid_of(world, name))
            await patch_pod(namespace, name, patch, **options)

        world.client.patch_pod_status = replacing  # type: ignore[method-assign]
        world.apply(devices.classic("p"))
        await world.until(lambda: bool(replaced), 30)
        await asyncio.sleep(20)
        assert [uid_of(world, "p")] == replaced
        check_untouched(world, "p")
        assert not list(world.cluster.api.all(devices.CLAIMS)), "the claim goes with its pod"

    devices.play(story)


def test_a_profile_s_successor_gets_its_own_verdict() -> None:
    async def story(world: VirtualCluster) -> None:
        profiles = world.cluster.api.kinds.resource(PLURAL, GROUP)
        patch, replaced = world.client.patch, list[str]()
        unknown = {"plugins": {"score": {"enabled": [{"name": "Foo"}]}}}

        async def replacing(path: str, body: Any, **options: Any) -> JsonObject:
            if path.endswith(f"/{PLURAL}/mine/status") and not replaced:
                replaced.append(body["metadata"]["uid"])
                delete(world.cluster.api, profiles, ("", "mine"), DeleteOptions())
                world.cluster.api.create(profiles, "", fresh("mine"))
                fields = world.cluster.api.get(profiles, "", "mine").obj["status"]
                assert [each["type"] for each in fields["conditions"]] == ["Ready", "Reconciling"]
                with pytest.raises(Conflict, match="uid"):
                    await patch(path, body, **options)
                assert world.cluster.api.get(profiles, "", "mine").obj["status"] == fields
            return await patch(path, body, **options)

        world.client.patch = replacing  # type: ignore[method-assign]
        world.cluster.api.create(profiles, "", fresh("mine", **unknown))

        def accepted() -> str:
            status = world.cluster.api.get(profiles, "", "mine").obj.get("status") or {}
            said = {each["type"]: str(each["status"]) for each in status["conditions"]}
            return said.get("Accepted", "")

        await world.until(lambda: bool(replaced and accepted()), 30)
        assert accepted() == "True", "the refusal was that of the profile before"

    preemption.play([make_node("a")], story)


def test_an_edit_that_is_seen_before_the_answer_to_a_status_gets_its_own_verdict() -> None:
    async def story(world: VirtualCluster) -> None:
        profiles = world.cluster.api.kinds.resource(PLURAL, GROUP)
        loader, patch = world.operator.loader, world.client.patch
        unknown = {"plugins": {"score": {"enabled": [{"name": "Misspelt"}]}}}

        async def answered_late(path: str, body: Any, **options: Any) -> JsonObject:
            stored = await patch(path, body, **options)
            if path.endswith("/mine/status"):
                world.client.patch = patch  # type: ignore[method-assign]
                world.cluster.api.patch(profiles, ("", "mine"), {"spec": unknown})
                await world.until(lambda: loader.entries["mine"].generation == 2, 30)
            return stored

        world.client.patch = answered_late  # type: ignore[method-assign]
        world.cluster.api.create(profiles, "", fresh("mine"))

        def judged() -> tuple[int, str]:
            status = world.cluster.api.get(profiles, "", "mine").obj.get("status") or {}
            said = {each["type"]: each["status"] for each in status.get("conditions") or ()}
            return status.get("observedGeneration", 0), said.get("Accepted", "")

        await world.until(lambda: judged() == (2, "False"), 30)

    preemption.play([make_node("a", cpu="1")], story)


def fresh(name: str, **spec: Any) -> JsonObject:
    """A profile as a user writes it."""
    return {**make_profile(name, **spec), "metadata": {"name": name}}
