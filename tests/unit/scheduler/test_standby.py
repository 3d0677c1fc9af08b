"""What a process that stands by keeps ready."""

import asyncio

from stellwerk.clock import VirtualClock
from stellwerk.handlers.delivery import WATCHED
from stellwerk.models.json_values import JsonObject
from stellwerk.scheduler.standby import stand_by
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile
from tests.support.skipped_time import run_skipping

DECIDES_WITHIN_SECONDS = 0.1


def bound(name: str) -> dict[str, object]:
    pod = make_pod(name)
    return {**pod, "spec": {**pod["spec"], "nodeName": "n1"}}


def test_what_others_bind_does_not_pile_up() -> None:
    async def flow(clock: VirtualClock) -> None:
        here = InProcess(clock)
        here.apply(make_node("n1"), make_profile("default-scheduler"))
        leading = asyncio.Event()
        active = here.operator.active
        standing = asyncio.create_task(stand_by(here.operator.world, active, leading))
        for number in range(5000):
            here.apply(make_pod(f"p{number}"))
            here.apply(bound(f"p{number}"))
        here.apply(make_pod("waiting"))
        assert len(active) > 5000
        await asyncio.sleep(2)
        assert len(active) == 1
        assert here.operator.world.cache.snapshot.alive.sum() == 1, "the snapshot is as new"
        leading.set()
        await standing
        item = active.get_nowait()
        assert item.entry is not None
        assert item.entry.pod.name == "waiting"

    run_skipping(flow)


def test_many_pods_follow_the_labels_of_their_namespace() -> None:
    """However often these change: what is left to be done does not pile up."""

    async def flow(clock: VirtualClock) -> None:
        here = InProcess(clock)
        for team in ("one", "other"):
            selector = {"namespaceSelector": {"matchLabels": {"team": team}}}
            here.apply(make_profile(team, selector=selector))
        here.apply(team_of("one"))
        here.apply(*(make_pod(f"p{number}") for number in range(600)))
        leading = asyncio.Event()
        world = here.operator.world
        for _ in range(50):
            here.apply(team_of("other"), team_of("one"))
        here.apply(team_of("other"))
        assert world.queue.backlog
        standing = asyncio.create_task(stand_by(world, here.operator.active, leading))
        await eventually(lambda: not world.queue.backlog)
        assert {entry.profile_name for entry in world.queue.entries.values()} == {"other"}
        leading.set()
        await standing

    run_skipping(flow)


def team_of(name: str) -> JsonObject:
    metadata = {"name": "default", "uid": "default", "labels": {"team": name}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def test_what_waits_is_bound_at_once_when_the_lease_is_there() -> None:
    async def flow(clock: VirtualClock) -> None:
        here = InProcess(clock)
        here.apply(make_node("n1", pods="100"), make_profile("default-scheduler"))
        names = [f"p{number}" for number in range(50)]
        here.apply(*map(make_pod, names))
        for watched in WATCHED:
            here.operator.handlers.on_synced(watched.kind)
        leading = asyncio.Event()
        scheduling = asyncio.create_task(here.operator.schedule(leading))
        await asyncio.sleep(10.5)
        assert not any(map(here.node_of, names))
        leading.set()
        taken_at = clock.monotonic()
        await eventually(lambda: all(map(here.node_of, names)))
        assert clock.monotonic() - taken_at < DECIDES_WITHIN_SECONDS
        scheduling.cancel()
        await asyncio.wait({scheduling})

    run_skipping(flow)
