"""A profile is edited from Schedule to Observe and back while its pods are on their way.

Bindings in flight end; what waits goes back to the queue. Nothing is written about the pods while
the profile observes, and no pod is lost on the way back. The other scheduler is the test.
"""

import asyncio
from collections.abc import Iterator

import pytest

from stellwerk.backend.queued_pod import Place
from stellwerk.framework.interface import PermitResult
from stellwerk.framework.types import Code, Status
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.scripted_plugins import Script, installed

NAME = "stellwerk"
PROFILE = "/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles/stellwerk/status"
WITH_PLUGIN: JsonObject = {"plugins": {"multiPoint": {"enabled": [{"name": "First"}]}}}


@pytest.fixture(autouse=True)
def script() -> Iterator[Script]:
    with installed("First") as script:
        yield script


def edit(world: InProcess, generation: int, mode: str) -> None:
    world.apply(make_profile(NAME, generation=generation, mode=mode, **WITH_PLUGIN))


def pod(name: str, **spec: object) -> JsonObject:
    return make_pod(name, scheduler_name=NAME, cpu="1", **spec)  # type: ignore[arg-type]


def place(world: InProcess, name: str) -> Place:
    """Where a pod is in the queue."""
    return world.queue.entries[world.pod(name)["metadata"]["uid"]].place


def bind(world: InProcess, name: str, node_name: str) -> None:
    """Bind a pod as another scheduler."""
    stored = world.pod(name)
    world.apply({**stored, "spec": {**stored["spec"], "nodeName": node_name}})


class Written:
    """The requests and events about pods since the last look."""

    def __init__(self, world: InProcess) -> None:
        self._world = world
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._requests = len(self._world.client.requests)
        self._events = len(self._world.notes.events)

    def check_nothing(self) -> None:
        """Assert that nothing was written but statuses of the profile."""
        requests = self._world.client.requests[self._requests :]
        assert {path for _, path in requests} <= {PROFILE}
        assert self._world.notes.events[self._events :] == []


async def begun(world: InProcess) -> None:
    """A profile that schedules, and a node of two cores."""
    world.apply(make_node("n1", cpu="2"), make_profile(NAME, **WITH_PLUGIN))
    await quiet()


async def test_a_pod_that_waits_on_permit_goes_back_and_is_bound_after_the_next_edit(
    script: Script,
) -> None:
    script.answers["First.permit"] = PermitResult(Status(Code.WAIT), 3600.0)
    async with running() as world:
        await begun(world)
        world.apply(pod("a"))
        await eventually(lambda: "First.permit" in script.of("a"))
        await quiet()
        assert world.cache.assumed_pods
        written = Written(world)
        edit(world, 2, "Observe")
        await eventually(lambda: "First.unreserve" in script.of("a"))
        await eventually(lambda: place(world, "a") is Place.OBSERVED)
        assert not world.cache.assumed_pods
        assert not list(world.operator.waiting_pods.all())
        script.answers.clear()
        await quiet()
        written.check_nothing()
        edit(world, 3, "Schedule")
        await eventually(lambda: world.node_of("a") == "n1")


async def test_a_binding_in_flight_ends(script: Script) -> None:
    reached, answer = asyncio.Event(), asyncio.Event()

    async def held(*_: object) -> Status:
        reached.set()
        await answer.wait()
        return Status(Code.SUCCESS)

    script.answers["First.pre_bind"] = held
    async with running() as world:
        await begun(world)
        world.apply(pod("a"), pod("b"), pod("c"))
        await reached.wait()
        await quiet()
        edit(world, 2, "Observe")
        await quiet()
        answer.set()
        await eventually(lambda: world.node_of("a") == world.node_of("b") == "n1")
        # The third had no room, and is the other scheduler's.
        assert world.node_of("c") is None
        await eventually(lambda: place(world, "c") in {Place.OBSERVED, Place.UNSCHEDULABLE})
        assert not world.cache.assumed_pods


async def test_a_binding_that_fails_after_the_edit_is_not_reported(script: Script) -> None:
    reached, answer = asyncio.Event(), asyncio.Event()

    async def held(*_: object) -> Status:
        reached.set()
        await answer.wait()
        return Status(Code.ERROR, ("no",))

    script.answers["First.pre_bind"] = held
    async with running() as world:
        await begun(world)
        world.apply(pod("a"))
        await reached.wait()
        await quiet()
        edit(world, 2, "Observe")
        written = Written(world)
        answer.set()
        await eventually(lambda: place(world, "a") is Place.OBSERVED)
        await quiet()
        written.check_nothing()
        bind(world, "a", "n1")
        await quiet()
        assert not world.queue.entries
        written.check_nothing()


async def test_pods_in_the_queue_are_the_other_schedulers_and_come_back() -> None:
    async with running() as world:
        await begun(world)
        world.apply(
            pod("huge", requests={"memory": "900Gi"}), pod("gated", schedulingGates=[{"name": "g"}])
        )
        await eventually(lambda: world.condition("huge") is not None)
        edit(world, 2, "Observe")
        await quiet()
        written = Written(world)
        world.apply(pod("new"), pod("other"), make_node("n2", cpu="2"))
        await eventually(lambda: place(world, "new") is Place.OBSERVED)
        bind(world, "other", "n2")
        await quiet()
        written.check_nothing()
        assert place(world, "gated") is Place.GATED
        edit(world, 3, "Schedule")
        await eventually(lambda: world.node_of("new") is not None)
        assert {world.pod(name)["metadata"]["uid"] for name in ("huge", "gated")} <= (
            world.queue.entries.keys()
        )
        assert world.node_of("huge") is None


class Deletions:
    """Deletions of pods that the API server does not answer until it is told to."""

    def __init__(self, world: InProcess) -> None:
        self.reached, self._answer = asyncio.Event(), asyncio.Event()
        self._delete = world.client.delete_pod
        world.client.delete_pod = self._held  # type: ignore[method-assign]

    async def _held(self, namespace: str, name: str, uid: str) -> bool:
        self.reached.set()
        await self._answer.wait()
        return await self._delete(namespace, name, uid)

    def answer(self) -> None:
        """Answer them all."""
        self._answer.set()


async def test_victims_that_are_left_stay() -> None:
    async with running() as world:
        await begun(world)
        low = [pod(name, priority=0) for name in ("low-1", "low-2")]
        world.apply(*low)
        await eventually(lambda: all(world.node_of(name) for name in ("low-1", "low-2")))
        deletions = Deletions(world)
        world.apply(make_pod("high", scheduler_name=NAME, cpu="2", priority=1000))
        await deletions.reached.wait()
        edit(world, 2, "Observe")
        written = Written(world)
        await quiet()
        deletions.answer()
        await quiet()
        assert all(
            "deletionTimestamp" not in world.pod(name)["metadata"] for name in ("low-1", "low-2")
        )
        assert not world.operator.world.preempting
        written.check_nothing()
        assert place(world, "high") in {Place.OBSERVED, Place.UNSCHEDULABLE}


async def test_victims_of_a_group_that_are_left_stay_and_its_status_is_not_written() -> None:
    async with running() as world:
        world.apply(make_node("n1", cpu="2"), make_profile(NAME, gangScheduling=True))
        world.apply(make_group("g", 2, priority=100))
        victims = [f"v{number}" for number in range(2)]
        world.apply(*(make_pod(name, cpu="1", node_name="n1", priority=0) for name in victims))
        deletions = Deletions(world)
        members = [f"p{number}" for number in range(2)]
        world.apply(
            *(
                make_member(name, "g", cpu="1", priority=100, scheduler_name=NAME)
                for name in members
            )
        )
        await deletions.reached.wait()
        world.apply(make_profile(NAME, generation=2, mode="Observe", gangScheduling=True))
        written = Written(world)
        await quiet()
        deletions.answer()
        await quiet()
        written.check_nothing()
        assert not world.operator.world.preempting
        for name in victims:
            assert "deletionTimestamp" not in world.pod(name)["metadata"]
        for name in members:
            assert place(world, name) in {Place.OBSERVED, Place.UNSCHEDULABLE}
