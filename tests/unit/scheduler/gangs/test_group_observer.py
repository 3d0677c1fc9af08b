"""What observes groups is shown each decision before it has effects."""

from collections.abc import Mapping

from typing_extensions import override

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.clock import VirtualClock
from stellwerk.scheduler.gangs.group_observer import GroupObserver
from stellwerk.world.decide import Decision
from stellwerk.world.gangs.attempt import Ask
from stellwerk.world.gangs.group_decision import GroupDecision
from tests.support.builders import make_node
from tests.support.in_process import InProcess, make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.skipped_time import run_skipping


class Seen(GroupObserver):
    """Keeps what it was shown, and looks whether it came before its effects."""

    def __init__(self, world: InProcess) -> None:
        self._world = world
        self.members: list[tuple[str, str]] = []
        """(name, node) of each decision."""
        self.groups: list[tuple[set[str], bool]] = []

    @override
    def member_decided(self, ask: Ask, queued: QueuedPod, decision: Decision) -> None:
        assert queued.pod is ask.pod
        assert ask.pod.uid not in self._world.cache.assumed_pods
        assert not self._world.cache.is_dirty
        self.members.append((ask.pod.name, decision.node_name))

    @override
    def group_decided(self, queued: Mapping[str, QueuedPod], decision: GroupDecision) -> None:
        assumed = self._world.cache.assumed_pods.keys()
        assert assumed == (queued.keys() if decision.placed else set())
        assert not any(verb == "POST" for verb, _ in self._world.client.requests)
        self.groups.append(({each.pod.name for each in queued.values()}, decision.placed))


def observed(*cpus: str) -> Seen:
    """What is shown of a gang on a node of three cores and one of two."""

    async def play(clock: VirtualClock) -> Seen:
        async with running(clock) as world:
            seen = Seen(world)
            world.operator.scheduler.groups.observer = seen
            world.apply(make_profile("stellwerk", gangScheduling=True))
            world.apply(make_node("three", cpu="3"), make_node("two", cpu="2"))
            world.apply(make_group("g", len(cpus), priority=10))
            for number, cpu in enumerate(cpus):
                world.apply(make_member(f"p{number}", "g", cpu=cpu))
            await quiet()
            return seen

    return run_skipping(play)


def test_each_member_is_shown_then_the_group() -> None:
    seen = observed("3", "2")
    assert seen.members == [("p0", "three"), ("p1", "two")]
    assert seen.groups == [({"p0", "p1"}, True)]


def test_attempts_that_were_given_up_are_shown() -> None:
    seen = observed("2", "3")
    assert seen.members[-2:] == [("p1", "three"), ("p0", "two")]
    assert len(seen.members) in (2, 4)
    assert seen.groups == [({"p0", "p1"}, True)]


def test_a_group_that_is_not_placed_is_shown_too() -> None:
    assert observed("3", "3").groups == [({"p0", "p1"}, False)]


class Deleting(Seen):
    """Deletes the first member when the last one is decided."""

    @override
    def member_decided(self, ask: Ask, queued: QueuedPod, decision: Decision) -> None:
        super().member_decided(ask, queued, decision)
        if ask.pod.name == "p2":
            self._world.delete("Pod", "p0")


def test_a_group_is_not_bound_that_lost_a_member_while_it_was_decided() -> None:
    async def play(clock: VirtualClock) -> None:
        async with running(clock) as world:
            seen = world.operator.scheduler.groups.observer = Deleting(world)
            world.apply(make_profile("stellwerk", gangScheduling=True))
            world.apply(make_node("n", cpu="4"), make_group("g", 3))
            world.apply(*(make_member(f"p{number}", "g", cpu="1") for number in range(3)))
            await quiet()
            assert seen.groups == [({"p0", "p1", "p2"}, False)]
            assert [world.node_of(name) for name in ("p1", "p2")] == [None, None]
            assert not world.cache.assumed_pods

    run_skipping(play)
