"""Events of pods and groups: drives `world.gangs.queue_order.GroupGates`, conditions, giving back.

`scheduler.event_handlers` calls `GroupEvents` for members and for objects of both APIs. Members
that ran to their end are left out of the pods' watch, so that `FinishedMembers` looks them up when
a member on a node has gone, when a group that has run is found with too few pods, and as scheduling
begins: a process may have ended between the bindings of a group and its condition. Invariant: a
group is looked up at most once at a time, however many of its pods go.
"""

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import Final
from urllib.parse import quote

from stellwerk.framework.services import ClusterClient
from stellwerk.framework.watch_handlers import Lack
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import (
    COSCHEDULING_API,
    COSCHEDULING_LABEL,
    GROUP_KINDS,
    ROLE_LABEL,
    WORKLOAD_API,
    PodGroupKey,
)
from stellwerk.scheduler.gangs.group_conditions import GroupConditions
from stellwerk.scheduler.gangs.submit_group_result import GroupGiveBack
from stellwerk.world.decide import withdraw_nomination
from stellwerk.world.gangs.group_reservation import reservation_limit_seconds
from stellwerk.world.gangs.pod_groups import FinishedMember, GroupMembers
from stellwerk.world.gangs.queue_order import GroupGates
from stellwerk.world.world import World
from stellwerk_kube.errors import SchedulerError
from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)
LOOK_UP_DELAY_SECONDS: Final = 0.5
"""Time between the end of a member and the list of finished pods: several members often end
together, and one list serves all."""
LIST_RETRY_SECONDS: Final = 5.0
"""Time after which the API is asked again if it gave no answer."""
_FINISHED: Final = "fieldSelector=" + quote("status.phase!=Running,status.phase!=Pending", safe="")


class GroupEvents:
    """Takes watch events to the gates of groups, and tells what depends on groups."""

    def __init__(self, world: World, conditions: GroupConditions) -> None:
        self._world = world
        self._states = world.pod_groups
        self._gates = GroupGates(world, self._changed, self._end_room_later)
        self._conditions = conditions
        self._ends_of_room: dict[PodGroupKey, asyncio.TimerHandle] = {}
        """The moments at which groups that lack pods or their object lose the room they keep."""
        self._give_back = GroupGiveBack(world, conditions.dispatcher)
        self._finished = FinishedMembers(world, conditions.dispatcher.client, self._on_found)

    def on_pod(self, pod: PodInfo) -> None:
        """A pod that is or was a member, before the queue sees it."""
        left = self._gates.put_pod(pod)
        if left is not None:
            self._conditions.check_later(left)

    def on_pod_gone(self, uid: str, obj: JsonObject) -> None:
        """A member was deleted, or has finished."""
        members = self._states.groups.get(self._states.key_of[uid])
        before = members.pods.get(uid) if members is not None else None
        # What leaves the watch as it ends arrives as deleted, too; if the watch was away, even
        # before its node was seen.
        has_run = before is not None and (
            before.node_name or (members is not None and members.has_run)
        )
        key = self._gates.take_pod(uid)
        if key is not None and has_run and "deletionTimestamp" not in obj["metadata"]:
            self._finished.look_up(key)

    def begin(self) -> None:
        """Scheduling begins: look for members that ran though their groups do not say so.

        What an earlier process has kept for groups that lack pods now ends in time, too.
        """
        profiles = self._world.profiles.served.values()
        if any(profile.places_groups for profile in profiles):
            self._finished.look_up_unsaid()
        for key, members in self._states.groups.items():
            if members.is_closed:
                self._end_room_later(key)

    def _on_found(self, key: PodGroupKey) -> None:
        """More members have finished than were known."""
        members = self._states.groups[key]
        group = members.group
        if group is not None and not (members.was_placed or group.was_placed):
            ran = members.bound + sum(each.had_node for each in members.finished.values())
            if ran >= max(1, group.min_count) and self._conditions.is_served(key):
                self._conditions.scheduled(key)
        self._gates.changed(key)
        self._gates.activate_one(key)

    def _end_room_later(self, key: PodGroupKey) -> None:
        """Limit the time for which a group that cannot be tried keeps room: no attempt ends it.

        Members that are made anew, as by a controller that is slow, find the others' room kept.
        """
        pods = self._nominated(key)
        profile = self._world.profiles.of(pods[0]) if pods else None
        if profile is None or key in self._ends_of_room:
            return
        seconds = reservation_limit_seconds(profile, self._states.groups[key].group)
        loop = asyncio.get_running_loop()
        self._ends_of_room[key] = loop.call_later(seconds, self._end_room, key)

    def _end_room(self, key: PodGroupKey) -> None:
        """Let others have the room of a group that still cannot be tried."""
        del self._ends_of_room[key]
        members = self._states.groups.get(key)
        if members is None or not members.is_closed:
            return
        for pod in self._nominated(key):
            report = withdraw_nomination(self._world, pod)
            if report is not None:
                self._conditions.dispatcher.reports.put(report)

    def _nominated(self, key: PodGroupKey) -> list[PodInfo]:
        """The members to which nodes are nominated."""
        nominator, members = self._world.nominator, self._states.groups.get(key)
        if not nominator.by_node or members is None:
            return []
        return [pod for uid, pod in members.pods.items() if nominator.node_of(uid)]

    def on_profiles(self, namespace: str = "") -> None:
        """Pods of a namespace, or of all, may have other profiles than before."""
        for key in self._states.recount(namespace):
            self._gates.changed(key)

    def on_lack(self, kind: str, lack: Lack | None) -> None:
        """Groups of an API cannot be seen, for this reason; None: they can."""
        api = GROUP_KINDS[kind]
        if lack is None:
            self._states.lacks.pop(api, None)
        else:
            self._states.lacks[api] = lack.reason
        for key, members in list(self._states.groups.items()):
            if key.api == api and members.group is None:
                self._gates.changed(key)

    def on_group(self, kind: str, obj: JsonObject, *, gone: bool) -> None:
        """A group's object was seen, or is gone.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the object is malformed.
        """
        if gone:
            self._gates.take_group(kind, obj)
        else:
            self._gates.put_group(kind, obj)

    def _changed(self, key: PodGroupKey) -> None:
        members = self._states.groups.get(key)
        if members is not None:
            if members.lacks_finished and self._conditions.is_served(key):
                self._finished.look_up(key, waiting_only=True)
            group = members.group
            if (
                group is not None
                and group.give_back_seconds is not None
                and not self._conditions.is_observed(members)
            ):
                self._give_back.check(members)
        self._conditions.check_later(key)


class FinishedMembers:
    """Lists the finished pods of groups, in the background."""

    def __init__(
        self, world: World, client: ClusterClient, on_found: Callable[[PodGroupKey], None]
    ) -> None:
        """`on_found` is called with a group of which more pods have finished than were known."""
        self._world, self._client, self._on_found = world, client, on_found
        self._tasks: dict[PodGroupKey, asyncio.Task[None]] = {}
        self._unsaid: asyncio.Task[None] | None = None
        self._wanted: dict[PodGroupKey, bool] = {}
        """Groups to be looked up; False: only if they still wait by then."""

    def look_up(self, key: PodGroupKey, *, waiting_only: bool = False) -> None:
        """Find out which members of a group have finished.

        `waiting_only`: unless the group gets all its pods before long, as while they are listed.
        """
        self._wanted[key] = self._wanted.get(key, False) or not waiting_only
        if key in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(
            self._look_up(key), name=f"finished pods of {key.shown}", context=Context()
        )
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _look_up(self, key: PodGroupKey) -> None:
        delay_seconds = LOOK_UP_DELAY_SECONDS
        while key in self._wanted:
            await asyncio.sleep(delay_seconds)
            is_due = self._wanted.pop(key)
            members = self._world.pod_groups.groups.get(key)
            if members is None or not (is_due or members.lacks_finished):
                return
            selector = ""
            if key.api == COSCHEDULING_API:
                selector = f"&labelSelector={quote(f'{COSCHEDULING_LABEL}={key.name}', safe='')}"
            pods = await self._list(key.namespace, selector)
            if pods is None:
                self._wanted[key] = is_due or self._wanted.get(key, False)
                delay_seconds = LIST_RETRY_SECONDS
                continue
            members = self._world.pod_groups.groups.get(key)
            if members is not None:
                self._put(members, [pod for pod in pods if _group_of(pod) == key])

    def look_up_unsaid(self) -> None:
        """Look for finished members of all groups that seem never to have run."""
        namespaces = {
            key.namespace
            for key, members in self._world.pod_groups.groups.items()
            if _is_unsaid(members)
        }
        if namespaces:
            self._unsaid = asyncio.get_running_loop().create_task(
                self._look_up_unsaid(namespaces), name="finished pods", context=Context()
            )

    async def _look_up_unsaid(self, namespaces: set[str]) -> None:
        left = sorted(namespaces)
        while left:
            pods = await self._list(left[0])
            if pods is None:
                await asyncio.sleep(LIST_RETRY_SECONDS)
                continue
            del left[0]
            by_group: dict[PodGroupKey, list[JsonObject]] = {}
            for pod in pods:
                key = _group_of(pod)
                if key is not None:
                    by_group.setdefault(key, []).append(pod)
            for key, ended in by_group.items():
                members = self._world.pod_groups.groups.get(key)
                if members is not None and _is_unsaid(members):
                    self._put(members, ended)

    async def _list(self, namespace: str, selector: str = "") -> list[JsonObject] | None:
        """Ask for the finished pods of a namespace; None: there was no answer."""
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods?{_FINISHED}{selector}"
        try:
            pods, _ = await self._client.list(path)
        except SchedulerError as failure:
            logger.warning("cannot look up finished pods of %s: %s", namespace, failure)
            return None
        return pods

    def _put(self, members: GroupMembers, ended: list[JsonObject]) -> None:
        """Note the finished pods of a group."""
        members.is_looked_up = True
        found = {
            pod["metadata"]["uid"]: FinishedMember(
                pod["status"]["phase"],
                (pod["metadata"].get("labels") or {}).get(ROLE_LABEL, ""),
                bool(pod["spec"].get("nodeName")),
                pod["spec"].get("schedulerName") or "",
            )
            for pod in ended
            if pod["metadata"]["uid"] not in members.pods
        }
        if found != members.finished:
            members.finished = found
            self._on_found(members.key)


def _is_unsaid(members: GroupMembers) -> bool:
    """Whether members may have run to their end though nothing that is seen says so."""
    group = members.group
    return group is not None and not (
        members.has_run or members.is_looked_up or group.terminating or group.was_taken_back
    )


def _group_of(pod: JsonObject) -> PodGroupKey | None:
    """The group of a finished pod; None: it is in none, or has not finished."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    if (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
        return None
    namespace = metadata.get("namespace") or "default"
    name = (spec.get("schedulingGroup") or {}).get("podGroupName")
    if name:
        return PodGroupKey(WORKLOAD_API, namespace, name)
    name = (metadata.get("labels") or {}).get(COSCHEDULING_LABEL)
    return PodGroupKey(COSCHEDULING_API, namespace, name) if name else None
