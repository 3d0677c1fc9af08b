"""Nodes that are kept for a group that does not fit, so that smaller pods cannot delay it.

`group_request` asks whether a group may have nodes kept, `group_decision` finds them, and
`submit_group_result` has the reservation noted here and ended when its time is over. Two causes:
victims of the group are ending (its own time limit), or pods are known to end by themselves (the
room that the profile grants to a namespace). Invariants: what a namespace may keep is shared by all
its groups, and a group that is made anew does not begin a new time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk.models.pod_group import PodGroup, PodGroupKey
from stellwerk.plugins.shared.victims import started_at
from stellwerk.world.gangs.group_decision import GroupDecision
from stellwerk.world.gangs.pod_groups import GroupMembers, KeptRoom
from stellwerk.world.gangs.queue_order import gang_args, is_first
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.json_values import text_map

TOO_FEW_END: Final = (
    "too few of the pods in its way will end in time: those that are terminating, or whose "
    "activeDeadlineSeconds ends while room may be kept"
)


def reservation_limit_seconds(profile: ServedProfile, group: PodGroup | None) -> float:
    """The time for which nodes are reserved for a group: its profile's, unless its own is less."""
    given_seconds = group.schedule_timeout_seconds if group is not None else None
    limit_seconds = gang_args(profile).reservation_seconds
    return min(given_seconds, limit_seconds) if given_seconds else limit_seconds


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
        return (
            "the profile grants no room: args.reservation is missing in pluginConfig of "
            "GangScheduling"
        )
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
        f"the maximum; room can be kept again {granted.cooldown_seconds} s later"
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
    states, now = world.pod_groups, world.clock.monotonic()
    for name, each in list(states.kept_room.items()):
        if each.forgotten_at <= now:
            del states.kept_room[name]
    forgotten_at = now + granted.max_seconds + granted.cooldown_seconds
    kept = states.kept_room.get(namespace) or KeptRoom(now, forgotten_at)
    others = {
        node_name
        for key in kept.groups - {members.key}
        for uid in (states.groups[key].pods if key in states.groups else ())
        if (node_name := world.nominator.node_of(uid))
    }
    total = len(world.cache.snapshot.row_of)
    most, wanted = granted.most_nodes(total), set(nodes)
    if len(others | wanted) > most:
        return 0.0, (
            f"{len(wanted)} nodes would be kept for it, and {len(others)} are for other groups of "
            f'the namespace "{namespace}", which is granted {most} of {total}'
        )
    states.kept_room[namespace] = kept
    kept.groups = {key for key in kept.groups if key in states.groups} | {members.key}
    return kept.since + granted.max_seconds - now, ""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The nodes that members are nominated to while victims end, or others by themselves."""

    nodes: Mapping[str, str]
    """The name of each member's node, by uid; empty: nodes are kept no longer."""
    left_seconds: float
    """The time for which they are still kept, at most 0 if it is over; the first of its queue keeps
    what its victims leave."""


def reserve_nodes(
    world: World, profile: ServedProfile, members: GroupMembers, decision: GroupDecision
) -> Reservation | None:
    """Note the reservation of a group that is not placed; None: nothing makes room for it."""
    preemption = decision.preemption
    members.lacks_placement = not decision.placements
    members.ending = preemption.ending if preemption is not None else None
    members.room_refused = ""
    if preemption is None:
        members.reserved_since = None
        if asks_for_room(world, members):
            is_asked = decision.request.known_to_end is not None and not members.lacks_placement
            too_few_end = TOO_FEW_END if is_asked else ""
            members.room_refused = why_no_room(world, profile, members) or too_few_end
        return None
    now, since = world.clock.monotonic(), members.reserved_since
    for uid in preemption.nodes:
        world.nominator.kept_until.pop(uid, None)
    if not preemption.is_reservation:
        if since is None or preemption.victims:
            members.reserved_since = since = now
        left_seconds = since + reservation_limit_seconds(profile, members.group) - now
        is_kept = left_seconds > 0 or is_first(world, members)
        return Reservation(preemption.nodes if is_kept else {}, left_seconds)
    left_seconds, refused = keep_room(world, profile, members, preemption.nodes.values())
    if refused:
        members.room_refused, members.ending, members.reserved_since = refused, None, None
        return None
    if since is None:
        members.reserved_since = since = now
    group = members.group
    if group is not None and group.schedule_timeout_seconds:
        left_seconds = min(left_seconds, since + group.schedule_timeout_seconds - now)
    is_kept = left_seconds > 0
    if is_kept:
        world.nominator.keep_until(preemption.nodes, now + left_seconds)
    return Reservation(preemption.nodes if is_kept else {}, left_seconds)


def try_with_reservation_once_more(world: World, key: PodGroupKey) -> None:
    """Have a group tried a last time with its reservation, which ends if that is in vain."""
    members = world.pod_groups.groups.get(key)
    if members is not None and members.reserved_since is not None:
        world.activate([pod for pod in members.pods.values() if not pod.node_name])
