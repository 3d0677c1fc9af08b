"""Reports into the status of pending pods: why a pod is pending, and the node it is nominated to.

Failed attempts put reports here (`FailureHandler`), bindings cancel or flush them, and event
handlers drop those on pods that are gone or bound from outside. Nothing waits for a report: it
stands behind bindings and evictions. A binding says PodScheduled itself and takes the nomination
away, so a report that it overtakes need not be written at all (as with kube-scheduler's
SchedulerAsyncAPICalls). Invariants: for each pod at most one report is being written and one is
pending, which holds the newest of everything that was put; nothing is written for a pod whose
report is cancelled until another one is put.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextvars import Context
from typing import Final

from stellwerk.framework.services import ClusterClient
from stellwerk.models.pod import PodInfo
from stellwerk.world.pod_status import Report
from stellwerk_kube.clock import Clock
from stellwerk_kube.errors import NotFound, NotLeader, SchedulerError

logger = logging.getLogger(__name__)

MAX_REPORT_WRITERS: Final = 4
"""Reports that are written at the same time. A report that is being written can no longer be
replaced by a newer one or cancelled by a binding, so more writers would mean more requests."""


class StatusReports:
    """Reports on pods on their way to the API, a few at a time."""

    def __init__(
        self,
        client: ClusterClient,
        clock: Clock,
        is_observed: Callable[[PodInfo], bool] = lambda _: False,
    ) -> None:
        """`is_observed` tells pods that another scheduler serves: no report on them is written."""
        self._client = client
        self._clock = clock
        self._is_observed = is_observed
        self.pending: OrderedDict[str, Report] = OrderedDict()
        """By uid of the pod, in the order in which they are written. An OrderedDict, because the
        first item of a plain dict costs a walk past all that were taken from its front before."""
        self.writing: dict[str, asyncio.Event] = {}
        """An event for each pod whose report is being written, by uid; it is set at the end."""
        self._writers: set[asyncio.Task[None]] = set()

    def put(self, report: Report) -> None:
        """Add a report to what is pending about the pod; it is written in the background."""
        uid = report.pod.uid
        before = self.pending.get(uid)
        self.pending[uid] = report if before is None else before.followed_by(report)
        if len(self._writers) < MAX_REPORT_WRITERS:
            writer = asyncio.get_running_loop().create_task(
                self._write_all(), name="reports", context=Context()
            )
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)

    def drop(self, uid: str) -> None:
        """Drop what is pending about a pod, because it is no longer true."""
        self.pending.pop(uid, None)

    async def cancel_or_flush(self, uid: str) -> None:
        """Drop what is pending about a pod, and wait for what is being written."""
        self.drop(uid)
        while (written := self.writing.get(uid)) is not None:
            await written.wait()

    async def write(self, report: Report) -> None:
        """Write a report in place of what is pending about the pod, and wait for its end."""
        await self.cancel_or_flush(report.pod.uid)
        await self._write(report)

    async def _write_all(self) -> None:
        # A report on a pod of which one is being written waits, and others go first.
        while uid := next((uid for uid in self.pending if uid not in self.writing), ""):
            await self._write(self.pending.pop(uid))

    async def _write(self, report: Report) -> None:
        pod, patch = report.pod, report.patch(self._clock)
        # Its profile may have begun to observe since the report was put.
        if patch is None or self._is_observed(pod):
            return
        written = self.writing[pod.uid] = asyncio.Event()
        try:
            await self._client.patch_pod_status(pod.namespace, pod.name, patch, urgent=False)
        except NotLeader:
            logger.debug("%s is reported on by the process that leads", pod.key)
        except NotFound:
            logger.debug("%s is gone, its condition is not needed any more", pod.key)
        except SchedulerError as failure:
            # The pod's next failed attempt writes what is then true, so this is not tried again.
            logger.warning("cannot report on %s: %s", pod.key, failure)
        finally:
            del self.writing[pod.uid]
            written.set()
