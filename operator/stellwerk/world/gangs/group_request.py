"""The request of a group: its members, and when it counts as placed.

The group cycle, explanations and reruns have one made, group decisions read it. Invariant: whether
a group is placed is decided here alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.models.group_annotations import ROLE_LABEL
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup
from stellwerk.world.gangs.group_attempt import GroupAttempt
from stellwerk.world.gangs.queue_order import gang_args, reserves_capacity
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World


@dataclass(frozen=True, slots=True)
class GroupRequest:
    """A group that is to be decided."""

    group: PodGroup
    members: Sequence[PodInfo]
    """Those to be placed, in the order in which they are tried; at least one."""
    scheduled: Sequence[PodInfo] = ()
    """Those that count as placed: bound or assumed, and not terminating."""
    finished: int = 0
    """Members that ran to their end and count."""
    budget_seconds: float = 0.05
    """How long other orders of the members are tried."""
    reserves_capacity: bool = False
    """Whether nodes are kept for it where it does not fit."""
    ending: frozenset[str] | None = None
    """Uids of the pods in whose place room is kept already; None: there is none."""
    goes_on: Callable[[bool], bool] = bool
    """From whether there is time for another order to whether it is tried; a recording takes down
    what was said, and a replay says it again."""

    def is_met_by(self, attempt: GroupAttempt) -> bool:
        """Whether the group is placed with these members beside those that are scheduled."""
        placed = [each.pod for each in attempt.results if each.assumed is not None]
        if not placed or attempt.broken:
            return False
        counted = [*self.scheduled, *placed]
        if len(counted) + self.finished < self.group.min_count:
            return False
        return all(
            sum(pod.labels.get(ROLE_LABEL) == role for pod in counted) >= wanted
            for role, wanted in self.group.min_count_by_role.items()
        )

    @property
    def needed(self) -> int:
        """How many more members have to be placed, at least one."""
        return max(1, self.group.min_count - len(self.scheduled) - self.finished)


def scheduled_members(world: World, members: GroupMembers) -> list[PodInfo]:
    """Members that are bound or assumed, and not terminating."""
    placed = (world.cache.pod(uid) for uid in members.pods)
    return [pod for pod in placed if pod is not None and not pod.terminating]


def request_for(
    world: World, profile: ServedProfile, members: GroupMembers, pending: Sequence[PodInfo]
) -> GroupRequest:
    """The request of a group with an object for its `pending` members, tried in this order."""
    assert members.group is not None  # noqa: S101 callers look
    uids = {pod.uid for pod in pending}
    scheduled = [pod for pod in scheduled_members(world, members) if pod.uid not in uids]
    return GroupRequest(
        members.group,
        pending,
        scheduled,
        members.succeeded,
        gang_args(profile).second_look_milliseconds / 1000,
        reserves_capacity(world, members),
        members.ending,
    )
