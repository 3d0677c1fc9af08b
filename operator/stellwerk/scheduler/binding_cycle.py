"""From an assumed pod to a bound one, or back to the queue.

`ScheduleOne` and `SubmitGroupResult` run one `BindingCycle.run` for each decided pod, in a task of
its own (`binding_tasks`): Permit, where the pod may wait (`waiting_pods_map`), PreBind, Bind,
PostBind. `undo_binding` undoes what fails. If it is not known whether a binding took place, the API
is asked (`binding_outcomes`). Invariant: when the task ends, the pod is bound or back in its place
in the queue, unless the process is ending.

A binding reacts to little that happens meanwhile. Preemption ends it while it waits on Permit or is
in PreBind, the deletion of the pod only while it waits on Permit, and too few members of its group
while it waits for them. Otherwise the API server refuses a pod that is being deleted. Node and
profile are not looked at again, except that VolumeBinding gives up if the node is gone while it
waits for volumes. The request is sent even if the node is gone, and the pod counts there until its
own deletion (`Cache.remove_node`). Nor are other pods looked at again: if another scheduler fills
the node meanwhile, the binding is sent, and it is the kubelet that refuses what has no room.
"""

import logging
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from stellwerk.backend.queued_pod import BindingStage, QueuedPod
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
from stellwerk.scheduler.waiting_pods_map import PermitWaitingPod, WaitingPodsMap
from stellwerk.world.decide import Failure, release, undo_binding
from stellwerk.world.gangs.group_reservation import kept_node
from stellwerk.world.pod_status import NominatingInfo, nomination_patch
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.errors import SchedulerError

logger = logging.getLogger(__name__)

_FOR_THE_SERVER: Final = ("the API server to accept the binding",)
"""The text that explanations show for a binding at the point Bind."""


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
    """The number of nodes that the filters have seen."""
    feasible: int
    """The number of nodes that passed them."""
    waiting: PermitWaitingPod | None = None
    """Set when Permit has answered Wait."""
    permit: GroupPermit | None = None
    """The other members of a group that the binding waits for; None: it waits for none."""
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
            await self._bind_or_undo(attempt)
        finally:
            attempt.profile.framework.metrics_recorder.attempt(attempt.state)

    async def _bind_or_undo(self, attempt: BindingAttempt) -> None:
        assumed, profile = attempt.assumed, attempt.profile
        try:
            failure = await self._bind(attempt)
        except CancelledError:
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
            if attempt.permit is not None:
                attempt.permit.lose(failure.message)
            self._undo(attempt, failure)
            return
        self._bound(attempt)
        points = profile.framework.binding
        for broken in await points.post_bind(attempt.state, assumed, assumed.node_name):
            logger.error("%s is bound; %s", assumed.key, broken, exc_info=broken)
            self.failures.count(broken, profile)
        if attempt.state.pods_to_activate:
            self._activate(attempt)

    async def _bind(self, attempt: BindingAttempt) -> Failure | None:  # noqa: C901, PLR0912 point after point
        """Run Permit, PreBind and Bind, in this order; returns what failed.

        A refusal by Permit counts as a rejection. To the queue, a failure after Permit is an error,
        even if a status rejects (`Failure.not_bound`): for example a 409 of the API, which
        DefaultBinder answers as an error status, or a claim that could not be written. After a lost
        answer, `KubernetesClient.bind` reads the pod before it takes a 409 for a failure.
        """
        profile, state, assumed = attempt.profile, attempt.state, attempt.assumed
        points = profile.framework.binding
        uid, node_name = assumed.uid, assumed.node_name
        self.bindings.stages[uid] = BindingStage("Bind", attempt.started_seconds, _FOR_THE_SERVER)
        reports = self.dispatcher.reports
        if uid in reports.pending or uid in reports.writing:
            # The report says why the pod was pending. Written after the binding it would contradict
            # it, so it is dropped, or waited for if it is being written.
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
            # The binding may take long: a cluster autoscaler must know the node before its end.
            await self._announce(attempt)
            status = await self._wait_on_permit(attempt.waiting)
            if not status.ok:
                return Failure.not_permitted(status)
        # From here on a failure is an error to the queue, even if a status rejects: it need not
        # keep the events that come meanwhile, because no hint will be asked about this attempt.
        self.world.queue.done(uid)
        if flight.ok:
            status = await self._pre_bind_cancellable(attempt)
        else:
            status = await points.pre_bind(state, assumed, node_name)
        if status.ok and attempt.permit is not None:
            status = await self._wait_for_group(attempt.permit, assumed)
        if not status.ok:
            return Failure.not_bound(status)
        if flight.ok or attempt.waiting is not None or attempt.permit is not None:
            # The stage Bind was noted at the beginning, and holds for most pods: only after a wait
            # is it noted again, so that a pod without one costs no second call.
            self._waits(uid, "Bind", *_FOR_THE_SERVER)
        extenders = profile.extenders
        by_extender = await extenders.bind(assumed, node_name) if extenders is not None else None
        status = by_extender or await points.bind(state, assumed, node_name)
        if status.ok:
            return None
        # An extender's error tells nothing about the API, and an answer may have been lost.
        is_unknown = by_extender is not None or state.bind_outcome_unknown
        is_bound = is_unknown and await self.outcomes.is_bound(assumed)
        return None if is_bound else Failure.not_bound(status)

    def send_back(self, is_given_up: Callable[[PodInfo], bool]) -> None:
        """Send these of the pods that wait on Permit back to the queue."""
        for waiting in self.waiting_pods.all():
            if is_given_up(waiting.pod):
                self.waiting_pods.send_back(waiting.pod.uid, "another scheduler serves the pod")

    # --- how it ends ----------------------------------------------------------------------------

    def _bound(self, attempt: BindingAttempt) -> None:
        """Record the event Scheduled and the metrics, and expect the watch to show the binding."""
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
        """Undo a binding that failed, and report it (`handleBindingCycleError`).

        `undo_binding` has the order: Unreserve of each plugin, the cache forgets the pod, others
        are woken as by its end, and it goes to podErrorBackoffQ, or to the unschedulable ones where
        Permit rejected it. Then `FailureHandler.carry_out` records the event FailedScheduling and
        puts the condition PodScheduled=False, whose reason is SchedulerError after an error. The
        room stays a member's whose gang is being bound: others of its priority would take it.
        """
        profile, node_name = attempt.profile, ""
        if attempt.assumed.group is not None and not failure.rejected:
            is_permitted = attempt.permit is not None and attempt.permit.is_given
            node_name = kept_node(self.world, profile, attempt.assumed, is_permitted=is_permitted)
        failure.nomination = NominatingInfo(node_name, in_any_case=attempt.announced)
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

    def take_back(self, pod: PodInfo) -> None:
        """Undo a binding that was answered and that the API does not have, or has no more.

        Unreserve gets an empty state: the state of the attempt is not kept after its binding.
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
            world.wake_after_forgetting(pod)

    # --- steps ----------------------------------------------------------------------------------

    async def _wait_for_group(self, permit: GroupPermit, assumed: PodInfo) -> Status:
        """Wait until enough members of the group are ready to be bound; returns OK, or why not."""
        if permit.is_decided:
            reason = await permit.arrive()
        else:
            uid, key = assumed.uid, assumed.group
            whose = f'the pod group "{key.name}"' if key is not None else "its pod group"
            self._waits(uid, "PreBind", f"enough members of {whose} to be ready to be bound")
            with self.bindings.slot_released(uid):
                reason = await permit.arrive()
        if not reason:
            return OK
        return Status(Code.ERROR, (f"cannot bind enough pods of the group: {reason}",))

    async def _wait_on_permit(self, waiting: PermitWaitingPod | None) -> Status:
        """Wait for the answer to a waiting pod; returns OK at once for a pod that does not wait."""
        if waiting is None:
            return OK
        now = self.world.clock.monotonic
        waited_since = now()
        plugins = [f"the plugin {each} to allow it" for each in waiting.pending_plugins]
        self._waits(waiting.pod.uid, "Permit", *plugins)
        with self.bindings.slot_released(waiting.pod.uid):
            status = await waiting.answer()
        result = "Success" if status.ok else "Unschedulable" if status.rejected else "Error"
        self.metrics.permit_wait_duration.labels(result).observe(now() - waited_since)
        if status.code is Code.ERROR:
            reason = f"waiting on permit for pod: {status.message}"
            return Status(Code.ERROR, (reason,), status.plugin)
        return status

    def _waits(self, uid: str, point: Literal["Permit", "PreBind", "Bind"], *what: str) -> None:
        """Note what a binding waits for from now on; explanations show it."""
        self.bindings.stages[uid] = BindingStage(point, self.world.clock.monotonic(), what)

    async def _pre_bind_cancellable(self, attempt: BindingAttempt) -> Status:
        """Run PreBind plugins that have work to do; preemption may cancel the binding meanwhile."""
        assumed, bindings = attempt.assumed, self.bindings
        points = attempt.profile.framework.binding
        self._waits(assumed.uid, "PreBind")
        with bindings.slot_released(assumed.uid), bindings.cancellable(assumed.uid):
            status = await points.pre_bind(attempt.state, assumed, assumed.node_name)
        reason = bindings.cancelled_because(assumed.uid)
        return Status(Code.ERROR, (f"binding was cancelled: {reason}",)) if reason else status

    async def _announce(self, attempt: BindingAttempt) -> None:
        """Write the node into the pod's status ahead of the binding."""
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
