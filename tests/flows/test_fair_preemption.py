"""Preemption that spares pods of equal priority: what is evicted, said and recorded.

Stories run on the embedded cluster in skipped time; recordings on an operator in this process.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from pathlib import Path

import pytest

from stellwerk.answers.pod import PodExplanation
from stellwerk.explain.steps import finished
from stellwerk.journal.entries import Head
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk.scheduler.observers.recording import Recording
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.preemption_cases import preempting
from tests.support.recorded_runs import STARTED, replayed
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

MIN_RUN_SECONDS = 600
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 100,
}


def play(nodes: Iterable[JsonObject], story: Callable[[VirtualCluster], Awaitable[None]]) -> None:
    """Tell a story under a profile that spares pods for ten minutes."""

    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, nodes, ClusterOptions(seed=1)) as world:
            spec = preempting(minRunSeconds=MIN_RUN_SECONDS)
            world.patch(PLURAL, "default-scheduler", {"spec": spec}, GROUP)
            world.apply(HIGH)
            await asyncio.sleep(1)
            await story(world)

    run_skipping(flow)


def explained(world: VirtualCluster, name: str) -> PodExplanation:
    steps = world.operator.explanations.pod("default", name)
    assert steps is not None
    return finished(steps)


def test_who_has_just_begun_stays_and_events_and_explanations_say_why() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(make_pod("old", cpu="1", priority=0))
        await world.until(lambda: world.phase_of("old") == "Running")
        await asyncio.sleep(MIN_RUN_SECONDS)
        world.apply(make_pod("young", cpu="1", priority=0))
        await world.until(lambda: world.phase_of("young") == "Running")
        world.apply(make_pod("urgent", cpu="1", priorityClassName="high"))
        await world.until(lambda: world.node_of("urgent") == "n1")
        why = "minRunSeconds spares 1 pod that has run for less than 600 s"
        assert "young" in world.pods
        uid = world.pods["urgent"]["metadata"]["uid"]
        notes = [note for _, reason, note in world.notes.about("old") if reason == "Preempted"]
        assert notes == [f"Preempted by pod {uid} on node n1: {why}"]
        victim, preemptor = explained(world, "old"), explained(world, "urgent")
        assert victim.preempted is not None
        assert victim.preempted.decided_by == why
        assert preemptor.last_preemption is not None
        assert preemptor.last_preemption.decided_by == why

    play([make_node("n1", cpu="2")], story)


def test_no_pod_waits_for_a_victim_to_become_old_enough() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(make_pod("young", cpu="2", priority=0))
        await world.until(lambda: world.phase_of("young") == "Running")
        world.apply(make_pod("urgent", cpu="2", priorityClassName="high"))
        began = world.clock.monotonic()
        await world.until(lambda: world.node_of("urgent") == "n1")
        assert world.clock.monotonic() - began < MIN_RUN_SECONDS
        notes = [note for _, reason, note in world.notes.about("young") if reason == "Preempted"]
        uid = world.pods["urgent"]["metadata"]["uid"]
        assert notes == [f"Preempted by pod {uid} on node n1"]

    play([make_node("n1", cpu="2")], story)


# --- recordings ---------------------------------------------------------------------------------


class JumpingClock(VirtualClock):
    """A clock whose wall-clock time is set, as by an administrator."""

    def jump(self, seconds: float) -> None:
        self._start += timedelta(seconds=seconds)


def started(pod: JsonObject, clock: VirtualClock, ago_seconds: float) -> JsonObject:
    moment = clock.now() - timedelta(seconds=ago_seconds)
    pod["status"] = {"phase": "Running", "startTime": moment.isoformat().replace("+00:00", "Z")}
    return pod


@pytest.mark.parametrize("by_group", [False, True], ids=["for a pod", "for a group"])
async def test_a_replay_decides_as_of_the_recorded_moments(
    tmp_path: Path, *, by_group: bool
) -> None:
    """The clock is set forward in between, which no entry says but those of decisions."""
    options = JournalOptions(tmp_path / "recording")
    clock = JumpingClock()
    writer = JournalWriter(options, Head("test", STARTED), lambda _: None)
    try:
        async with running(clock, Recording(writer, clock)) as world:
            spec = preempting(minRunSeconds=MIN_RUN_SECONDS)
            world.apply(make_profile("stellwerk", gangScheduling=True, **spec))
            world.apply(make_node("n1", cpu="2"))
            clock.jump(3 * MIN_RUN_SECONDS)
            # By the time of the recording's head both would have started in the future.
            for name, age_seconds in {"old": 2 * MIN_RUN_SECONDS, "young": 1}.items():
                pod = make_pod(name, node_name="n1", cpu="1", priority=0)
                world.apply(started(pod, clock, age_seconds))
            if by_group:
                world.apply(make_group("g", 1, priority=100))
                world.apply(make_member("urgent", "g", cpu="1", priority=100))
            else:
                pod = make_pod("urgent", cpu="1", priority=100, scheduler_name="stellwerk")
                world.apply(pod)
            await quiet(1000)
            told = [name for name, _, reason, _ in world.notes.events if reason == "Preempted"]
            assert told == ["old"]
    finally:
        writer.close()
    replay, _ = replayed(options.file)
    assert replay.result.decisions == replay.result.equal > 0
