"""activeQ, the scheduling coroutine that empties it, and the clockwork around both.

Owns every task and every timeout.

`app` starts it once the first lists are complete. Invariant: pods are decided one after another,
in the order of activeQ; everything slow happens in tasks that the coroutine does not wait for.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from stellwerk.backend.queued_pod import ActiveItem, QueuedPod
from stellwerk.logs import ATTEMPT
from stellwerk.scheduler.binding_cycle import BindingCycle
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.scheduler.profiles.profile_status import ProfileStatusWriter
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk.world.world import World

BACKOFF_FLUSH_SECONDS: Final = 1.0
UNSCHEDULABLE_FLUSH_SECONDS: Final = 30.0
DRAIN_SECONDS: Final = 10.0
REQUEUEING_PAUSE_SECONDS: Final = 0.005
"""Between two slices, which take one or two milliseconds: a fifth of the time at most."""
TURN_SECONDS: Final = 0.002
"""After so long, events and bindings have their turn; one decision after the other costs less than
decisions between other work, for what it reads stays in the processor's caches."""
TURN_DECISIONS: Final = 8
"""The same, however little time they take."""


class ActiveQueue:
    """activeQ: items by sort key and sequence; the coroutine sleeps while there are none.

    Its order is that of the items, and every item comes out once; stale ones
    `SchedulingQueue.pop` refuses.
    """

    def __init__(self) -> None:
        self._queue: asyncio.PriorityQueue[ActiveItem] = asyncio.PriorityQueue()
        self._signals = 0

    def push(self, item: ActiveItem) -> None:
        """Put in the item of a pod."""
        self._queue.put_nowait(item)

    def wake(self) -> None:
        """Let `next` return although there is no pod here: backoffQ has one."""
        if self._queue.empty():
            # Negative, so that no pod's item has the same sequence.
            self._signals -= 1
            self._queue.put_nowait(ActiveItem((), self._signals, None))

    def empty(self) -> bool:
        """Whether there is no item, stale ones included."""
        return self._queue.empty()

    def __len__(self) -> int:
        return self._queue.qsize()

    def discard_stale(self) -> None:
        """Take out the items of pods that are not in activeQ any more."""
        items = [self._queue.get_nowait() for _ in range(len(self))]
        for item in items:
            if item.entry is not None and item.entry.sequence == item.sequence:
                self._queue.put_nowait(item)

    async def next(self) -> ActiveItem:
        """The first item, as soon as there is one."""
        return await self._queue.get()


class Scheduler:
    """The scheduling coroutine, the flushes, and the outcomes of bindings."""

    def __init__(
        self,
        world: World,
        active: ActiveQueue,
        schedule_one: ScheduleOne,
        bindings: BindingTasks,
        binding_cycle: BindingCycle,
        preemption: PreemptionExecutor,
        handlers: EventHandlers,
        profile_status: ProfileStatusWriter,
    ) -> None:
        self._world = world
        self._active = active
        self._schedule_one = schedule_one
        self.groups = schedule_one.groups
        """Decides groups of pods; what observes it is set from outside."""
        self._bindings = bindings
        self._preemption = preemption
        self._binding_cycle = binding_cycle
        self._outcomes = binding_cycle.outcomes
        self._handlers = handlers
        self._profile_status = profile_status
        self._barrier = handlers.barrier
        self._backlogged = asyncio.Event()
        world.queue.backlog.on_begun = self._backlogged.set
        self._heartbeat_seconds: float | None = None
        """When the loop last turned with the scheduling coroutine in it; None: it does not yet."""
        self.deciding = ""
        """The uid of the pod that the scheduling coroutine is at."""

    def heartbeat(self) -> float:
        """When the loop last turned; now, while the scheduling coroutine is not running yet.

        A cycle that hangs holds up the loop, and the beat with it. A coroutine that waits, for a
        slot, an extender or the API server, is alive: killing it would mend none of these.
        """
        seconds = self._heartbeat_seconds
        return self._world.clock.monotonic() if seconds is None else seconds

    async def run(self) -> None:
        """Schedule until cancelled; then let the bindings in flight finish."""
        self._heartbeat_seconds = self._world.clock.monotonic()
        self.groups.conditions.check_all()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._schedule_forever(), name="scheduling")
                tasks.create_task(
                    self._repeat(BACKOFF_FLUSH_SECONDS, self._tick), name="backoff flush"
                )
                tasks.create_task(
                    self._repeat(UNSCHEDULABLE_FLUSH_SECONDS, self._flush_unschedulable),
                    name="unschedulable flush",
                )
                tasks.create_task(self._work_off_requeueing(), name="requeueing")
                tasks.create_task(
                    self._outcomes.run(self._handlers, self._binding_cycle.take_back),
                    name="outcomes of bindings",
                )
                tasks.create_task(self._profile_status.run(), name="profile status")
        finally:
            await self._preemption.close()
            await self.groups.submit.evictions.close()
            await self._bindings.drain(DRAIN_SECONDS)

    async def _schedule_forever(self) -> None:
        now = self._world.clock.monotonic
        decisions, turn_began = 0, now()
        has_news = False
        while True:
            await self._bindings.free_slot()
            if self._world.cache.unprepared:
                await self._prepare()
            queued = await self._next_pod()
            self.deciding = queued.pod.uid
            if has_news and queued.attempts > 1:
                # A binding goes out before what was refused is tried again.
                await self._others_turn()
                decisions, turn_began = 0, now()
            has_news = queued.attempts == 1
            await self._schedule_one.schedule_one(queued)
            self.deciding = ""
            ATTEMPT.set(0)
            decisions += 1
            if decisions == TURN_DECISIONS or now() - turn_began >= TURN_SECONDS:
                # get() on a queue that is not empty never yields: let the others have a turn.
                await asyncio.sleep(0)
                decisions, turn_began = 0, now()

    async def _others_turn(self) -> None:
        """Let the others have a turn, with a pod in hand."""
        await asyncio.sleep(0)
        if self._barrier.is_applying:
            await self._barrier.applied()

    async def _next_pod(self) -> QueuedPod:
        world = self._world
        while True:
            if self._barrier.is_applying:
                await self._barrier.applied()
            if self._active.empty():
                early = world.queue.pop_from_backoff()
                if early is not None:
                    return early
            item = await self._active.next()
            if world.cache.unprepared:
                await self._prepare()
            if self._barrier.is_applying:
                await self._barrier.applied()
            popped = world.queue.pop(item)
            if popped is not None:
                return popped

    async def _prepare(self) -> None:
        """Let the loop turn while a pod with thousands of terms is entered."""
        for _ in self._world.cache.prepare():
            await asyncio.sleep(0)

    async def _work_off_requeueing(self) -> None:
        """Requeue slice by slice what one change concerns, with room for other work between."""
        while True:
            await self._backlogged.wait()
            self._backlogged.clear()
            while self._world.queue.backlog.work_off():  # noqa: ASYNC110 a pause, not a poll
                await asyncio.sleep(REQUEUEING_PAUSE_SECONDS)

    async def _repeat(self, seconds: float, action: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            action()

    def _tick(self) -> None:
        world = self._world
        world.queue.flush_backoff(world.clock.monotonic())
        self._heartbeat_seconds = world.clock.monotonic()
        if not (self.deciding or self._barrier.is_applying or world.cache.unprepared):
            # What was deleted is let go though no pod comes, and the next one waits for less.
            world.cache.update_snapshot()

    def _flush_unschedulable(self) -> None:
        world = self._world
        world.queue.flush_unschedulable(world.clock.monotonic())
        unanswered = (world.queue.pod(uid) for uid in world.profiles.take_unanswered())
        world.activate([pod for pod in unanswered if pod is not None])
