"""The state of groups, written by `group_events`: their members, and whether a group may be tried.

GroupGates (`queue_order`) takes watch events and a simulation's changes here; the plugin
GangScheduling, group cycles and explanations read. Members are known whether or not their group
exists, and groups whether or not they have members. Invariant: `GroupMembers` counts its pods as of
their newest version, so that a question costs no walk over them; what has neither an object nor
pods is not kept, nor is a queue without groups.
"""

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import override

from stellwerk.framework.services import EvictedTogether, GroupClaims, PodGroups
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import ROLE_LABEL, PodGroup, PodGroupKey

_IN_QUEUE: Final = "to appear in scheduling queue"
ProfileName: TypeAlias = Callable[[PodInfo], str]
"""The schedulerName of the profile that serves a pod."""
QueueKey: TypeAlias = tuple[str, str]
"""(namespace, name)."""


def _as_named(pod: PodInfo) -> str:
    return pod.spec.scheduler_name


class FinishedMember(NamedTuple):
    """A member that has ended, as far as its group is concerned."""

    phase: str
    role: str = ""
    """By its label; empty: none."""
    had_node: bool = False
    """Whether it ran: a pod may fail without ever having had a node."""
    scheduler_name: str = ""


@dataclass(slots=True, eq=False)
class GroupMembers:
    """A group as far as it is known: its object, and its pods that have not finished."""

    key: PodGroupKey
    profile_name: ProfileName
    group: PodGroup | None = None
    """None: no such object has been seen."""
    pods: dict[str, PodInfo] = field(default_factory=dict)
    """By uid, in order of arrival."""
    bound: int = 0
    """Pods on nodes that are not terminating."""
    pending: Counter[str] = field(default_factory=Counter)
    """Pods without a node that may be scheduled, by the schedulerName of their profile."""
    pending_as: dict[str, str] = field(default_factory=dict)
    """The schedulerName under which each of them is counted, by uid."""
    priorities: Counter[int] = field(default_factory=Counter)
    """Priorities of all pods, with their numbers."""
    ending: frozenset[str] | None = None
    """Uids of the pods in whose place room is kept for it; None: none is."""
    lacks_placement: bool = False
    """Whether the last attempt was given up before any member was tried: no nodes have the labels
    that the group asks for, or the cluster lacks its minResources."""
    waiting_since: float | None = None
    """Since when it has had pods without a node (monotonic seconds); None: it has none."""
    reserved_since: float | None = None
    """Since when room has been kept for it (monotonic seconds); None: none is."""
    partly_kept_since: float | None = None
    """Since when room has been kept for its other members because some are bound (monotonic
    seconds). It stays until enough are bound, so that this time is granted once; None: none was."""
    room_refused: str = ""
    """The reason why no room is kept for it, though it should be; empty: there is none."""
    is_closed: bool = True
    """Whether no member was worth an attempt when that was looked at last."""
    is_looked_up: bool = False
    """Whether pods that ended before this process began have been asked about."""
    finished: dict[str, FinishedMember] = field(default_factory=dict)
    """Pods that have ended, by uid, as far as they were looked up."""
    was_placed: bool = False
    """Whether this process has placed enough members; the status may not say so yet."""
    is_known_placed: bool = False
    """Whether its status said so when this process first saw it."""

    def put(self, pod: PodInfo) -> None:
        """Count a pod's newest version."""
        before = self.pods.get(pod.uid)
        if before is not None:
            self._count(before, -1)
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def recount(self) -> bool:
        """Count pods without a node by the profiles that serve them by now; False: as before."""
        counted_as = {uid: self.profile_name(self.pods[uid]) for uid in self.pending_as}
        if counted_as == self.pending_as:
            return False
        self.pending_as, self.pending = counted_as, Counter(counted_as.values())
        return True

    def take(self, uid: str) -> None:
        """Count a pod no more."""
        self._count(self.pods.pop(uid), -1)

    @property
    def is_pending(self) -> bool:
        """Whether it has pods without a node that may be scheduled."""
        return bool(self.pending_as)

    @property
    def has_run(self) -> bool:
        """Whether the group was placed before, or has a pod on a node or one that ended there."""
        group = self.group
        return group is not None and (
            self.was_placed
            or group.was_placed
            or self.bound > 0
            or any(each.had_node for each in self.finished.values())
        )

    @property
    def lacks_finished(self) -> bool:
        """Whether it waits, and members may have ended before this process began that count."""
        waits = self.is_closed or (self.is_known_placed and self.is_pending)
        return waits and self.has_run and not self.is_looked_up

    @property
    def succeeded(self) -> int:
        """The number of pods that count as done with their work; 0 where the group never ran."""
        if not self.finished or not self.has_run:
            return 0
        return self.ended("Succeeded")

    @property
    def succeeded_by_role(self) -> Mapping[str, int]:
        """The numbers of those that have each role; roles of which none succeeded are absent."""
        if not self.finished or not self.has_run:
            return {}
        done = self.finished.values()
        return Counter(each.role for each in done if each.phase == "Succeeded" and each.role)

    def ended(self, phase: str) -> int:
        """The number of pods that ended in a phase, whether or not they count."""
        return sum(each.phase == phase for each in self.finished.values())

    @property
    def is_partly_bound(self) -> bool:
        """Whether some pods are on nodes, and fewer than are needed, in all or of any role.

        A group of the policy basic needs none, so that it never is.
        """
        group = self.group
        if group is None or not self.bound:
            return False
        if self.bound < group.min_count - self.succeeded:
            return True
        return group.is_gang and any(
            self.of_role(role, bound_only=True) < wanted
            for role, wanted in group.min_count_by_role.items()
        )

    def of_role(self, role: str, *, bound_only: bool = False) -> int:
        """The number of pods that count and have a role, those that succeeded included."""
        existing = sum(
            pod.labels.get(ROLE_LABEL) == role
            for pod in self.pods.values()
            if counts_as_member(pod) and (pod.node_name or not bound_only)
        )
        return existing + self.succeeded_by_role.get(role, 0)

    def copy(self) -> "GroupMembers":
        """A copy; neither sees what is put into the other."""
        return replace(
            self,
            pods=self.pods.copy(),
            pending=self.pending.copy(),
            pending_as=self.pending_as.copy(),
            priorities=self.priorities.copy(),
            finished=self.finished.copy(),
        )

    def _count(self, pod: PodInfo, change: int) -> None:
        self.priorities[pod.priority] += change
        if not self.priorities[pod.priority]:
            del self.priorities[pod.priority]
        if not counts_as_member(pod):
            return
        if pod.node_name:
            self.bound += change
            return
        if change > 0:
            self.pending_as[pod.uid] = self.profile_name(pod)
            self.pending[self.pending_as[pod.uid]] += 1
        else:
            self.pending[self.pending_as.pop(pod.uid)] -= 1


@dataclass(slots=True)
class KeptRoom:
    """The room that groups of one namespace keep, or have kept not long ago, for one reason.

    It outlives the groups: one that is made anew does not begin a new time.
    """

    since: float
    """Time at which the first of the groups began to keep room (monotonic seconds)."""
    forgotten_at: float
    """Time from which this room counts no more (monotonic seconds)."""
    groups: set[PodGroupKey] = field(default_factory=set)
    """The groups for which it was kept; some may keep none any more."""


def counts_as_member(pod: PodInfo) -> bool:
    """Whether a member counts towards the size of its group: it runs, or may be scheduled."""
    return not pod.terminating and (bool(pod.node_name) or not pod.spec.scheduling_gates)


def priority_of(members: GroupMembers) -> int:
    """The priority with which a group goes or stays as a whole: its own, or its pods' highest."""
    group = members.group
    if group is not None and group.priority is not None:
        return group.priority
    return max((pod.priority for pod in members.pods.values()), default=0)


class PodGroupStates(PodGroups):
    """Every group by key, and the group of every member by uid."""

    def __init__(
        self,
        serves: Callable[[str], bool] = lambda _: True,
        profile_name: ProfileName = _as_named,
        assumed: Container[str] = frozenset(),
    ) -> None:
        """`serves`: whether there is a profile with the schedulerName that is a pod's.

        `assumed`: uids of the pods that are to be bound.
        """
        self.groups: dict[PodGroupKey, GroupMembers] = {}
        self.key_of: dict[str, PodGroupKey] = {}
        self.queues = GroupQueues()
        self.kept_room: dict[str, KeptRoom] = {}
        """Room that a profile grants, by namespace; what counts no more goes when another one
        comes."""
        self.kept_for_partly_bound: dict[str, KeptRoom] = {}
        """Room for the other members of groups of which some are bound, likewise."""
        self.partly_bound: dict[str, dict[PodGroupKey, GroupMembers]] = {}
        """The groups of each namespace of which some pods are bound and too few; those without one
        are absent. `GroupGates` keeps it."""
        self.lacks: dict[str, str] = {}
        """APIs whose groups cannot be seen, with the reason."""
        self._serves = serves
        self._profile_name = profile_name
        self._assumed = assumed

    # --- what event handlers write --------------------------------------------------------------

    def put_pod(self, pod: PodInfo, key: PodGroupKey | None) -> PodGroupKey | None:
        """Count a pod as a member of the group `key`; returns the group that it has left."""
        before = self.key_of.get(pod.uid)
        left = before if before != key else None
        if left is not None:
            self.take_pod(pod.uid)
        if key is not None:
            self.key_of[pod.uid] = key
            self._known(key).put(pod)
        return left

    def take_pod(self, uid: str) -> PodGroupKey | None:
        """Count a pod no more; returns its group (None: it was no member)."""
        key = self.key_of.pop(uid, None)
        if key is not None:
            members = self.groups[key]
            members.take(uid)
            self._drop_if_empty(members)
        return key

    def put_group(self, group: PodGroup) -> None:
        """Keep a group's object; what is known of an older one of that name is no longer so."""
        members = self._known(group.key)
        if members.group is not None and members.group.uid != group.uid:
            self._forget_object(members)
        if members.group is None:
            members.is_known_placed = group.was_placed
        self.queues.put(members.group, group)
        members.group = group

    def take_group(self, key: PodGroupKey) -> None:
        """The object is gone; its members stay known."""
        members = self.groups.get(key)
        if members is not None:
            self._forget_object(members)
            self._drop_if_empty(members)

    def recount(self, namespace: str = "") -> list[PodGroupKey]:
        """Pods of a namespace, or of all, may have other profiles; the groups where some have."""
        return [
            key
            for key, members in self.groups.items()
            if (not namespace or key.namespace == namespace) and members.recount()
        ]

    # --- what is asked --------------------------------------------------------------------------

    def of_member(self, uid: str) -> GroupMembers | None:
        """The group of a pod; None: it is in none."""
        key = self.key_of.get(uid)
        return self.groups.get(key) if key is not None else None

    def existing(self, members: GroupMembers) -> int:
        """The number of pods that count: bound ones, those that may be scheduled, finished ones.

        Finished ones count where the group has run.
        """
        waiting = sum(
            count for name, count in members.pending.items() if count and self._serves(name)
        )
        return members.bound + waiting + members.succeeded

    def placed(self, members: GroupMembers) -> int:
        """The number of members that have a node, or have done their work."""
        placed = sum(
            not pod.terminating and (bool(pod.node_name) or uid in self._assumed)
            for uid, pod in members.pods.items()
        )
        return placed + members.succeeded

    def is_satisfied(self, members: GroupMembers) -> bool:
        """Whether enough members have a node, whatever becomes of the others."""
        group = members.group
        return group is not None and self.placed(members) >= max(1, group.min_count)

    def is_inadmissible(self, members: GroupMembers) -> bool:
        """Whether the group was put back for one before it in its queue."""
        queue = self.queues.of(members.group) if members.group is not None else None
        return queue is not None and members.key in queue.inadmissible

    @override
    def why_gated(self, pod: PodInfo, *, as_upstream: str = "") -> str:
        members = self.groups.get(pod.group) if pod.group is not None else None
        if members is None:
            return ""
        group = members.group
        if members.is_partly_bound and group is not None and not group.parent:
            # Room is kept for those that are there while others are missing.
            return ""
        if as_upstream and group is None and members.key.api not in self.lacks:
            return f'waiting for {as_upstream} pod group "{members.key.name}" {_IN_QUEUE}'
        if as_upstream and group is not None and self.existing(members) < group.min_count:
            return f"waiting for minCount pods from a gang {_IN_QUEUE}"
        return self.why_closed(members)

    @override
    def lacks_placement(self, pod: PodInfo) -> bool:
        members = self.groups.get(pod.group) if pod.group is not None else None
        return members is not None and members.lacks_placement

    def why_closed(self, members: GroupMembers) -> str:
        """The reason for which no member is worth an attempt; empty: they are."""
        group = members.group
        if group is None:
            lack = self.lacks.get(members.key.api)
            waiting = f'waiting for the pod group "{members.key.name}"'
            return f"{waiting} to exist" if lack is None else f"{waiting} to be seen: {lack}"
        if group.parent:
            return (
                f'waiting for the pod group "{members.key.name}" to be a root: trees of groups '
                f'(CompositePodGroup "{group.parent}") are not supported'
            )
        if not group.is_gang:
            return ""
        existing = self.existing(members)
        if existing < group.min_count:
            return f"waiting for minCount pods of the gang: {existing} of {group.min_count} exist"
        for role, wanted in group.min_count_by_role.items():
            found = members.of_role(role)
            if found < wanted:
                return f"waiting for pods of role {role}: {found} of {wanted} exist"
        return ""

    @override
    def evicted_with(self, pod: PodInfo) -> EvictedTogether | None:
        members = self.groups.get(pod.group) if pod.group is not None else None
        if members is None or members.group is None or not members.group.evicted_whole:
            return None
        others = [
            each
            for each in members.pods.values()
            if each.uid != pod.uid and each.node_name and not each.terminating
        ]
        return EvictedTogether(priority_of(members), others)

    @override
    def claims_with(self, pod: PodInfo) -> GroupClaims | None:
        members = self.groups.get(pod.group) if pod.group is not None else None
        group = members.group if members is not None else None
        if members is None or group is None or not group.claims:
            return None
        in_use = any(each.node_name or uid in self._assumed for uid, each in members.pods.items())
        return GroupClaims(group.key.name, group.uid, group.claims, in_use)

    def fork(self, assumed: Container[str]) -> "PodGroupStates":
        """A copy with the same contents for a World in which other pods may be `assumed`."""
        fork = PodGroupStates(self._serves, self._profile_name, assumed)
        fork.groups = {key: members.copy() for key, members in self.groups.items()}
        fork.key_of = self.key_of.copy()
        fork.kept_room = self.kept_room
        fork.kept_for_partly_bound = self.kept_for_partly_bound
        fork.lacks = self.lacks.copy()
        for members in fork.groups.values():
            if members.group is not None:
                fork.queues.put(None, members.group)
        return fork

    def misses(self, api: str) -> bool:
        """Whether pods name groups of an API that cannot be seen."""
        return api in self.lacks and any(
            key.api == api and members.group is None and members.pods
            for key, members in self.groups.items()
        )

    def _known(self, key: PodGroupKey) -> GroupMembers:
        members = self.groups.get(key)
        if members is None:
            members = self.groups[key] = GroupMembers(key, self._profile_name)
        return members

    def _forget_object(self, members: GroupMembers) -> None:
        if members.group is not None:
            self.queues.take(members.group)
        members.group = None
        members.finished.clear()
        members.was_placed = members.is_known_placed = members.is_looked_up = False

    def _drop_if_empty(self, members: GroupMembers) -> None:
        if members.group is None and not members.pods:
            del self.groups[members.key]


@dataclass(slots=True)
class GroupQueue:
    """The groups of one queue; dicts without values, in the order of insertion."""

    groups: dict[PodGroupKey, None] = field(default_factory=dict)
    """All that name it, whether or not they wait."""
    inadmissible: dict[PodGroupKey, None] = field(default_factory=dict)
    """The groups that were put back for one before them."""
    first: PodGroupKey | None = None
    """The one that they were put back for."""


class GroupQueues(dict[QueueKey, GroupQueue]):
    """Every queue by its key."""

    def of(self, group: PodGroup) -> GroupQueue | None:
        """The queue that a group stands in; None: it stands in none."""
        return self.get(_key(group)) if group.queue else None

    def put(self, before: PodGroup | None, group: PodGroup) -> None:
        """A group was seen, which may have changed its queue."""
        if before is not None and before.queue != group.queue:
            self.take(before)
        if group.queue:
            self.setdefault(_key(group), GroupQueue()).groups[group.key] = None

    def take(self, group: PodGroup) -> None:
        """A group stands in its queue no more."""
        queue = self.of(group)
        if queue is not None:
            queue.groups.pop(group.key, None)
            queue.inadmissible.pop(group.key, None)
            if not queue.groups:
                del self[_key(group)]


def _key(group: PodGroup) -> QueueKey:
    return group.key.namespace, group.queue
