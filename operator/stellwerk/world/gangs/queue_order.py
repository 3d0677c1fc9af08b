"""The order of the groups of one queue, where profiles keep it, and of the members of one group.

The first is the waiting group of the highest priority, the oldest of these. One behind it is
inadmissible unless capacity is reserved for the first: nominated members keep pods of no higher
priority off their nodes, so that what is placed beside them cannot delay it. Group cycles and
explanations ask; group events have those tried that follow. Invariants: the order follows from the
World alone, and a group that was put back is tried again once the one that it was put back for has
been tried, placed or lost.
"""

import math
from collections.abc import Collection, Iterable
from typing import TypeAlias

from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup
from stellwerk.plugins.shared.victims import started_at
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.plugin_args import GangSchedulingArgs
from stellwerk.world.gangs.pod_groups import GroupMembers, GroupQueue, KeptRoom
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.json_values import text_map

_Position: TypeAlias = tuple[int, str, str]
_ON_ITS_WAY = frozenset((Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF))


def gang_args(profile: ServedProfile) -> GangSchedulingArgs:
    """The arguments of GangScheduling in a profile; the defaults where it lacks the plugin."""
    args = profile.loaded.args.get(GANG_SCHEDULING)
    return args if isinstance(args, GangSchedulingArgs) else GangSchedulingArgs.model_validate({})


def reservation_limit_seconds(profile: ServedProfile, group: PodGroup | None) -> float:
    """The time for which nodes are reserved for a group: its profile's, unless its own is less."""
    given_seconds = group.schedule_timeout_seconds if group is not None else None
    limit_seconds = gang_args(profile).reservation_seconds
    return min(given_seconds, limit_seconds) if given_seconds else limit_seconds


def queue_of(world: World, members: GroupMembers) -> GroupQueue | None:
    """The queue whose order a group keeps; None: its profile or the group has none."""
    group = members.group
    if group is None or not group.queue or not _is_strict(world, members):
        return None
    return world.pod_groups.queues.of(group)


def first_of(world: World, queue: GroupQueue) -> GroupMembers | None:
    """The group of a queue that all others are behind; None: none waits."""
    groups = world.pod_groups.groups
    pending = (members for key in queue.groups if (members := groups[key]).pending.total())
    in_order = sorted(pending, key=_position)
    return next((members for members in in_order if _waits(world, members)), None)


def is_first(world: World, members: GroupMembers) -> bool:
    """Whether a group is the first of a queue whose order is kept."""
    queue = queue_of(world, members)
    return queue is not None and first_of(world, queue) is members


def asks_for_room(world: World, members: GroupMembers) -> bool:
    """Whether nodes should be kept for a group that does not fit: it says so, or is the first."""
    if members.group is not None and members.group.reserves_room:
        return True
    return is_first(world, members)


def reserves_capacity(world: World, profile: ServedProfile, members: GroupMembers) -> bool:
    """Whether nodes are reserved for a group that does not fit: it asks, and may have them."""
    return asks_for_room(world, members) and not why_no_room(world, profile, members)


def why_no_room(world: World, profile: ServedProfile, members: GroupMembers) -> str:
    """The reason for which no node may be kept for a group now; empty: some may."""
    granted, namespace = gang_args(profile).reservation, members.key.namespace
    if granted is None:
        return "the profile grants no room: pluginConfig of GangScheduling has no args.reservation"
    obj = world.objects.get("Namespace", "", namespace)
    labels = text_map(obj["metadata"].get("labels")) if obj is not None else {}
    if not granted.namespaces.compiled().matches(labels):
        return f'args.reservation.namespaces grants no room to the namespace "{namespace}"'
    kept = world.pod_groups.kept_room.get(namespace)
    if kept is None:
        return ""
    passed = world.clock.monotonic() - kept.since
    if not granted.max_seconds <= passed < granted.max_seconds + granted.cooldown_seconds:
        return ""
    return (
        f'room was kept for groups of the namespace "{namespace}" for {granted.max_seconds} s, '
        f"the most that is granted, and is again {granted.cooldown_seconds} s later"
    )


def known_to_end(world: World, profile: ServedProfile, namespace: str) -> frozenset[str]:
    """Uids of the pods on nodes whose own deadline ends them while room may be kept for others."""
    granted = gang_args(profile).reservation
    if granted is None:
        return frozenset()
    kept, passed = world.pod_groups.kept_room.get(namespace), 0.0
    if kept is not None:
        passed = world.clock.monotonic() - kept.since
    now = world.clock.now().timestamp()
    until = now + granted.max_seconds - (passed if passed < granted.max_seconds else 0.0)
    return frozenset(
        pod.uid
        for pod in world.cache.pods()
        if pod.active_deadline_seconds is not None
        and min(now, started_at(pod)) + pod.active_deadline_seconds <= until
    )


def keep_room(
    world: World, profile: ServedProfile, members: GroupMembers, nodes: Collection[str]
) -> tuple[float, str]:
    """Count the nodes that are kept for a group: (seconds that are left, why it may not have them).

    What its namespace may keep is shared by all its groups, and by those that they were before.
    """
    refused = why_no_room(world, profile, members)
    granted, namespace = gang_args(profile).reservation, members.key.namespace
    if granted is None or refused:
        return 0.0, refused
    book, now = world.pod_groups, world.clock.monotonic()
    for name, each in list(book.kept_room.items()):
        if each.forgotten_at <= now:
            del book.kept_room[name]
    forgotten_at = now + granted.max_seconds + granted.cooldown_seconds
    kept = book.kept_room.get(namespace) or KeptRoom(now, forgotten_at)
    others = {
        node_name
        for key in kept.groups - {members.key}
        for uid in (book.groups[key].pods if key in book.groups else ())
        if (node_name := world.nominator.node_of(uid))
    }
    total = len(world.cache.snapshot.row_of)
    most, wanted = granted.most_nodes(total), set(nodes)
    if len(others | wanted) > most:
        return 0.0, (
            f"{len(wanted)} nodes would be kept for it, and {len(others)} are for other groups of "
            f'the namespace "{namespace}", which is granted {most} of {total}'
        )
    book.kept_room[namespace] = kept
    kept.groups = {key for key in kept.groups if key in book.groups} | {members.key}
    return kept.since + granted.max_seconds - now, ""


def why_inadmissible(world: World, members: GroupMembers) -> str:
    """The reason for which a group of a queue is not to be tried now; empty: it may be."""
    queue = queue_of(world, members)
    first = first_of(world, queue) if queue is not None else None
    return "" if first is None else why_behind(world, first, members)


def why_behind(world: World, first: GroupMembers, members: GroupMembers) -> str:
    """The reason for which a group is not to be tried before the first; empty: it may be."""
    if first is members or _position(members) < _position(first):
        return ""
    obstacle = _obstacle(world, first, members)
    if not obstacle:
        return ""
    name = members.group.queue if members.group is not None else ""
    return f'waiting in queue "{name}" behind the pod group "{first.key.name}": {obstacle}'


def _obstacle(world: World, first: GroupMembers, members: GroupMembers) -> str:
    """The reason for which nothing may be placed beside the first group; empty: it may."""
    if max(members.priorities, default=0) > min(first.priorities, default=0):
        return "pods of a higher priority could take its room"
    queue = world.queue
    pending = [uid for uid, pod in first.pods.items() if not pod.node_name]
    if any(queue.place(uid) in _ON_ITS_WAY for uid in pending):
        return "it is to be tried first"
    group = first.group
    needed = (group.min_count if group is not None else 0) - world.pod_groups.placed(first)
    nominated = sum(bool(world.nominator.node_of(uid)) for uid in pending)
    return "" if nominated >= max(1, needed) else "no room can be kept for it"


def _waits(world: World, members: GroupMembers) -> bool:
    book = world.pod_groups
    return (
        _is_strict(world, members)
        and not book.why_closed(members)
        and not book.is_satisfied(members)
    )


def _is_strict(world: World, members: GroupMembers) -> bool:
    served = world.profiles.served
    return any(
        (profile := served.get(name)) is not None and gang_args(profile).strict_queues
        for name, count in members.pending.items()
        if count
    )


def _position(members: GroupMembers) -> _Position:
    created = members.group.created if members.group is not None else ""
    return (-max(members.priorities, default=0), created, members.key.name)


def member_position(queued: QueuedPod) -> tuple[int, float, str]:
    """A sort key: the order in which the members of a group are tried."""
    pod = queued.pod
    return (-pod.priority, queued.initial_attempt_at or queued.queued_at, pod.name)


def in_order(world: World, pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Members of a group in the order in which they are tried; what is not queued comes last."""

    def position(pod: PodInfo) -> tuple[int, float, str]:
        queued = world.queue.entries.get(pod.uid)
        return member_position(queued) if queued else (-pod.priority, math.inf, pod.name)

    return sorted(pods, key=position)


def requeue_untried(world: World, queued: QueuedPod) -> None:
    """Put a member back that was not tried, until its group may be."""
    world.queue.add_unschedulable_if_not_present(
        queued, {GANG_SCHEDULING}, now=world.clock.monotonic()
    )


def requeue_inadmissible(world: World, members: GroupMembers, taken: Iterable[QueuedPod]) -> None:
    """Put the members of a group back that follows the first of its queue."""
    queue = queue_of(world, members)
    if queue is not None:
        first = first_of(world, queue)
        queue.inadmissible[members.key] = None
        queue.first = first.key if first is not None else None
    for queued in taken:
        requeue_untried(world, queued)


def after_attempt(world: World, members: GroupMembers) -> None:
    """Have those tried that were put back for a group which has been tried now."""
    queue = queue_of(world, members)
    if queue is not None:
        queue.inadmissible.pop(members.key, None)
        activate_admissible(world, queue)


def after_change(world: World, members: GroupMembers) -> None:
    """Have those tried that were put back for a group whose object or pods have changed now."""
    group = members.group
    queue = world.pod_groups.queues.of(group) if group is not None else None
    if queue is not None and queue.first == members.key:
        activate_admissible(world, queue)


def activate_admissible(world: World, queue: GroupQueue | None) -> None:
    """Have the groups of a queue tried that were inadmissible and no longer are."""
    if queue is None or not queue.inadmissible:
        return
    first, groups = first_of(world, queue), world.pod_groups.groups
    if first is not None and first.key in queue.inadmissible:
        _activate(world, queue, first)
        return
    for key in list(queue.inadmissible):
        members = groups.get(key)
        if members is not None and not (first and why_behind(world, first, members)):
            _activate(world, queue, members)


def _activate(world: World, queue: GroupQueue, members: GroupMembers) -> None:
    del queue.inadmissible[members.key]
    for uid, pod in members.pods.items():
        if world.queue.place(uid) is Place.UNSCHEDULABLE:
            world.activate([pod])
            return
