"""Bindings of one group begin together, or not at all."""

import asyncio

from stellwerk.scheduler.gangs.group_permit import GroupPermit


async def test_none_is_let_through_before_enough_are_ready() -> None:
    permit = GroupPermit(members=3, needed=3)
    waiting = [asyncio.create_task(permit.arrive()) for _ in range(2)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    assert await permit.arrive() == ""
    assert await asyncio.gather(*waiting) == ["", ""]


async def test_if_too_few_can_arrive_none_is_bound() -> None:
    permit = GroupPermit(members=3, needed=3)
    waiting = asyncio.create_task(permit.arrive())
    await asyncio.sleep(0)
    permit.lose("its volume cannot be bound")
    assert await waiting == "its volume cannot be bound"
    assert await permit.arrive() == "its volume cannot be bound"


async def test_one_too_many_may_fail() -> None:
    permit = GroupPermit(members=3, needed=2)
    waiting = asyncio.create_task(permit.arrive())
    await asyncio.sleep(0)
    permit.lose("its volume cannot be bound")
    assert await permit.arrive() == ""
    assert await waiting == ""


async def test_what_fails_after_the_first_was_let_through_changes_nothing() -> None:
    permit = GroupPermit(members=2, needed=1)
    assert await permit.arrive() == ""
    permit.lose("refused")
    assert await permit.arrive() == ""


async def test_a_group_that_asks_for_more_meanwhile_is_not_bound_with_too_few() -> None:
    raised = [0]
    permit = GroupPermit(members=2, needed=2, raised=lambda: raised[0])
    waiting = asyncio.create_task(permit.arrive())
    await asyncio.sleep(0)
    raised[0] = 1
    assert await permit.arrive() == "the pod group asks for 3 of these members now"
    assert await waiting == "the pod group asks for 3 of these members now"


async def test_a_group_that_asks_for_fewer_meanwhile_is_bound_as_it_was_decided() -> None:
    permit = GroupPermit(members=2, needed=2, raised=lambda: -1)
    waiting = asyncio.create_task(permit.arrive())
    await asyncio.sleep(0)
    assert await permit.arrive() == ""
    assert await waiting == ""
