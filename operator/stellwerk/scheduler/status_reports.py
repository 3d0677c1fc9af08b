"""Writes into the status of pods why they wait and where room is made for them, in the background.

Attempts that fail put their reports here, bindings settle them, those on pods that are gone or
bound by somebody else are dropped. They stand behind bindings and evictions: a binding says
PodScheduled itself, and takes the nomination away, so that what it overtakes need not be written at
all (as with kube-scheduler's SchedulerAsyncAPICalls). Invariant: of a pod at most one report is
being written and one waits, which holds the newest of everything that was put; nothing is written
for a pod whose report is settled until another one is put.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stellwerk.errors import NotFound, NotLeader, SchedulerError
from stellwerk.scheduler.pod_status import nomination_patch, status_patch

if TYPE_CHECKING:
    from stellwerk.clock import Clock
    from stellwerk.framework.interface import ClusterClient
    from stellwerk.models.pod import PodInfo
    from stellwerk.scheduler.pod_status import NominatingInfo

logger = logging.getLogger(__name__)

_WRITERS: Final = 4
"""A report that a writer has taken cannot be overtaken any more: few, so that this is the next."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a pod's status is to say."""

    pod: PodInfo
    """As the API has it, as far as is known."""
    reason: str = ""
    """Of the condition PodScheduled=False; empty: leave the condition alone."""
    message: str = ""
    nomination: NominatingInfo | None = None
    """None: leave it alone."""

    def followed_by(self, later: Report) -> Report:
        """One report that says what both say one after the other."""
        condition = later if later.reason else self
        return Report(
            later.pod,
            condition.reason,
            condition.message,
            self.nomination if later.nomination is None else later.nomination,
        )

    def patch(self, clock: Clock) -> dict[str, Any] | None:
        """The patch to send; None if the pod says all that already."""
        if self.reason:
            return status_patch(
                self.pod,
                clock.now(),
                reason=self.reason,
                message=self.message,
                nomination=self.nomination,
            )
        status = nomination_patch(self.pod, self.nomination)
        return {"status": status} if status else None


class StatusReports:
    """See the module docstring."""

    def __init__(self, client: ClusterClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._waiting: dict[str, Report] = {}
        """By the uid of the pod, in the order in which they are written."""
        self._writing: dict[str, asyncio.Event] = {}
        """Uids of the pods whose report is being written → set when it is."""
        self._writers: set[asyncio.Task[None]] = set()

    def put(self, report: Report) -> None:
        """Have it written some time, unless it is settled before."""
        uid = report.pod.uid
        before = self._waiting.get(uid)
        self._waiting[uid] = report if before is None else before.followed_by(report)
        if len(self._writers) < _WRITERS:
            writer = asyncio.get_running_loop().create_task(self._write_all(), name="reports")
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)

    def drop(self, uid: str) -> None:
        """What waits to be written about a pod is true no more."""
        self._waiting.pop(uid, None)

    async def settle(self, uid: str) -> None:
        """Drop what waits to be written about a pod; what is being written comes first."""
        self.drop(uid)
        while (written := self._writing.get(uid)) is not None:
            await written.wait()

    async def write(self, report: Report) -> None:
        """Write it in place of what waits to be written about the pod."""
        await self.settle(report.pod.uid)
        await self._write(report)

    async def _write_all(self) -> None:
        while (uid := self._next()) is not None:
            await self._write(self._waiting.pop(uid))

    def _next(self) -> str | None:
        return next((uid for uid in self._waiting if uid not in self._writing), None)

    async def _write(self, report: Report) -> None:
        pod, patch = report.pod, report.patch(self._clock)
        if patch is None:
            return
        written = self._writing[pod.uid] = asyncio.Event()
        try:
            await self._client.patch_pod_status(pod.namespace, pod.name, patch, urgent=False)
        except NotFound:
            logger.debug("%s is gone, its condition is not needed any more", pod.key)
        except NotLeader:
            logger.debug("%s is reported on by the process that leads", pod.key)
        except SchedulerError as failure:
            # In memory it is so; the pod's next failed attempt writes what is then true.
            logger.warning("cannot report on %s: %s", pod.key, failure)
        finally:
            del self._writing[pod.uid]
            written.set()
