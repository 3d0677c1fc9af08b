"""Changes of pods and of groups' objects: they keep the book of groups, open and close gates.

The operator's `GroupEvents` calls it for watch events, a simulation for what happens in its own
cluster. Invariant: after a change the book shows it, and every member whose group it has opened is
on its way to activeQ.
"""

from collections.abc import Callable

from stellwerk.backend.queued_pod import Place
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import parse_coscheduling_group, parse_pod_group
from stellwerk.models.pod_group_key import GROUP_KINDS, PodGroupKey
from stellwerk.world.gangs.pod_groups import GroupMembers
from stellwerk.world.gangs.queue_order import activate_admissible, after_change
from stellwerk.world.world import World
from stellwerk_kube.json_values import JsonObject


def _unnoticed(_: PodGroupKey) -> None:
    """A change that nothing else follows."""


class GroupGates:
    """Keeps the book of groups in step with pods and objects, and opens gates of members."""

    def __init__(
        self, world: World, on_changed: Callable[[PodGroupKey], None] = _unnoticed
    ) -> None:
        """`on_changed` is called with a group after each change of it, or of its pods."""
        self._world, self._book = world, world.pod_groups
        self._on_changed = on_changed

    def put_pod(self, pod: PodInfo) -> PodGroupKey | None:
        """A pod that is or was a member, before the queue sees it; returns the group it left."""
        is_new = pod.group is not None and self._book.key_of.get(pod.uid) != pod.group
        left = self._book.put_pod(pod, pod.group)
        if pod.group is not None:
            if is_new and pod.node_name:
                # Its group needs one less; a new one without a node brings the others along.
                self.activate_one(pod.group)
            self.changed(pod.group)
        return left

    def take_pod(self, uid: str) -> PodGroupKey | None:
        """A member is gone; returns its group (None: it was no member)."""
        key = self._book.take_pod(uid)
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
        members = self._book.groups.get(key)
        before = members.group if members is not None else None
        queue = self._book.queues.of(before) if before is not None else None
        self._book.put_group(parsed)
        if before is not None and parsed.is_worth_retrying_after(before):
            self.activate_one(key)
            activate_admissible(self._world, queue)
        self.changed(key)

    def take_group(self, kind: str, obj: JsonObject) -> None:
        """A group's object is gone, unless its name has been used again already."""
        metadata = obj["metadata"]
        namespace = metadata.get("namespace") or "default"
        key = PodGroupKey(GROUP_KINDS[kind], namespace, metadata["name"])
        members = self._book.groups.get(key)
        group = members.group if members is not None else None
        uid = metadata.get("uid")
        if group is not None and uid and group.uid and uid != group.uid:
            return
        queue = self._book.queues.of(group) if group is not None else None
        self._book.take_group(key)
        activate_admissible(self._world, queue)
        self.changed(key)

    def changed(self, key: PodGroupKey) -> None:
        """Open or close the gate of a group that has changed, and tell of it."""
        members = self._book.groups.get(key)
        if members is not None:
            if not members.pending.total():
                members.waiting_since = None
            elif members.waiting_since is None:
                members.waiting_since = self._world.clock.monotonic()
            closed = bool(self._book.why_closed(members))
            if members.is_closed is not closed:
                members.is_closed = closed
                (self._gate if closed else self._activate_gated)(members)
            after_change(self._world, members)
        self._on_changed(key)

    def activate_one(self, key: PodGroupKey) -> None:
        """The group has another size: have it tried, were it but for one that it waited for."""
        members, entries = self._book.groups.get(key), self._world.queue.entries
        if members is None or not members.pending.total():
            return
        for uid, pod in members.pods.items():
            entry = entries.get(uid)
            if entry is not None and entry.place is Place.UNSCHEDULABLE:
                self._world.activate([pod])
                return

    def _gate(self, members: GroupMembers) -> None:
        """Members that were refused wait for their group from here on, and no more for room."""
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
