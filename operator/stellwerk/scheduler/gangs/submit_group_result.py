"""Carrying out what `group_decision` decides: bindings, requeues, evictions, giving back.

`group_cycle` calls `SubmitGroupResult` (`submitPodGroupAlgorithmResult` upstream), and waits: it is
done in slices, as deciding is. `GroupEvictions` evicts the victims of a group, the last one after
the others; until that one is terminating, the members are gated. A group that could not be bound
whole may ask that its bound members are given back after a time: `GroupGiveBack` deletes them;
`group_events` calls it after each change. Invariants: at most one preemption of a group is under
way, and however it ends, its members are tried again; a member that was taken is in exactly one
place in the end, and never in two; `GroupGiveBack` deletes only members that have not started and
that a controller makes anew, after the group's own time has passed without enough of it being
bound.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.records import DecisionRecord, DecisionRecords
from stellwerk.models.object_reference import ObjectReference
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup, PodGroupKey
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.scheduler.binding_cycle import BindingAttempt, BindingCycle
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.failure_handler import FailureHandler
from stellwerk.scheduler.gangs.group_conditions import (
    PARTLY_BOUND,
    GroupConditions,
    group_reference,
)
from stellwerk.scheduler.gangs.group_permit import GroupPermit
from stellwerk.scheduler.preemption import EvictionReason, Evictor
from stellwerk.scheduler.throttle import NAMESPACE_THROTTLED, SlowSearch, Throttle
from stellwerk.scheduler.time_slice import TimeSlice
from stellwerk.world.decide import Failure, VictimOutcome
from stellwerk.world.extenders import Extenders
from stellwerk.world.gangs.group_attempt import GroupRequest, MemberResult
from stellwerk.world.gangs.group_decision import GroupDecision, RemainingMembers, member_failures
from stellwerk.world.gangs.group_request import TakenGroup
from stellwerk.world.gangs.group_reservation import reserve_nodes, try_with_reservation_once_more
from stellwerk.world.gangs.pod_groups import GroupMembers
from stellwerk.world.gangs.queue_order import requeue_untried
from stellwerk.world.pod_status import NominatingInfo, Report
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.clock import parse_moment
from stellwerk_kube.errors import Conflict, NotFound, SchedulerError

logger = logging.getLogger(__name__)

MAX_BINDINGS_PER_ITERATION: Final = 32
"""Bindings of a group that are started in one iteration of the event loop: all of them run in the
next one, and more would hold up events."""
MAX_EVICTIONS_AT_ONCE: Final = 32
"""Victims of one group that are evicted at the same time; the last one follows when all others are
terminating."""
_ENDS_LATER: Final = frozenset({VictimOutcome.TERMINATING, VictimOutcome.DELETED})
"""The outcomes that are followed by the victim's end, which wakes the members."""
WAITING_FOR_VICTIMS: Final = "pod group is waiting for preemption to complete"
CAPACITY_IS_RESERVED: Final = "room is kept for the pod group"


@dataclass(slots=True, kw_only=True)
class GroupInCycle(TakenGroup):
    """A group whose cycle is under way."""

    started_seconds: float
    slices: TimeSlice
    extenders: Extenders | None = None
    """The profile's extenders, which keep what they said of each member; None: it has none."""
    records: dict[str, DecisionRecord] = field(default_factory=dict)
    """By uid, of the members' last decisions for nodes; the Decisions are too large to be kept."""
    remaining: RemainingMembers | None = None
    """The members that are to be tried by themselves before they are requeued; None: none are."""


@dataclass(frozen=True, slots=True)
class GroupEviction:
    """Victims to be evicted so that a group fits."""

    group: PodGroup
    reference: ObjectReference
    members: Sequence[PodInfo]
    """The members that wait for it."""
    victims: Sequence[PodInfo]
    profile_name: str
    """The schedulerName under which events and conditions are written."""
    decided_by: str = ""
    """As `GroupPreemption.decided_by`."""


@dataclass(slots=True)
class GroupEvictions:
    """One task per group that preempts."""

    world: World
    evictor: Evictor
    _under_way: dict[PodGroupKey, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, eviction: GroupEviction) -> None:
        """Evict the victims; the members are gated from here on until that is done."""
        self.evictor.observe_preemption(eviction.victims)
        self.world.preempting.update(pod.uid for pod in eviction.members)
        task = asyncio.get_running_loop().create_task(
            self._carry_out(eviction), name=f"preempt for {eviction.group.key.shown}"
        )
        self._under_way[eviction.group.key] = task
        task.add_done_callback(lambda done: self._ended(eviction.group.key, done))

    def abandon(self, is_given_up: Callable[[PodInfo], bool]) -> None:
        """Stop evicting for the groups of these pods; the victims that are left may stay."""
        groups = self.world.pod_groups.groups
        for key, task in self._under_way.items():
            members = groups.get(key)
            if members is not None and any(map(is_given_up, members.pods.values())):
                task.cancel()

    async def close(self) -> None:
        """Stop everything under way and wait for it."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: PodGroupKey, task: asyncio.Task[None]) -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]

    async def _carry_out(self, eviction: GroupEviction) -> None:
        missed = False
        try:
            why = f": {eviction.decided_by}" if eviction.decided_by else ""
            note = f"Preempted by podgroup {eviction.group.uid} on node cluster{why}"
            reason = EvictionReason(
                eviction.profile_name, "podgroup", note, related=eviction.reference
            )
            *others, last = eviction.victims
            for part in range(0, len(others), MAX_EVICTIONS_AT_ONCE):
                together = others[part : part + MAX_EVICTIONS_AT_ONCE]
                evicting = (self.evictor.evict(each, reason) for each in together)
                missed |= not _ENDS_LATER.issuperset(await asyncio.gather(*evicting))
            missed |= await self.evictor.evict(last, reason) not in _ENDS_LATER
        except SchedulerError as failure:
            logger.warning("preemption for %s: %s", eviction.group.key.shown, failure)
            missed = True
        finally:
            self._let_go(eviction, at_once=missed)

    def _let_go(self, eviction: GroupEviction, *, at_once: bool) -> None:
        """The members may be tried again: when something ends, or, if that was missed, at once."""
        world = self.world
        world.preempting.difference_update(pod.uid for pod in eviction.members)
        for pod in eviction.members:
            world.queue.rerun_pre_enqueue(pod.uid)
        gone = all(world.cache.pod(victim.uid) is None for victim in eviction.victims)
        if at_once or gone:
            world.activate(eviction.members)


@dataclass(slots=True)
class SubmitGroupResult:
    """Starts bindings, requeues what has no node, has victims evicted, and states the condition."""

    world: World
    bindings: BindingTasks
    binding_cycle: BindingCycle
    failures: FailureHandler
    conditions: GroupConditions
    evictions: GroupEvictions
    dispatcher: APIDispatcher
    records: DecisionRecords
    throttle: Throttle
    _reservation_timers: dict[PodGroupKey, asyncio.TimerHandle] = field(default_factory=dict)
    """The ends of reservations."""

    async def bind_members(self, taken: GroupInCycle, decision: GroupDecision) -> None:
        """Start the bindings of the members that have a node, and requeue the others.

        Those that are to be tried once more, by themselves or with their group, are left to the
        caller.
        """
        results = decision.attempt.results
        placed = [each for each in results if each.assumed is not None]
        left = set[str]()
        if len(placed) < len(results):
            taken.remaining = remaining = RemainingMembers(decision, taken.profile.compatibility)
            left = remaining.uids.union(each.pod.uid for each in remaining.again)
        taken.members.room_refused = ""
        needed = decision.request.needed if decision.request.group.is_gang else 1
        permit = None
        if needed > 1:
            permit = GroupPermit(len(placed), needed, partial(_raised, taken, decision.request))
        for number, result in enumerate(results):
            await taken.slices.pass_on(
                at_once=number % MAX_BINDINGS_PER_ITERATION == MAX_BINDINGS_PER_ITERATION - 1
            )
            queued = taken.queued[result.pod.uid]
            self._record_result(result, taken.profile)
            if result.assumed is None:
                if result.pod.uid not in left:
                    self.requeue_failed(taken, queued, result.failure)
                continue
            self.records.put(taken.records[result.pod.uid])
            attempt = BindingAttempt(
                queued,
                taken.profile,
                result.state,
                result.assumed,
                taken.started_seconds,
                result.evaluated,
                result.feasible,
                permit=permit,
            )
            self.bindings.start(result.pod.uid, self.binding_cycle.run(attempt))
        self.conditions.scheduled(taken.members.key)

    async def requeue_members(self, taken: GroupInCycle, decision: GroupDecision) -> None:
        """Requeue the members, each with its own reason, and state the group's."""
        preemption, results = decision.preemption, decision.attempt.results
        nodes = self._reserve_nodes(taken, decision)
        for result in results:
            self._record_result(result, taken.profile)
        failures = member_failures(decision)
        if decision.attempt.broken:
            self.conditions.error(taken.members.key, decision.message)
        else:
            message = _group_message(decision, is_kept=bool(nodes))
            self.conditions.unschedulable(taken.members.key, message)
        evicts = preemption is not None and bool(preemption.victims)
        if evicts:
            # Before the members are requeued: they are gated until their victims are evicted.
            self.world.preempting.update(taken.queued)
        # What PostFilter wants done in the cluster, once for members that want the same.
        for api_call in {
            each.api_call.act: each.api_call for each in results if each.api_call
        }.values():
            self.dispatcher.api_calls.start(api_call)
        namespace = taken.members.key.namespace
        waits_backoff_out = self.throttle.slow_namespaces.waits_backoff_out(namespace)
        for uid, failure in failures.items():
            await taken.slices.pass_on()
            taken.queued[uid].waits_backoff_out = waits_backoff_out
            self.requeue_failed(taken, taken.queued[uid], failure, nodes.get(uid, ""))
        if preemption is not None and evicts:
            group, name = decision.request.group, taken.profile.scheduler_name
            members = [each.pod for each in taken.queued.values()]
            why = preemption.decided_by
            reference, victims = group_reference(group), preemption.victims
            self.evictions.start(
                GroupEviction(group, reference, members, victims, name, decided_by=why)
            )
        seconds = self.world.clock.monotonic() - taken.started_seconds
        self.throttle.slow_namespaces.took(namespace, SlowSearch.GROUP, seconds)

    def _reserve_nodes(self, taken: GroupInCycle, decision: GroupDecision) -> Mapping[str, str]:
        """The nodes to which members are nominated while room is made, for a limited time."""
        key = taken.members.key
        timer = self._reservation_timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        refused = taken.members.room_refused
        reservation = reserve_nodes(self.world, taken.profile, taken.members, decision)
        if taken.members.room_refused != refused:
            self.conditions.check_later(key)
        if reservation is None:
            return {}
        if reservation.left_seconds > 0:
            self._reservation_timers[key] = asyncio.get_running_loop().call_later(
                reservation.left_seconds, self._try_with_reservation_once_more, key
            )
        return reservation.nodes

    def _try_with_reservation_once_more(self, key: PodGroupKey) -> None:
        del self._reservation_timers[key]
        try_with_reservation_once_more(self.world, key)

    def _record_result(self, result: MemberResult, profile: ServedProfile) -> None:
        """Record what a member's attempt has measured, and what broke in it."""
        if result.assumed is None:
            profile.framework.metrics_recorder.attempt(result.state)
        for raised in result.plugin_failures:
            logger.error("%s: %s", result.pod.key, raised, exc_info=raised)
            self.failures.count(raised, profile)

    def requeue_failed(
        self,
        taken: GroupInCycle,
        queued: QueuedPod,
        failure: Failure | None,
        nominated_to: str = "",
    ) -> None:
        """Requeue a member; the nomination that it had is replaced or taken away."""
        failure = failure or Failure.error("no verdict")
        if failure.rejected:
            failure = replace(failure, nomination=NominatingInfo(nominated_to))
        self.failures.handle(queued, taken.profile, failure, taken.started_seconds)

    async def fail_members(self, taken: GroupInCycle, failure: Failure) -> None:
        """Requeue every member after an error."""
        for queued in taken.queued.values():
            await taken.slices.pass_on()
            self.requeue_failed(taken, queued, failure)
        self.conditions.error(taken.members.key, failure.message)

    async def requeue_throttled(self, taken: GroupInCycle) -> None:
        """Requeue every member of a group that lets others pass."""
        failure = Failure.throttled(NAMESPACE_THROTTLED)
        for queued in taken.queued.values():
            await taken.slices.pass_on()
            self.requeue_failed(taken, queued, failure)
        self.conditions.unschedulable(taken.members.key, NAMESPACE_THROTTLED)

    async def requeue_lacking(self, taken: GroupInCycle, decision: GroupDecision | None) -> None:
        """Requeue the members of a group that is bound in part, while others do not exist.

        `decision`: the nodes that are kept for them; None: none are, any more.
        """
        nodes, results = dict[str, str](), dict[str, MemberResult]()
        namespace, slow_namespaces = taken.members.key.namespace, self.throttle.slow_namespaces
        if decision is not None:
            nodes |= self._reserve_nodes(taken, decision)
            results |= {each.pod.uid: each for each in decision.attempt.results}
        waits_backoff_out = slow_namespaces.waits_backoff_out(namespace)
        for uid, queued in taken.queued.items():
            await taken.slices.pass_on()
            result = results.get(uid)
            if result is not None:
                self._record_result(result, taken.profile)
            failure = result.failure if result is not None else None
            refused_by = failure.unschedulable_plugins if failure is not None else frozenset()
            queued.waits_backoff_out = waits_backoff_out
            requeue_untried(self.world, queued, refused_by)
            if self.world.queue.entries.get(uid) is not queued:
                # Deleted meanwhile, or bound by another scheduler.
                continue
            nomination = NominatingInfo(nodes.get(uid, ""))
            self.world.queue.nominate(queued.pod, nomination.node_name)
            self.dispatcher.reports.put(Report(queued.pod, nomination=nomination))
        self.conditions.check_later(taken.members.key)
        if decision is not None:
            seconds = self.world.clock.monotonic() - taken.started_seconds
            slow_namespaces.took(namespace, SlowSearch.GROUP, seconds)

    async def requeue_untried(
        self, taken: GroupInCycle, results: Sequence[MemberResult] = ()
    ) -> None:
        """Gate every member again: the group fell below its size since they were let in, or went.

        `results`: of an attempt that was in vain.
        """
        for result in results:
            self._record_result(result, taken.profile)
        for queued in taken.queued.values():
            await taken.slices.pass_on()
            requeue_untried(self.world, queued)
        self.conditions.check_later(taken.members.key)


def _raised(taken: GroupInCycle, request: GroupRequest) -> int:
    """By how much the group's minCount is higher than it was when the group was decided."""
    group = taken.members.group
    return 0 if group is None else group.min_count - request.group.min_count


def _group_message(decision: GroupDecision, *, is_kept: bool) -> str:
    if decision.preemption is None or (decision.preemption.is_reservation and not is_kept):
        return decision.message
    if decision.says_victims:
        return decision.message
    why = CAPACITY_IS_RESERVED if decision.preemption.is_reservation else WAITING_FOR_VICTIMS
    return f"{decision.message}, {why}"


class GroupGiveBack:
    """Deletes the bound members of groups that stay bound in part longer than they allow."""

    def __init__(self, world: World, dispatcher: APIDispatcher) -> None:
        self._world, self._dispatcher = world, dispatcher
        self._timers: dict[PodGroupKey, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._outdated: set[PodGroupKey] = set()
        """Groups that have not been bound in part all the time since this process began."""

    def check(self, members: GroupMembers) -> None:
        """Start the timer of a group that is bound in part, or stop it."""
        key, group = members.key, members.group
        if group is None or group.give_back_seconds is None or not members.is_partly_bound:
            timer = self._timers.pop(key, None)
            if timer is not None:
                timer.cancel()
            if timer is not None or members.bound:
                self._outdated.add(key)
        elif key not in self._timers:
            seconds = self._left_seconds(group, group.give_back_seconds)
            self._timers[key] = asyncio.get_running_loop().call_later(
                seconds, self._start_giving_back, key
            )

    def _left_seconds(self, group: PodGroup, seconds: float) -> float:
        """The time left for the rest of a group: less where an earlier process has waited."""
        for condition in group.conditions if group.key not in self._outdated else ():
            if condition["type"] == PARTLY_BOUND and condition.get("status") == "True":
                since = parse_moment(condition["lastTransitionTime"])
                passed = (self._world.clock.now() - since).total_seconds()
                return min(seconds, max(0.0, seconds - passed))
        return seconds

    def _start_giving_back(self, key: PodGroupKey) -> None:
        """Delete the members that are bound and may be deleted, if still too few others are."""
        del self._timers[key]
        self._outdated.add(key)
        members = self._world.pod_groups.groups.get(key)
        if members is None or members.group is None or not members.is_partly_bound:
            return
        bound = [pod for pod in members.pods.values() if _may_be_deleted(pod)]
        if bound:
            task = asyncio.get_running_loop().create_task(
                self._give_back(members.group, bound),
                name=f"give back {key.shown}",
                context=Context(),
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _give_back(self, group: PodGroup, bound: list[PodInfo]) -> None:
        for pod in bound:
            try:
                await self._dispatcher.client.delete_pod(pod.namespace, pod.name, pod.uid)
            except (NotFound, Conflict):
                continue
            except SchedulerError as failure:
                logger.warning(
                    "cannot delete %s, a member of a group that is partly bound: %s",
                    pod.key,
                    failure,
                )
        self._dispatcher.recorder.event(
            group_reference(group),
            "Warning",
            "GivenBack",
            "Scheduling",
            f"{len(bound)} bound pods were deleted, because too few others could be bound "
            f"within {group.give_back_seconds} s",
            reporting_controller=self._world.profiles.profile_name(bound[0]),
        )
        members = self._world.pod_groups.groups.get(group.key)
        if members is not None:
            # What could not be deleted is tried again.
            self.check(members)


def _may_be_deleted(pod: PodInfo) -> bool:
    """Whether a member is on a node, has not started, and will be made anew."""
    has_begun = pod.phase not in {"", "Pending"} or pod.started_seconds is not None
    return bool(pod.node_name) and not (pod.terminating or has_begun) and pod.owner is not None
