"""Groups of pods in a rerun: taken up and decided as in the operator, and carried out at once.

Reruns call it for the member that was popped. Invariant: when it returns, each member that was
taken up is assumed on its node or back in the queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.steps import finished
from stellwerk.models.pod import PodInfo
from stellwerk.world.effects import requeue
from stellwerk.world.failure import Failure
from stellwerk.world.gangs.group_attempt import answered
from stellwerk.world.gangs.group_decision import (
    GroupDecision,
    decide_group,
    member_failures,
    reserve_nodes,
)
from stellwerk.world.gangs.group_request import TakenGroup, Untried, take_members, why_untried
from stellwerk.world.gangs.queue_order import after_attempt, requeue_inadmissible, requeue_untried
from stellwerk.world.pod_status import NominatingInfo
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """What there is to be carried out."""

    placed: Sequence[PodInfo] = ()
    """Assumed on their nodes."""
    victims: Sequence[PodInfo] = ()


def schedule_group(world: World, queued: QueuedPod, profile: ServedProfile) -> GroupOutcome:
    """Decide for the group of a pod that was popped."""
    members = world.pod_groups.of_member(queued.pod.uid)
    if members is None:
        world.queue.done(queued.pod.uid)
        return GroupOutcome()
    taken = TakenGroup(members, profile, {queued.pod.uid: queued})
    for _ in take_members(world, taken):
        pass
    if not taken.queued:
        return GroupOutcome()
    match why_untried(world, taken):
        case None:
            request = taken.request(world)
            decision = finished(answered(decide_group(world, profile, request)))
            outcome = _carried_out(world, taken, decision)
            after_attempt(world, members)
            return outcome
        case Untried.PROFILES_DIFFER, message:
            for each in taken.queued.values():
                requeue(world, each, Failure.error(message))
        case Untried.TOO_FEW, _:
            for each in taken.queued.values():
                requeue_untried(world, each)
        case Untried.INADMISSIBLE, _:
            requeue_inadmissible(world, members, taken.queued.values())
    return GroupOutcome()


def _carried_out(world: World, taken: TakenGroup, decision: GroupDecision) -> GroupOutcome:
    """Requeue the members without a node, with their nominations."""
    if decision.placed:
        results = decision.attempt.results
        for each in results:
            if each.assumed is None:
                _requeue(world, taken.queued[each.pod.uid], each.failure, "")
        return GroupOutcome([each.assumed for each in results if each.assumed is not None])
    reservation = reserve_nodes(world, taken.profile, taken.members, decision)
    nodes = reservation.nodes if reservation is not None else {}
    for uid, failure in member_failures(decision).items():
        _requeue(world, taken.queued[uid], failure, nodes.get(uid, ""))
    preemption = decision.preemption
    return GroupOutcome(victims=preemption.victims if preemption is not None else ())


def _requeue(world: World, queued: QueuedPod, failure: Failure | None, nominated_to: str) -> None:
    failure = failure or Failure.error("no verdict")
    if failure.rejected:
        failure = replace(failure, nomination=NominatingInfo(nominated_to))
    requeue(world, queued, failure)
