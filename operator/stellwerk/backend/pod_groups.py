"""The book of groups: which pods are members of which group, and whether a group may be tried.

Event handlers write it, the plugin GangScheduling, group cycles and explanations read it. Members
are known whether or not their group exists, and groups whether or not they have members. Invariant:
`GroupMembers` counts its pods as of their newest version, so that a question costs no walk over
them; what has neither an object nor pods is not kept.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from typing_extensions import override

from stellwerk.framework.services import EvictedTogether, PodGroups
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import ROLE_LABEL, PodGroup
from stellwerk.models.pod_group_key import PodGroupKey


@dataclass(slots=True, eq=False)
class GroupMembers:
    """A group as far as it is known: its object, and its pods that have not finished."""

    key: PodGroupKey
    group: PodGroup | None = None
    """None: no such object has been seen."""
    pods: dict[str, PodInfo] = field(default_factory=dict)
    """By uid, in order of arrival."""
    bound: int = 0
    """Pods on nodes that are not terminating."""
    pending: Counter[str] = field(default_factory=Counter)
    """Pods without a node that may be scheduled, by schedulerName."""
    lacks_placement: bool = False
    """Whether the last attempt found no nodes with the labels that it asks for."""
    waiting_since: float | None = None
    """Since when it has had pods without a node (monotonic seconds); None: it has none."""
    reserved_since: float | None = None
    """When room began to be kept for it (monotonic seconds); None: none is."""
    is_closed: bool = True
    """Whether no member was worth an attempt when that was looked at last."""
    is_looked_up: bool = False
    """Whether pods that ended before this process began have been asked about."""
    finished: dict[str, str] = field(default_factory=dict)
    """Phases of pods that have ended, by uid, as far as they were looked up."""

    def put(self, pod: PodInfo) -> None:
        """Count a pod's newest version."""
        before = self.pods.get(pod.uid)
        if before is not None:
            self._count(before, -1)
        self.pods[pod.uid] = pod
        self._count(pod, 1)

    def take(self, uid: str) -> None:
        """Count a pod no more."""
        self._count(self.pods.pop(uid), -1)

    @property
    def succeeded(self) -> int:
        """How many pods count as they have done their work: none where the group never ran."""
        if self.group is None or not self.group.has_run:
            return 0
        return sum(phase == "Succeeded" for phase in self.finished.values())

    @property
    def is_partly_bound(self) -> bool:
        """Whether some pods are on nodes, and fewer than are needed."""
        group = self.group
        return group is not None and 0 < self.bound < group.min_count - self.succeeded

    def of_role(self, role: str) -> int:
        """How many pods that count have a role."""
        return sum(pod.labels.get(ROLE_LABEL) == role for pod in self.pods.values() if counts(pod))

    def copy(self) -> "GroupMembers":
        """The same now; neither sees what is put into the other."""
        return replace(
            self,
            pods=self.pods.copy(),
            pending=self.pending.copy(),
            finished=self.finished.copy(),
        )

    def _count(self, pod: PodInfo, change: int) -> None:
        if not counts(pod):
            return
        if pod.node_name:
            self.bound += change
        else:
            self.pending[pod.spec.scheduler_name] += change


def counts(pod: PodInfo) -> bool:
    """Whether a member counts towards the size of its group: it runs, or may be scheduled."""
    return not pod.terminating and (bool(pod.node_name) or not pod.spec.scheduling_gates)


def priority_of(members: GroupMembers) -> int:
    """The priority with which a group goes or stays as a whole: its own, or its pods' highest."""
    group = members.group
    if group is not None and group.priority is not None:
        return group.priority
    return max((pod.priority for pod in members.pods.values()), default=0)


class PodGroupBook(PodGroups):
    """Every group by key, and the group of every member by uid."""

    def __init__(self, serves: Callable[[str], bool] = lambda _: True) -> None:
        """`serves`: whether a profile here schedules pods of that schedulerName."""
        self.groups: dict[PodGroupKey, GroupMembers] = {}
        self.key_of: dict[str, PodGroupKey] = {}
        self._serves = serves

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
        """Keep a group's object."""
        self._known(group.key).group = group

    def take_group(self, key: PodGroupKey) -> None:
        """The object is gone; its members stay known."""
        members = self.groups.get(key)
        if members is not None:
            members.group = None
            members.finished.clear()
            self._drop_if_empty(members)

    # --- what is asked --------------------------------------------------------------------------

    def existing(self, members: GroupMembers) -> int:
        """How many pods count: bound ones, those that may be scheduled here, and finished ones.

        Finished ones count where the group has run.
        """
        waiting = sum(
            count for name, count in members.pending.items() if count and self._serves(name)
        )
        return members.bound + waiting + members.succeeded

    @override
    def why_gated(self, pod: PodInfo) -> str:
        members = self.groups.get(pod.group) if pod.group is not None else None
        return "" if members is None else self.why_closed(members)

    @override
    def lacks_placement(self, pod: PodInfo) -> bool:
        members = self.groups.get(pod.group) if pod.group is not None else None
        return members is not None and members.lacks_placement

    def why_closed(self, members: GroupMembers) -> str:
        """Why no member is worth an attempt; empty: they are."""
        group = members.group
        if group is None:
            return f'waiting for the pod group "{members.key.name}" to exist'
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

    def fork(self) -> "PodGroupBook":
        """A book with the same contents; neither side sees what the other changes."""
        fork = PodGroupBook(self._serves)
        fork.groups = {key: members.copy() for key, members in self.groups.items()}
        fork.key_of = self.key_of.copy()
        return fork

    def _known(self, key: PodGroupKey) -> GroupMembers:
        members = self.groups.get(key)
        if members is None:
            members = self.groups[key] = GroupMembers(key)
        return members

    def _drop_if_empty(self, members: GroupMembers) -> None:
        if members.group is None and not members.pods:
            del self.groups[members.key]
