"""activeQ keeps its order; the scheduling coroutine decides several pods in a row, never for long.

A signal ends a wait at activeQ without a pod.
"""

import asyncio
from typing import Any

import pytest

from stellwerk.backend.queued_pod import ActiveItem, QueuedPod
from stellwerk.client.extender import HttpExtender
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.scheduler import scheduler
from stellwerk.scheduler.scheduler import ActiveQueue, stand_by
from stellwerk.world.loop import DECISION_SLICE_SECONDS, MAX_DECISIONS_PER_SLICE, TIMERS
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.skipped_time import run_skipping

PODS = 50


async def _decisions_per_turn(world: InProcess) -> list[int]:
    """How many pods were decided between two turns of others, until all are."""
    world.apply(make_profile("stellwerk"), make_node("large", cpu="64"))
    world.apply(*(make_pod(f"pod-{n}", scheduler_name="stellwerk") for n in range(PODS)))
    decided: set[str] = set()
    per_turn = []
    while len(decided) < PODS:
        await asyncio.sleep(0)
        before = len(decided)
        decided |= {pod.uid for pod in world.cache.pods()}
        per_turn.append(len(decided) - before)
    return per_turn


async def test_others_have_a_turn_after_a_few_decisions() -> None:
    async with running() as world:
        per_turn = await _decisions_per_turn(world)
    assert 1 < max(per_turn) <= MAX_DECISIONS_PER_SLICE


async def test_others_have_a_turn_after_each_long_decision() -> None:
    async with running() as world:
        find_node = world.cache.update_snapshot

        def slowly() -> object:
            world.clock.advance(DECISION_SLICE_SECONDS)
            return find_node()

        world.cache.update_snapshot = slowly  # type: ignore[method-assign,assignment]
        per_turn = await _decisions_per_turn(world)
    assert max(per_turn) == 1


async def test_a_pod_waits_for_no_more_than_what_was_being_decided_when_it_came() -> None:
    decided: list[str] = []
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("large", cpu="64"))
        attempt = world.operator.scheduler._schedule_one._schedule_pod  # noqa: SLF001 each decision
        loop = asyncio.get_running_loop()
        urgent = make_pod("urgent", scheduler_name="stellwerk", priority=1)

        async def counted(queued: QueuedPod) -> None:
            decided.append(queued.pod.name)
            if len(decided) == MAX_DECISIONS_PER_SLICE + 1:
                # As uvloop does: the socket is read after this round, its reader runs in the next.
                loop.call_soon(loop.call_soon, world.apply, urgent)
            await attempt(queued)

        world.operator.scheduler._schedule_one._schedule_pod = counted  # type: ignore[method-assign]  # noqa: SLF001
        names = [f"pod-{n}" for n in range(PODS)]
        world.apply(*(make_pod(n, cpu="1000", scheduler_name="stellwerk") for n in names))
        await eventually(lambda: len(decided) > PODS)
    assert decided.index("urgent") <= 2 * MAX_DECISIONS_PER_SLICE


async def test_waiting_for_a_slot_is_not_death(monkeypatch: pytest.MonkeyPatch) -> None:
    often = [timer._replace(period_seconds=0.01) for timer in TIMERS]
    monkeypatch.setattr(scheduler, "TIMERS", often)
    monkeypatch.setattr(scheduler.Scheduler, "slot", lambda _: asyncio.Event().wait())
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("n1"))
        world.apply(make_pod("web", scheduler_name="stellwerk"))
        await asyncio.sleep(0.05)
        assert world.queue.pending()["active"]
        world.clock.advance(60)
        await eventually(lambda: world.operator.scheduler.heartbeat() == world.clock.monotonic())


def test_waiting_for_an_extender_is_not_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpExtender, "filter", lambda *_: asyncio.Event().wait())

    async def flow(clock: VirtualClock) -> None:
        async with running(clock) as world:
            extender: dict[str, Any] = {"urlPrefix": "http://gone.example", "filterVerb": "filter"}
            extender["nodeCacheCapable"] = True
            world.apply(make_profile("stellwerk", extenders=[extender]), make_node("n1"))
            world.apply(make_pod("web", scheduler_name="stellwerk"))
            await asyncio.sleep(60)
            assert world.operator.scheduler.deciding == "uid-default-web", "it hangs"
            assert clock.monotonic() - world.operator.scheduler.heartbeat() <= 2

    run_skipping(flow)


async def test_nothing_is_decided_while_a_later_list_is_being_applied() -> None:
    """What stands half-way between two states of the API server is no ground to decide on."""
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("large", cpu="64"))
        handlers = world.operator.handlers
        handlers.on_relist("Pod", applying=True)
        handlers.on_relist("Node", applying=True)
        world.apply(make_pod("web", scheduler_name="stellwerk"))
        await quiet()
        assert world.node_of("web") is None
        handlers.on_relist("Pod", applying=False)
        await quiet()
        assert world.node_of("web") is None
        handlers.on_relist("Node", applying=False)
        await eventually(lambda: world.node_of("web") == "large")


def _item(name: str, priority: int, sequence: int) -> ActiveItem:
    pod = pod_info(name)
    return ActiveItem((-priority,), sequence, QueuedPod(pod, pod, "", 0.0))


def _names(active: ActiveQueue) -> list[str | None]:
    names = []
    while not active.empty():
        item = active.get_nowait()
        names.append(item.entry.pod.name if item.entry else None)
    return names


def test_items_come_out_by_sort_key_and_equal_ones_by_sequence() -> None:
    active = ActiveQueue()
    for each in (_item("late", 0, 4), _item("early", 0, 3), _item("high", 5, 7)):
        active.put_nowait(each)
    assert _names(active) == ["high", "early", "late"]
    assert active.empty()


async def test_a_signal_ends_the_wait_without_a_pod() -> None:
    active = ActiveQueue()
    waiter = asyncio.create_task(active.filled())
    await asyncio.sleep(0)
    assert not waiter.done()
    active.wake()
    await waiter
    assert _names(active) == [None]


async def test_waiting_leaves_the_first_item_where_it_is() -> None:
    active = ActiveQueue()
    for each in (_item("late", 0, 4), _item("early", 0, 3)):
        active.put_nowait(each)
    await active.filled()
    assert _names(active) == ["early", "late"]


def test_there_is_no_signal_while_there_are_pods_and_no_second_one() -> None:
    active = ActiveQueue()
    active.put_nowait(_item("a", 0, 1))
    active.wake()
    assert _names(active) == ["a"]
    active.wake()
    active.wake()
    assert _names(active) == [None]


def test_a_node_that_is_gone_is_let_go_though_no_pod_comes() -> None:
    async def flow(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_node("n1"), make_node("n2"), make_profile("default-scheduler"))
            world.apply(make_pod("first"))
            await eventually(lambda: world.node_of("first"))
            world.delete("Node", "n2")
            assert "n2" in world.cache.snapshot.row_of
            await asyncio.sleep(2 * TIMERS[0].period_seconds)
            assert "n2" not in world.cache.snapshot.row_of

    run_skipping(flow)


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


def test_what_others_bind_of_observed_pods_does_not_pile_up() -> None:
    async def flow(clock: VirtualClock) -> None:
        here = InProcess(clock)
        here.apply(make_node("n1"), make_profile("default-scheduler", mode="Observe"))
        leading, observed = asyncio.Event(), here.operator.observed
        standing = asyncio.create_task(
            stand_by(here.operator.world, here.operator.active, leading, observed)
        )
        for number in range(2000):
            here.apply(make_pod(f"p{number}"))
            here.apply(bound(f"p{number}"))
        assert len(observed) == 2000
        await asyncio.sleep(2)
        assert len(observed) == 0
        leading.set()
        await standing

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
