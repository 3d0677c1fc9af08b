"""One pod's way from the head of the queue to its node. START HERE.

`ScheduleOne.schedule_one` has kube-scheduler's order: the scheduling cycle finds a node on the
snapshot (`world.decide.decide`); the pod is assumed and reserved there, or put back into the queue
(`world.decide.apply`); Permit and Bind continue in a task of their own (`binding_cycle`).
docs/the-way-of-a-pod.md has the modules before and after. Called by the scheduling coroutine
(`world.loop`), one pod after the other.

Other code runs during a scheduling cycle only where the cycle awaits: for extenders, for filters
that need more than a slice of time, and between the members of a group. If the pod is deleted in
such a moment, it leaves the queue (`EventHandlers._pod_gone`), and its cycle continues:

- The queue does not accept a rejected pod again
  (`SchedulingQueue.add_unschedulable_if_not_present`).
- The API answers a binding with 404, and the binding is undone (`BindingCycle._undo`).
- No further victim is evicted or sent back for it (`PreemptorDeleted`).

If nodes or other pods change, the answers of extenders still belong to the snapshot on which they
were asked, filters that need more than a slice begin anew on a new one, and profiles are not
changed until the cycle has ended (`ProfileLoader.unchanged`).

Invariant: whatever happens, the pod ends in exactly one place: bound, in a queue, or gone.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.records import DecisionRecords, Evictions
from stellwerk.framework.types import CycleState
from stellwerk.logs import ATTEMPT
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.loader import ProfileLoader
from stellwerk.scheduler.binding_cycle import BindingAttempt, BindingCycle
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.scheduler.failure_handler import FailureHandler
from stellwerk.scheduler.gangs.group_conditions import GroupConditions
from stellwerk.scheduler.gangs.group_cycle import GroupCycle
from stellwerk.scheduler.gangs.submit_group_result import (
    GroupEvictions,
    GroupInCycle,
    SubmitGroupResult,
)
from stellwerk.scheduler.observers.decision_log import log_decision
from stellwerk.scheduler.throttle import MIN_COUNTED_SECONDS, NAMESPACE_THROTTLED, Throttle
from stellwerk.scheduler.time_slice import FILTER_SLICE_SECONDS, MAX_SLICES, in_slices
from stellwerk.world.decide import Decision, Effects, Failure, apply, decide
from stellwerk.world.gangs.group_decision import RemainingMembers
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.clock import rfc3339_milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

Observed: TypeAlias = AbstractContextManager[None]

_UNOBSERVED: Final = nullcontext()

ATTEMPTS_PER_SAMPLE: Final = 10
"""One attempt in 10 measures the time of each plugin, as kube-scheduler's
`pluginMetricsSamplePercent` does: reading the clock around each call would cost all of them."""


@dataclass(slots=True)
class _Attempt:
    """An attempt for one pod, from when it was popped until it is assumed or back in the queue."""

    queued: QueuedPod
    profile: ServedProfile
    """The version with which it began, whatever is served meanwhile."""
    state: CycleState
    started_seconds: float
    foreign_seconds: float = 0.0
    """Seconds that foreign plugins of all profiles had taken before."""
    active_since: float | None = None
    """The monotonic time at which the pod came into activeQ; None: it was not there."""
    decided_seconds: float = 0.0
    assumptions: int = 0
    """The number of objects that had been assumed when the decision was made, for shadows."""


class ScheduleOne:
    """Decides, assumes, and hands over to a binding task or to the handler of failures."""

    def __init__(
        self,
        world: World,
        loader: ProfileLoader,
        metrics: Metrics,
        bindings: BindingTasks,
        binding_cycle: BindingCycle,
        failures: FailureHandler,
        throttle: Throttle,
        conditions: GroupConditions,
    ) -> None:
        self._world = world
        self._loader = loader
        self._dispatcher = binding_cycle.dispatcher
        self._metrics = metrics
        self._bindings = bindings
        self._binding_cycle = binding_cycle
        self._failures = failures
        self._throttle = throttle
        self._algorithm_duration = metrics.scheduling_algorithm_duration.labels()
        self._attempts = 0
        self.deciding = ""
        """The uid of the pod that is being decided; empty: none is."""
        self.records = DecisionRecords(world.clock.monotonic)
        self.evictions = Evictions()
        """The last evictions; explanations read them and the records."""
        self.on_decided: Callable[[QueuedPod, Decision], Observed] = lambda *_: _UNOBSERVED
        """Called with a pod and the decision on it. The decision is applied inside the context that
        it returns; a recording sets it."""
        evictions = GroupEvictions(world, binding_cycle.preemption.evictor)
        submit = SubmitGroupResult(
            world,
            bindings,
            binding_cycle,
            failures,
            conditions,
            evictions,
            self._dispatcher,
            self.records,
            throttle,
        )
        self.groups = GroupCycle(
            world, loader, self._dispatcher, metrics, failures, conditions, submit, throttle
        )

    async def schedule_one(self, queued: QueuedPod) -> None:
        """Decide for one pod, or for the group that it belongs to; bindings go on in tasks."""
        pod = queued.pod
        self.deciding = pod.uid
        if pod.details.group is not None and await self._schedule_group(queued):
            pass
        elif pod.terminating or pod.uid in self._world.cache.assumed_pods:
            self._skip_pod_schedule(queued)
        else:
            await self._schedule_pod(queued)
        self.deciding = ""
        ATTEMPT.set(0)

    async def _schedule_group(self, queued: QueuedPod) -> bool:
        """Decide for the group of a pod; False where its profile places no groups."""
        profile = self._world.profiles.of(queued.pod)
        if profile is None or not profile.places_groups:
            return False
        taken = await self.groups.run(queued, profile)
        if taken is not None and taken.remaining is not None:
            # Plugins of a profile that changes between slices could not read what these remember.
            with self._loader.unchanged():
                await self._try_remaining(taken, taken.remaining)
        return True

    async def _schedule_pod(self, queued: QueuedPod) -> None:
        """The scheduling cycle of a pod that was popped, and the start of its binding cycle."""
        world, pod = self._world, queued.pod
        profile = world.profiles.of(pod)
        if profile is None or profile.observes:
            self._give_up(queued, profile)
            return
        # One attempt in ATTEMPTS_PER_SAMPLE measures the time of each plugin.
        self._attempts += 1
        ATTEMPT.set(self._attempts)
        attempt = _Attempt(
            queued,
            profile,
            profile.new_state(pod, sampled=self._attempts % ATTEMPTS_PER_SAMPLE == 0),
            world.clock.monotonic(),
            self._throttle.budget.taken_seconds,
            queued.active_since,
        )
        if reason := self._throttle.begin(pod, profile):
            self._fail(attempt, Failure.throttled(reason))
            return

        decision: Decision | Failure
        try:
            decision = await self._scheduling_cycle(pod, profile, attempt.state)
        except Exception as raised:  # noqa: BLE001 one attempt must not end the coroutine
            decision = self._failures.unexpected(raised, pod, profile)
        self._observe(attempt, decision)
        if isinstance(decision, Failure):
            self._fail(attempt, decision)
            return

        with self.on_decided(queued, decision):
            # Assumed on its node and reserved there, or back in the queue (`assumeAndReserve`).
            effects = apply(world, queued, decision)
        profile.framework.metrics_recorder.attempt(attempt.state)
        self._carry_out(attempt, decision, effects)
        if self._loader.shadows.by_name:
            self._show_shadows(attempt, decision)

    async def _scheduling_cycle(
        self, pod: PodInfo, profile: ServedProfile, state: CycleState
    ) -> Decision | Failure:
        """Find a node on what the cache has now, or victims, or why there is none.

        Awaits only where the profile has extenders, and where filters have more to do than a slice
        of time allows.
        """
        if pod.spec.too_complex:
            return Failure.too_complex(pod.spec)
        world, extenders, throttle = self._world, profile.extenders, self._throttle
        for slices_left in reversed(range(MAX_SLICES)):
            # The last try has no slice (MAX_SLICES says why).
            state.slice_seconds = FILTER_SLICE_SECONDS if slices_left else None
            if throttle.slow_namespaces.spent:  # or else it would be a call for nothing
                state.without_victims = throttle.forgoes_victims(pod)
            world.cache.update_snapshot()
            if extenders is None:
                decision = decide(world, pod, profile, state)
            else:
                with self._loader.unchanged():
                    decision = await decide_with_extenders(world, pod, profile, extenders, state)
            if state.unfinished is None:
                break
            with self._loader.unchanged():
                await in_slices(state.unfinished, world.clock.monotonic)
            state.begin_anew()
        if state.without_victims and state.victims_searched and not decision.node_name:
            return Failure.throttled(NAMESPACE_THROTTLED)
        if decision.post_filter is not None and state.preemption_asked:
            self._metrics.preemption_attempts.labels().inc()
        return decision

    def _carry_out(self, attempt: _Attempt, decision: Decision, effects: Effects) -> None:
        """Start what is left to be done: the binding cycle, or victims, a condition, an event.

        Permit is asked in the first step of the binding task, which comes before the next cycle: a
        plugin that waits for something there holds up no other pod.
        """
        queued, profile, started_seconds = attempt.queued, attempt.profile, attempt.started_seconds
        if effects.bind is not None:
            self.records.keep(decision, queued.attempts, attempt.decided_seconds)
            evaluated, feasible = decision.search.found.evaluated, decision.feasible
            binding = BindingAttempt(
                queued, profile, attempt.state, effects.bind, started_seconds, evaluated, feasible
            )
            self._bindings.start(effects.bind.uid, self._binding_cycle.run(binding))
            return
        self.records.keep_refusals(decision, attempt.decided_seconds)
        if effects.evict is not None:
            decided_at = rfc3339_milliseconds(self._world.clock.now())
            self.evictions.keep(decision, decided_at, attempt.decided_seconds)
        self._failures.carry_out(effects, queued, profile, started_seconds)

    def _fail(self, attempt: _Attempt, failure: Failure) -> None:
        """Put a pod back on which nothing was decided (`handleSchedulingFailure`)."""
        queued, profile = attempt.queued, attempt.profile
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(queued.pod, profile.scheduler_name, failure)
        profile.framework.metrics_recorder.attempt(attempt.state)
        self._failures.handle(queued, profile, failure, attempt.started_seconds)

    def _give_up(self, queued: QueuedPod, profile: ServedProfile | None) -> None:
        """Leave a pod to those whose it is: its profile has gone, or observes by now."""
        if profile is None:
            self._loader.without_profile.take_out(queued.pod)
        else:
            self._world.queue.hand_over(queued, self._world.clock.monotonic())

    def _skip_pod_schedule(self, queued: QueuedPod) -> None:
        """Leave a pod alone that is terminating or assumed already (`skipPodSchedule`)."""
        pod = queued.pod
        profile = self._world.profiles.of(pod)
        if profile is None or profile.observes:
            self._give_up(queued, profile)
            return
        if pod.terminating:
            self._dispatcher.recorder.event(
                pod_reference(pod),
                "Warning",
                "FailedScheduling",
                "Scheduling",
                f"skip schedule deleting pod: {pod.key}",
                reporting_controller=profile.scheduler_name,
            )
        self._world.queue.done(pod.uid)

    # --- members that a quorum left -------------------------------------------------------------

    async def _try_remaining(self, taken: GroupInCycle, remaining: RemainingMembers) -> None:
        """Try the members by themselves, preemption included, that were left by a quorum."""
        for result in remaining.results:
            await taken.slices.pass_on()
            pod, queued = result.pod, taken.queued[result.pod.uid]
            is_left = self._world.queue.entries.get(pod.uid) is queued
            if not is_left or remaining.is_refused(pod):
                self.groups.submit.requeue_failed(taken, queued, result.failure)
            else:
                await self._attempt_alone(taken, queued, remaining, result.failure)

    async def _attempt_alone(
        self,
        taken: GroupInCycle,
        queued: QueuedPod,
        remaining: RemainingMembers,
        as_member: Failure | None,
    ) -> None:
        """Try one of them; where nothing comes of it, its failure as a member stands."""
        world, profile, now = self._world, taken.profile, self._world.clock.monotonic
        pod, submit = queued.pod, self.groups.submit
        attempt = _Attempt(queued, profile, profile.new_state(pod), now())
        try:
            decision = await self._scheduling_cycle(pod, profile, attempt.state)
        except Exception as raised:  # noqa: BLE001 one attempt must not end the coroutine
            decision = self._failures.unexpected(raised, pod, profile)
        attempt.decided_seconds = now()
        profile.framework.metrics_recorder.attempt(attempt.state)
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(pod, profile.scheduler_name, decision)
        if isinstance(decision, Failure):
            submit.requeue_failed(taken, queued, decision)
        elif remaining.helps(decision):
            with self.on_decided(queued, decision):
                effects = apply(world, queued, decision)
            self._carry_out(attempt, decision, effects)
        else:
            with self.on_decided(queued, decision):
                submit.requeue_failed(taken, queued, as_member)

    # --- what is noted of an attempt ------------------------------------------------------------

    def _observe(self, attempt: _Attempt, decision: Decision | Failure) -> None:
        """Measure how long it took to decide, and log the decision."""
        pod, profile, throttle = attempt.queued.pod, attempt.profile, self._throttle
        attempt.assumptions = self._world.objects.assumptions
        attempt.decided_seconds = self._world.clock.monotonic()
        profile.activity.last_decision_seconds = attempt.decided_seconds
        seconds = attempt.decided_seconds - attempt.started_seconds
        self._algorithm_duration.observe(seconds)
        # The throttle counts only what exceeds this, or ends the pause of a slow spec: a usual
        # attempt is spared the call.
        if seconds > MIN_COUNTED_SECONDS or throttle.slow_specs.specs:
            foreign_seconds = throttle.budget.taken_seconds - attempt.foreign_seconds
            throttle.took(pod, profile, attempt.state, decision, seconds, foreign_seconds)
        if isinstance(decision, Decision) and logger.isEnabledFor(logging.DEBUG):
            log_decision(pod, profile.scheduler_name, decision)

    def _show_shadows(self, attempt: _Attempt, decision: Decision) -> None:
        """Let shadow profiles decide beside the decision.

        The columns are still those of the decision; what was assumed since is set aside.
        """
        since, started_seconds = attempt.active_since, attempt.started_seconds
        waited_seconds = 0.0 if since is None else started_seconds - since
        shadows, pod = self._loader.shadows, attempt.queued.pod
        shadows.look(pod, decision, waited_seconds, attempt.assumptions)
