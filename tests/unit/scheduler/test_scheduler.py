"""The scheduling coroutine decides several pods in a row, and never for long."""

import asyncio

import pytest

from stellwerk.scheduler import scheduler
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.scheduler import TURN_DECISIONS, TURN_SECONDS
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running

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
    assert 1 < max(per_turn) <= TURN_DECISIONS


async def test_others_have_a_turn_after_each_long_decision() -> None:
    async with running() as world:
        find_node = world.cache.update_snapshot

        def slowly() -> object:
            world.clock.advance(TURN_SECONDS)
            return find_node()

        world.cache.update_snapshot = slowly  # type: ignore[method-assign,assignment]
        per_turn = await _decisions_per_turn(world)
    assert max(per_turn) == 1


async def test_waiting_for_a_slot_is_not_death(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "BACKOFF_FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(BindingTasks, "free_slot", lambda _: asyncio.Event().wait())
    async with running() as world:
        world.apply(make_profile("stellwerk"), make_node("n1"))
        world.apply(make_pod("web", scheduler_name="stellwerk"))
        await asyncio.sleep(0.05)
        assert world.queue.pending()["active"]
        world.clock.advance(60)
        await eventually(lambda: world.operator.scheduler.heartbeat() == world.clock.monotonic())


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
