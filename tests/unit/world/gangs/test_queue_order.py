"""Groups of one queue take turns where their profile keeps the order."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stellwerk.explain.pod_groups import explain_group
from stellwerk.explain.steps import finished
from stellwerk.serving.exposition import exposition
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, running
from tests.support.pod_groups import constrained_to, make_group, make_member
from tests.support.skipped_time import run_skipping

ROOM = {"maxNodes": "100%", "maxSeconds": 100_000}
QUEUE = {"scheduling.stellwerk.dev/queue": "training"}


def story(play: Callable[[InProcess], Awaitable[None]], *, strict: bool = True) -> None:
    """Run a story on one node of four cores."""

    async def run(clock: VirtualClock) -> None:
        args = [{"name": "GangScheduling", "args": {"strictQueues": strict, "reservation": ROOM}}]
        async with running(clock) as world:
            world.apply(make_profile("stellwerk", gangScheduling=True, pluginConfig=args))
            world.apply(make_node("n", cpu="4", labels={"zone": "z"}))
            await play(world)

    run_skipping(run)


def gang(name: str, created: int, cpu: int, size: int = 1, **spec: Any) -> list[JsonObject]:
    group = make_group(name, size, QUEUE, **spec)
    group["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{created:02}Z"
    members = [make_member(f"{name}-{each}", name, cpu=str(cpu)) for each in range(size)]
    return [group, *members]


def said(world: InProcess, name: str) -> tuple[str, str]:
    path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/{name}"
    for each in world.client.objects[path].get("status", {}).get("conditions", []):
        if each["type"] == "PodGroupScheduled":
            return each["reason"], each["message"]
    return "", ""


def test_nothing_is_placed_behind_one_that_no_room_can_be_kept_for() -> None:
    async def play(world: InProcess) -> None:
        world.apply(*gang("large", 0, 8), *gang("small", 1, 1))
        await asyncio.sleep(30)
        assert world.node_of("small-0") is None
        world.operator.gauges.refresh()
        assert 'stellwerk_podgroups_waiting{for="turn"} 1' in exposition(world.metrics).decode()
        reason, message = said(world, "small")
        assert reason == "WaitingForTurn"
        assert message == (
            'waiting in queue "training" behind the pod group "large": no room can be kept for it'
        )
        assert (world.condition("small-0") or ("",))[0] == "WaitingForTurn"
        explained = explain_group(world.operator.world, "default", "small")
        assert explained is not None
        shown = finished(explained)
        assert (shown.state, shown.queue) == ("waiting for its turn", "training")
        world.delete("Pod", "large-0")
        await asyncio.sleep(30)
        assert world.node_of("small-0") == "n"

    story(play)


def test_it_is_placed_once_the_group_before_it_is_deleted() -> None:
    async def play(world: InProcess) -> None:
        world.apply(*gang("large", 0, 8), *gang("small", 1, 1))
        await asyncio.sleep(30)
        world.delete("PodGroup", "large")
        await asyncio.sleep(30)
        assert world.node_of("small-0") == "n"

    story(play)


def test_it_is_placed_once_the_group_before_it_leaves_the_queue() -> None:
    async def play(world: InProcess) -> None:
        large, member = gang("large", 0, 8)
        world.apply(large, member, *gang("small", 1, 1))
        await asyncio.sleep(30)
        assert world.node_of("small-0") is None
        world.apply({**large, "metadata": {**large["metadata"], "annotations": {}}})
        await asyncio.sleep(30)
        assert world.node_of("small-0") == "n"

    story(play)


def test_those_behind_it_are_placed_beside_the_room_that_is_kept() -> None:
    async def play(world: InProcess) -> None:
        other = make_pod("other", cpu="1", node_name="n", activeDeadlineSeconds=3600)
        world.apply(make_node("m", cpu="2"), other)
        world.apply(*gang("large", 0, 4), *gang("small", 1, 1), *gang("third", 2, 2))
        await asyncio.sleep(30)
        assert world.node_of("large-0") is None
        assert world.node_of("small-0") == "m"
        assert world.node_of("third-0") is None
        world.delete("Pod", "other")
        await asyncio.sleep(30)
        assert world.node_of("large-0") == "n"

    story(play)


def test_one_of_a_higher_priority_goes_first() -> None:
    async def play(world: InProcess) -> None:
        world.apply(*gang("large", 0, 8))
        await asyncio.sleep(10)
        group, member = gang("urgent", 1, 1)
        member["spec"]["priority"] = 10
        world.apply(group, member)
        await asyncio.sleep(30)
        assert world.node_of("urgent-0") == "n"

    story(play)


def test_a_group_that_lacks_pods_keeps_none_waiting() -> None:
    async def play(world: InProcess) -> None:
        incomplete, first, _ = gang("half", 0, 1, size=2)
        world.apply(incomplete, first, *gang("small", 1, 1))
        await asyncio.sleep(30)
        assert world.node_of("small-0") == "n"

    story(play)


def test_where_a_domain_is_asked_for_no_room_is_kept() -> None:
    async def play(world: InProcess) -> None:
        world.apply(make_pod("other", cpu="1", node_name="n"))
        constraints = constrained_to("zone")
        world.apply(*gang("large", 0, 4, schedulingConstraints=constraints), *gang("small", 1, 1))
        await asyncio.sleep(30)
        assert world.node_of("small-0") is None
        world.delete("Pod", "other")
        await asyncio.sleep(30)
        assert world.node_of("large-0") == "n"

    story(play)


def test_without_the_switch_a_queue_has_no_order() -> None:
    async def play(world: InProcess) -> None:
        world.apply(*gang("large", 0, 8), *gang("small", 1, 1))
        await asyncio.sleep(30)
        assert world.node_of("small-0") == "n"

    story(play, strict=False)
