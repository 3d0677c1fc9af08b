"""Nodes that are kept for a group that does not fit, so that smaller pods cannot delay it.

`group_request` asks whether a group may have nodes kept, `group_decision` finds them, and
`submit_group_result` has the reservation noted here and ended when its time is over. Three causes:
victims of the group are ending (its own time limit), pods are known to end by themselves (the room
that the profile grants to a namespace), or some of its members are bound and too few (the same time
limit, once until enough are bound, and the limits for a namespace below). Invariants: what a
namespace may keep is shared by all its groups, and a group that is made anew does not begin a new
time.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk.models.pod import PodInfo
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
MIN_NODES_FOR_PARTLY_BOUND: Final = 10
"""Nodes that all groups of one namespace may keep for their other members while some are bound, in
a cluster of any size; in large ones it is PERCENT_FOR_PARTLY_BOUND of the nodes. More than that a
namespace could keep empty by binding one pod of each of many groups itself."""
PERCENT_FOR_PARTLY_BOUND: Final = 10
COOLDOWN_FACTOR: Final = 2
"""Length of the time in which a namespace keeps nothing for groups that are bound in part, after it
has, in lengths of the time for which it may: groups that are made anew hold nodes for at most a
third of the time."""


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
    forgotten_at = now + granted.max_seconds + granted.cooldown_seconds
    kept = _kept_room(states.kept_room, namespace, now, forgotten_at)
    others = _nodes_of_others(world, kept, members.key)
    total = len(world.cache.snapshot.row_of)
    most, wanted = granted.most_nodes(total), set(nodes)
    if len(others | wanted) > most:
        return 0.0, (
            f"{len(wanted)} nodes would be kept for it, and {len(others)} are for other groups of "
            f'the namespace "{namespace}", which is granted {most} of {total}'
        )
    _count_kept(world, states.kept_room, kept, members.key)
    return kept.since + granted.max_seconds - now, ""


def _kept_room(
    by_namespace: dict[str, KeptRoom], namespace: str, now: float, forgotten_at: float
) -> KeptRoom:
    """The room that a namespace keeps; none from now on, if it keeps none. Old entries go."""
    for name, each in list(by_namespace.items()):
        if each.forgotten_at <= now:
            del by_namespace[name]
    return by_namespace.get(namespace) or KeptRoom(now, forgotten_at)


def _nodes_of_others(world: World, kept: KeptRoom, key: PodGroupKey) -> set[str]:
    """The nodes that are kept for the other groups of a namespace."""
    groups = world.pod_groups.groups
    return {
        node_name
        for other in kept.groups - {key}
        for uid in (groups[other].pods if other in groups else ())
        if (node_name := world.nominator.node_of(uid))
    }


def _count_kept(
    world: World, by_namespace: dict[str, KeptRoom], kept: KeptRoom, key: PodGroupKey
) -> None:
    """Count a group among those for which its namespace keeps room."""
    by_namespace[key.namespace] = kept
    kept.groups = {each for each in kept.groups if each in world.pod_groups.groups} | {key}


# --- groups of which some members are bound ------------------------------------------------------


def left_for_part(world: World, profile: ServedProfile, members: GroupMembers) -> float:
    """The seconds for which room may still be kept for a group's other members; at most 0: none."""
    limit_seconds = reservation_limit_seconds(profile, members.group)
    since = members.partly_kept_since
    return limit_seconds if since is None else since + limit_seconds - world.clock.monotonic()


def may_keep_part(world: World, profile: ServedProfile, members: GroupMembers) -> bool:
    """Whether nodes are kept for some members, because others are bound and their time is left."""
    return members.is_partly_bound and left_for_part(world, profile, members) > 0


def keep_part(
    world: World, profile: ServedProfile, members: GroupMembers, part: Mapping[str, str]
) -> "Reservation | None":
    """Note the nodes kept for some members of a group; None: they may not be kept.

    The reason is noted in the group.
    """
    by_namespace, now = world.pod_groups.kept_for_partly_bound, world.clock.monotonic()
    namespace, limit_seconds = members.key.namespace, reservation_limit_seconds(profile, None)
    forgotten_at = now + (1 + COOLDOWN_FACTOR) * limit_seconds
    kept = _kept_room(by_namespace, namespace, now, forgotten_at)
    others = _nodes_of_others(world, kept, members.key)
    total = len(world.cache.snapshot.row_of)
    most = max(MIN_NODES_FOR_PARTLY_BOUND, total * PERCENT_FOR_PARTLY_BOUND // 100)
    left_of_namespace = kept.since + limit_seconds - now
    if left_of_namespace <= 0:
        members.room_refused = (
            f'room was kept for groups of the namespace "{namespace}" that are bound in part for '
            f"{limit_seconds:g} s, and is again {COOLDOWN_FACTOR * limit_seconds:g} s later"
        )
        return None
    if len(others.union(part.values())) > most:
        members.room_refused = (
            f"{len(set(part.values()))} nodes would be kept for its other members, and "
            f'{len(others)} are for other groups of the namespace "{namespace}", which may keep '
            f"{most} for groups that are bound in part"
        )
        return None
    _count_kept(world, by_namespace, kept, members.key)
    if members.partly_kept_since is None:
        members.partly_kept_since = now
    left_seconds = min(left_of_namespace, left_for_part(world, profile, members))
    return Reservation(part if left_seconds > 0 else {}, left_seconds)


def kept_node(world: World, profile: ServedProfile, assumed: PodInfo, *, is_permitted: bool) -> str:
    """The node that stays nominated to a member which could not be bound there; empty: none does.

    It is kept while others of its gang are bound or being bound, so that no pod of its priority
    takes the room before the member is tried again.

    Args:
        world: the World.
        profile: by which it was decided.
        assumed: the member on its node.
        is_permitted: whether enough members were ready, so that others are being bound.
    """
    members = world.pod_groups.of_member(assumed.uid)
    newest = members.pods.get(assumed.uid) if members is not None else None
    if members is None or newest is None or newest.terminating:
        return ""
    if members.group is None or not members.group.is_gang:
        return ""
    is_partly = members.is_partly_bound
    is_enough = members.bound > 0 and not is_partly
    if is_enough or not (is_permitted or is_partly):
        return ""
    if world.cache.node(assumed.node_name) is None:
        return ""
    if left_for_part(world, profile, members) <= 0:
        return ""
    if members.partly_kept_since is None:
        members.partly_kept_since = world.clock.monotonic()
    return assumed.node_name


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
        return _reserve_without_victims(world, profile, members, decision)
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


def _reserve_without_victims(
    world: World, profile: ServedProfile, members: GroupMembers, decision: GroupDecision
) -> Reservation | None:
    """Keep what some members would get, if others are bound; else say why nothing is kept."""
    if asks_for_room(world, members):
        is_asked = decision.request.known_to_end is not None and not members.lacks_placement
        too_few_end = TOO_FEW_END if is_asked else ""
        members.room_refused = why_no_room(world, profile, members) or too_few_end
    if decision.part:
        return keep_part(world, profile, members, decision.part)
    if members.is_partly_bound and left_for_part(world, profile, members) <= 0:
        limit_seconds = reservation_limit_seconds(profile, members.group)
        members.room_refused = (
            f"room was kept for its other members for {limit_seconds:g} s, and did not suffice"
        )
    return None


def try_with_reservation_once_more(world: World, key: PodGroupKey) -> None:
    """Have a group tried a last time with its reservation, which ends if that is in vain."""
    members = world.pod_groups.groups.get(key)
    if members is None:
        return
    if members.reserved_since is not None or members.partly_kept_since is not None:
        world.activate([pod for pod in members.pods.values() if not pod.node_name])
