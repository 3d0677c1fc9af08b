"""The scheduling coroutine and the clockwork around it.

Owns every task, every timeout, and activeQ.

`app` starts it once the first lists are complete. Invariant: pods are decided one after another,
in the order of activeQ; everything slow happens in tasks that the coroutine does not wait for.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.errors import NotFound, SchedulerError
from stellwerk.framework.interface import WatchHandlers
from stellwerk.scheduler.attempt_failures import AttemptFailures
from stellwerk.scheduler.parts import Parts
from stellwerk.scheduler.profiles.profile_status import ProfileStatusWriter
from stellwerk.scheduler.schedule_one import ScheduleOne

logger = logging.getLogger(__name__)

BACKOFF_FLUSH_SECONDS: Final = 1.0
UNSCHEDULABLE_FLUSH_SECONDS: Final = 30.0
CONFIRMATION_SECONDS: Final = 30.0
"""How long the watch may take to show a pod bound before the pod is re-read from the API."""
DRAIN_SECONDS: Final = 10.0
TURN_SECONDS: Final = 0.001
"""After so long, events and bindings have their turn; one decision after the other costs less than
decisions between other work, for what it reads stays in the processor's caches."""
TURN_DECISIONS: Final = 8
"""The same, however little time they take."""

ActiveItem = tuple[tuple[float, ...], int, QueuedPod | None]


class ActiveQueue:
    """activeQ: the asyncio.PriorityQueue between events and the scheduling coroutine.

    The scheduling queue pushes entries through `push`; an entry of None only wakes the coroutine.
    """

    def __init__(self) -> None:
        self._queue: asyncio.PriorityQueue[ActiveItem] = asyncio.PriorityQueue()
        self._wakes = 0

    def push(self, sort_key: tuple[float, ...], sequence: int, entry: QueuedPod) -> None:
        """Put a pod in line."""
        self._queue.put_nowait((sort_key, sequence, entry))

    def wake(self) -> None:
        """End a wait although no pod is in line.

        The backoff queue has one, and nothing else to do.
        """
        if self._queue.empty():
            self._wakes -= 1
            self._queue.put_nowait(((), self._wakes, None))

    def empty(self) -> bool:
        """Whether no pod is in line (stale entries count)."""
        return self._queue.empty()

    def __len__(self) -> int:
        return self._queue.qsize()

    def discard_stale(self) -> None:
        """Take out the entries that are not in activeQ any more."""
        items = [self._queue.get_nowait() for _ in range(len(self))]
        for item in items:
            if item[2] is not None and item[2].place is Place.ACTIVE:
                self._queue.put_nowait(item)

    async def next(self) -> QueuedPod | None:
        """The first in line; None after a wake."""
        return (await self._queue.get())[2]


class Scheduler:
    """See the module docstring."""

    def __init__(self, parts: Parts, active: ActiveQueue, handlers: WatchHandlers) -> None:
        self._parts = parts
        self._active = active
        self.handlers = handlers
        self.profile_status = ProfileStatusWriter(parts)
        self._schedule_one = ScheduleOne(parts, AttemptFailures(parts))
        self.last_heartbeat_seconds = parts.clock.monotonic()
        """When the scheduling coroutine last showed signs of life; liveness reads it."""
        self.running = False

    async def run(self) -> None:
        """Schedule until cancelled; then let the bindings in flight finish."""
        self.running = True
        self.last_heartbeat_seconds = self._parts.clock.monotonic()
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
                tasks.create_task(self._confirm_forever(), name="confirmations")
                tasks.create_task(self.profile_status.run(), name="profile status")
        finally:
            await self._parts.preemptor.close()
            await self._parts.bindings.drain(DRAIN_SECONDS)

    async def _schedule_forever(self) -> None:
        parts, now = self._parts, self._parts.clock.monotonic
        decisions, turn_began = 0, now()
        while True:
            await parts.bindings.room()
            queued = await self._next_pod()
            self.last_heartbeat_seconds = now()
            parts.deciding = queued.pod.uid
            await self._schedule_one.schedule_one(queued)
            parts.deciding = ""
            decisions += 1
            if decisions == TURN_DECISIONS or now() - turn_began >= TURN_SECONDS:
                # get() on a queue that is not empty never yields: let the others have a turn.
                await asyncio.sleep(0)
                decisions, turn_began = 0, now()

    async def _next_pod(self) -> QueuedPod:
        parts = self._parts
        while True:
            if self._active.empty():
                early = parts.queue.pop_from_backoff(parts.clock.monotonic())
                if early is not None:
                    return early
            entry = await self._active.next()
            if entry is not None:
                taken = parts.queue.pop(entry, parts.clock.monotonic())
                if taken is not None:
                    return taken

    async def _repeat(self, seconds: float, action: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            action()

    def _tick(self) -> None:
        parts = self._parts
        parts.queue.flush_backoff(parts.clock.monotonic())
        if self._active.empty():
            # An idle coroutine is alive, too.
            self.last_heartbeat_seconds = parts.clock.monotonic()

    def _flush_unschedulable(self) -> None:
        parts, now = self._parts, self._parts.clock.monotonic()
        parts.queue.flush_unschedulable(now)
        unanswered = (parts.queue.pod(uid) for uid in parts.queueing.take_unanswered())
        parts.queue.activate([pod for pod in unanswered if pod is not None], now)

    async def _confirm_forever(self) -> None:
        while True:
            await asyncio.sleep(CONFIRMATION_SECONDS / 2)
            overdue = self._parts.clock.monotonic() - CONFIRMATION_SECONDS
            for uid, bound_at in list(self._parts.unconfirmed.items()):
                if bound_at < overdue:
                    await self._confirm(uid)

    async def _confirm(self, uid: str) -> None:
        """Re-read an assumed pod whose binding succeeded but that the watch never showed bound."""
        parts = self._parts
        assumed = parts.cache.assumed_pods.get(uid)
        if assumed is None:
            parts.unconfirmed.pop(uid, None)
            return
        path = f"/api/v1/namespaces/{assumed.namespace}/pods/{assumed.name}"
        try:
            obj = await parts.client.get(path)
        except NotFound:
            self.handlers.on_pod("DELETED", _remains(uid, assumed.namespace, assumed.name))
        except SchedulerError as failure:
            logger.warning("cannot re-read %s: %s", assumed.key, failure)
        else:
            if obj["metadata"]["uid"] == uid:
                self.handlers.on_pod("MODIFIED", obj)
            else:
                self.handlers.on_pod("DELETED", _remains(uid, assumed.namespace, assumed.name))


def _remains(uid: str, namespace: str, name: str) -> dict[str, dict[str, str]]:
    """What is left of a pod that vanished unseen."""
    return {"metadata": {"uid": uid, "namespace": namespace, "name": name}}
