"""One pod's way from the head of the queue to its node. START HERE.

`schedule_one` reads like the diagram in the design: a cycle decides on the snapshot, the decision
is assumed in the cache, a task of its own binds (`binding_cycle`). Called by the scheduling
coroutine, in series. Invariant: whatever happens, the pod ends in exactly one place: bound, waiting
in a queue, or gone.
"""

import logging
from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.diagnosis import Diagnosis, fit_error
from stellwerk.framework.interface import PostFilterResult
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.services import pod_reference
from stellwerk.framework.status import Code, Status
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.attempt import Attempt
from stellwerk.scheduler.attempt_failures import AttemptFailures, Failure
from stellwerk.scheduler.binding_cycle import BindingCycle, not_permitted
from stellwerk.scheduler.extenders.profile_extenders import Rejections
from stellwerk.scheduler.observers.decision_log import TRACE, trace_scores
from stellwerk.scheduler.parts import Parts
from stellwerk.scheduler.pod_status import NominatingInfo
from stellwerk.scheduler.preemption import narrowed
from stellwerk.snapshot.node_view import NodeView

logger = logging.getLogger(__name__)

SAMPLED_ATTEMPTS: Final = 10
"""One attempt in so many times each plugin (`pluginMetricsSamplePercent`)."""


@dataclass(frozen=True, slots=True)
class Decision:
    """A node for the pod, or why there is none."""

    node_name: str = ""
    failure: Failure | None = None


class ScheduleOne:
    """The cycle and the binding, with everything they need."""

    def __init__(self, parts: Parts, failures: AttemptFailures) -> None:
        self._parts = parts
        self._failures = failures
        self._binding = BindingCycle(parts, failures)
        self._algorithm_duration = parts.metrics.scheduling_algorithm_duration.labels()
        self._attempts = 0

    async def schedule_one(self, queued: QueuedPod) -> None:
        """Decide for one pod; its binding goes on in a task."""
        parts, pod = self._parts, queued.pod
        framework = parts.profiles.framework(pod.spec.scheduler_name)
        if framework is None:
            parts.unserved.lay_down_if_unserved(pod)
            return
        if self._skip_pod_schedule(pod):
            parts.queue.done(pod.uid)
            return
        extenders = parts.profiles.extenders(pod.spec.scheduler_name)
        started_seconds = parts.clock.monotonic()
        self._attempts += 1
        state = CycleState(sampled=self._attempts % SAMPLED_ATTEMPTS == 0)
        attempt = Attempt(queued, framework, extenders, state, started_seconds)
        try:
            with parts.profiles.unchanged():
                decision = await self._scheduling_cycle(attempt)
        except Exception as failure:  # noqa: BLE001 one attempt must not end the coroutine
            decision = Decision(failure=self._failures.unexpected(failure, pod))
        decided_seconds = parts.clock.monotonic()
        self._algorithm_duration.observe(decided_seconds - started_seconds)
        parts.profiles.decided(pod.spec.scheduler_name, decided_seconds)
        if decision.failure is not None:
            self._failures.handle(attempt.queued, decision.failure, attempt.started_seconds)
            return
        self._assume_and_reserve(attempt, decision.node_name)

    def _skip_pod_schedule(self, pod: PodInfo) -> bool:
        """Whether the pod is going away or assumed already (`skipPodSchedule`)."""
        parts = self._parts
        if pod.terminating:
            parts.recorder.event(
                pod_reference(pod),
                "Warning",
                "FailedScheduling",
                "Scheduling",
                f"skip schedule deleting pod: {pod.key}",
                reporting_controller=pod.spec.scheduler_name,
            )
            return True
        return parts.cache.is_assumed(pod.uid)

    # --- the scheduling cycle -------------------------------------------------------------------

    async def _scheduling_cycle(self, attempt: Attempt) -> Decision:
        """Filter, score, choose. Awaits only where the profile has extenders."""
        framework, pod = attempt.framework, attempt.pod
        snapshot = self._parts.cache.update_snapshot()
        found = framework.find_feasible(pod, attempt.state)
        if found.pre_filter.code is Code.ERROR:
            return Decision(failure=Failure.error(found.pre_filter.message))
        takes_nominated = found.nominated_row(pod, snapshot) is not None
        if takes_nominated and attempt.extenders:
            takes_nominated = await attempt.extenders.accept(pod, pod.nominated_node_name)
        attempt.evaluated = found.evaluated
        if takes_nominated:
            attempt.feasible = 1
            return Decision(pod.nominated_node_name)
        rejections = Rejections()
        if attempt.extenders:
            rejections = await attempt.extenders.filter(pod, found, snapshot)
        if not found.fits.any():
            diagnosis = rejections.added_to(framework.diagnose(found, pod), snapshot)
            return Decision(failure=await self._no_node(attempt, diagnosis))
        view = found.view(NodeView(snapshot))
        attempt.feasible = len(view)
        if len(view) == 1:
            return Decision(snapshot.node_at(int(view.row_numbers()[0])).name)
        scores = framework.prioritize(attempt.state, pod, view)
        if logger.isEnabledFor(TRACE):
            trace_scores(logger, pod, scores, snapshot)
        total = scores.total
        if attempt.extenders:
            total = total + await attempt.extenders.prioritize(pod, view)
        best = np.flatnonzero(total == total.max())
        chosen = int(best[framework.handle.random(len(best))]) if len(best) > 1 else int(best[0])
        row = chosen if view.whole else int(view.row_numbers()[chosen])
        return Decision(snapshot.node_at(row).name)

    async def _no_node(self, attempt: Attempt, diagnosis: Diagnosis) -> Failure:
        """No node fits: ask the PostFilter plugins, which may find victims."""
        pod, parts = attempt.pod, self._parts
        broken = _broken_filter(diagnosis)
        if broken is not None:
            return Failure.error(f'running "{broken.plugin}" filter plugin: {broken.message}')
        post = PostFilterResult(Status())
        if diagnosis.rows:
            post = attempt.framework.run_post_filters(attempt.state, pod, diagnosis)
            parts.metrics.preemption_attempts.labels().inc()
        if post.candidates and attempt.extenders:
            post = await narrowed(pod, post, attempt.extenders.extenders)
        message = fit_error(diagnosis, post.status.message)
        nomination = NominatingInfo("") if post.clear_nomination else None
        if post.status.ok and post.candidates:
            chosen = parts.preemptor.start(pod, post, attempt.framework)
            nomination = NominatingInfo(chosen) if chosen else nomination
        return Failure(
            message=message,
            unschedulable_plugins=diagnosis.unschedulable_plugins,
            pending_plugins=diagnosis.pending_plugins,
            nomination=nomination,
            rejected=True,
        )

    # --- assume, and hand over to a binding task ------------------------------------------------

    def _assume_and_reserve(self, attempt: Attempt, node_name: str) -> None:
        """Assume and Reserve; then the pod is out of the coroutine's hands.

        Permit is asked in the first step of the binding task, which comes before the next cycle: a
        plugin that waits for something there holds up nobody else.
        """
        parts, framework = self._parts, attempt.framework
        assumed = attempt.pod.with_node(node_name)
        try:
            # Before binding: the next cycle must already count its requests.
            parts.cache.assume_pod(assumed)
        except ValueError as refused:
            failure = Failure.error(str(refused))
            self._failures.handle(attempt.queued, failure, attempt.started_seconds)
            return
        parts.queue.nominator.remove(assumed.uid)
        try:
            status = framework.binding.reserve(attempt.state, assumed, node_name)
        except PluginFailure as broken:
            failure = self._failures.unexpected(broken, assumed)
            self._binding.undo_reserve(attempt, assumed, failure)
            return
        if not status.ok:
            self._binding.undo_reserve(attempt, assumed, not_permitted(status))
            return
        parts.bindings.start(assumed.uid, self._binding.run(attempt, assumed))


def _broken_filter(diagnosis: Diagnosis) -> Status | None:
    """A node's status that is an error: then nobody knows whether the pod fits."""
    for status in diagnosis.statuses.counts():
        if not status.ok and not status.rejected:
            return status
    return None
