"""The handler of failed attempts: the pod goes back to the queue, with an event and a condition.

Called by the cycle and by bindings. Invariant: requeueing is done before anything is awaited, so
that no moment exists in which the pod is nowhere.
"""

import logging

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.types import PluginFailure
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.moves import PodsWithoutProfile
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.world.decide import Effects, Failure, requeue
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.errors import SchedulerError

logger = logging.getLogger(__name__)


class FailureHandler:
    """Requeues, then carries out what follows in the background."""

    def __init__(
        self,
        world: World,
        dispatcher: APIDispatcher,
        metrics: Metrics,
        preemption: PreemptionExecutor,
        without_profile: PodsWithoutProfile,
    ) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._preemption = preemption
        self._without_profile = without_profile

    def unexpected(self, failure: Exception, pod: PodInfo, profile: ServedProfile) -> Failure:
        """Make a failure of the attempt of what was raised during it; log and count it."""
        if isinstance(failure, PluginFailure):
            logger.error("%s: %s", pod.key, failure, exc_info=failure)
            self.count(failure, profile)
            return Failure.error(str(failure))
        if isinstance(failure, SchedulerError):
            return Failure.error(str(failure))
        logger.error("the attempt for %s failed", pod.key, exc_info=failure)
        return Failure.error(f"{type(failure).__name__}: {failure}")

    def count(self, failure: PluginFailure, profile: ServedProfile) -> None:
        """Count a plugin that broke."""
        labels = (failure.plugin, failure.point, profile.scheduler_name)
        self._metrics.plugin_failures.labels(*labels).inc()

    def handle(
        self, queued: QueuedPod, profile: ServedProfile, failure: Failure, started_seconds: float
    ) -> None:
        """Put the pod back where it belongs and report (`handleSchedulingFailure`)."""
        self.carry_out(requeue(self._world, queued, failure), queued, profile, started_seconds)

    def carry_out(
        self, effects: Effects, queued: QueuedPod, profile: ServedProfile, started_seconds: float
    ) -> None:
        """Do what an attempt without a node has left to do in the cluster."""
        pod, failure = queued.pod, effects.failure
        if failure is not None:
            seconds = self._world.clock.monotonic() - started_seconds
            result = "unschedulable" if failure.rejected else "error"
            self._metrics.profile(profile.scheduler_name).attempt(result, seconds)
        for raised in effects.plugin_failures:
            logger.error("%s: %s", pod.key, raised, exc_info=raised)
            self.count(raised, profile)
        if effects.evict is not None:
            self._preemption.start(effects.evict)
        if effects.api_call is not None:
            self._dispatcher.api_calls.start(effects.api_call)
        if self._without_profile.take_out(pod):
            # Its profile went during the attempt; that is what there is to say now.
            return
        if self._world.profiles.is_observed(pod):
            # Its profile observes by now: what became of the attempt is not for the cluster.
            return
        self._dispatcher.recorder.event(
            pod_reference(pod),
            "Warning",
            "FailedScheduling",
            "Scheduling",
            effects.event,
            reporting_controller=profile.scheduler_name,
        )
        if effects.patch is not None:
            self._dispatcher.reports.put(effects.patch)
