"""DoNotSchedule constraints that give way: who waits how long, is woken, told of and recorded.

Stories run on the embedded cluster in skipped time; recordings on an operator in this process.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from stellwerk.answers.pod import PodExplanation
from stellwerk.explain.steps import finished
from stellwerk.journal.entries import Head
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk.scheduler.observers.recording import Recording
from stellwerk_cluster.apimachinery.feature_gates import GANGS
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_kube.clock import VirtualClock, parse_moment
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.recorded_runs import STARTED, replayed
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

AFTER_SECONDS = 120
SOON_SECONDS = 3.0
"""The condition has whole seconds, and the queue looks once a second."""
ZONE = "topology.kubernetes.io/zone"
NODES = [make_node("a", cpu="8", zone="a"), make_node("b", cpu="1", zone="b")]
"""Zone b has no room for a pod of the group."""
SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "web"}},
        }
    ]
}
GIVES_WAY: dict[str, Any] = {
    "pluginConfig": [{"name": "PodTopologySpread", "args": {"giveWayAfterSeconds": AFTER_SECONDS}}]
}


def web(name: str, **fields: Any) -> JsonObject:
    return make_pod(name, cpu="2", labels={"app": "web"}, **SPREAD, **fields)


def play(story: Callable[[VirtualCluster], Awaitable[None]], **profile: Any) -> None:
    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(
            clock, NODES, ClusterOptions(seed=1, feature_gates=GANGS)
        ) as world:
            spec = {**GIVES_WAY, **profile}
            world.patch(PLURAL, "default-scheduler", {"spec": spec}, GROUP)
            await asyncio.sleep(1)
            await story(world)

    run_skipping(flow)


def explained(world: VirtualCluster, name: str) -> PodExplanation:
    steps = world.operator.explanations.pod("default", name)
    assert steps is not None
    return finished(steps)


def told(world: VirtualCluster, name: str) -> str:
    """What PodTopologySpread says of a pod that waits."""
    plugins = explained(world, name).plugins
    assert plugins is not None
    [line] = plugins["PodTopologySpread"].lines
    return line


async def one_waits(world: VirtualCluster) -> float:
    """Let one pod be placed and another one wait; returns when it was refused (monotonic)."""
    world.apply(web("first"))
    await world.until(lambda: world.node_of("first") == "a")
    world.apply(web("second"))
    await world.until(lambda: world.why_pending("second") is not None)
    return world.clock.monotonic()


def test_a_pod_that_waits_is_told_until_when_woken_then_and_told_of_afterwards() -> None:
    async def story(world: VirtualCluster) -> None:
        refused_at = await one_waits(world)
        await asyncio.sleep(AFTER_SECONDS / 2)
        assert world.node_of("second") is None
        assert told(world, "second").startswith(f"DoNotSchedule over {ZONE} gives way in ")
        queue = explained(world, "second").queue
        assert queue is not None
        assert queue.next_retry is not None
        left = parse_moment(queue.next_retry) - world.clock.now()
        assert 0 < left.total_seconds() <= AFTER_SECONDS / 2
        await world.until(lambda: world.node_of("second") == "a", AFTER_SECONDS)
        waited = world.clock.monotonic() - refused_at
        assert AFTER_SECONDS - 1 <= waited <= AFTER_SECONDS + SOON_SECONDS
        assert b'event="RejectionEnded",queue="active"} 1.0' in world.metrics()
        decision = explained(world, "second").decision
        assert decision is not None
        assert decision.remarks == [
            f"DoNotSchedule over {ZONE} counted as ScheduleAnyway: the pod had waited for 120 s"
        ]

    play(story)


def test_the_time_goes_on_over_a_restart() -> None:
    async def story(world: VirtualCluster) -> None:
        refused_at = await one_waits(world)
        await asyncio.sleep(AFTER_SECONDS / 2)
        await world.restart_operator()
        await world.until(lambda: world.node_of("second") == "a", AFTER_SECONDS)
        waited = world.clock.monotonic() - refused_at
        assert AFTER_SECONDS - 1 <= waited <= AFTER_SECONDS + SOON_SECONDS

    play(story)


def test_a_pod_that_was_due_while_no_operator_ran_is_placed_at_once() -> None:
    async def story(world: VirtualCluster) -> None:
        await one_waits(world)
        await world.stop_operator()
        await asyncio.sleep(2 * AFTER_SECONDS)
        world.start_operator()
        await world.until(lambda: world.node_of("second") == "a", SOON_SECONDS)

    play(story)


def test_the_time_of_a_gated_pod_begins_when_it_is_first_refused() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(web("first"), web("second", schedulingGates=[{"name": "example.com/later"}]))
        await world.until(lambda: world.node_of("first") == "a")
        await asyncio.sleep(2 * AFTER_SECONDS)
        world.patch("pods", "second", {"spec": {"schedulingGates": None}})
        await world.until(lambda: (world.why_pending("second") or ("",))[0] == "Unschedulable")
        refused_at = world.clock.monotonic()
        await asyncio.sleep(AFTER_SECONDS / 2)
        assert world.node_of("second") is None
        await world.until(lambda: world.node_of("second") == "a", AFTER_SECONDS)
        assert world.clock.monotonic() - refused_at >= AFTER_SECONDS - 1

    play(story)


def test_without_the_argument_it_waits_on() -> None:
    async def story(world: VirtualCluster) -> None:
        await one_waits(world)
        await asyncio.sleep(3 * AFTER_SECONDS)
        assert world.node_of("second") is None
        assert "PodTopologySpread" not in (explained(world, "second").plugins or {})

    play(story, pluginConfig=[])


def test_the_members_of_a_gang_give_way_together() -> None:
    async def story(world: VirtualCluster) -> None:
        members = [
            make_member(
                f"m{number}",
                "g",
                cpu="2",
                labels={"app": "web"},
                scheduler_name="default-scheduler",
                **SPREAD,
            )
            for number in range(3)
        ]
        world.apply(make_group("g", 3), *members)
        await world.until(lambda: all(world.why_pending(f"m{number}") for number in range(3)))
        refused_at = world.clock.monotonic()
        await asyncio.sleep(AFTER_SECONDS / 2)
        assert not any(world.node_of(f"m{number}") for number in range(3))
        await world.until(
            lambda: all(world.node_of(f"m{number}") == "a" for number in range(3)), AFTER_SECONDS
        )
        waited = world.clock.monotonic() - refused_at
        assert AFTER_SECONDS - 1 <= waited <= AFTER_SECONDS + SOON_SECONDS

    play(story, gangScheduling=True)


# --- recordings ---------------------------------------------------------------------------------


class JumpingClock(VirtualClock):
    """A clock whose wall-clock time is set, as by an administrator."""

    def jump(self, seconds: float) -> None:
        self._start += timedelta(seconds=seconds)


async def test_a_replay_decides_as_of_the_recorded_moments(tmp_path: Path) -> None:
    """The clock is set forward in between, which no entry says but those of decisions."""
    options, clock = JournalOptions(tmp_path / "recording"), JumpingClock()
    writer = JournalWriter(options, Head("test", STARTED), lambda _: None)
    try:
        async with running(clock, Recording(writer, clock)) as world:
            world.apply(make_profile("default-scheduler", **GIVES_WAY))
            world.apply(*NODES, web("first"))
            await quiet(200)
            world.apply(web("second"))
            await quiet(200)
            assert world.node_of("second") is None
            clock.jump(AFTER_SECONDS)
            world.queue.flush_due(clock.now().timestamp(), clock.monotonic())
            clock.advance(10)
            world.queue.flush_backoff(clock.monotonic())
            await quiet(200)
            assert world.node_of("second") == "a"
    finally:
        writer.close()
    replay, _ = replayed(options.file)
    assert replay.result.decisions == replay.result.equal == 3
