"""The order in which groups and members are tried, and the gates that `group_events` opens.

A profile may keep the order of a queue. Its first is the waiting group of the highest priority, the
oldest of these. A group behind it is inadmissible unless nodes are kept for the first: nominated
members keep pods of no higher priority off their nodes, so that what is placed beside them cannot
delay it. Group cycles and explanations ask for the order; `GroupGates` keeps the state of groups in
step with pods and objects, for `scheduler.gangs.group_events` and for simulations. Invariants: the
order follows from the World alone; a group that was put back is tried again once the one that it
was put back for has been tried, placed or lost; after a change every member whose group it has
opened is on its way to activeQ.

Groups of which some pods are bound and too few have lost their others to an error, or to the end of
a process. They keep the place that they had: `GroupGates` has the queue sort them by the time at
which they were created, so that what came later and has their priority goes after them.
"""

import heapq
import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias, cast

from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import (
    GROUP_KINDS,
    PodGroupKey,
    parse_coscheduling_group,
    parse_pod_group,
)
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.plugin_args import GangSchedulingArgs
from stellwerk.world.gangs.pod_groups import GroupMembers, GroupQueue
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.clock import parse_moment
from stellwerk_kube.json_values import JsonObject

MAX_PLACES_KEPT: Final = 10
"""Groups of one namespace, the oldest, that keep their place while they are bound in part. A leader
that ends leaves a few. A user who may set spec.nodeName can make thousands, and their attempts
would go before those of all other namespaces."""
_Position: TypeAlias = tuple[int, bool, str, str]
_ON_ITS_WAY = frozenset((Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF))


def gang_args(profile: ServedProfile) -> GangSchedulingArgs:
    """The arguments of GangScheduling in a profile; the defaults where it lacks the plugin."""
    args = profile.loaded.args.get(GANG_SCHEDULING)
    if args is None:
        return GangSchedulingArgs.model_validate({})
    return cast("GangSchedulingArgs", args)


def queue_of(world: World, members: GroupMembers) -> GroupQueue | None:
    """The queue whose order a group keeps; None: its profile or the group has none."""
    group = members.group
    if group is None or not group.queue or not _is_strict(world, members):
        return None
    return world.pod_groups.queues.of(group)


def first_of(world: World, queue: GroupQueue) -> GroupMembers | None:
    """The group of a queue that all others are behind; None: none waits."""
    groups = world.pod_groups.groups
    pending = (members for key in queue.groups if (members := groups[key]).is_pending)
    in_order = sorted(pending, key=_position)
    return next((members for members in in_order if _waits(world, members)), None)


def is_first(world: World, members: GroupMembers) -> bool:
    """Whether a group is the first of a queue whose order is kept."""
    queue = queue_of(world, members)
    return queue is not None and first_of(world, queue) is members


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
        return "it is tried first"
    group = first.group
    needed = (group.min_count if group is not None else 0) - world.pod_groups.placed(first)
    nominated = sum(bool(world.nominator.node_of(uid)) for uid in pending)
    return "" if nominated >= max(1, needed) else "no room can be kept for it"


def _waits(world: World, members: GroupMembers) -> bool:
    states = world.pod_groups
    return (
        _is_strict(world, members)
        and not states.why_closed(members)
        and not states.is_satisfied(members)
    )


def _is_strict(world: World, members: GroupMembers) -> bool:
    served = world.profiles.served
    return any(
        (profile := served.get(name)) is not None
        and not profile.observes
        and gang_args(profile).strict_queues
        for name, count in members.pending.items()
        if count
    )


def _position(members: GroupMembers) -> _Position:
    created, name = _age(members)
    return -max(members.priorities, default=0), not members.is_partly_bound, created, name


def _age(members: GroupMembers) -> tuple[str, str]:
    """A sort key: the oldest group first, of equal ones the first by name."""
    return members.group.created if members.group is not None else "", members.key.name


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


def requeue_untried(
    world: World, queued: QueuedPod, refused_by: frozenset[str] = frozenset()
) -> None:
    """Put a member back that was not tried, until its group may be.

    `refused_by`: plugins whose events may help it to a node that is kept until then.
    """
    world.queue.add_unschedulable_if_not_present(
        queued, {GANG_SCHEDULING, *refused_by}, now=world.clock.monotonic()
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
    """Activate the groups that were put back for a group which has been tried now."""
    queue = queue_of(world, members)
    if queue is not None:
        queue.inadmissible.pop(members.key, None)
        activate_admissible(world, queue)


def after_change(world: World, members: GroupMembers) -> None:
    """Activate the groups that were put back for a group whose object or pods have changed now."""
    group = members.group
    queue = world.pod_groups.queues.of(group) if group is not None else None
    if queue is not None and queue.first == members.key:
        activate_admissible(world, queue)


def activate_admissible(world: World, queue: GroupQueue | None) -> None:
    """Activate the groups of a queue that were inadmissible and no longer are."""
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


# --- gates ---------------------------------------------------------------------------------------


def _unnoticed(_: PodGroupKey) -> None:
    """Do nothing after a change, as in simulations."""


class GroupGates:
    """Keeps the state of groups in step with pods and objects, and opens gates of members."""

    def __init__(
        self,
        world: World,
        on_changed: Callable[[PodGroupKey], None] = _unnoticed,
        on_gated: Callable[[PodGroupKey], None] = _unnoticed,
    ) -> None:
        """`on_changed` is called with a group after each change of it, or of its pods.

        `on_gated` is called with a group that waits for pods or for its object from now on.
        """
        self._world, self._states = world, world.pod_groups
        self._on_changed, self._on_gated = on_changed, on_gated
        self._kept: dict[str, frozenset[PodGroupKey]] = {}
        """The groups of each namespace that keep their place; those without one are absent."""

    def put_pod(self, pod: PodInfo) -> PodGroupKey | None:
        """A pod that is or was a member, before the queue sees it; returns the group it left."""
        is_new = pod.group is not None and self._states.key_of.get(pod.uid) != pod.group
        left = self._states.put_pod(pod, pod.group)
        if pod.group is not None:
            if is_new and pod.node_name:
                # Its group needs one less; a new one without a node brings the others along.
                self.activate_one(pod.group)
            self.changed(pod.group)
        return left

    def take_pod(self, uid: str) -> PodGroupKey | None:
        """A member is gone; returns its group (None: it was no member)."""
        key = self._states.take_pod(uid)
        if key is not None:
            self.changed(key)
            self.activate_one(key)
        return key

    def put_group(self, kind: str, obj: JsonObject) -> None:
        """A group's object was seen.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the object is malformed.
        """
        parsed = (parse_pod_group if kind == "PodGroup" else parse_coscheduling_group)(obj)
        key = parsed.key
        members = self._states.groups.get(key)
        before = members.group if members is not None else None
        queue = self._states.queues.of(before) if before is not None else None
        self._states.put_group(parsed)
        if before is not None and parsed.is_worth_retrying_after(before):
            self.activate_one(key)
            activate_admissible(self._world, queue)
        self.changed(key)

    def take_group(self, kind: str, obj: JsonObject) -> None:
        """A group's object is gone, unless its name has been used again already."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") or "default"
        key = PodGroupKey(GROUP_KINDS[kind], namespace, metadata["name"])
        members = self._states.groups.get(key)
        group = members.group if members is not None else None
        uid = metadata.get("uid")
        if group is not None and uid and group.uid and uid != group.uid:
            return
        queue = self._states.queues.of(group) if group is not None else None
        self._states.take_group(key)
        activate_admissible(self._world, queue)
        self.changed(key)

    def changed(self, key: PodGroupKey) -> None:
        """Open or close the gate of a group that has changed, and tell of it."""
        members = self._states.groups.get(key)
        if members is not None:
            if not members.is_pending:
                members.waiting_since = None
            elif members.waiting_since is None:
                members.waiting_since = self._world.clock.monotonic()
            closed = bool(self._states.why_closed(members))
            if members.is_closed is not closed:
                members.is_closed = closed
                if closed:
                    self._gate(members)
                    self._on_gated(key)
                else:
                    self._activate_gated(members)
            after_change(self._world, members)
        self._note_partly_bound(key, members)
        self._on_changed(key)

    def _note_partly_bound(self, key: PodGroupKey, members: GroupMembers | None) -> None:
        """Note whether a group is bound in part, and have it keep its place in the queue if so."""
        partly_bound, namespace = self._states.partly_bound, key.namespace
        known = partly_bound.get(namespace, {})
        is_partly = members is not None and members.is_partly_bound
        if members is not None and members.bound and not is_partly:
            members.partly_kept_since = None
        if is_partly is (key in known):
            return
        if members is not None and members.is_closed:
            # While it is bound in part its members are not gated, though others are missing.
            (self._activate_gated if is_partly else self._gate)(members)
        if members is not None and is_partly:
            partly_bound.setdefault(namespace, {})[key] = members
        else:
            del known[key]
            if not known:
                del partly_bound[namespace]
        oldest = heapq.nsmallest(
            MAX_PLACES_KEPT, partly_bound.get(namespace, {}).values(), key=_age
        )
        before, kept = self._kept.pop(namespace, frozenset()), {each.key for each in oldest}
        if kept:
            self._kept[namespace] = frozenset(kept)
        for other in before - kept:
            del self._world.queue.group_came_at[other]
        for each in oldest:
            if each.key not in before:
                self._world.queue.keep_group_order(each.key, self._came_at(each), each.pods)

    def _came_at(self, members: GroupMembers) -> float:
        """The time of a group's creation on the clock of the queue; now, where it is not known."""
        clock, group = self._world.clock, members.group
        try:
            created = parse_moment(group.created if group is not None else "")
        except ValueError:
            return clock.monotonic()
        return clock.monotonic() - max(0.0, (clock.now() - created).total_seconds())

    def activate_one(self, key: PodGroupKey) -> None:
        """Activate one waiting member of a group whose size has changed; it brings the others."""
        members, entries = self._states.groups.get(key), self._world.queue.entries
        if members is None or not members.is_pending:
            return
        for uid, pod in members.pods.items():
            entry = entries.get(uid)
            if entry is not None and entry.place is Place.UNSCHEDULABLE:
                self._world.activate([pod])
                return

    def _gate(self, members: GroupMembers) -> None:
        """Gate the members that were refused: they wait for their group now, no longer for room."""
        for uid in members.pods:
            self._world.queue.rerun_pre_enqueue(uid, Place.UNSCHEDULABLE)

    def _activate_gated(self, members: GroupMembers) -> None:
        """Have the members that wait for their group asked about again, in order of arrival."""
        entries = self._world.queue.entries
        gated = [
            pod
            for uid, pod in members.pods.items()
            if (entry := entries.get(uid)) is not None and entry.place is Place.GATED
        ]
        if gated:
            self._world.activate(gated)
