"""Unbound pods without a profile for their schedulerName: kept until one is served.

Event handlers put in what had no profile from the start; pods of a profile that goes are taken out
of the queue with a condition that says so. Invariant: an unbound pod is either here or in the
scheduling queue; one that is being scheduled or bound while its profile goes stays in the queue
until its attempt ends.
"""

import asyncio
from typing import Final

from stellwerk.backend.queued_pod import POPPED
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.outbox import Outbox
from stellwerk.world.pod_status import CLEAR_NOMINATION, SCHEDULER_ERROR, Report
from stellwerk.world.world import World

_PATCHES_AT_ONCE: Final = 16


class PodsWithoutProfile:
    """The pods by uid, and those of them that have yet to be reported on."""

    def __init__(self, world: World, outbox: Outbox) -> None:
        self._world = world
        self._outbox = outbox
        self.pods: dict[str, PodInfo] = {}
        self._once_served: set[str] = set()
        """The schedulerNames that a profile served since the start."""
        self._unreported: dict[str, None] = {}
        """Uids of pods that were taken out of the queue, in order."""
        self._reporting: asyncio.Task[None] | None = None

    def profiles_changed(self) -> None:
        """Queue pods whose profile has come, and take out those whose profile has gone."""
        world, now = self._world, self._world.clock.monotonic()
        self._once_served |= world.profiles.served.keys()
        for uid, pod in list(self.pods.items()):
            if world.profiles.of(pod) is not None:
                del self.pods[uid]
                world.queue.add(pod, now)
        for entry in list(world.queue.entries.values()):
            if entry.place not in POPPED:
                self.take_out(entry.newest)

    def take_out(self, pod: PodInfo) -> bool:
        """Take a pod out of the queue if no profile serves it; False if it has one, or is gone."""
        if self._world.profiles.of(pod) is not None:
            return False
        newest = self._world.queue.delete(pod.uid)
        if newest is None:
            return False
        self.pods[pod.uid] = newest
        self._report_on(pod.uid)
        return True

    def add(self, pod: PodInfo) -> None:
        """Keep a pod until it has a profile; it learns of a profile that has gone.

        Pods of other schedulers are never written to: no profile has served their schedulerName.
        """
        is_new = pod.uid not in self.pods
        self.pods[pod.uid] = pod
        if is_new and pod.spec.scheduler_name in self._once_served and not pod.terminating:
            self._report_on(pod.uid)

    def _report_on(self, uid: str) -> None:
        self._unreported[uid] = None
        if self._reporting is None or self._reporting.done():
            loop = asyncio.get_running_loop()
            self._reporting = loop.create_task(self._report_all(), name="pods without profile")

    async def _report_all(self) -> None:
        """Write the condition of every pod that was taken out."""
        await asyncio.gather(*(self._report_some() for _ in range(_PATCHES_AT_ONCE)))

    async def _report_some(self) -> None:
        while self._unreported:
            uid = next(iter(self._unreported))
            del self._unreported[uid]
            pod = self.pods.get(uid)
            # It may be bound, gone or queued again by now.
            if pod is not None:
                await self._report(pod)

    async def _report(self, pod: PodInfo) -> None:
        message = self._world.profiles.why_none(pod)
        self._outbox.recorder.event(
            pod_reference(pod),
            "Warning",
            "FailedScheduling",
            "Scheduling",
            message,
            reporting_controller=pod.spec.scheduler_name,
        )
        await self._outbox.reports.write(Report(pod, SCHEDULER_ERROR, message, CLEAR_NOMINATION))
