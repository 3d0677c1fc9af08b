"""From a decision on a group to its members in binding tasks, or back in the queue.

The group cycle calls it, and waits: it is done in slices, as deciding is. Invariant: a member that
was taken is in exactly one place when it is done, and none is in two meanwhile.
"""

import asyncio
import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.records import DecisionRecord, DecisionRecords
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group_key import PodGroupKey
from stellwerk.models.profile_defaults import GANG_SCHEDULING
from stellwerk.scheduler.attempt_failures import AttemptFailures
from stellwerk.scheduler.binding_cycle import Attempt as BindingAttempt
from stellwerk.scheduler.binding_cycle import BindingCycle
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.gangs.binding_quorum import BindingQuorum
from stellwerk.scheduler.gangs.group_evictions import GroupEviction, GroupEvictions
from stellwerk.scheduler.gangs.group_reports import GroupReports, group_reference
from stellwerk.scheduler.outbox import Outbox
from stellwerk.scheduler.slices import Slices
from stellwerk.world.failure import Failure
from stellwerk.world.gangs.group_attempt import MemberResult
from stellwerk.world.gangs.group_decision import GroupDecision
from stellwerk.world.gangs.group_preemption import GroupPreemption
from stellwerk.world.gangs.group_request import GroupRequest
from stellwerk.world.gangs.queue_order import gang_args, is_first, requeue_untried
from stellwerk.world.pod_status import NominatingInfo
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

EARLY_SHARE: Final = 0.02
"""Of the time, what groups may take that are tried again before their backoff has ended."""
EARLY_BURST_SECONDS: Final = 0.2
"""So much of it may be spent at once."""
TASKS_AT_ONCE: Final = 32
"""So many bindings are started before others have their turn: all begin in the next one."""
WAITING_FOR_OTHERS: Final = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
WAITING_FOR_VICTIMS: Final = "pod group is waiting for preemption to complete"
ROOM_IS_KEPT: Final = "room is kept for the pod group"
OTHER_FAILED: Final = "failed to schedule other pod from a pod group: "


@dataclass(slots=True)
class Taken:
    """The members that a cycle has in hand."""

    queued: dict[str, QueuedPod]
    """By uid."""
    profile: ServedProfile
    members: GroupMembers
    started_seconds: float
    slices: Slices
    records: dict[str, DecisionRecord] = field(default_factory=dict)
    """By uid, of the members' last decisions for nodes; the Decisions are too large to be kept."""


@dataclass(slots=True)
class HandOver:
    """Starts bindings, requeues what has no node, has victims evicted, and says it of the group."""

    world: World
    bindings: BindingTasks
    binding_cycle: BindingCycle
    failures: AttemptFailures
    reports: GroupReports
    evictions: GroupEvictions
    outbox: Outbox
    records: DecisionRecords
    _early_seconds: float = EARLY_BURST_SECONDS
    """What is left for early attempts."""
    _counted_seconds: float = 0.0
    """When that was last counted."""
    _ends: dict[PodGroupKey, asyncio.TimerHandle] = field(default_factory=dict)
    """When room is kept no longer."""

    async def bind(self, taken: Taken, decision: GroupDecision) -> None:
        """Hand the members that have a node to binding tasks, the others back to the queue."""
        results = decision.attempt.results
        placed = [each for each in results if each.assumed is not None]
        needed = decision.request.needed if decision.request.group.is_gang else 1
        quorum = BindingQuorum(len(placed), needed) if needed > 1 else None
        for number, result in enumerate(results):
            await taken.slices.pass_on(at_once=number % TASKS_AT_ONCE == TASKS_AT_ONCE - 1)
            queued = taken.queued[result.pod.uid]
            self._note(result, taken.profile)
            if result.assumed is None:
                self._fail(taken, queued, result.failure)
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
                quorum=quorum,
            )
            self.bindings.start(result.pod.uid, self.binding_cycle.run(attempt))
        self.reports.scheduled(taken.members.key)

    async def give_up(self, taken: Taken, decision: GroupDecision) -> None:
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
        for result in attempt.results:
            self._note(result, taken.profile)
            failures[result.pod.uid] = _woken_once(result, awake) or waits
        if attempt.broken:
            others = Failure.error(f"{OTHER_FAILED}{attempt.broken}")
            for uid in taken.queued:
                known = failures.get(uid)
                if known is None or known.rejected:
                    failures[uid] = others
            self.reports.error(taken.members.key, decision.message)
        else:
            self.reports.unschedulable(taken.members.key, _group_message(decision))
        evicts = preemption is not None and bool(preemption.victims)
        if evicts:
            # Before the members are requeued: they are gated until their victims are evicted.
            self.world.preempting.update(taken.queued)
        self._follow_up(attempt.results)
        nodes = self._reserved(taken, preemption)
        rests = self._early_seconds < 0
        for pod in decision.request.members:
            await taken.slices.pass_on()
            failure = failures.get(pod.uid, waits)
            taken.queued[pod.uid].waits_backoff_out = rests
            self._fail(taken, taken.queued[pod.uid], failure, nodes.get(pod.uid, ""))
        if preemption is not None and evicts:
            self._evict(taken, decision.request, preemption.victims)
        self._spend(self.world.clock.monotonic() - taken.started_seconds)

    def _reserved(self, taken: Taken, preemption: GroupPreemption | None) -> Mapping[str, str]:
        """The nodes to which members are nominated while room is made, for a limited time."""
        members = taken.members
        members.ending = preemption.ending if preemption is not None else None
        timer = self._ends.pop(members.key, None)
        if timer is not None:
            timer.cancel()
        if preemption is None:
            members.reserved_since = None
            return {}
        now, since = self.world.clock.monotonic(), members.reserved_since
        if since is None or preemption.victims:
            members.reserved_since = since = now
        group = members.group
        given = group.schedule_timeout_seconds if group is not None else None
        limit_seconds = given or gang_args(taken.profile).reservation_seconds
        left_seconds = since + limit_seconds - now
        if left_seconds > 0:
            loop = asyncio.get_running_loop()
            self._ends[members.key] = loop.call_later(left_seconds, self._over, members.key)
        is_kept = left_seconds > 0 or is_first(self.world, members)
        return preemption.nodes if is_kept else {}

    def _over(self, key: PodGroupKey) -> None:
        """Room has been kept for a group long enough: have it tried, and give it up otherwise."""
        del self._ends[key]
        members = self.world.pod_groups.groups.get(key)
        if members is not None and members.reserved_since is not None:
            self.world.activate([pod for pod in members.pods.values() if not pod.node_name])

    def _spend(self, seconds: float) -> None:
        """Count what an attempt in vain took against the time for early ones.

        An idle activeQ takes rejected pods early; of groups only as far as there is time for it,
        so that many that fit nowhere cost next to nothing however often the cluster changes.
        """
        now = self.world.clock.monotonic()
        earned = EARLY_SHARE * (now - self._counted_seconds)
        self._early_seconds = min(EARLY_BURST_SECONDS, self._early_seconds + earned) - seconds
        self._counted_seconds = now

    def _evict(self, taken: Taken, request: GroupRequest, victims: Sequence[PodInfo]) -> None:
        group = request.group
        members = [each.pod for each in taken.queued.values()]
        name = taken.profile.scheduler_name
        self.evictions.start(GroupEviction(group, group_reference(group), members, victims, name))

    def _follow_up(self, results: Sequence[MemberResult]) -> None:
        """What PostFilter wants done in the cluster; members that share a claim want the same."""
        acts = {act.act: act for each in results if (act := each.follow_up) is not None}
        for act in acts.values():
            self.outbox.follow_ups.start(act)

    def _note(self, result: MemberResult, profile: ServedProfile) -> None:
        """What a member's attempt has measured, and what broke in it."""
        if result.assumed is None:
            profile.framework.metrics_recorder.attempt(result.state)
        for raised in result.plugin_failures:
            logger.error("%s: %s", result.pod.key, raised, exc_info=raised)
            self.failures.count(raised, profile)

    def _fail(
        self, taken: Taken, queued: QueuedPod, failure: Failure | None, nominated_to: str = ""
    ) -> None:
        """Put a member back; the nomination that it had is replaced or taken away."""
        failure = failure or Failure.error("no result")
        if failure.rejected:
            failure = replace(failure, nomination=NominatingInfo(nominated_to))
        self.failures.handle(queued, taken.profile, failure, taken.started_seconds)

    async def fail_all(self, taken: Taken, failure: Failure) -> None:
        """Put every member back: something broke."""
        for queued in taken.queued.values():
            await taken.slices.pass_on()
            self._fail(taken, queued, failure)
        self.reports.error(taken.members.key, failure.message)

    async def rest(self, taken: Taken) -> None:
        """The group fell below its size since its members were let in: they are gated again."""
        for queued in taken.queued.values():
            await taken.slices.pass_on()
            requeue_untried(self.world, queued)
        self.reports.look(taken.members.key)


def _woken_once(result: MemberResult, awake: set[Hashable]) -> Failure | None:
    """A member's failure; of members that are alike, one waits for events in place of all.

    A change that may help it brings the others along.
    """
    failure, pod = result.failure, result.pod
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
