"""Carries out what a group's preemption decided: evicts the victims, the last one after the others.

The group cycle starts it; until the last victim is terminating, the members are gated. Invariant:
at most one preemption of a group is under way, and however it ends, its members are let go.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from stellwerk.errors import Conflict, NotFound, SchedulerError, Throttled, Unavailable
from stellwerk.models.object_reference import ObjectReference, pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup
from stellwerk.models.pod_group_key import PodGroupKey
from stellwerk.scheduler.outbox import Outbox
from stellwerk.scheduler.preemption import RETRY_DELAYS_SECONDS, PreemptionExecutor
from stellwerk.world.pod_status import disruption_patch
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

AT_ONCE: Final = 32
"""So many victims are evicted at the same time."""
_REASON: Final = "PreemptionByScheduler"
_ACCOMMODATES: Final = "preempting to accommodate a higher priority podgroup"


@dataclass(frozen=True, slots=True)
class GroupEviction:
    """Victims to be evicted so that a group fits."""

    group: PodGroup
    reference: ObjectReference
    members: Sequence[PodInfo]
    """Those that wait for it."""
    victims: Sequence[PodInfo]
    profile_name: str
    """The schedulerName under which events and conditions are written."""


@dataclass(slots=True)
class GroupEvictions:
    """One task per group that preempts."""

    world: World
    outbox: Outbox
    preemption: PreemptionExecutor
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _under_way: dict[PodGroupKey, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, eviction: GroupEviction) -> None:
        """Evict the victims; the members are gated from here on until that is done."""
        self.world.preempting.update(pod.uid for pod in eviction.members)
        task = asyncio.get_running_loop().create_task(
            self._carry_out(eviction), name=f"preempt for {eviction.group.key.shown}"
        )
        self._under_way[eviction.group.key] = task
        task.add_done_callback(lambda done: self._ended(eviction.group.key, done))

    async def close(self) -> None:
        """Stop everything under way and wait for it."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: PodGroupKey, task: asyncio.Task[None]) -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]

    async def _carry_out(self, eviction: GroupEviction) -> None:
        missed = False
        try:
            *others, last = eviction.victims
            for part in range(0, len(others), AT_ONCE):
                evicting = (self._evict(eviction, each) for each in others[part : part + AT_ONCE])
                missed |= not all(await asyncio.gather(*evicting))
            missed |= not await self._evict(eviction, last)
        except SchedulerError as failure:
            logger.warning("preemption for %s: %s", eviction.group.key.shown, failure)
            missed = True
        finally:
            self._let_go(eviction, at_once=missed)

    def _let_go(self, eviction: GroupEviction, *, at_once: bool) -> None:
        """The members may be tried again: when something ends, or, if that was missed, at once."""
        world = self.world
        world.preempting.difference_update(pod.uid for pod in eviction.members)
        for pod in eviction.members:
            world.queue.rerun_pre_enqueue(pod.uid)
        gone = all(world.cache.pod(victim.uid) is None for victim in eviction.victims)
        if at_once or gone:
            world.activate(eviction.members)

    async def _evict(self, eviction: GroupEviction, victim: PodInfo) -> bool:
        """Evict one victim; False if it was gone already.

        Raises:
            SchedulerError: it could not be evicted, in spite of retries.
        """
        if self.preemption.keep_from_node(victim):
            self._record(eviction, victim, " (in kube-scheduler memory).")
            return False
        client = self.outbox.client
        patch = disruption_patch(
            victim,
            self.world.clock.now(),
            reason=_REASON,
            message=f"{eviction.profile_name}: {_ACCOMMODATES}",
        )
        try:
            if patch is not None:
                await self._patiently(
                    lambda: client.patch_pod_status(victim.namespace, victim.name, patch)
                )
            await self._patiently(
                lambda: client.delete_pod(victim.namespace, victim.name, victim.uid)
            )
        except (NotFound, Conflict):
            return False
        self._record(eviction, victim, "")
        return True

    async def _patiently(self, call: Callable[[], Awaitable[object]]) -> None:
        for delay_seconds in RETRY_DELAYS_SECONDS:
            try:
                await call()
            except (Throttled, Unavailable):
                await self.sleep(delay_seconds)
            else:
                return
        await call()

    def _record(self, eviction: GroupEviction, victim: PodInfo, suffix: str) -> None:
        self.outbox.recorder.event(
            pod_reference(victim),
            "Normal",
            "Preempted",
            "Preempting",
            f"Preempted by podgroup {eviction.group.uid} on node cluster{suffix}",
            reporting_controller=eviction.profile_name,
            related=eviction.reference,
        )
