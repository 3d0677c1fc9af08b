"""From an assumed pod to a bound one, or back to the queue.

`schedule_one` starts one task per decided pod: Permit, PreBind, Bind, PostBind. What fails is
undone in the order reserve undone, pod forgotten, requeued, event written. Invariant: when the task
ends, the pod is bound or back in its place in the queue, unless the process is ending.
"""

import asyncio
import logging

from stellwerk.errors import SchedulerError
from stellwerk.framework.diagnosis import Diagnosis, fit_error, rejecting_plugins
from stellwerk.framework.services import pod_reference
from stellwerk.framework.status import Code, Status
from stellwerk.framework.status_column import StatusColumn
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.attempt import Attempt
from stellwerk.scheduler.attempt_failures import AttemptFailures, Failure
from stellwerk.scheduler.parts import Parts
from stellwerk.scheduler.pod_status import NominatingInfo, nomination_patch
from stellwerk.scheduler.waiting_pods import PermitWaitingPod

logger = logging.getLogger(__name__)


class BindingCycle:
    """See the module docstring."""

    def __init__(self, parts: Parts, failures: AttemptFailures) -> None:
        self._parts = parts
        self._failures = failures

    async def run(self, attempt: Attempt, assumed: PodInfo) -> None:
        """Bind the pod, or undo everything."""
        parts = self._parts
        try:
            failure = await self._bind(attempt, assumed)
        except asyncio.CancelledError:
            reason = parts.bindings.cancelled_because(assumed.uid)
            if not reason:
                # The process is ending: the next one finds the pod in the API, bound or not.
                self._release(attempt, assumed)
                raise
            failure = Failure.error(f"binding was cancelled: {reason}")
        except Exception as unexpected:  # noqa: BLE001 the top of the task
            failure = self._failures.unexpected(unexpected, assumed)
        finally:
            parts.waiting.release(assumed.uid)
        if failure is not None:
            self.undo(attempt, assumed, failure)
            return
        self._bound(attempt, assumed)
        binding, state = attempt.framework.binding, attempt.state
        for broken in await binding.post_bind(state, assumed, assumed.node_name):
            logger.error("%s is bound; %s", assumed.key, broken, exc_info=broken)
            self._failures.count(broken, assumed)
        self._activate(attempt)

    def undo(self, attempt: Attempt, assumed: PodInfo, failure: Failure) -> None:
        """Unreserve, forget, requeue, say so; and wake who waits for the room.

        A rejected pod is back before that, and is not woken by its own leaving
        (`handleBindingCycleError`).
        """
        parts = self._parts
        freed = self._release(attempt, assumed)
        if freed and not failure.rejected:
            parts.room_freed(assumed)
        self._requeue(attempt, failure)
        if freed and failure.rejected:
            parts.room_freed(assumed, except_itself=True)

    def undo_reserve(self, attempt: Attempt, assumed: PodInfo, failure: Failure) -> None:
        """The same within the scheduling cycle: nobody has seen the room taken."""
        self._release(attempt, assumed)
        self._requeue(attempt, failure)

    # --- one after the other --------------------------------------------------------------------

    async def _bind(self, attempt: Attempt, assumed: PodInfo) -> Failure | None:
        """Run the points up to Bind; returns what failed."""
        parts, binding, state = self._parts, attempt.framework.binding, attempt.state
        uid, node_name = assumed.uid, assumed.node_name
        # Why it waited is history, and must not be written after what the binding writes.
        await parts.reports.settle(uid)
        status, waits = await binding.permit(state, assumed, node_name)
        held = parts.waiting.hold(assumed, waits) if status.code is Code.WAIT else None
        if held is None and not status.ok:
            return not_permitted(status)
        self._activate(attempt)
        flight = binding.pre_bind_pre_flight(state, assumed, node_name)
        if not flight.ok and not flight.skip:
            return Failure.error(flight.message)
        if flight.ok or held is not None:
            # It may take long: say where the pod is bound to go, e.g. to a cluster autoscaler.
            await self._announce(attempt, node_name)
        if held is not None:
            status = await self._wait_on_permit(held)
            if not status.ok:
                return not_permitted(status)
        # Nothing after this can call the pod unschedulable: changes need not be remembered for it.
        parts.queue.done(uid)
        if flight.ok:
            with parts.bindings.waiting(uid), parts.bindings.cancellable(uid):
                status = await binding.pre_bind(state, assumed, node_name)
            reason = parts.bindings.cancelled_because(uid)
            if reason:
                return Failure.error(f"binding was cancelled: {reason}")
        else:
            status = await binding.pre_bind(state, assumed, node_name)
        if not status.ok:
            return _not_bound(status)
        by_extender = (
            await attempt.extenders.bind(assumed, node_name) if attempt.extenders else None
        )
        status = by_extender or await binding.bind(state, assumed, node_name)
        return None if status.ok else _not_bound(status)

    async def _wait_on_permit(self, held: PermitWaitingPod) -> Status:
        parts = self._parts
        waited_since = parts.clock.monotonic()
        with parts.bindings.waiting(held.pod.uid):
            status = await held.answer()
        result = "Success" if status.ok else "Unschedulable" if status.rejected else "Error"
        waited_seconds = parts.clock.monotonic() - waited_since
        parts.metrics.permit_wait_duration.labels(result).observe(waited_seconds)
        if status.code is Code.ERROR:
            reason = f"waiting on permit for pod: {status.message}"
            return Status(Code.ERROR, (reason,), status.plugin)
        return status

    async def _announce(self, attempt: Attempt, node_name: str) -> None:
        pod = attempt.pod
        patch = nomination_patch(pod, NominatingInfo(node_name))
        if not patch:
            return
        attempt.announced = True
        try:
            await self._parts.client.patch_pod_status(pod.namespace, pod.name, {"status": patch})
        except SchedulerError as failure:
            logger.warning("cannot nominate %s to %s: %s", pod.key, node_name, failure)

    def _activate(self, attempt: Attempt) -> None:
        """Move the pods that plugins named to activeQ, once each."""
        parts, wanted = self._parts, attempt.state.pods_to_activate
        if wanted:
            parts.queue.activate(list(wanted.values()), parts.clock.monotonic())
            wanted.clear()

    # --- how it ends ----------------------------------------------------------------------------

    def _bound(self, attempt: Attempt, assumed: PodInfo) -> None:
        parts, now = self._parts, self._parts.clock.monotonic()
        if parts.cache.is_assumed(assumed.uid):
            parts.unconfirmed[assumed.uid] = now
        logger.debug(
            "%s is bound to %s (%d nodes evaluated, %d feasible)",
            assumed.key,
            assumed.node_name,
            attempt.evaluated,
            attempt.feasible,
        )
        parts.recorder.event(
            pod_reference(attempt.pod),
            "Normal",
            "Scheduled",
            "Binding",
            f"Successfully assigned {assumed.key} to {assumed.node_name}",
            reporting_controller=assumed.spec.scheduler_name,
        )
        parts.observe_scheduled(attempt.queued, now, attempt.started_seconds)

    def _requeue(self, attempt: Attempt, failure: Failure) -> None:
        failure.nomination = NominatingInfo("", in_any_case=attempt.announced)
        self._failures.handle(attempt.queued, failure, attempt.started_seconds)

    def _release(self, attempt: Attempt, assumed: PodInfo) -> bool:
        """Undo Reserve and forget the pod; True if it was still assumed."""
        binding, node_name = attempt.framework.binding, assumed.node_name
        for broken in binding.unreserve(attempt.state, assumed, node_name):
            logger.error("undoing the reservation of %s: %s", assumed.key, broken, exc_info=broken)
            self._failures.count(broken, assumed)
        return self._parts.cache.forget_pod(assumed.uid) is not None


def not_permitted(status: Status) -> Failure:
    """What a rejection by Reserve or Permit means: no room on the one node there was."""
    if not status.rejected:
        return Failure.error(status.message)
    unschedulable, pending = rejecting_plugins([status])
    diagnosis = Diagnosis((0,), StatusColumn.of([status]), "", unschedulable, pending)
    return Failure(fit_error(diagnosis), unschedulable, pending, rejected=True)


def _not_bound(status: Status) -> Failure:
    """What a rejection by PreBind or Bind means: another attempt after a backoff, no hint."""
    return Failure(status.message, rejected=status.rejected)
