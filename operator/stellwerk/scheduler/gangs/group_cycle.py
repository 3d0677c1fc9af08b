"""One group's way from the head of the queue to the nodes of its members, or back to rest.

`schedule_one` hands over the member that was popped; the others that can be tried are taken along.
Between slices of the decision events and bindings have their turn, and no other decision is made.
Invariant: when a cycle ends, each member taken is in exactly one place: in a binding task, in the
queue, or gone.
"""

import asyncio
import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.records import DecisionRecords
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.models.profile_defaults import GANG_SCHEDULING
from stellwerk.scheduler.attempt_failures import AttemptFailures
from stellwerk.scheduler.binding_cycle import Attempt as BindingAttempt
from stellwerk.scheduler.binding_cycle import BindingCycle
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.scheduler.gangs.binding_quorum import BindingQuorum
from stellwerk.scheduler.gangs.group_evictions import GroupEviction, GroupEvictions
from stellwerk.scheduler.gangs.group_observer import GroupObserver
from stellwerk.scheduler.gangs.group_reports import GroupReports, group_reference
from stellwerk.scheduler.gangs.turn_taking import hold, let_follow
from stellwerk.scheduler.observers.decision_log import log_decision
from stellwerk.scheduler.outbox import Outbox
from stellwerk.scheduler.profiles.profile_loader import ProfileLoader
from stellwerk.world.decide import Decision
from stellwerk.world.failure import Failure
from stellwerk.world.gangs.attempt import Ask, Ground, Verdict, decided_at_once, take_back
from stellwerk.world.gangs.group_decision import (
    Deciding,
    GroupDecision,
    decide_group,
)
from stellwerk.world.gangs.group_preemption import GroupPreemption
from stellwerk.world.gangs.group_request import GroupRequest
from stellwerk.world.gangs.turns import gang_args, is_first, keeps_room, queue_of, why_held
from stellwerk.world.pod_status import NominatingInfo
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

EARLY_SHARE: Final = 0.02
"""Of the time, what groups may take that are tried again before their backoff has ended."""
EARLY_BURST_SECONDS: Final = 0.2
"""So much of it may be spent at once."""
SLICE_SECONDS: Final = 0.01
"""After so long the others have their turn; one member's decision is the least that is done."""
WAITING_FOR_OTHERS: Final = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
WAITING_FOR_VICTIMS: Final = "pod group is waiting for preemption to complete"
ROOM_IS_KEPT: Final = "room is kept for the pod group"
OTHER_FAILED: Final = "failed to schedule other pod from a pod group: "


@dataclass(slots=True)
class _Taken:
    """The members that a cycle has in hand."""

    queued: dict[str, QueuedPod]
    """By uid."""
    profile: ServedProfile
    members: GroupMembers
    started_seconds: float


@dataclass(slots=True)
class GroupCycle:
    """Takes a group up, decides it in slices, and hands its members on."""

    world: World
    loader: ProfileLoader
    outbox: Outbox
    bindings: BindingTasks
    binding_cycle: BindingCycle
    failures: AttemptFailures
    reports: GroupReports
    evictions: GroupEvictions
    records: DecisionRecords
    observer: GroupObserver | None = None
    """Is shown every decision before it has effects; None: nothing is."""
    _early_seconds: float = EARLY_BURST_SECONDS
    """What is left for early attempts."""
    _counted_seconds: float = 0.0
    """When that was last counted."""

    async def run(self, queued: QueuedPod, profile: ServedProfile) -> None:
        """Decide the group of a member that was popped."""
        world, pod = self.world, queued.pod
        key = world.pod_groups.key_of.get(pod.uid)
        members = world.pod_groups.groups.get(key) if key is not None else None
        if members is None:
            # Deleted since it was popped.
            world.queue.done(pod.uid)
            return
        taken = self._take(queued, profile, members)
        if not taken.queued:
            return
        differ = self._differ(taken)
        closed = world.pod_groups.why_closed(members)
        if differ:
            self._fail_all(taken, Failure.error(differ))
        elif closed or self._lacks_members(taken):
            self._rest(taken)
        elif held := why_held(world, members):
            hold(world, self.reports, members, taken.queued.values(), held)
        else:
            await self._attempt(taken)
            let_follow(world, queue_of(world, members))

    # --- taking up ------------------------------------------------------------------------------

    def _take(self, queued: QueuedPod, profile: ServedProfile, members: GroupMembers) -> _Taken:
        queue, started = self.world.queue, self.world.clock.monotonic()
        taken = _Taken({queued.pod.uid: queued}, profile, members, started)
        for uid, pod in members.pods.items():
            if not pod.node_name and uid not in taken.queued:
                other = queue.pop_with_group(uid)
                if other is not None:
                    taken.queued[uid] = other
        for uid, each in list(taken.queued.items()):
            if each.newest.terminating or uid in self.world.cache.assumed_pods:
                del taken.queued[uid]
                self._skip(each, profile)
        return taken

    def _differ(self, taken: _Taken) -> str:
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

    def _lacks_members(self, taken: _Taken) -> bool:
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

    def _request(self, taken: _Taken) -> GroupRequest:
        world, members = self.world, taken.members
        assert members.group is not None  # noqa: S101 an open group has an object
        scheduled = []
        for uid, pod in members.pods.items():
            placed = world.cache.assumed_pods.get(uid) or pod
            if placed.node_name and not pod.terminating:
                scheduled.append(placed)
        return GroupRequest(
            members.group,
            [each.pod for each in sorted(taken.queued.values(), key=_turn)],
            scheduled,
            members.succeeded,
            gang_args(taken.profile).second_look_milliseconds / 1000,
            keeps_room(world, members),
            members.ending,
        )

    # --- deciding -------------------------------------------------------------------------------

    async def _attempt(self, taken: _Taken) -> None:
        request = self._request(taken)
        try:
            decision = await self._decide(taken, request)
        except Exception as raised:  # noqa: BLE001 one attempt must not end the coroutine
            first = request.members[0]
            failure = self.failures.unexpected(raised, first, taken.profile)
            self._fail_all(taken, failure)
            return
        decided_seconds = self.world.clock.monotonic()
        duration = self.binding_cycle.metrics.podgroup_scheduling_algorithm_duration
        duration.labels().observe(decided_seconds - taken.started_seconds)
        taken.profile.activity.last_decision_seconds = decided_seconds
        if decision.placed:
            self._check_members(taken, decision)
        if self.observer is not None:
            self.observer.group_decided(taken.queued, decision)
        if decision.placed:
            self._bind(taken, decision)
        else:
            self._give_up(taken, decision)
        self._count(taken, decision)

    def _count(self, taken: _Taken, decision: GroupDecision) -> None:
        result = "scheduled" if decision.placed else "unschedulable"
        if decision.preemption is not None and not decision.preemption.is_reservation:
            result = "waiting_on_preemption"
        elif decision.attempt.broken:
            result = "error"
        metrics, labels = self.binding_cycle.metrics, (result, taken.profile.scheduler_name)
        seconds = self.world.clock.monotonic() - taken.started_seconds
        metrics.podgroup_schedule_attempts.labels(*labels).inc()
        metrics.podgroup_scheduling_attempt_duration.labels(*labels).observe(seconds)

    async def _decide(self, taken: _Taken, request: GroupRequest) -> GroupDecision:
        deciding = decide_group(self.world, taken.profile, request)
        try:
            if taken.profile.extenders is None:
                return await self._in_slices(taken, deciding)
            with self.loader.unchanged():
                return await self._in_slices(taken, deciding)
        finally:
            deciding.close()

    async def _in_slices(self, taken: _Taken, deciding: Deciding) -> GroupDecision:
        now = self.world.clock.monotonic
        ends = now() + SLICE_SECONDS
        try:
            ask = next(deciding)
            while True:
                if now() >= ends:
                    await asyncio.sleep(0)
                    ends = now() + SLICE_SECONDS
                if ask is None:
                    ask = next(deciding)
                    continue
                answer = await self._answer(ask)
                self._show(taken, ask, answer)
                ask = deciding.send(answer)
        except StopIteration as ended:
            decision: GroupDecision = ended.value
            return decision

    async def _answer(self, ask: Ask) -> Decision:
        extenders = ask.profile.extenders
        if extenders is None or ask.world is not self.world:
            return decided_at_once(ask)
        ask.prepare()
        return await decide_with_extenders(ask.world, ask.pod, ask.profile, extenders, ask.state)

    def _show(self, taken: _Taken, ask: Ask, decision: Decision) -> None:
        """Show a member's decision to what observes; trials on a fork are nothing to show."""
        if ask.world is not self.world:
            return
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(ask.pod, taken.profile.scheduler_name, decision)
        if self.observer is not None:
            self.observer.member_decided(ask, taken.queued[ask.pod.uid], decision)

    def _check_members(self, taken: _Taken, decision: GroupDecision) -> None:
        """Take the placement back if too few members are left, after what came between slices."""
        assumed, entries = self.world.cache.assumed_pods, self.world.queue.entries
        for verdict in decision.attempt.verdicts:
            uid = verdict.pod.uid
            gone = entries.get(uid) is not taken.queued[uid] or uid not in assumed
            if verdict.assumed is not None and gone:
                if uid in assumed:
                    self.world.cache.forget_pod(uid)
                verdict.assumed = None
                verdict.failure = Failure.error("the pod is gone")
        if not self._request(taken).is_met_by(decision.attempt):
            take_back(Ground(self.world, taken.profile), decision.attempt)
            decision.placed = False
            decision.message = "members were lost while the group was decided"

    # --- what follows ---------------------------------------------------------------------------

    def _bind(self, taken: _Taken, decision: GroupDecision) -> None:
        """Hand the members that have a node to binding tasks, the others back to the queue."""
        verdicts = decision.attempt.verdicts
        placed = [each for each in verdicts if each.assumed is not None]
        needed = decision.request.needed if decision.request.group.is_gang else 1
        quorum = BindingQuorum(len(placed), needed) if needed > 1 else None
        decided_seconds = self.world.clock.monotonic()
        for verdict in verdicts:
            queued = taken.queued[verdict.pod.uid]
            self._note(verdict, taken.profile)
            if verdict.assumed is None or verdict.decision is None:
                self._fail(taken, queued, verdict.failure)
                continue
            made = verdict.decision
            self.records.keep(made, queued.attempts, decided_seconds)
            attempt = BindingAttempt(
                queued,
                taken.profile,
                verdict.state,
                verdict.assumed,
                taken.started_seconds,
                made.search.found.evaluated,
                made.feasible,
                quorum=quorum,
            )
            self.bindings.start(verdict.pod.uid, self.binding_cycle.run(attempt))
        self.reports.scheduled(taken.members.key)

    def _give_up(self, taken: _Taken, decision: GroupDecision) -> None:
        """Put the members back, each with its own reason, and say it of the group."""
        attempt = decision.attempt
        preemption = decision.preemption
        as_group = decision.same_for_all or preemption is not None
        waits = Failure(
            decision.message if as_group else WAITING_FOR_OTHERS,
            decision.rejected_by,
            rejected=True,
        )
        taken.members.lacks_placement = not decision.placements
        failures: dict[str, Failure] = {}
        awake: set[Hashable] = set()
        for verdict in attempt.verdicts:
            self._note(verdict, taken.profile)
            failures[verdict.pod.uid] = _woken_once(verdict, awake) or waits
        if attempt.broken:
            others = Failure.error(f"{OTHER_FAILED}{attempt.broken}")
            for uid in taken.queued:
                known = failures.get(uid)
                if known is None or known.rejected:
                    failures[uid] = others
            self.reports.error(taken.members.key, decision.message)
        else:
            self.reports.unschedulable(taken.members.key, _group_message(decision))
        if preemption is not None and preemption.victims:
            self._evict(taken, decision.request, preemption.victims)
        self._follow_up(attempt.verdicts)
        nodes = self._reserved(taken, preemption)
        rests = self._early_seconds < 0
        for pod in decision.request.members:
            failure = failures.get(pod.uid, waits)
            taken.queued[pod.uid].waits_backoff_out = rests
            self._fail(taken, taken.queued[pod.uid], failure, nodes.get(pod.uid, ""))
        self._spend(self.world.clock.monotonic() - taken.started_seconds)

    def _reserved(self, taken: _Taken, preemption: GroupPreemption | None) -> Mapping[str, str]:
        """The nodes to which members are nominated while room is made, for a limited time."""
        members = taken.members
        members.ending = preemption.ending if preemption is not None else None
        if preemption is None:
            members.reserved_since = None
            return {}
        now, since = self.world.clock.monotonic(), members.reserved_since
        if since is None or preemption.victims:
            members.reserved_since = since = now
        group = members.group
        given = group.schedule_timeout_seconds if group is not None else None
        limit_seconds = given or gang_args(taken.profile).reservation_seconds
        is_kept = now - since < limit_seconds or is_first(self.world, members)
        return preemption.nodes if is_kept else {}

    def _spend(self, seconds: float) -> None:
        """Count what an attempt in vain took against the time for early ones.

        An idle activeQ takes rejected pods early; of groups only as far as there is time for it,
        so that many that fit nowhere cost next to nothing however often the cluster changes.
        """
        now = self.world.clock.monotonic()
        earned = EARLY_SHARE * (now - self._counted_seconds)
        self._early_seconds = min(EARLY_BURST_SECONDS, self._early_seconds + earned) - seconds
        self._counted_seconds = now

    def _evict(self, taken: _Taken, request: GroupRequest, victims: Sequence[PodInfo]) -> None:
        """Before the members are requeued: they are gated while their victims are evicted."""
        group = request.group
        members = [each.pod for each in taken.queued.values()]
        name = taken.profile.scheduler_name
        self.evictions.start(GroupEviction(group, group_reference(group), members, victims, name))

    def _follow_up(self, verdicts: Sequence[Verdict]) -> None:
        """What PostFilter wants done in the cluster; members that share a claim want the same."""
        acts = {
            act.act: act
            for each in verdicts
            if each.decision is not None and each.decision.post_filter is not None
            if (act := each.decision.post_filter.follow_up) is not None
        }
        for act in acts.values():
            self.outbox.follow_ups.start(act)

    def _note(self, verdict: Verdict, profile: ServedProfile) -> None:
        """What a member's attempt has measured, and what broke in it."""
        if verdict.assumed is None:
            profile.framework.stopwatch.attempt(verdict.state)
        for raised in verdict.plugin_failures:
            logger.error("%s: %s", verdict.pod.key, raised, exc_info=raised)
            self.failures.count(raised, profile)

    def _fail(
        self, taken: _Taken, queued: QueuedPod, failure: Failure | None, nominated_to: str = ""
    ) -> None:
        """Put a member back; the nomination that it had is replaced or taken away."""
        failure = failure or Failure.error("no verdict")
        if failure.rejected:
            failure = replace(failure, nomination=NominatingInfo(nominated_to))
        self.failures.handle(queued, taken.profile, failure, taken.started_seconds)

    def _fail_all(self, taken: _Taken, failure: Failure) -> None:
        for queued in taken.queued.values():
            self._fail(taken, queued, failure)
        self.reports.error(taken.members.key, failure.message)

    def _rest(self, taken: _Taken) -> None:
        """The group fell below its size since its members were let in: they are gated again."""
        for queued in taken.queued.values():
            self.world.queue.add_unschedulable_if_not_present(
                queued, {GANG_SCHEDULING}, now=self.world.clock.monotonic()
            )
        self.reports.look(taken.members.key)


def _woken_once(verdict: Verdict, awake: set[Hashable]) -> Failure | None:
    """A member's failure; of members that are alike, one waits for events in place of all.

    A change that may help it brings the others along.
    """
    failure, pod = verdict.failure, verdict.pod
    if failure is None or not failure.rejected:
        return failure
    likeness = (pod.spec, pod.label_set, pod.node_names, failure.unschedulable_plugins)
    if likeness not in awake or pod.volumes:
        awake.add(likeness)
        return failure
    return replace(failure, unschedulable_plugins=frozenset({GANG_SCHEDULING}))


def _group_message(decision: GroupDecision) -> str:
    if decision.preemption is None:
        return decision.message
    why = ROOM_IS_KEPT if decision.preemption.is_reservation else WAITING_FOR_VICTIMS
    return f"{decision.message}, {why}"


def _turn(queued: QueuedPod) -> tuple[int, float, str]:
    pod = queued.pod
    return (-pod.priority, queued.initial_attempt_at or queued.queued_at, pod.name)
