"""The scheduling loop on asyncio: activeQ, what the loop waits for, timers, and every other task.

`app` starts it once the first lists are complete, and until this process leads, waits in
`stand_by`. Invariant: pods are decided one after another,
in the order of activeQ; everything slow happens in tasks that the loop does not wait for.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk import garbage
from stellwerk.backend.cache import Cache
from stellwerk.backend.queued_pod import ActiveItem, Place, QueuedPod
from stellwerk.profiles.status_writer import ProfileStatusWriter
from stellwerk.scheduler.binding_cycle import BindingCycle
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk.world.loop import TIMERS, Timer, Waits, scheduling_loop
from stellwerk.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

DRAIN_SECONDS: Final = 10.0
"""Time that bindings in flight get at the end of the process. Then they are cancelled."""
MAX_ROWS_PER_STEP: Final = 64
"""Snapshot rows written before yielding to the event loop; 64 rows take a few milliseconds."""
REQUEUEING_UNITS: Final = 250
"""Units of requeueing worked off in one go, which takes up to a millisecond. A pod that arrives
meanwhile waits for one such slice."""
REQUEUEING_PAUSE_SECONDS: Final = 0.002
"""Pause between two slices of requeueing, so that it takes a third of the time at the most."""


class ActiveQueue(asyncio.PriorityQueue[ActiveItem]):
    """activeQ: items by sort key and sequence; the scheduling loop sleeps while there are none.

    Its order is that of the items, and every item comes out once; stale ones
    `SchedulingQueue.pop` refuses.
    """

    def __init__(self) -> None:
        super().__init__()
        self._signals = 0

    def wake(self) -> None:
        """Let `filled` return although there is no pod here: backoffQ has one."""
        if self.empty():
            # Negative, so that no pod's item has the same sequence.
            self._signals -= 1
            self.put_nowait(ActiveItem((), self._signals, None))

    def __len__(self) -> int:
        return self.qsize()

    def discard_stale(self) -> None:
        """Take out the items of pods that are not in activeQ any more."""
        items = [self.get_nowait() for _ in range(len(self))]
        for item in items:
            if item.entry is not None and item.entry.sequence == item.sequence:
                self.put_nowait(item)

    async def filled(self) -> None:
        """Wait until there is an item, or a signal."""
        self.put_nowait(await self.get())


class Scheduler(Waits):
    """The scheduling coroutine, the timers, and the outcomes of bindings."""

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
        """Decides groups of pods; recordings observe it, and `app` wires them."""
        self._bindings = bindings
        self._preemption = preemption
        self._binding_cycle = binding_cycle
        self._outcomes = binding_cycle.outcomes
        self._handlers = handlers
        self._profile_status = profile_status
        self._barrier = handlers.barrier
        self._backlogged = asyncio.Event()
        world.queue.backlog.on_begun = self._backlogged.set
        self.observing: Callable[[], Coroutine[None, None, None]] = _observe_nothing
        """Runs the observer until cancelled; the wiring sets it."""
        self._heartbeat_seconds: float | None = None
        """Monotonic time of the last beat; None: the scheduling coroutine is not running yet."""

    @property
    def deciding(self) -> str:
        """The uid of the pod that is being decided; empty: none is."""
        return self._schedule_one.deciding

    def heartbeat(self) -> float:
        """The last time that the loop ran; now, while the scheduling coroutine is not running yet.

        A cycle that hangs holds up the loop, and the beat with it. A coroutine that waits, for a
        slot, an extender or the API server, is alive: killing it would mend none of these.
        """
        seconds = self._heartbeat_seconds
        return self._world.clock.monotonic() if seconds is None else seconds

    def hand_over(self) -> None:
        """End what is under way for pods that another scheduler serves from here on.

        Those that wait on Permit go back to the queue, and no further victim is evicted for them.
        Bindings that have come further end by themselves: the API server refuses a second one.
        """
        is_observed = self._world.profiles.is_observed
        self._binding_cycle.send_back(is_observed)
        self._preemption.abandon_all(is_observed)
        self.groups.submit.evictions.abandon(is_observed)

    async def run(self) -> None:
        """Schedule until cancelled; then let the bindings in flight finish."""
        self._heartbeat_seconds = self._world.clock.monotonic()
        self.groups.conditions.check_all()
        self._handlers.groups.begin()
        try:
            async with asyncio.TaskGroup() as tasks:
                loop = scheduling_loop(
                    self._world, self._active, self._schedule_one.schedule_one, self
                )
                tasks.create_task(loop, name="scheduling")
                for timer in TIMERS:
                    tasks.create_task(self._repeat(timer), name=timer.name)
                tasks.create_task(self._work_off_requeueing(), name="requeueing")
                tasks.create_task(
                    self._outcomes.run(self._handlers, self._binding_cycle.take_back),
                    name="outcomes of bindings",
                )
                tasks.create_task(self._profile_status.run(), name="profile status")
                tasks.create_task(self.observing(), name="observing")
        finally:
            await self._preemption.close()
            await self.groups.submit.evictions.close()
            await self._bindings.drain(DRAIN_SECONDS)

    # --- what the loop waits for ----------------------------------------------------------------

    @override
    async def slot(self) -> None:
        if not self._bindings.has_free_slot:
            await self._bindings.free_slot()
        if self._barrier.is_applying or self._world.cache.unindexed:
            await self.ready()

    @override
    async def pod(self) -> None:
        await self._active.filled()
        await self.ready()

    @override
    async def others(self, in_hand: QueuedPod | None) -> None:
        if in_hand is not None:
            self._schedule_one.deciding = in_hand.pod.uid
        await asyncio.sleep(0)
        if not self._bindings.tasks:
            # What a socket has brought becomes an event only in the second round of the event loop.
            # While pods are bound, the second round would split what is written at once in two,
            # for more CPU.
            await asyncio.sleep(0)
        if self._barrier.is_applying:
            await self._barrier.applied()

    async def ready(self) -> None:
        """Enter pods with thousands of terms, and wait while a later list is being applied."""
        cache = self._world.cache
        if cache.unindexed:
            # One pass only: what comes meanwhile is entered after the snapshot has been written.
            for _ in cache.index_terms():
                await asyncio.sleep(0)
        if self._barrier.is_applying:
            await self._barrier.applied()
        if cache.changed_nodes > MAX_ROWS_PER_STEP:
            await _write_ahead(cache)

    # --- beside the loop ------------------------------------------------------------------------

    async def _work_off_requeueing(self) -> None:
        """Requeue slice by slice what one change concerns, with room for other work between."""
        while True:
            await self._backlogged.wait()
            self._backlogged.clear()
            backlog = self._world.queue.backlog
            while backlog.work_off(REQUEUEING_UNITS):  # noqa: ASYNC110 a pause, not a poll
                await asyncio.sleep(REQUEUEING_PAUSE_SECONDS)

    async def _repeat(self, timer: Timer) -> None:
        while True:
            await asyncio.sleep(timer.period_seconds)
            timer.act(self._world)
            await self._beat()

    async def _beat(self) -> None:
        world = self._world
        self._heartbeat_seconds = world.clock.monotonic()
        # Write the snapshot although no pod comes: that frees deleted objects and leaves less work
        # for the next pod.
        while not self.is_busy and world.cache.changed_nodes > MAX_ROWS_PER_STEP:
            world.cache.write_ahead(MAX_ROWS_PER_STEP)
            await asyncio.sleep(0)
        if not self.is_busy:
            world.cache.update_snapshot()

    @property
    def is_busy(self) -> bool:
        """True while the snapshot is the scheduling coroutine's, or between two states."""
        is_applying = self._barrier.is_applying
        return bool(self._schedule_one.deciding or is_applying or self._world.cache.unindexed)


async def _observe_nothing() -> None:
    """No observer is wired."""


STANDBY_ROUND_SECONDS: Final = 1.0
"""Pause between two rounds of a replica that does not lead."""
MIN_STALE_ACTIVE_ITEMS: Final = 1024
"""Below this number of stale items, sorting activeQ anew costs more than it saves."""


async def stand_by(
    world: World,
    active: ActiveQueue,
    leading: asyncio.Event,
    observed: ActiveQueue | None = None,
) -> None:
    """Keep activeQ short, and queue and snapshot up to date, until this process leads.

    Events go on filling cache and queue, and what they leave to be done in slices is done; nothing
    takes pods out of activeQ, so that what other processes bind stays in it as stale items: at most
    about as many as pods wait. Nothing is written to the API.
    """
    # What was listed stays, and holds no cycles: the garbage collector need not visit it.
    await _write_ahead(world.cache)
    garbage.freeze()
    while not leading.is_set():
        world.cache.update_snapshot()
        if len(active) > 2 * world.queue.pending()["active"] + MIN_STALE_ACTIVE_ITEMS:
            active.discard_stale()
        observed_limit = 2 * world.queue.observed(Place.ACTIVE) + MIN_STALE_ACTIVE_ITEMS
        if observed is not None and len(observed) > observed_limit:
            observed.discard_stale()
        # What is left of requeueing, slice by slice.
        is_left = True
        while is_left and not leading.is_set():
            is_left = world.queue.backlog.work_off()
            await asyncio.sleep(0)
        try:
            async with asyncio.timeout(STANDBY_ROUND_SECONDS):
                await leading.wait()
        except TimeoutError:
            pass


async def _write_ahead(cache: Cache) -> None:
    """Write the rows of very many changed nodes, and yield to the event loop between steps."""
    while cache.write_ahead(MAX_ROWS_PER_STEP):  # noqa: ASYNC110 other tasks run, nothing is awaited
        await asyncio.sleep(0)
