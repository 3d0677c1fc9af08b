"""activeQ's order, and the signal that ends a wait without a pod."""

import asyncio

from stellwerk.backend.queued_pod import ActiveItem, QueuedPod
from stellwerk.scheduler.active_queue import ActiveQueue
from tests.support.builders import pod_info


def item(name: str, priority: int, sequence: int) -> ActiveItem:
    pod = pod_info(name)
    return ActiveItem((-priority,), sequence, QueuedPod(pod, pod, 0.0))


async def names(active: ActiveQueue, count: int) -> list[str | None]:
    items = [await active.next() for _ in range(count)]
    return [each.entry.pod.name if each.entry else None for each in items]


async def test_items_come_out_by_sort_key_and_equal_ones_by_sequence() -> None:
    active = ActiveQueue()
    for each in (item("late", 0, 4), item("early", 0, 3), item("high", 5, 7)):
        active.push(each)
    assert await names(active, 3) == ["high", "early", "late"]
    assert active.empty()


async def test_a_signal_ends_the_wait_without_a_pod() -> None:
    active = ActiveQueue()
    waiter = asyncio.create_task(active.next())
    await asyncio.sleep(0)
    active.wake()
    assert (await waiter).entry is None
    assert active.empty()


async def test_there_is_no_signal_while_there_are_pods_and_no_second_one() -> None:
    active = ActiveQueue()
    active.push(item("a", 0, 1))
    active.wake()
    assert await names(active, 1) == ["a"]
    active.wake()
    active.wake()
    assert await names(active, 1) == [None]
    assert active.empty()
