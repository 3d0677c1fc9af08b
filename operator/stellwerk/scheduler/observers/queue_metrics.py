"""What the scheduling queue tells, as metrics and log lines.

Given to the queue as its observer. Invariant: a hint that raised is logged with its plugin, once
per failure, and never ends anything.
"""

import logging
from functools import partial

from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.framework.events import ClusterChange
from stellwerk.metrics import Counter, Gauge, Histogram, Metrics
from stellwerk.models.pod import PodInfo

logger = logging.getLogger(__name__)


class QueueMetrics:
    """Implements `backend.scheduling_queue.QueueObserver`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._incoming: dict[tuple[str, str], Counter] = {}
        self._rejected: dict[tuple[str, str], Gauge] = {}
        self._hints: dict[tuple[str, str, str], Histogram] = {}

    def serve(self, queue: SchedulingQueue) -> None:
        """Let `scheduler_pending_pods` read the queue when somebody scrapes."""
        for label in queue.pending():
            self._metrics.pending_pods.labels(label).set_function(partial(_pending, queue, label))

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered a queue."""
        series = self._incoming.get((queue, event))
        if series is None:
            series = self._metrics.queue_incoming_pods.labels(queue, event)
            self._incoming[queue, event] = series
        series.inc()

    def rejected(self, plugin: str, profile: str, change: int) -> None:
        """One pod more or less waits because of a plugin."""
        series = self._rejected.get((plugin, profile))
        if series is None:
            series = self._metrics.unschedulable_pods.labels(plugin, profile)
            self._rejected[plugin, profile] = series
        series.inc(change)

    def hints_evaluated(
        self, plugin: str, event: str, result: str, times: int, seconds: float
    ) -> None:
        """A hint function ran for many pods; each counts with the mean duration."""
        series = self._hints.get((plugin, event, result))
        if series is None:
            family = self._metrics.queueing_hint_execution_duration
            series = self._hints[plugin, event, result] = family.labels(plugin, event, result)
        series.observe_repeated(seconds / times, times)

    def hint_failed(
        self, plugin: str, pod: PodInfo, change: ClusterChange, failure: Exception
    ) -> None:
        """A hint raised; the queue takes it for a Queue."""
        logger.error(
            "queueing hint of %s failed for %s on %s: %s",
            plugin,
            pod.key,
            change.name,
            failure,
            exc_info=failure,
        )


def _pending(queue: SchedulingQueue, label: str) -> float:
    return queue.pending()[label]
