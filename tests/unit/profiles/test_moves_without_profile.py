"""Pods without a profile: what they are told, and which of them nothing."""

from collections.abc import Awaitable, Callable

from stellwerk.profiles.moves import SECONDS_FOR_ANOTHER_SCHEDULER
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.skipped_time import run_skipping

GONE = 'no SchedulerProfile serves schedulerName "packing" any more'


def play(flow: Callable[[InProcess, VirtualClock], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            await flow(world, clock)

    run_skipping(run)


async def pass_the_grace(clock: VirtualClock) -> None:
    until = clock.monotonic() + SECONDS_FOR_ANOTHER_SCHEDULER + 1
    await eventually(lambda: clock.monotonic() >= until, 60)
    await quiet()


def without_its_profile(world: InProcess) -> None:
    """A profile has served, and is gone."""
    world.apply(make_profile("packing"))
    world.delete("SchedulerProfile", "packing")


def with_condition(pod: JsonObject, reason: str) -> JsonObject:
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": "theirs"}
    return {**pod, "status": {"conditions": [condition]}}


def test_a_pod_that_comes_after_its_profile_went_is_told_once() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        without_its_profile(world)
        world.apply(make_pod("late", scheduler_name="packing"))
        await quiet()
        assert world.condition("late") is None, "another scheduler may have the name now"
        await pass_the_grace(clock)
        assert world.condition("late") == ("SchedulerError", GONE)
        await pass_the_grace(clock)
        assert world.notes.about("late") == [("Warning", "FailedScheduling", GONE)]

    play(flow)


def test_a_pod_that_another_scheduler_looks_after_is_not_written_to() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        without_its_profile(world)
        world.apply(make_pod("theirs", scheduler_name="packing"))
        world.apply(make_pod("bound", scheduler_name="packing"))
        world.apply(make_pod("gated", scheduler_name="packing"))
        await quiet()
        world.apply(make_node("n"))
        world.apply(with_condition(world.pod("theirs"), "Unschedulable"))
        world.apply(with_condition(world.pod("gated"), "SchedulingGated"))
        bound = world.pod("bound")
        world.apply({**bound, "spec": {**bound["spec"], "nodeName": "n"}})
        await pass_the_grace(clock)
        assert world.condition("theirs") == ("Unschedulable", "theirs")
        assert world.condition("gated") == ("SchedulingGated", "theirs")
        assert world.condition("bound") is None
        assert world.notes.events == []

    play(flow)


def test_a_pod_whose_scheduler_name_was_never_served_is_not_written_to() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        without_its_profile(world)
        world.apply(make_pod("other", scheduler_name="other"))
        world.apply(make_profile("refused", "mine", weights={"NoSuchPlugin": 1}))
        world.apply(make_pod("waits", scheduler_name="mine"))
        await pass_the_grace(clock)
        assert world.condition("other") is None
        assert world.condition("waits") is None
        assert world.notes.about("other") == world.notes.about("waits") == []

    play(flow)


def test_a_late_pod_is_scheduled_when_its_profile_comes_back() -> None:
    async def flow(world: InProcess, clock: VirtualClock) -> None:
        without_its_profile(world)
        world.apply(make_node("n"), make_pod("late", scheduler_name="packing"))
        world.apply(make_profile("packing"))
        await eventually(lambda: world.node_of("late") == "n")
        await pass_the_grace(clock)
        assert world.condition("late") is None

    play(flow)


def test_the_message_names_a_profile_of_a_near_name() -> None:
    async def flow(world: InProcess, _: VirtualClock) -> None:
        world.apply(make_profile("packing"), make_profile("packed", created=1))
        world.apply(make_pod("web", scheduler_name="packing", cpu="64"))
        await quiet()
        world.delete("SchedulerProfile", "packing")
        await eventually(lambda: (world.condition("web") or ("",))[0] == "SchedulerError")
        assert world.condition("web") == ("SchedulerError", f'{GONE}; did you mean "packed"?')

    play(flow)
