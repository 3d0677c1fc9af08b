"""Queues of groups: which groups stand in each, and which were put back until their turn.

The book of groups keeps them, `world.gangs.turns` says whose turn it is. Invariant: a queue that no
group stands in is not kept.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from stellwerk.models.pod_group import PodGroup
from stellwerk.models.pod_group_key import PodGroupKey

QueueKey: TypeAlias = tuple[str, str]
"""(namespace, name)."""


@dataclass(slots=True)
class GroupQueue:
    """One queue; dicts without values, in the order of insertion."""

    groups: dict[PodGroupKey, None] = field(default_factory=dict)
    """All that name it, whether or not they wait."""
    held: dict[PodGroupKey, None] = field(default_factory=dict)
    """Those that were put back for one before them."""
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
            queue.held.pop(group.key, None)
            if not queue.groups:
                del self[_key(group)]


def _key(group: PodGroup) -> QueueKey:
    return group.key.namespace, group.queue
