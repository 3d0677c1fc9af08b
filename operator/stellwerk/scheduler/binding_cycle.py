"""From an assumed pod to a bound one, or back to the queue.

`schedule_one` starts one task per decided pod: Permit, PreBind, Bind, PostBind. What fails is
undone in the order reserve undone, pod forgotten, requeued, event written. Invariant: when the task
ends, the pod is bound or back in its place in the queue, unless the process is ending.
"""

import asyncio
import logging
from dataclasses import dataclass

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.errors import SchedulerError
from stellwerk.framework.types import OK, Code, CycleState, Status
from stellwerk.metrics import Metrics, attempts_label
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.scheduler.binding_outcomes import BindingOutcomes
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.failure_handler import FailureHandler
from stellwerk.scheduler.gangs.group_permit import GroupPermit
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.scheduler.waiting_pods import PermitWaitingPod, WaitingPodsMap
from stellwerk.world.effects import release, undo_binding
from stellwerk.world.failure import Failure
from stellwerk.world.pod_status import NominatingInfo, nomination_patch
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class BindingAttempt:
    """An attempt that has come to a node; its Decision, whose columns are large, is not kept."""

    queued: QueuedPod
    profile: ServedProfile
    """The version with which it began, whatever is served meanwhile."""
    state: CycleState
    assumed: PodInfo
    """The pod on its node."""
    started_seconds: float
    evaluated: int
    """How many nodes were looked at."""
    feasible: int
    """How many of them took the pod."""
    waiting: PermitWaitingPod | None = None
    """Set when Permit has answered Wait."""
    quorum: GroupPermit | None = None
    """What its binding waits for, if it is placed with others; None: nothing."""
    announced: bool = False
    """Whether the node has been written into the pod's status ahead of the binding."""


@dataclass(slots=True)
class BindingCycle:
    """The points from Permit to PostBind, and the way back from each."""

    world: World
    dispatcher: APIDispatcher
    metrics: Metrics
    bindings: BindingTasks
    outcomes: BindingOutcomes
    waiting_pods: WaitingPodsMap
    preemption: PreemptionExecutor
    failures: FailureHandler

    async def run(self, attempt: BindingAttempt) -> None:
        """Bind the pod, or undo everything."""
        try:
            await self._run(attempt)
        finally:
            attempt.profile.framework.metrics_recorder.attempt(attempt.state)

    async def _run(self, attempt: BindingAttempt) -> None:
        assumed, profile = attempt.assumed, attempt.profile
        try:
            failure = await self._bind(attempt)
        except asyncio.CancelledError:
            reason = self.bindings.cancelled_because(assumed.uid)
            if not reason:
                # The process is ending: the next one finds the pod in the API, bound or not.
                self._release(attempt)
                raise
            failure = Failure.error(f"binding was cancelled: {reason}")
        except Exception as unexpected:  # noqa: BLE001 the top of the task
            failure = self.failures.unexpected(unexpected, assumed, profile)
        finally:
            if attempt.waiting is not None:
                self.waiting_pods.remove(assumed.uid)
        if failure is not None:
            if attempt.quorum is not None:
                attempt.quorum.lose(failure.message)
            self._undo(attempt, failure)
            return
        self._bound(attempt)
        points = profile.framework.binding
        for broken in await points.post_bind(attempt.state, assumed, assumed.node_name):
            logger.error("%s is bound; %s", assumed.key, broken, exc_info=broken)
            self.failures.count(broken, profile)
        if attempt.state.pods_to_activate:
            self._activate(attempt)

    def take_back(self, pod: PodInfo) -> None:
        """Undo a binding that was answered and that the API does not have, or has no more.

        Reserve is undone without the state of the attempt, which is not kept for so long.
        """
        world, uid = self.world, pod.uid
        self.bindings.confirmed(uid)
        queued, profile = world.queue.entries.get(uid), world.profiles.of(pod)
        if queued is not None and profile is not None and uid in world.cache.assumed_pods:
            now = world.clock.monotonic()
            attempt = BindingAttempt(queued, profile, CycleState(), pod, now, 0, 0)
            message = f"the binding to {pod.node_name} was accepted, and the pod is not bound"
            self._undo(attempt, Failure.error(message))
            return
        world.queue.delete(uid)
        if world.cache.remove_pod(uid) is not None:
            self.preemption.on_victim(uid)
            world.on_forgotten(pod)

    # --- one after the other --------------------------------------------------------------------

    async def _bind(self, attempt: BindingAttempt) -> Failure | None:  # noqa: C901 point after point
        """Run the points up to Bind; returns what failed."""
        profile, state, assumed = attempt.profile, attempt.state, attempt.assumed
        points = profile.framework.binding
        uid, node_name = assumed.uid, assumed.node_name
        reports = self.dispatcher.reports
        if uid in reports.pending or uid in reports.writing:
            # Why it was pending is history, and must not be written after what the binding writes.
            await reports.cancel_or_flush(uid)
        status, waits = await points.permit(state, assumed, node_name)
        if status.code is Code.WAIT:
            attempt.waiting = self.waiting_pods.add(assumed, waits)
        elif not status.ok:
            return Failure.not_permitted(status)
        if state.pods_to_activate:
            self._activate(attempt)
        flight = points.pre_bind_pre_flight(state, assumed, node_name)
        if not flight.ok and not flight.skip:
            return Failure.error(flight.message)
        if flight.ok or attempt.waiting is not None:
            # It may take long: say where the pod is bound to go, e.g. to a cluster autoscaler.
            await self._announce(attempt)
            status = await self._wait_on_permit(attempt.waiting)
            if not status.ok:
                return Failure.not_permitted(status)
        # Nothing after this can call the pod unschedulable: changes need not be remembered for it.
        self.world.queue.done(uid)
        if flight.ok:
            status = await self._pre_bind_cancellable(attempt)
        else:
            status = await points.pre_bind(state, assumed, node_name)
        if status.ok and attempt.quorum is not None:
            status = await self._wait_for_group(attempt.quorum, uid)
        if not status.ok:
            return Failure.not_bound(status)
        extenders = profile.extenders
        by_extender = await extenders.bind(assumed, node_name) if extenders is not None else None
        status = by_extender or await points.bind(state, assumed, node_name)
        extended = by_extender is not None
        return None if status.ok else await self._not_bound(status, assumed, state, extended)

    async def _wait_for_group(self, quorum: GroupPermit, uid: str) -> Status:
        """OK as soon as enough of the group is ready to be bound."""
        if quorum.is_decided:
            reason = await quorum.arrive()
        else:
            with self.bindings.slot_released(uid):
                reason = await quorum.arrive()
        if not reason:
            return OK
        return Status(Code.ERROR, (f"cannot bind enough pods of the group: {reason}",))

    async def _not_bound(
        self,
        status: Status,
        assumed: PodInfo,
        state: CycleState,
        by_extender: bool,  # noqa: FBT001
    ) -> Failure | None:
        """The failure; None if the API has the binding all the same."""
        unknown = by_extender or state.bind_outcome_unknown
        if unknown and await self.outcomes.is_bound(assumed):
            return None
        return Failure.not_bound(status)

    async def _wait_on_permit(self, waiting: PermitWaitingPod | None) -> Status:
        """The answer to a waiting pod; OK for one that is not."""
        if waiting is None:
            return OK
        now = self.world.clock.monotonic
        waited_since = now()
        with self.bindings.slot_released(waiting.pod.uid):
            status = await waiting.answer()
        result = "Success" if status.ok else "Unschedulable" if status.rejected else "Error"
        self.metrics.permit_wait_duration.labels(result).observe(now() - waited_since)
        if status.code is Code.ERROR:
            reason = f"waiting on permit for pod: {status.message}"
            return Status(Code.ERROR, (reason,), status.plugin)
        return status

    async def _pre_bind_cancellable(self, attempt: BindingAttempt) -> Status:
        """PreBind where it has work to do, which takes its time and may be cancelled."""
        assumed, bindings = attempt.assumed, self.bindings
        points = attempt.profile.framework.binding
        with bindings.slot_released(assumed.uid), bindings.cancellable(assumed.uid):
            status = await points.pre_bind(attempt.state, assumed, assumed.node_name)
        reason = bindings.cancelled_because(assumed.uid)
        return Status(Code.ERROR, (f"binding was cancelled: {reason}",)) if reason else status

    async def _announce(self, attempt: BindingAttempt) -> None:
        pod, node_name = attempt.queued.pod, attempt.assumed.node_name
        patch = nomination_patch(pod, NominatingInfo(node_name))
        if not patch:
            return
        attempt.announced = True
        try:
            client = self.dispatcher.client
            await client.patch_pod_status(pod.namespace, pod.name, {"status": patch})
        except SchedulerError as failure:
            logger.warning("cannot nominate %s to %s: %s", pod.key, node_name, failure)

    def _activate(self, attempt: BindingAttempt) -> None:
        """Move the pods that plugins named to activeQ, once each."""
        named = attempt.state.pods_to_activate
        self.world.activate(list(named.values()))
        named.clear()

    # --- how it ends ----------------------------------------------------------------------------

    def _bound(self, attempt: BindingAttempt) -> None:
        """The API has the binding: an event, metrics, and the watch is to confirm it."""
        assumed, profile, queued = attempt.assumed, attempt.profile, attempt.queued
        metrics, now = self.metrics, self.world.clock.monotonic()
        if assumed.uid in self.world.cache.assumed_pods:
            self.bindings.unconfirmed[assumed.uid] = now
        key = assumed.key
        logger.debug(
            "%s is bound to %s (%d nodes evaluated, %d feasible)",
            key,
            assumed.node_name,
            attempt.evaluated,
            attempt.feasible,
        )
        self.dispatcher.recorder.event(
            pod_reference(queued.pod),
            "Normal",
            "Scheduled",
            "Binding",
            f"Successfully assigned {key} to {assumed.node_name}",
            reporting_controller=profile.scheduler_name,
        )
        profile.activity.scheduled_pods += 1
        seconds = now - attempt.started_seconds
        attempts = attempts_label(queued.attempts)
        metrics.profile(profile.scheduler_name).attempt("scheduled", seconds)
        metrics.pod_scheduling_attempts.labels().observe(queued.attempts)
        if queued.was_flushed:
            metrics.pod_scheduled_after_flush.labels().inc()
        sli_seconds = now - (queued.initial_attempt_at or now)
        metrics.pod_scheduling_sli_duration.labels(attempts).observe(sli_seconds)

    def _undo(self, attempt: BindingAttempt, failure: Failure) -> None:
        """Undo the binding in the World, and report why it failed."""
        profile = attempt.profile
        failure.nomination = NominatingInfo("", in_any_case=attempt.announced)
        effects = undo_binding(
            self.world,
            attempt.queued,
            (profile.framework, attempt.state),
            attempt.assumed,
            failure,
            self.preemption.on_victim,
        )
        self.failures.carry_out(effects, attempt.queued, profile, attempt.started_seconds)

    def _release(self, attempt: BindingAttempt) -> None:
        """Undo Reserve and forget the pod, and nothing else: the process is ending."""
        profile, assumed = attempt.profile, attempt.assumed
        _, failures = release(self.world, profile.framework, attempt.state, assumed)
        for broken in failures:
            logger.error("undoing the reservation of %s: %s", assumed.key, broken, exc_info=broken)
            self.failures.count(broken, profile)
