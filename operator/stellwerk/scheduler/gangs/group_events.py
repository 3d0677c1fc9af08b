"""What events of pods and groups mean to groups: who is a member, and who may be tried now.

`scheduler.event_handlers` calls it for members and for objects of both APIs. Invariant: after an
event the book shows it, and every member whose group it has opened is on its way to activeQ.
"""

from typing import Final

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.backend.queued_pod import Place
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import parse_coscheduling_group, parse_pod_group
from stellwerk.models.pod_group_key import COSCHEDULING_API, WORKLOAD_API, PodGroupKey
from stellwerk.scheduler.gangs.finished_members import FinishedMembers
from stellwerk.scheduler.gangs.give_back import GiveBack
from stellwerk.scheduler.gangs.group_reports import GroupReports
from stellwerk.world.gangs.queue_order import activate_admissible, after_change
from stellwerk.world.world import World

GROUP_KINDS: Final = {"PodGroup": WORKLOAD_API, "CoschedulingPodGroup": COSCHEDULING_API}
"""Kinds as `handlers.watched` calls them, and the API of each."""


class GroupEvents:
    """Keeps the book of groups in step with what is watched, and opens gates."""

    def __init__(self, world: World, reports: GroupReports) -> None:
        self._world = world
        self._book = world.pod_groups
        self._reports = reports
        self._give_back = GiveBack(world, reports.outbox)
        self._finished = FinishedMembers(world, reports.outbox.client, self._on_found)

    def on_pod(self, pod: PodInfo) -> None:
        """A pod that is or was a member, before the queue sees it."""
        left = self._book.put_pod(pod, pod.group)
        if left is not None:
            self._reports.look(left)
        if pod.group is not None:
            self._changed(pod.group)

    def on_pod_gone(self, uid: str, obj: JsonObject) -> None:
        """A member was deleted, or has finished."""
        members = self._book.groups.get(self._book.key_of[uid])
        before = members.pods.get(uid) if members is not None else None
        key = self._book.take_pod(uid)
        if key is None:
            return
        # What leaves the watch as it ends arrives as deleted, too; if the watch was away, even
        # before its node was seen.
        has_run = before is not None and (
            before.node_name or (members is not None and members.has_run)
        )
        if has_run and "deletionTimestamp" not in obj["metadata"]:
            self._finished.look_up(key)
        self._changed(key)
        self._wake_one(key)

    def _on_found(self, key: PodGroupKey) -> None:
        """More members have finished than were known."""
        self._changed(key)
        self._wake_one(key)

    def on_profiles(self, namespace: str = "") -> None:
        """Pods of a namespace, or of all, may have other profiles than before."""
        for key in self._book.recount(namespace):
            self._changed(key)

    def _wake_one(self, key: PodGroupKey) -> None:
        """The group has another size: have it tried, were it but for one that it waited for."""
        members, entries = self._book.groups.get(key), self._world.queue.entries
        for uid, pod in members.pods.items() if members is not None else ():
            entry = entries.get(uid)
            if entry is not None and entry.place is Place.UNSCHEDULABLE:
                self._world.activate([pod])
                return

    def on_group(self, kind: str, obj: JsonObject, *, gone: bool) -> None:
        """A group's object was seen, or is gone.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the object is malformed.
        """
        if gone:
            metadata = obj["metadata"]
            namespace = metadata.get("namespace") or "default"
            key = PodGroupKey(GROUP_KINDS[kind], namespace, metadata["name"])
            members = self._book.groups.get(key)
            group = members.group if members is not None else None
            uid = metadata.get("uid")
            if group is not None and uid and group.uid and uid != group.uid:
                return  # its name has been used again already
            queue = self._book.queues.of(group) if group is not None else None
            self._book.take_group(key)
            activate_admissible(self._world, queue)
        else:
            parse = parse_pod_group if kind == "PodGroup" else parse_coscheduling_group
            parsed = parse(obj)
            key = parsed.key
            members = self._book.groups.get(key)
            before = members.group if members is not None else None
            queue = self._book.queues.of(before) if before is not None else None
            self._book.put_group(parsed)
            if before is not None and before.asks_for != parsed.asks_for:
                self._wake_one(key)
                activate_admissible(self._world, queue)
        self._changed(key)

    def _changed(self, key: PodGroupKey) -> None:
        members = self._book.groups.get(key)
        if members is not None:
            if not members.pending.total():
                members.waiting_since = None
            elif members.waiting_since is None:
                members.waiting_since = self._world.clock.monotonic()
            closed = bool(self._book.why_closed(members))
            group = members.group
            if members.is_closed is not closed:
                members.is_closed = closed
                (self._gate if closed else self._let_in)(members)
            if members.lacks_finished and self._reports.is_served(key):
                self._finished.look_up(key, waiting_only=True)
            after_change(self._world, members)
            if group is not None and group.give_back_seconds is not None:
                self._give_back.look(members)
        self._reports.look(key)

    def _gate(self, members: GroupMembers) -> None:
        """Members that were refused wait for their group from here on, and no more for room."""
        for uid in members.pods:
            self._world.queue.rerun_pre_enqueue(uid, Place.UNSCHEDULABLE)

    def _let_in(self, members: GroupMembers) -> None:
        """Have the members that wait for their group asked about again, in order of arrival."""
        entries = self._world.queue.entries
        gated = [
            pod
            for uid, pod in members.pods.items()
            if (entry := entries.get(uid)) is not None and entry.place is Place.GATED
        ]
        if gated:
            self._world.activate(gated)
