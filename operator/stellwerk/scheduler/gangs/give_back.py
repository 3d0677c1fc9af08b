"""Gives back what a group holds that could not be bound whole, where the group asks for it.

Group events look after each change. Invariant: only members are deleted that have not started and
that a controller makes anew, and only after the group's own time has passed without enough of it
being bound.
"""

import asyncio
import logging
from contextvars import Context
from datetime import datetime

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.errors import Conflict, NotFound, SchedulerError
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup
from stellwerk.models.pod_group_key import PodGroupKey
from stellwerk.scheduler.gangs.group_reports import group_reference
from stellwerk.scheduler.gangs.own_conditions import PARTLY_BOUND
from stellwerk.scheduler.outbox import Outbox
from stellwerk.world.world import World

logger = logging.getLogger(__name__)


class GiveBack:
    """A timer for each group that is bound in part and says how long it may be."""

    def __init__(self, world: World, outbox: Outbox) -> None:
        self._world, self._outbox = world, outbox
        self._timers: dict[PodGroupKey, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outdated: set[PodGroupKey] = set()
        """Groups that have not been bound in part all the time since this process began."""

    def look(self, members: GroupMembers) -> None:
        """Begin to wait for the rest of a group, or stop waiting."""
        key, group = members.key, members.group
        if group is None or group.give_back_seconds is None or not members.is_partly_bound:
            timer = self._timers.pop(key, None)
            if timer is not None:
                timer.cancel()
            if timer is not None or members.bound:
                self._outdated.add(key)
        elif key not in self._timers:
            seconds = self._left_seconds(group, group.give_back_seconds)
            self._timers[key] = asyncio.get_running_loop().call_later(seconds, self._over, key)

    def _left_seconds(self, group: PodGroup, seconds: float) -> float:
        """How long to wait: less where an earlier process has begun to."""
        for condition in group.conditions if group.key not in self._outdated else ():
            if condition["type"] == PARTLY_BOUND and condition.get("status") == "True":
                since = datetime.fromisoformat(condition["lastTransitionTime"])
                passed = (self._world.clock.now() - since).total_seconds()
                return min(seconds, max(0.0, seconds - passed))
        return seconds

    def _over(self, key: PodGroupKey) -> None:
        del self._timers[key]
        self._outdated.add(key)
        members = self._world.pod_groups.groups.get(key)
        if members is None or members.group is None or not members.is_partly_bound:
            return
        held = [pod for pod in members.pods.values() if _may_go(pod)]
        if held:
            task = asyncio.get_running_loop().create_task(
                self._delete(members.group, held), name=f"give back {key.shown}", context=Context()
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _delete(self, group: PodGroup, held: list[PodInfo]) -> None:
        for pod in held:
            try:
                await self._outbox.client.delete_pod(pod.namespace, pod.name, pod.uid)
            except (NotFound, Conflict):
                continue
            except SchedulerError as failure:
                logger.warning("cannot give %s back: %s", pod.key, failure)
        self._outbox.recorder.event(
            group_reference(group),
            "Warning",
            "GivenBack",
            "Scheduling",
            f"{len(held)} bound pods were given back: too few others could be bound for "
            f"{group.give_back_seconds} s",
            reporting_controller=self._world.profiles.profile_name(held[0]),
        )
        members = self._world.pod_groups.groups.get(group.key)
        if members is not None:
            # What could not be deleted is tried again.
            self.look(members)


def _may_go(pod: PodInfo) -> bool:
    """Whether a member holds room, has not started, and will be made anew."""
    has_begun = pod.phase not in {"", "Pending"} or bool(pod.start_time)
    return bool(pod.node_name) and not (pod.terminating or has_begun) and pod.owner is not None
