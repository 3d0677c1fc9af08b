"""The scheduling coroutine and the clockwork around it.

Owns every task and every timeout.

`app` starts it once the first lists are complete. Invariant: pods are decided one after another,
in the order of activeQ; everything slow happens in tasks that the coroutine does not wait for.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.errors import NotFound, SchedulerError
from stellwerk.framework.services import ClusterClient
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.active_queue import ActiveQueue
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.scheduler.profiles.profile_status import ProfileStatusWriter
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk.world.world import World

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


class Scheduler:
    """The scheduling coroutine, the flushes, and confirmations of bindings."""

    def __init__(
        self,
        world: World,
        active: ActiveQueue,
        schedule_one: ScheduleOne,
        bindings: BindingTasks,
        preemption: PreemptionExecutor,
        client: ClusterClient,
        handlers: EventHandlers,
        profile_status: ProfileStatusWriter,
    ) -> None:
        self._world = world
        self._active = active
        self._schedule_one = schedule_one
        self._bindings = bindings
        self._preemption = preemption
        self._client = client
        self._handlers = handlers
        self._profile_status = profile_status
        self._barrier = handlers.barrier
        self._heartbeat_seconds: float | None = None
        """When the scheduling coroutine last moved; None: it does not run yet."""
        self.deciding = ""
        """The uid of the pod that the scheduling coroutine is at."""

    def heartbeat(self) -> float:
        """When the scheduling coroutine last moved; now, while it is not running yet."""
        seconds = self._heartbeat_seconds
        return self._world.clock.monotonic() if seconds is None else seconds

    async def run(self) -> None:
        """Schedule until cancelled; then let the bindings in flight finish."""
        self._heartbeat_seconds = self._world.clock.monotonic()
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
                tasks.create_task(self._profile_status.run(), name="profile status")
        finally:
            await self._preemption.close()
            await self._bindings.drain(DRAIN_SECONDS)

    async def _schedule_forever(self) -> None:
        now = self._world.clock.monotonic
        decisions, turn_began = 0, now()
        while True:
            await self._bindings.free_slot()
            queued = await self._next_pod()
            self._heartbeat_seconds = now()
            self.deciding = queued.pod.uid
            await self._schedule_one.schedule_one(queued)
            self.deciding = ""
            decisions += 1
            if decisions == TURN_DECISIONS or now() - turn_began >= TURN_SECONDS:
                # get() on a queue that is not empty never yields: let the others have a turn.
                await asyncio.sleep(0)
                decisions, turn_began = 0, now()

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
            if self._barrier.is_applying:
                await self._barrier.applied()
            popped = world.queue.pop(item)
            if popped is not None:
                return popped

    async def _repeat(self, seconds: float, action: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(seconds)
            action()

    def _tick(self) -> None:
        world = self._world
        world.queue.flush_backoff(world.clock.monotonic())
        if self._active.empty():
            # An idle coroutine is alive, too.
            self._heartbeat_seconds = world.clock.monotonic()

    def _flush_unschedulable(self) -> None:
        world = self._world
        world.queue.flush_unschedulable(world.clock.monotonic())
        unanswered = (world.queue.pod(uid) for uid in world.profiles.take_unanswered())
        world.activate([pod for pod in unanswered if pod is not None])

    async def _confirm_forever(self) -> None:
        while True:
            await asyncio.sleep(CONFIRMATION_SECONDS / 2)
            overdue = self._world.clock.monotonic() - CONFIRMATION_SECONDS
            for uid, bound_at in list(self._bindings.unconfirmed.items()):
                if bound_at < overdue:
                    await self._confirm(uid)

    async def _confirm(self, uid: str) -> None:
        """Re-read an assumed pod whose binding succeeded but that the watch never showed bound."""
        assumed = self._world.cache.assumed_pods.get(uid)
        if assumed is None:
            self._bindings.unconfirmed.pop(uid, None)
            return
        path = f"/api/v1/namespaces/{assumed.namespace}/pods/{assumed.name}"
        try:
            obj = await self._client.get(path)
        except NotFound:
            self._handlers.on_pod("DELETED", _tombstone(assumed))
        except SchedulerError as failure:
            logger.warning("cannot re-read %s: %s", assumed.key, failure)
        else:
            if obj["metadata"]["uid"] == uid:
                self._handlers.on_pod("MODIFIED", obj)
            else:
                self._handlers.on_pod("DELETED", _tombstone(assumed))


def _tombstone(pod: PodInfo) -> JsonObject:
    """The last that is known of a pod that was deleted unseen."""
    return {"metadata": {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}}
