"""One group's way from the head of the queue to the nodes of its members, or back to rest.

`schedule_one` hands over the member that was popped; the others that can be tried are taken along.
Between slices of the decision events and bindings have their turn, and no other decision is made.
Invariant: when a cycle ends, each member taken is in exactly one place: in a binding task, in the
queue, or gone.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import pod_reference
from stellwerk.scheduler.attempt_failures import AttemptFailures
from stellwerk.scheduler.costly_filters import MOST_TURNS, in_slices
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.scheduler.gangs.group_reports import GroupReports
from stellwerk.scheduler.gangs.hand_over import HandOver, Taken
from stellwerk.scheduler.observers.decision_log import log_decision
from stellwerk.scheduler.outbox import Outbox
from stellwerk.scheduler.profiles.profile_loader import ProfileLoader
from stellwerk.scheduler.slices import Slices
from stellwerk.world.decide import Decision
from stellwerk.world.failure import Failure
from stellwerk.world.gangs.group_attempt import (
    GroupContext,
    MemberRequest,
    decided_at_once,
    undo_attempt,
    undo_results,
)
from stellwerk.world.gangs.group_decision import (
    Deciding,
    GroupDecision,
    decide_group,
)
from stellwerk.world.gangs.group_request import GroupRequest, request_for
from stellwerk.world.gangs.queue_order import (
    after_attempt,
    member_position,
    note_inadmissible,
    requeue_untried,
    why_inadmissible,
)
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

MEMBER_TURN_SECONDS: Final = 0.01
"""So long a costly filter may take for a member before it goes on in slices."""


@dataclass(slots=True)
class GroupCycle:
    """Takes a group up, decides it in slices, and hands its members on."""

    world: World
    loader: ProfileLoader
    outbox: Outbox
    metrics: Metrics
    failures: AttemptFailures
    reports: GroupReports
    hand_over: HandOver
    decide_group: Callable[[World, ServedProfile, GroupRequest], Deciding] = decide_group
    """A recording operator takes down what goes into it, and what comes of it."""

    async def run(self, queued: QueuedPod, profile: ServedProfile) -> None:
        """Decide the group of a member that was popped."""
        world, pod = self.world, queued.pod
        key = world.pod_groups.key_of.get(pod.uid)
        members = world.pod_groups.groups.get(key) if key is not None else None
        if members is None:
            # Deleted since it was popped.
            world.queue.done(pod.uid)
            return
        taken = await self._take(queued, profile, members)
        if not taken.queued:
            return
        differ = self._differ(taken)
        closed = world.pod_groups.why_closed(members)
        if differ:
            await self.hand_over.fail_all(taken, Failure.error(differ))
        elif closed or self._lacks_members(taken):
            await self.hand_over.rest(taken)
        elif reason := why_inadmissible(world, members):
            note_inadmissible(world, members)
            for each in taken.queued.values():
                requeue_untried(world, each)
            self.reports.waits_for_turn(members, reason)
        else:
            await self._attempt(taken)
            after_attempt(world, members)

    # --- taking up ------------------------------------------------------------------------------

    async def _take(
        self, queued: QueuedPod, profile: ServedProfile, members: GroupMembers
    ) -> Taken:
        queue, now = self.world.queue, self.world.clock.monotonic
        taken = Taken({queued.pod.uid: queued}, profile, members, now(), Slices(now))
        for uid, pod in list(members.pods.items()):
            await taken.slices.pass_on()
            if not pod.node_name and uid not in taken.queued:
                other = queue.pop_with_group(uid)
                if other is not None:
                    taken.queued[uid] = other
        for uid, each in list(taken.queued.items()):
            if each.newest.terminating or uid in self.world.cache.assumed_pods:
                del taken.queued[uid]
                self._skip(each, profile)
        return taken

    def _differ(self, taken: Taken) -> str:
        """Why the members cannot be decided together: they are not all of one profile."""
        pods = [each.pod for each in taken.queued.values()]
        names = {pod.spec.scheduler_name for pod in pods}
        rule = "have the same .spec.schedulerName set"
        if len(names) == 1:
            names = {self.world.profiles.profile_name(pod) for pod in pods}
            rule = "be matched by the selector of the same SchedulerProfile"
        if len(names) == 1:
            return ""
        shown = " and ".join(f'"{name}"' for name in sorted(names))
        return f"all pods in a single pod group should {rule}, got: {shown}"

    def _lacks_members(self, taken: Taken) -> bool:
        """Whether too few are in hand, as where plugins keep others from the queue."""
        group, placed = taken.members.group, self.world.pod_groups.placed(taken.members)
        return group is not None and len(taken.queued) + placed < group.min_count

    def _skip(self, queued: QueuedPod, profile: ServedProfile) -> None:
        if queued.newest.terminating:
            self.outbox.recorder.event(
                pod_reference(queued.pod),
                "Warning",
                "FailedScheduling",
                "Scheduling",
                f"skip schedule deleting pod: {queued.pod.key}",
                reporting_controller=profile.scheduler_name,
            )
        self.world.queue.done(queued.pod.uid)

    def _request(self, taken: Taken) -> GroupRequest:
        in_order = [each.pod for each in sorted(taken.queued.values(), key=member_position)]
        return request_for(self.world, taken.profile, taken.members, in_order)

    # --- deciding -------------------------------------------------------------------------------

    async def _attempt(self, taken: Taken) -> None:
        request = self._request(taken)
        try:
            decision = await self._decide(taken, request)
        except Exception as raised:  # noqa: BLE001 one attempt must not end the coroutine
            first = request.members[0]
            failure = self.failures.unexpected(raised, first, taken.profile)
            await self.hand_over.fail_all(taken, failure)
            return
        decided_seconds = self.world.clock.monotonic()
        duration = self.metrics.podgroup_scheduling_algorithm_duration
        duration.labels().observe(decided_seconds - taken.started_seconds)
        taken.profile.activity.last_decision_seconds = decided_seconds
        if decision.placed:
            self._check_members(taken, decision)
        if decision.placed:
            await self.hand_over.bind(taken, decision)
        else:
            await self.hand_over.give_up(taken, decision)
        self._count(taken, decision)

    def _count(self, taken: Taken, decision: GroupDecision) -> None:
        result = "scheduled" if decision.placed else "unschedulable"
        if decision.preemption is not None and not decision.preemption.is_reservation:
            result = "waiting_on_preemption"
        elif decision.attempt.broken:
            result = "error"
        metrics, labels = self.metrics, (result, taken.profile.scheduler_name)
        seconds = self.world.clock.monotonic() - taken.started_seconds
        metrics.podgroup_schedule_attempts.labels(*labels).inc()
        metrics.podgroup_scheduling_attempt_duration.labels(*labels).observe(seconds)

    async def _decide(self, taken: Taken, request: GroupRequest) -> GroupDecision:
        deciding = self.decide_group(self.world, taken.profile, request)
        try:
            # Plugins of a profile that changes between slices could not read what these remember.
            with self.loader.unchanged():
                return await self._in_slices(taken, deciding)
        finally:
            deciding.close()

    async def _in_slices(self, taken: Taken, deciding: Deciding) -> GroupDecision:
        try:
            ask = next(deciding)
            while True:
                await taken.slices.pass_on()
                if ask is None:
                    ask = next(deciding)
                    continue
                answer = await self._answer(ask)
                self._keep(taken, ask, answer)
                ask = deciding.send(answer)
        except StopIteration as ended:
            decision: GroupDecision = ended.value
            return decision

    async def _answer(self, ask: MemberRequest) -> Decision:
        """Decide a member; what costly filters have left to do is done in slices before."""
        state, now = ask.state, self.world.clock.monotonic
        for turns_left in reversed(range(MOST_TURNS)):
            state.turn_seconds = MEMBER_TURN_SECONDS if turns_left else None
            decision = await self._attempt_at(ask)
            if state.unfinished is None:
                break
            await in_slices(state.unfinished, now)
            state.begin_anew()
        return decision

    async def _attempt_at(self, ask: MemberRequest) -> Decision:
        extenders = ask.profile.extenders
        if extenders is None or ask.world is not self.world:
            return decided_at_once(ask)
        ask.prepare()
        return await decide_with_extenders(ask.world, ask.pod, ask.profile, extenders, ask.state)

    def _keep(self, taken: Taken, ask: MemberRequest, decision: Decision) -> None:
        """Keep what explains a member's decision, and log it; of trials on a fork nothing is."""
        if ask.world is not self.world:
            return
        uid = ask.pod.uid
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(ask.pod, taken.profile.scheduler_name, decision)
        if decision.failure is None:
            attempts, now = taken.queued[uid].attempts, self.world.clock.monotonic()
            taken.records[uid] = self.hand_over.records.made(decision, attempts, now)

    def _check_members(self, taken: Taken, decision: GroupDecision) -> None:
        """Take the placement back if too few members are left, after what came between slices."""
        assumed, entries = self.world.cache.assumed_pods, self.world.queue.entries
        context = GroupContext(self.world, taken.profile)
        for result in decision.attempt.results:
            uid = result.pod.uid
            gone = entries.get(uid) is not taken.queued[uid] or uid not in assumed
            if result.assumed is not None and gone:
                undo_results(context, [result])
                result.assumed, result.failure = None, Failure.error("the pod is gone")
        if not self._request(taken).is_met_by(decision.attempt):
            undo_attempt(context, decision.attempt)
            decision.placed = False
            decision.message = "members were lost while the group was decided"
