"""Unbound pods whose schedulerName no profile serves: kept for the day on which one does.

Event handlers put in what was never served; pods of a profile that goes are laid down here with a
condition that says so. Invariant: an unbound pod is either here or in the scheduling queue; one
that is being scheduled or bound while its profile goes stays in the queue until its attempt ends.
"""

import asyncio
from typing import Final

from stellwerk.backend.queued_pod import TAKEN
from stellwerk.framework.services import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.parts import Parts
from stellwerk.scheduler.pod_status import SCHEDULER_ERROR, NominatingInfo
from stellwerk.scheduler.status_reports import Report

_PATCHES_AT_ONCE: Final = 16


class UnservedPods:
    """See the module docstring."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._pods: dict[str, PodInfo] = {}
        self._to_tell: dict[str, None] = {}
        """Uids of pods that were laid down, in order, and do not know it yet."""
        self._telling: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def put(self, pod: PodInfo) -> None:
        """An unbound pod of nobody's was seen."""
        self._pods[pod.uid] = pod

    def remove(self, uid: str) -> None:
        """A pod was bound or deleted."""
        self._pods.pop(uid, None)

    def profiles_changed(self) -> None:
        """Take up pods whose profile has come, and lay down those whose profile has gone."""
        parts, now = self._parts, self._parts.clock.monotonic()
        for uid, pod in list(self._pods.items()):
            if parts.profiles.serves(pod.spec.scheduler_name):
                del self._pods[uid]
                parts.queue.add(pod, now)
        for entry in list(parts.queue.entries()):
            if entry.place not in TAKEN:
                self.lay_down_if_unserved(entry.newest)

    def lay_down_if_unserved(self, pod: PodInfo) -> bool:
        """Take a pod that is not being scheduled out of the queue, unless a profile serves it."""
        parts = self._parts
        if parts.profiles.serves(pod.spec.scheduler_name):
            return False
        newest = parts.queue.delete(pod.uid)
        if newest is not None:
            self._pods[pod.uid] = newest
            self._to_tell[pod.uid] = None
            if self._telling is None or self._telling.done():
                loop = asyncio.get_running_loop()
                self._telling = loop.create_task(self._tell(), name="tell unserved pods")
        return True

    async def _tell(self) -> None:
        """Write the condition of every pod that was laid down."""
        await asyncio.gather(*(self._tell_some() for _ in range(_PATCHES_AT_ONCE)))

    async def _tell_some(self) -> None:
        while self._to_tell:
            uid = next(iter(self._to_tell))
            del self._to_tell[uid]
            pod = self._pods.get(uid)
            # It may be bound, gone or served again by now.
            if pod is not None:
                await self._report(pod)

    async def _report(self, pod: PodInfo) -> None:
        parts = self._parts
        message = parts.profiles.why_unserved(pod.spec.scheduler_name)
        parts.recorder.event(
            pod_reference(pod),
            "Warning",
            "FailedScheduling",
            "Scheduling",
            message,
            reporting_controller=pod.spec.scheduler_name,
        )
        await parts.reports.write(Report(pod, SCHEDULER_ERROR, message, NominatingInfo("")))
