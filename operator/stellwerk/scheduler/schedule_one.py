"""One pod's way from the head of the queue to its node. START HERE.

`schedule_one` reads like docs/the-way-of-a-pod.md: a decision is made on the snapshot
(`world.decide`), applied to the World (`world.effects`), and a task of its own binds
(`binding_cycle`). Called by the scheduling coroutine, in series. Invariant: whatever happens, the
pod ends in exactly one place: bound, in a queue, or gone.
"""

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.queue_facts import rfc3339
from stellwerk.explain.records import DecisionRecords, Evictions
from stellwerk.framework.types import CycleState
from stellwerk.logs import ATTEMPT
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.binding_cycle import BindingAttempt, BindingCycle, BindingTasks
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.scheduler.failure_handler import FailureHandler
from stellwerk.scheduler.gangs.group_conditions import GroupConditions
from stellwerk.scheduler.gangs.group_cycle import GroupCycle
from stellwerk.scheduler.gangs.group_evictions import GroupEvictions
from stellwerk.scheduler.gangs.submit_group_result import GroupInCycle, SubmitGroupResult
from stellwerk.scheduler.observers.decision_log import log_decision
from stellwerk.scheduler.profiles.profile_loader import ProfileLoader
from stellwerk.scheduler.throttle import SLOW_ATTEMPT_SECONDS, THROTTLED, Fairness
from stellwerk.scheduler.time_slice import FILTER_SLICE_SECONDS, MOST_SLICES, in_slices
from stellwerk.world.decide import Decision, Effects, Failure, apply, decide
from stellwerk.world.gangs.group_decision import RemainingMembers
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

Observed: TypeAlias = AbstractContextManager[None]

_UNOBSERVED: Final = nullcontext()

SAMPLED_ATTEMPTS: Final = 10
"""One attempt in so many times each plugin (`pluginMetricsSamplePercent`)."""


def _unobserved(*_: object) -> Observed:
    return _UNOBSERVED


class ScheduleOne:
    """Decides, applies, and hands over to a binding task or to what follows a failure."""

    def __init__(
        self,
        world: World,
        loader: ProfileLoader,
        metrics: Metrics,
        bindings: BindingTasks,
        binding_cycle: BindingCycle,
        failures: FailureHandler,
        fairness: Fairness,
        conditions: GroupConditions,
    ) -> None:
        self._world = world
        self._loader = loader
        self._dispatcher = binding_cycle.dispatcher
        self._metrics = metrics
        self._bindings = bindings
        self._binding_cycle = binding_cycle
        self._failures = failures
        self._budget, self._slow_specs = fairness
        self._algorithm_duration = metrics.scheduling_algorithm_duration.labels()
        self._attempts = 0
        self.deciding = ""
        """The uid of the pod in hand; empty: of none."""
        self.records = DecisionRecords(world.clock.monotonic)
        self.evictions = Evictions()
        """Both are read by explanations."""
        self.on_decided: Callable[[QueuedPod, Decision], Observed] = _unobserved
        """Entered with a pod and the decision on it while that is applied."""
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
        )
        self.groups = GroupCycle(
            world, loader, self._dispatcher, metrics, failures, conditions, submit
        )

    async def schedule_one(self, queued: QueuedPod) -> None:
        """Decide for one pod, or for the group that it belongs to; bindings go on in tasks."""
        pod = queued.pod
        self.deciding = pod.uid
        if pod.group is not None and await self._with_its_group(queued):
            pass
        elif pod.terminating or pod.uid in self._world.cache.assumed_pods:
            self._skip_pod_schedule(queued)
        else:
            await self._attempt(queued)
        self.deciding = ""
        ATTEMPT.set(0)

    async def _with_its_group(self, queued: QueuedPod) -> bool:
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
        pod, submit, started_seconds = queued.pod, self.groups.submit, now()
        state = profile.new_state(pod)
        try:
            decision = await self._scheduling_cycle(pod, profile, state)
        except Exception as raised:  # noqa: BLE001 one attempt must not end the coroutine
            decision = self._failures.unexpected(raised, pod, profile)
        decided_seconds = now()
        profile.framework.metrics_recorder.attempt(state)
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(pod, profile.scheduler_name, decision)
        if isinstance(decision, Failure):
            submit.requeue_failed(taken, queued, decision)
        elif remaining.helps(decision):
            with self.on_decided(queued, decision):
                effects = apply(world, queued, decision)
            self._follow(effects, queued, decision, (started_seconds, decided_seconds))
        else:
            with self.on_decided(queued, decision):
                submit.requeue_failed(taken, queued, as_member)

    async def _attempt(self, queued: QueuedPod) -> None:
        world, pod = self._world, queued.pod
        profile = world.profiles.of(pod)
        if profile is None:
            self._loader.without_profile.take_out(pod)
            return
        now = world.clock.monotonic
        started_seconds, foreign_seconds = now(), self._budget.taken_seconds
        has_rivals = len(world.profiles.served) > 1 or self._slow_specs.specs
        throttled = self._throttled(pod, profile) if has_rivals else ""
        self._attempts += 1
        ATTEMPT.set(self._attempts)
        if throttled:
            self._throttle(queued, profile, Failure.throttled(throttled), started_seconds)
            return
        state = profile.new_state(pod, sampled=self._attempts % SAMPLED_ATTEMPTS == 0)
        decision: Decision | Failure
        try:
            decision = await self._scheduling_cycle(pod, profile, state)
        except Exception as raised:  # noqa: BLE001 one attempt must not end the coroutine
            decision = self._failures.unexpected(raised, pod, profile)
        decided_seconds = profile.activity.last_decision_seconds = now()
        seconds = decided_seconds - started_seconds
        self._algorithm_duration.observe(seconds)
        if (seconds > SLOW_ATTEMPT_SECONDS or self._slow_specs.specs) and profile.extenders is None:
            self._note_slow(pod, profile, seconds, self._budget.taken_seconds - foreign_seconds)
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(pod, profile.scheduler_name, decision)
        if isinstance(decision, Failure):
            profile.framework.metrics_recorder.attempt(state)
            self._failures.handle(queued, profile, decision, started_seconds)
            return
        active_since, assumptions = queued.active_since, world.objects.assumptions
        with self.on_decided(queued, decision):
            effects = apply(world, queued, decision)
        profile.framework.metrics_recorder.attempt(state)
        self._follow(effects, queued, decision, (started_seconds, decided_seconds))
        shadows = self._loader.shadows
        if shadows.by_name:
            # The columns are still those of the decision; what was assumed since is set aside.
            waited_seconds = 0.0 if active_since is None else started_seconds - active_since
            shadows.look(pod, decision, waited_seconds, assumptions)

    def _follow(
        self,
        effects: Effects,
        queued: QueuedPod,
        decision: Decision,
        started_and_decided_seconds: tuple[float, float],
    ) -> None:
        """Start what is left to be done: the binding, or victims, a condition, an event."""
        started_seconds, decided_seconds = started_and_decided_seconds
        search = decision.search
        if effects.bind is not None:
            self.records.keep(decision, queued.attempts, decided_seconds)
            # Permit is asked in the first step of the task, which comes before the next cycle: a
            # plugin that waits for something there holds up no other pod.
            attempt = BindingAttempt(
                queued,
                search.profile,
                search.found.state,
                effects.bind,
                started_seconds,
                search.found.evaluated,
                decision.feasible,
            )
            self._bindings.start(queued.pod.uid, self._binding_cycle.run(attempt))
            return
        if effects.evict is not None:
            now = self._world.clock.now()
            self.evictions.keep(decision, rfc3339(now), decided_seconds)
        self._failures.carry_out(effects, queued, search.profile, started_seconds)

    def _throttled(self, pod: PodInfo, profile: ServedProfile) -> str:
        """The reason for which a pod has to leave time to others, or an empty text."""
        slow = ""
        if len(self._world.profiles.served) > 1:
            slow = self._budget.exceeded(profile.scheduler_name)
        slow_specs = self._slow_specs
        if not slow and slow_specs.specs and slow_specs.waits(pod.spec):
            return THROTTLED
        return slow

    def _throttle(
        self, queued: QueuedPod, profile: ServedProfile, failure: Failure, started_seconds: float
    ) -> None:
        """Leave a pod for later: it has to leave time to others."""
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(queued.pod, profile.scheduler_name, failure)
        self._failures.handle(queued, profile, failure, started_seconds)

    def _note_slow(
        self, pod: PodInfo, profile: ServedProfile, seconds: float, foreign_seconds: float
    ) -> None:
        """Count and log an attempt that held every other pod up, and set the next ones back.

        What foreign code took is no fault of the spec: the profile has a budget for it.
        """
        self._slow_specs.took(pod.spec, seconds - foreign_seconds)
        if seconds <= SLOW_ATTEMPT_SECONDS:
            return
        self._metrics.slow_attempts.labels(profile.scheduler_name).inc()
        logger.warning("%s: deciding took %.0f ms", pod.key, 1000 * seconds)

    def _skip_pod_schedule(self, queued: QueuedPod) -> None:
        """Leave a pod alone that is terminating or assumed already (`skipPodSchedule`)."""
        pod = queued.pod
        profile = self._world.profiles.of(pod)
        if profile is None:
            self._loader.without_profile.take_out(pod)
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

    async def _scheduling_cycle(
        self, pod: PodInfo, profile: ServedProfile, state: CycleState
    ) -> Decision | Failure:
        """Decide on what the cache has now.

        Awaits only where the profile has extenders, and where filters have more to do than a turn
        allows.
        """
        if pod.spec.too_complex:
            return Failure.too_complex(pod.spec)
        world, extenders = self._world, profile.extenders
        for slices_left in reversed(range(MOST_SLICES)):
            # What changes all the time is not waited for.
            state.slice_seconds = FILTER_SLICE_SECONDS if slices_left else None
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
        if decision.post_filter is not None and state.preemption_asked:
            self._metrics.preemption_attempts.labels().inc()
        return decision
