"""Taking up a group for `group_cycle`: its members, why it is not tried, and its request.

The group cycle and reruns of recordings call `take_members` and `why_untried`; explanations have a
request made, too. The class `GroupRequest` is in `group_attempt`, because this module imports what
imports that one. Invariants: each member that was taken is in `TakenGroup.queued` or `skipped`;
whether a group is placed is decided by `GroupRequest.is_met_by` alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.handle import milliseconds
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import WORKLOAD_API
from stellwerk.world.gangs.group_attempt import GroupAttempt, GroupRequest
from stellwerk.world.gangs.group_reservation import known_to_end, may_keep_part, reserves_capacity
from stellwerk.world.gangs.pod_groups import GroupMembers
from stellwerk.world.gangs.queue_order import gang_args, member_position, why_inadmissible
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.compatibility import ReleaseRule


@dataclass(slots=True)
class TakenGroup:
    """The members of a group that are taken from the queue, to be decided together."""

    members: GroupMembers
    profile: ServedProfile
    queued: dict[str, QueuedPod]
    """By uid; the one that was popped comes first."""
    skipped: list[QueuedPod] = field(default_factory=list)
    """Members that turned out to be terminating, or assumed: the queue is done with them."""

    def request(self, world: World) -> GroupRequest:
        """The request for a node for each member, in the order in which they are tried."""
        in_order = [each.pod for each in sorted(self.queued.values(), key=member_position)]
        return request_for(world, self.profile, self.members, in_order)


def take_members(world: World, taken: TakenGroup) -> Iterator[None]:
    """Take the other members that can be tried from the queue, in steps."""
    queue = world.queue
    for uid, pod in list(taken.members.pods.items()):
        yield
        if not pod.node_name and uid not in taken.queued:
            other = queue.pop_with_group(uid)
            if other is not None:
                taken.queued[uid] = other
    for uid, each in list(taken.queued.items()):
        if each.newest.terminating or uid in world.cache.assumed_pods:
            del taken.queued[uid]
            queue.done(uid)
            taken.skipped.append(each)


class Untried(Enum):
    """The reasons for which a group that was taken up is put back without an attempt."""

    PROFILES_DIFFER = auto()
    """An error: its members are not all of one profile."""
    TOO_FEW = auto()
    """Its members are gated, or wait for others that are."""
    INADMISSIBLE = auto()
    """Another group of its queue comes first."""


def why_untried(world: World, taken: TakenGroup) -> tuple[Untried, str] | None:
    """The reason for which a group is not to be tried, and its message; None: it is."""
    pods = [each.pod for each in taken.queued.values()]
    differ = why_different(world, taken.profile, taken.members, pods)
    if differ:
        return Untried.PROFILES_DIFFER, differ
    group, placed = taken.members.group, world.pod_groups.placed(taken.members)
    closed = world.pod_groups.why_closed(taken.members)
    # Plugins may keep others from the queue.
    if closed or (group is not None and len(taken.queued) + placed < group.min_count):
        return Untried.TOO_FEW, closed
    inadmissible = why_inadmissible(world, taken.members)
    return (Untried.INADMISSIBLE, inadmissible) if inadmissible else None


def why_different(
    world: World, profile: ServedProfile, members: GroupMembers, pods: Sequence[PodInfo]
) -> str:
    """The reason for which members cannot be decided together: they are not all of one profile."""
    if ReleaseRule.GROUP_PRIORITY_AGREES in profile.compatibility:
        differ = why_disagreeing(members)
        if differ:
            return differ
    names = {pod.spec.scheduler_name for pod in pods}
    rule = "have the same .spec.schedulerName set"
    if len(names) == 1:
        names = {world.profiles.profile_name(pod) for pod in pods}
        rule = "be matched by the selector of the same SchedulerProfile"
    if len(names) == 1:
        return ""
    shown = " and ".join(f'"{name}"' for name in sorted(names))
    return f"all pods in a single pod group should {rule}, got: {shown}"


def why_disagreeing(members: GroupMembers) -> str:
    """The first thing in which members do not agree, scheduled ones included; empty: they do.

    Of groups of kube-scheduler alone. A group without priority has priority 0. Source:
    `validatePodGroup`, v1.37.
    """
    group, pods = members.group, list(members.pods.values())
    if group is None or group.key.api != WORKLOAD_API:
        return ""
    rule = "all pods in a single pod group should have the same"
    priority = group.priority or 0
    for pod in pods:
        if pod.spec.scheduler_name != pods[0].spec.scheduler_name:
            names = f'"{pod.spec.scheduler_name}" and "{pods[0].spec.scheduler_name}"'
            return f"{rule} .spec.schedulerName set, got: {names}"
        if pod.priority != priority:
            got = f"{pod.priority} and {priority}"
            return f"{rule} priority as the pod group's priority, got {got}"
        if pod.spec.preemption_policy != pods[0].spec.preemption_policy:
            got = f"{pod.spec.preemption_policy} and {pods[0].spec.preemption_policy}"
            return f"{rule} preemption policy, got {got}"
    return ""


def scheduled_members(world: World, members: GroupMembers) -> list[PodInfo]:
    """Members that are bound or assumed, and not terminating."""
    placed = (world.cache.pod(uid) for uid in members.pods)
    return [pod for pod in placed if pod is not None and not pod.terminating]


def request_for(
    world: World, profile: ServedProfile, members: GroupMembers, pending: Sequence[PodInfo]
) -> GroupRequest:
    """The request of a group with an object for its `pending` members, tried in this order."""
    assert members.group is not None  # noqa: S101 callers look
    reserves = reserves_capacity(world, profile, members)
    reads_time = profile.framework.reads_time
    return GroupRequest(
        members.group,
        pending,
        _scheduled_but(world, members, pending),
        members.succeeded,
        members.succeeded_by_role,
        gang_args(profile).second_look_milliseconds / 1000,
        reserves,
        members.ending,
        known_to_end=known_to_end(world, profile, members.key.namespace) if reserves else None,
        keeps_part=may_keep_part(world, profile, members),
        moment_seconds=milliseconds(world.clock.now) / 1000 if reads_time else None,
    )


def is_still_met(world: World, members: GroupMembers, attempt: GroupAttempt) -> bool:
    """Whether an attempt places enough members, by the group and its other members as they are now.

    Events that were handled during the decision may have changed both.
    """
    assert members.group is not None  # noqa: S101 callers look
    tried = [each.pod for each in attempt.results]
    scheduled = _scheduled_but(world, members, tried)
    now = GroupRequest(
        members.group, tried, scheduled, members.succeeded, members.succeeded_by_role
    )
    return now.is_met_by(attempt)


def _scheduled_but(
    world: World, members: GroupMembers, pending: Sequence[PodInfo]
) -> list[PodInfo]:
    uids = {pod.uid for pod in pending}
    return [pod for pod in scheduled_members(world, members) if pod.uid not in uids]
