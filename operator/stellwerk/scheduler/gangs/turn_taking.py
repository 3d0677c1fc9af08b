"""Groups of a queue take turns: those behind the first are put back, and follow when they may.

Group cycles put them back and let them follow, group events where the first has changed. Invariant:
a group that is held is tried again once the one that it was held for has been tried, placed or
lost.
"""

from collections.abc import Iterable

from stellwerk.backend.group_queues import GroupQueue
from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.scheduler.gangs.group_reports import GroupReports
from stellwerk.world.gangs.turns import first_of, queue_of, rest, why_behind
from stellwerk.world.world import World


def hold(
    world: World,
    reports: GroupReports,
    members: GroupMembers,
    taken: Iterable[QueuedPod],
    reason: str,
) -> None:
    """Put the pods of a group back until its turn."""
    queue = queue_of(world, members)
    if queue is not None:
        first = first_of(world, queue)
        queue.held[members.key] = None
        queue.first = first.key if first is not None else None
    for queued in taken:
        rest(world, queued)
    reports.waits_for_turn(members, reason)


def tried(world: World, members: GroupMembers) -> None:
    """A group has had its attempt: those held for it follow."""
    queue = queue_of(world, members)
    if queue is not None:
        queue.held.pop(members.key, None)
        let_follow(world, queue)


def let_follow(world: World, queue: GroupQueue | None) -> None:
    """A group of the queue was tried, placed or lost: have those tried that may be now."""
    if queue is None or not queue.held:
        return
    first, groups = first_of(world, queue), world.pod_groups.groups
    if first is not None and first.key in queue.held:
        _wake(world, queue, first)
        return
    for key in list(queue.held):
        members = groups.get(key)
        if members is not None and not (first and why_behind(world, first, members)):
            _wake(world, queue, members)


def changed(world: World, members: GroupMembers) -> None:
    """A group's object or pods have changed: let the others follow if they wait for it."""
    group = members.group
    queue = world.pod_groups.queues.of(group) if group is not None else None
    if queue is not None and queue.first == members.key:
        let_follow(world, queue)


def _wake(world: World, queue: GroupQueue, members: GroupMembers) -> None:
    del queue.held[members.key]
    for uid, pod in members.pods.items():
        if world.queue.place(uid) is Place.UNSCHEDULABLE:
            world.activate([pod])
            return
