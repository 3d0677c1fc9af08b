"""Groups of pods in a rerun: decided as a whole, and carried out at once.

Reruns call it for the member that was popped. Invariant: when it returns, each member that was
taken up is assumed on its node or back in the queue.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.steps import finished
from stellwerk.models.pod import PodInfo
from stellwerk.world.effects import requeue
from stellwerk.world.failure import Failure
from stellwerk.world.gangs.group_attempt import answered
from stellwerk.world.gangs.group_decision import GroupDecision, decide_group
from stellwerk.world.gangs.group_request import request_for
from stellwerk.world.gangs.queue_order import member_position, requeue_untried, why_inadmissible
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
    key = world.pod_groups.key_of.get(queued.pod.uid)
    members = world.pod_groups.groups.get(key) if key is not None else None
    if members is None or members.group is None:
        requeue_untried(world, queued)
        return GroupOutcome()
    taken = _taken(world, queued, members)
    if world.pod_groups.why_closed(members) or why_inadmissible(world, members):
        for each in taken:
            requeue_untried(world, each)
        return GroupOutcome()
    in_order = [each.pod for each in sorted(taken, key=member_position)]
    request = request_for(world, profile, members, in_order)
    decision = finished(answered(decide_group(world, profile, request)))
    return _carried_out(world, taken, members, decision)


def _taken(world: World, queued: QueuedPod, members: GroupMembers) -> list[QueuedPod]:
    taken = [queued]
    for uid, pod in members.pods.items():
        if not pod.node_name and uid != queued.pod.uid:
            other = world.queue.pop_with_group(uid)
            if other is not None:
                taken.append(other)
    return taken


def _carried_out(
    world: World, taken: Sequence[QueuedPod], members: GroupMembers, decision: GroupDecision
) -> GroupOutcome:
    """Requeue the members without a node, with their nominations."""
    preemption, verdicts = decision.preemption, decision.attempt.results
    members.lacks_placement = not decision.placements
    members.ending = preemption.ending if preemption is not None else None
    assumed = {each.pod.uid: each.assumed for each in verdicts} if decision.placed else {}
    failures = {each.pod.uid: each.failure for each in verdicts}
    nodes = preemption.nodes if preemption is not None else {}
    for queued in taken:
        uid = queued.pod.uid
        if assumed.get(uid) is None:
            own = failures.get(uid)
            plugins = own.unschedulable_plugins if own is not None else decision.rejected_by
            failure = Failure(decision.message, plugins, rejected=True)
            failure.nomination = NominatingInfo(nodes.get(uid, ""))
            requeue(world, queued, failure)
    placed = [pod for pod in assumed.values() if pod is not None]
    return GroupOutcome(placed, preemption.victims if preemption is not None else ())
