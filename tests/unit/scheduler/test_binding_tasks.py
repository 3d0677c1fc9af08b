"""Bindings run in tasks of their own, and a limit on their number holds the scheduler back."""

import asyncio

from stellwerk.scheduler.binding_tasks import BindingTasks
from tests.support.in_process import quiet


async def test_once_no_slot_is_free_several_must_be_before_another_binding_starts() -> None:
    bindings, ends = BindingTasks(limit=32), [asyncio.Event() for _ in range(32)]
    for number, end in enumerate(ends):
        bindings.start(str(number), waits_for(end))
    waiting = asyncio.create_task(bindings.free_slot())
    ends[0].set()
    await quiet(10)
    assert not waiting.done()
    ends[1].set()
    await asyncio.wait_for(waiting, 1)
    for end in ends:
        end.set()
    await bindings.drain(1)


async def test_where_slots_are_few_each_is_used_at_once() -> None:
    bindings, end = BindingTasks(limit=1), asyncio.Event()
    bindings.start("a", waits_for(end))
    waiting = asyncio.create_task(bindings.free_slot())
    await quiet(10)
    assert not waiting.done()
    end.set()
    await asyncio.wait_for(waiting, 1)


async def waits_for(end: asyncio.Event) -> None:
    await end.wait()
