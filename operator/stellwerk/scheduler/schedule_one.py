"""One pod's way from the head of the queue to its node. START HERE.

`schedule_one` reads like the diagram in the design: a cycle decides on the snapshot, the decision
is assumed in the cache, a task of its own binds. Called by the scheduling coroutine, in series.
Invariant: whatever happens, the pod ends in exactly one place: bound, waiting in a queue, or gone.
"""

import logging
from dataclasses import dataclass

import numpy as np

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.errors import SchedulerError
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.interface import Diagnosis, PostFilterResult, pod_reference
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.runtime import Framework
from stellwerk.framework.status import Code, Status
from stellwerk.framework.verdicts import fit_error, rejecting_plugins
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.attempt_failures import AttemptFailures, Failure
from stellwerk.scheduler.extenders import ProfileExtenders, Rejections
from stellwerk.scheduler.parts import Parts
from stellwerk.scheduler.pod_status import Nomination, nomination_patch
from stellwerk.scheduler.preemption import narrowed
from stellwerk.snapshot.node_view import NodeView

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Attempt:
    """One scheduling attempt of one pod."""

    queued: QueuedPod
    framework: Framework
    extenders: ProfileExtenders | None
    state: CycleState
    started_seconds: float

    @property
    def pod(self) -> PodInfo:
        """The pod as it left the queue."""
        return self.queued.pod


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

    async def schedule_one(self, queued: QueuedPod) -> None:
        """Decide for one pod; its binding goes on in a task."""
        parts, pod = self._parts, queued.pod
        framework = parts.profiles.framework(pod.spec.scheduler_name)
        if framework is None or self._needless(pod):
            parts.queue.done(pod.uid)
            return
        extenders = parts.profiles.extenders(pod.spec.scheduler_name)
        started_seconds = parts.clock.monotonic()
        attempt = Attempt(queued, framework, extenders, CycleState(), started_seconds)
        try:
            with parts.profiles.unchanged():
                decision = await self._scheduling_cycle(attempt)
        except Exception as failure:  # noqa: BLE001 one attempt must not end the coroutine
            decision = Decision(failure=_unexpected(failure))
        parts.profiles.decided(pod.spec.scheduler_name, parts.clock.monotonic())
        if decision.failure is not None:
            self._failures.handle(attempt.queued, decision.failure, attempt.started_seconds)
            return
        await self._commit(attempt, decision.node_name)

    def _needless(self, pod: PodInfo) -> bool:
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
        nominated = snapshot.row_of.get(pod.nominated_node_name)
        promised = nominated is not None and bool(found.fits[nominated])
        if promised and attempt.extenders:
            promised = await attempt.extenders.accept(pod, pod.nominated_node_name)
        if promised:
            return Decision(pod.nominated_node_name)
        rejections = Rejections()
        if attempt.extenders:
            rejections = await attempt.extenders.filter(pod, found, snapshot)
        if not found.fits.any():
            diagnosis = rejections.added_to(framework.diagnose(found, pod), snapshot)
            return Decision(failure=await self._no_node(attempt, diagnosis))
        view = found.view(NodeView(snapshot))
        if len(view) == 1:
            return Decision(snapshot.node_at(int(view.row_numbers()[0])).name)
        scores = framework.prioritize(attempt.state, pod, view)
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
        post = PostFilterResult(Status())
        if diagnosis.rows:
            post = attempt.framework.run_post_filters(attempt.state, pod, diagnosis)
            parts.metrics.preemption_attempts.labels().inc()
        if post.candidates and attempt.extenders:
            post = await narrowed(pod, post, attempt.extenders.extenders)
        message = fit_error(diagnosis, post.status.message)
        nomination = Nomination("") if post.clear_nomination else None
        if post.status.ok and post.candidates:
            chosen = parts.preemptor.start(pod, post, attempt.framework)
            nomination = Nomination(chosen) if chosen else nomination
        return Failure(
            message=message,
            unschedulable_plugins=diagnosis.unschedulable_plugins,
            pending_plugins=diagnosis.pending_plugins,
            nomination=nomination,
            rejected=True,
        )

    # --- assume, and hand over to a binding task ------------------------------------------------

    async def _commit(self, attempt: Attempt, node_name: str) -> None:
        """Assume, Reserve and Permit; then the pod is out of the coroutine's hands."""
        parts, framework = self._parts, attempt.framework
        assumed = attempt.pod.with_node(node_name)
        try:
            # Before binding: the next cycle must already count its requests.
            parts.cache.assume_pod(assumed)
        except ValueError as failure:
            self._failures.handle(
                attempt.queued, Failure.error(str(failure)), attempt.started_seconds
            )
            return
        parts.queue.nominator.remove(assumed.uid)
        try:
            status = framework.binding.reserve(attempt.state, assumed, node_name)
            if status.ok:
                status, waits = await framework.binding.permit(attempt.state, assumed, node_name)
        except PluginFailure as failure:
            status = Status(Code.ERROR, (str(failure),), failure.plugin)
        if status.code is Code.WAIT:
            parts.waiting.hold(assumed, waits)
        elif not status.ok:
            self._undo(attempt, assumed, status)
            return
        parts.queue.done(assumed.uid)
        if attempt.state.pods_to_activate:
            parts.queue.activate(attempt.state.pods_to_activate.values(), parts.clock.monotonic())
        parts.bindings.start(assumed.uid, self._binding_cycle(attempt, assumed))

    async def _binding_cycle(self, attempt: Attempt, assumed: PodInfo) -> None:
        """Wait on Permit, PreBind, Bind, PostBind; on failure everything is undone."""
        try:
            status = await self._bind(attempt, assumed)
        except PluginFailure as failure:
            status = Status(Code.ERROR, (str(failure),), failure.plugin)
        except BaseException:
            # Cancelled by preemption or shutdown: the books are put right before it goes on.
            self._undo(attempt, assumed, Status(Code.ERROR, ("binding was cancelled",)))
            raise
        finally:
            self._parts.waiting.release(assumed.uid)
        if not status.ok:
            self._undo(attempt, assumed, status)
            return
        self._bound(attempt, assumed)
        try:
            await attempt.framework.binding.post_bind(attempt.state, assumed, assumed.node_name)
        except PluginFailure as failure:
            logger.warning("%s is bound; %s", assumed.key, failure)

    async def _bind(self, attempt: Attempt, assumed: PodInfo) -> Status:
        parts, binding, state = self._parts, attempt.framework.binding, attempt.state
        node_name = assumed.node_name
        flight = binding.pre_bind_pre_flight(state, assumed, node_name)
        if not flight.ok and not flight.skip:
            return flight
        held = parts.waiting.held(assumed.uid)
        if flight.ok or held is not None:
            # It may take long: say where the pod is bound to go, e.g. to a cluster autoscaler.
            await self._announce(attempt.pod, node_name)
        if held is not None:
            waited_since = parts.clock.monotonic()
            status = await held.answer()
            parts.metrics.permit_wait_duration.labels(
                "Success" if status.ok else "Unschedulable"
            ).observe(parts.clock.monotonic() - waited_since)
            if not status.ok:
                return status
        if flight.ok:
            status = await binding.pre_bind(state, assumed, node_name)
            if not status.ok:
                return status
        bound = await attempt.extenders.bind(assumed, node_name) if attempt.extenders else None
        return bound or await binding.bind(state, assumed, node_name)

    async def _announce(self, pod: PodInfo, node_name: str) -> None:
        patch = nomination_patch(pod, Nomination(node_name))
        if patch:
            try:
                await self._parts.client.patch_pod_status(
                    pod.namespace, pod.name, {"status": patch}
                )
            except SchedulerError as failure:
                logger.warning("cannot nominate %s to %s: %s", pod.key, node_name, failure)

    def _bound(self, attempt: Attempt, assumed: PodInfo) -> None:
        parts, queued = self._parts, attempt.queued
        now = parts.clock.monotonic()
        parts.unconfirmed[assumed.uid] = now
        parts.recorder.event(
            pod_reference(attempt.pod),
            "Normal",
            "Scheduled",
            "Binding",
            f"Successfully assigned {assumed.key} to {assumed.node_name}",
            reporting_controller=assumed.spec.scheduler_name,
        )
        parts.observe_scheduled(queued, now, attempt.started_seconds)

    def _undo(self, attempt: Attempt, assumed: PodInfo, status: Status) -> None:
        """Unreserve, forget, wake who waits for the room, requeue, and say so."""
        parts = self._parts
        for broken in attempt.framework.binding.unreserve(
            attempt.state, assumed, assumed.node_name
        ):
            logger.error("undoing the reservation of %s: %s", assumed.key, broken)
        parts.forget(assumed)
        if status.rejected:
            unschedulable, pending = rejecting_plugins([status])
            diagnosis = Diagnosis((0,), (status,), "", unschedulable, pending)
            failure = Failure(fit_error(diagnosis), unschedulable, pending, rejected=True)
        else:
            failure = Failure.error(status.message)
        failure.nomination = Nomination("")
        self._failures.handle(attempt.queued, failure, attempt.started_seconds)


def _unexpected(failure: Exception) -> Failure:
    if isinstance(failure, SchedulerError):
        return Failure.error(str(failure))
    logger.error("scheduling cycle failed", exc_info=failure)
    return Failure.error(f"{type(failure).__name__}: {failure}")
