"""What happens to a pod whose attempt failed: back to the queue, an event, a condition.

Called by the cycle and by bindings. Invariant: requeueing is done before anything is awaited, so
that no moment exists in which the pod is nowhere.
"""

import logging
from dataclasses import dataclass
from typing import Final

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.errors import SchedulerError
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.services import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.parts import Parts
from stellwerk.scheduler.pod_status import SCHEDULER_ERROR, UNSCHEDULABLE, NominatingInfo
from stellwerk.scheduler.status_reports import Report

logger = logging.getLogger(__name__)

NOTE_LENGTH_LIMIT: Final = 1024
_ELLIPSIS: Final = " ..."


@dataclass(slots=True)
class Failure:
    """Why an attempt failed, and who would have to change their mind."""

    message: str
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    nomination: NominatingInfo | None = None
    rejected: bool = False
    """True: plugins found no room. False: something broke, and is tried again after a backoff."""

    @classmethod
    def error(cls, message: str) -> "Failure":
        """Something broke."""
        return cls(message, nomination=NominatingInfo(""))


class AttemptFailures:
    """Requeues, then reports in the background."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def unexpected(self, failure: Exception, pod: PodInfo) -> Failure:
        """What was raised during an attempt, as a failure of the attempt; logged and counted."""
        if isinstance(failure, PluginFailure):
            logger.error("%s: %s", pod.key, failure, exc_info=failure)
            self.count(failure, pod)
            return Failure.error(str(failure))
        if isinstance(failure, SchedulerError):
            return Failure.error(str(failure))
        logger.error("the attempt for %s failed", pod.key, exc_info=failure)
        return Failure.error(f"{type(failure).__name__}: {failure}")

    def count(self, failure: PluginFailure, pod: PodInfo) -> None:
        """Count a plugin that broke."""
        labels = (failure.plugin, failure.point, pod.spec.scheduler_name)
        self._parts.metrics.plugin_failures.labels(*labels).inc()

    def handle(self, queued: QueuedPod, failure: Failure, started_seconds: float) -> None:
        """Put the pod back where it belongs and report (`handleSchedulingFailure`)."""
        parts, now = self._parts, self._parts.clock.monotonic()
        profile = parts.metrics.profile(queued.pod.spec.scheduler_name)
        profile.attempt("unschedulable" if failure.rejected else "error", now - started_seconds)
        place = parts.queue.add_unschedulable_if_not_present(
            queued,
            failure.unschedulable_plugins,
            failure.pending_plugins,
            error=not failure.rejected,
            now=now,
        )
        if place is None:
            # Deleted, or bound by somebody else meanwhile: a condition would be wrong or in vain.
            self._tell(queued.pod, failure)
            return
        if parts.unserved.lay_down_if_unserved(queued.pod):
            # Its profile went during the attempt; that is what there is to say now.
            return
        if failure.nomination is not None:
            parts.queue.nominate(queued.pod, failure.nomination.node_name)
        self._report(queued.pod, failure)

    def _tell(self, pod: PodInfo, failure: Failure) -> None:
        self._parts.recorder.event(
            pod_reference(pod),
            "Warning",
            "FailedScheduling",
            "Scheduling",
            truncated(failure.message),
            reporting_controller=pod.spec.scheduler_name,
        )

    def _report(self, pod: PodInfo, failure: Failure) -> None:
        self._tell(pod, failure)
        reason = UNSCHEDULABLE if failure.rejected else SCHEDULER_ERROR
        self._parts.reports.put(Report(pod, reason, failure.message, failure.nomination))


def truncated(note: str) -> str:
    """A note as long as events allow."""
    if len(note) <= NOTE_LENGTH_LIMIT:
        return note
    return note[: NOTE_LENGTH_LIMIT - len(_ELLIPSIS)] + _ELLIPSIS
