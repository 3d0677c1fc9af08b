"""The cycle of a group (`podGroupSchedulingCycle`): drives `world.gangs.group_decision` in slices.

`schedule_one` calls it for the member that was popped; the others that can be tried are taken
along, and `submit_group_result` binds or requeues them. Between slices of the decision events are
handled and bindings go on, and no other decision is made. What can change between two slices:

- A node: later members see the newest columns, members that have a node keep it, even if it goes,
  as any pod that is being bound (`binding_cycle`).
- A member is deleted, or bound by another scheduler: it counts no more, and if too few are left,
  the placement is taken back (`_check_members`).
- The group's object is deleted or made anew: the placement is taken back, and the members wait for
  the new object or are tried for it.
- The profile: it changes after the decision (`ProfileLoader.unchanged`).

Invariant: when a cycle ends, each member
taken is in exactly one place: in a binding task, in the queue, or gone.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import pod_reference
from stellwerk.profiles.loader import ProfileLoader
from stellwerk.profiles.shadows import BesideGroup
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.scheduler.failure_handler import FailureHandler
from stellwerk.scheduler.gangs.group_conditions import GroupConditions
from stellwerk.scheduler.gangs.submit_group_result import GroupInCycle, SubmitGroupResult
from stellwerk.scheduler.observers.decision_log import log_decision
from stellwerk.scheduler.throttle import SlowSearch, Throttle
from stellwerk.scheduler.time_slice import MAX_SLICES, TimeSlice, in_slices
from stellwerk.world.decide import Decision, Failure
from stellwerk.world.extenders import KeptExtenders
from stellwerk.world.gangs.group_attempt import (
    GroupContext,
    GroupRequest,
    MemberRequest,
    decided_at_once,
    nodes_of,
    undo_attempt,
    undo_results,
)
from stellwerk.world.gangs.group_decision import (
    DecidedGroup,
    Deciding,
    GroupDecision,
    decide_group,
)
from stellwerk.world.gangs.group_request import Untried, is_still_met, take_members, why_untried
from stellwerk.world.gangs.group_reservation import may_keep_part
from stellwerk.world.gangs.queue_order import after_attempt, requeue_inadmissible
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

MEMBER_SLICE_SECONDS: Final = 0.01
"""Time that a costly filter may take for a member before it goes on in slices, between which events
are handled."""


@dataclass(slots=True)
class GroupCycle:
    """Takes a group up, decides it in slices, and has its result carried out.

    An attempt at a gang that is not bound whole ends in one of these ways. None of them ends the
    gang: its members are tried again, without a limit of time.

    - gated: members are missing, or another group comes first: `why_untried`, `GroupGates`.
    - not placed: no member is bound, all are requeued: `SubmitGroupResult.requeue_members`.
    - placed in part: enough are bound, the others are tried again: `RemainingMembers`.
    - permit lost: too few members get through PreBind, none is bound: `GroupPermit.lose`.
    - bound in part: bindings fail after the permit, the others stay, or `GroupGiveBack` ends them.
    """

    world: World
    loader: ProfileLoader
    dispatcher: APIDispatcher
    metrics: Metrics
    failures: FailureHandler
    conditions: GroupConditions
    submit: SubmitGroupResult
    throttle: Throttle
    decide_group: Callable[[World, ServedProfile, GroupRequest], Deciding] = decide_group
    """A recording operator takes down what goes into it, and what comes of it."""

    async def run(self, queued: QueuedPod, profile: ServedProfile) -> GroupInCycle | None:
        """Decide the group of a member that was popped.

        Returns it, for members that are to be tried by themselves; None: there is none any more.
        """
        world, now = self.world, self.world.clock.monotonic
        members = world.pod_groups.of_member(queued.pod.uid)
        if members is None:
            # Deleted since it was popped.
            world.queue.done(queued.pod.uid)
            return None
        taken = GroupInCycle(
            members, profile, {queued.pod.uid: queued}, started_seconds=now(), slices=TimeSlice(now)
        )
        for _ in take_members(world, taken):
            await taken.slices.pass_on()
        for skipped in taken.skipped:
            self._report_skipped(skipped, profile)
        if not taken.queued:
            return None
        match why_untried(world, taken):
            case None if self._lets_others_pass(taken):
                await self.submit.requeue_throttled(taken)
            case None:
                await self._attempt(taken)
                await self._try_again(taken)
                after_attempt(world, members)
            case Untried.PROFILES_DIFFER, message:
                await self.submit.fail_members(taken, Failure.error(message))
            case Untried.TOO_FEW, _:
                await self._wait_for_members(taken)
            case Untried.INADMISSIBLE, message:
                requeue_inadmissible(world, members, taken.queued.values())
                self.conditions.inadmissible(members, message)
        return taken

    def _lets_others_pass(self, taken: GroupInCycle) -> bool:
        if not self.throttle.slow_namespaces.spent:
            return False
        priority = min(each.pod.priority for each in taken.queued.values())
        namespace = taken.members.key.namespace
        return self.throttle.slow_namespaces.waits(namespace, SlowSearch.GROUP, priority)

    def _report_skipped(self, queued: QueuedPod, profile: ServedProfile) -> None:
        if queued.newest.terminating:
            self.dispatcher.recorder.event(
                pod_reference(queued.pod),
                "Warning",
                "FailedScheduling",
                "Scheduling",
                f"skip schedule deleting pod: {queued.pod.key}",
                reporting_controller=profile.scheduler_name,
            )

    # --- deciding -------------------------------------------------------------------------------

    async def _attempt(self, taken: GroupInCycle) -> None:
        request = taken.request(self.world)
        beside = self._beside(taken)
        if taken.profile.extenders is not None:
            taken.extenders = KeptExtenders(taken.profile.extenders)
        try:
            decision = await self._decide(taken, request)
        except Exception as raised:  # noqa: BLE001 one attempt must not end the coroutine
            first = request.members[0]
            failure = self.failures.unexpected(raised, first, taken.profile)
            await self.submit.fail_members(taken, failure)
            return
        decided_seconds = self.world.clock.monotonic()
        duration = self.metrics.podgroup_scheduling_algorithm_duration
        duration.labels().observe(decided_seconds - taken.started_seconds)
        taken.profile.activity.last_decision_seconds = decided_seconds
        group = taken.members.group
        if group is None or group.uid != request.group.uid:
            # Its object went between two slices, or its kind: its members wait for it again. If it
            # was made anew, they are tried for the new one, which may ask for something else.
            if decision.placed:
                undo_attempt(GroupContext(self.world, taken.profile), decision.attempt)
            await self.submit.requeue_untried(taken, decision.attempt.results)
            if taken.members.group is not None:
                self.world.activate([each.pod for each in taken.queued.values()])
            return
        if decision.placed:
            self._check_members(taken, decision)
        if decision.placed:
            await self.submit.bind_members(taken, decision)
        else:
            await self.submit.requeue_members(taken, decision)
        self._count(taken, decision)
        if beside is not None:
            nodes = nodes_of(decision.attempt) if decision.placed else {}
            decided = DecidedGroup(taken.members.key.shown, nodes, decision.message)
            for _ in beside.look(request, decided):
                await taken.slices.pass_on()

    async def _wait_for_members(self, taken: GroupInCycle) -> None:
        """Put a group back that lacks members; if some are bound, find nodes to keep for others."""
        if not taken.members.is_partly_bound:
            await self.submit.requeue_untried(taken)
            return
        decision = None
        if may_keep_part(self.world, taken.profile, taken.members):
            if self._lets_others_pass(taken):
                await self.submit.requeue_throttled(taken)
                return
            request = taken.request(self.world)
            try:
                decision = await self._decide(taken, request)
            except Exception as raised:  # noqa: BLE001 one attempt must not end the coroutine
                failure = self.failures.unexpected(raised, request.members[0], taken.profile)
                await self.submit.fail_members(taken, failure)
                return
        await self.submit.requeue_lacking(taken, decision)

    async def _try_again(self, taken: GroupInCycle) -> None:
        """Try the group for the members that it left when it was placed, until none is placed.

        kube-scheduler puts them back into activeQ; here no other pod comes between. It ends: each
        attempt places a member, or the group is not placed and rests.
        """
        while taken.remaining is not None and taken.remaining.again:
            left = {each.pod.uid: taken.queued[each.pod.uid] for each in taken.remaining.again}
            failures = {each.pod.uid: each.failure for each in taken.remaining.again}
            for uid, queued in list(left.items()):
                if self.world.queue.entries.get(uid) is not queued or queued.newest.terminating:
                    self.submit.requeue_failed(taken, left.pop(uid), failures[uid])
            if not left:
                return
            if taken.members.group is None:
                for uid, queued in left.items():
                    self.submit.requeue_failed(taken, queued, failures[uid])
                return
            now = self.world.clock.monotonic()
            taken = GroupInCycle(
                taken.members, taken.profile, left, started_seconds=now, slices=taken.slices
            )
            await self._attempt(taken)

    def _beside(self, taken: GroupInCycle) -> BesideGroup | None:
        """The shadows that look at the decision, and the World before it."""
        shadows = self.loader.shadows
        if not shadows.by_name:
            return None
        since = min(each.queued_at for each in taken.queued.values())
        waited_seconds = self.world.clock.monotonic() - since
        return shadows.beside_group(taken.profile.scheduler_name, waited_seconds)

    def _count(self, taken: GroupInCycle, decision: GroupDecision) -> None:
        result = "scheduled" if decision.placed else "unschedulable"
        if decision.preemption is not None and not decision.preemption.is_reservation:
            result = "waiting_on_preemption"
        elif decision.attempt.broken:
            result = "error"
        metrics, labels = self.metrics, (result, taken.profile.scheduler_name)
        seconds = self.world.clock.monotonic() - taken.started_seconds
        metrics.podgroup_schedule_attempts.labels(*labels).inc()
        metrics.podgroup_scheduling_attempt_duration.labels(*labels).observe(seconds)

    async def _decide(self, taken: GroupInCycle, request: GroupRequest) -> GroupDecision:
        deciding = self.decide_group(self.world, taken.profile, request)
        try:
            # Plugins of a profile that changes between slices could not read what these remember.
            with self.loader.unchanged():
                return await self._in_slices(taken, deciding)
        finally:
            deciding.close()

    async def _in_slices(self, taken: GroupInCycle, deciding: Deciding) -> GroupDecision:
        """Drive the generator of the decision: answer its requests for members, pause between."""
        try:
            ask = next(deciding)
            while True:
                await taken.slices.pass_on()
                if ask is None:
                    ask = next(deciding)
                    continue
                answer = await self._answer(taken, ask)
                self._keep(taken, ask, answer)
                ask = deciding.send(answer)
        except StopIteration as ended:
            decision: GroupDecision = ended.value
            return decision

    async def _answer(self, taken: GroupInCycle, ask: MemberRequest) -> Decision:
        """Decide a member; what costly filters have left to do is done in slices before."""
        state, now = ask.state, self.world.clock.monotonic
        for slices_left in reversed(range(MAX_SLICES)):
            state.slice_seconds = MEMBER_SLICE_SECONDS if slices_left else None
            # Extenders are not asked about members on a fork, which nothing comes of.
            if taken.extenders is None or ask.world is not self.world:
                decision = decided_at_once(ask)
            else:
                ask.prepare()
                decision = await decide_with_extenders(
                    ask.world, ask.pod, ask.profile, taken.extenders, state
                )
            if state.unfinished is None:
                break
            await in_slices(state.unfinished, now)
            state.begin_anew()
        return decision

    def _keep(self, taken: GroupInCycle, ask: MemberRequest, decision: Decision) -> None:
        """Keep what explains a member's decision, and log it; of trials on a fork nothing is."""
        if ask.world is not self.world:
            return
        uid = ask.pod.uid
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(ask.pod, taken.profile.scheduler_name, decision)
        if decision.failure is None:
            attempts, now = taken.queued[uid].attempts, self.world.clock.monotonic()
            taken.records[uid] = self.submit.records.made(decision, attempts, now)

    def _check_members(self, taken: GroupInCycle, decision: GroupDecision) -> None:
        """Take the placement back if too few members are left, after what came between slices."""
        assumed, entries = self.world.cache.assumed_pods, self.world.queue.entries
        context = GroupContext(self.world, taken.profile)
        for result in decision.attempt.results:
            uid = result.pod.uid
            gone = entries.get(uid) is not taken.queued[uid] or uid not in assumed
            if result.assumed is not None and gone:
                undo_results(context, [result])
                result.assumed, result.failure = None, Failure.error("the pod is gone")
        if not is_still_met(self.world, taken.members, decision.attempt):
            undo_attempt(context, decision.attempt)
            decision.placed = False
            decision.message = "members were lost while the group was decided"
