"""The eviction of a group's victims, the last one after the others.

The group cycle starts it; until the last victim is terminating, the members are gated. Invariant:
at most one preemption of a group is under way, and however it ends, its members are let go.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stellwerk.models.object_reference import ObjectReference
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup
from stellwerk.models.pod_group_key import PodGroupKey
from stellwerk.scheduler.preemption import EvictionReason, Evictor
from stellwerk.world.decide import VictimOutcome
from stellwerk.world.world import World
from stellwerk_kube.errors import SchedulerError

logger = logging.getLogger(__name__)

AT_ONCE: Final = 32
"""So many victims are evicted at the same time."""
_ENDS_LATER: Final = frozenset({VictimOutcome.TERMINATING, VictimOutcome.DELETED})
"""The outcomes that are followed by the victim's end, which wakes the members."""


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
    evictor: Evictor
    _under_way: dict[PodGroupKey, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, eviction: GroupEviction) -> None:
        """Evict the victims; the members are gated from here on until that is done."""
        self.evictor.observe_preemption(eviction.victims)
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
            reason = _reason(eviction)
            *others, last = eviction.victims
            for part in range(0, len(others), AT_ONCE):
                together = others[part : part + AT_ONCE]
                evicting = (self.evictor.evict(each, reason) for each in together)
                missed |= not _ENDS_LATER.issuperset(await asyncio.gather(*evicting))
            missed |= await self.evictor.evict(last, reason) not in _ENDS_LATER
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


def _reason(eviction: GroupEviction) -> EvictionReason:
    note = f"Preempted by podgroup {eviction.group.uid} on node cluster"
    return EvictionReason(eviction.profile_name, "podgroup", note, related=eviction.reference)
