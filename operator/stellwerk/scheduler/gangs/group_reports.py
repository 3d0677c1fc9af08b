"""What is said about groups: conditions in their status, events, and why their pods wait.

Group events and group cycles say what is so, tasks write it. Invariant: nothing is written inside
the scheduling coroutine, of a group at most one write is under way, nothing is written that the API
shows already, and PodGroupScheduled is never taken back: a group that waits again has a condition
of its own for that.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.backend.queued_pod import Place
from stellwerk.errors import NotFound, NotLeader, SchedulerError
from stellwerk.models.object_reference import ObjectReference, pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import POD_GROUP_SCHEDULED, PodGroup
from stellwerk.models.pod_group_key import COSCHEDULING_API, WORKLOAD_API, PodGroupKey
from stellwerk.models.profile_defaults import GANG_SCHEDULING
from stellwerk.models.untrusted_text import shown
from stellwerk.scheduler.gangs.coscheduling_status import coscheduling_status
from stellwerk.scheduler.gangs.own_conditions import OWN, WAITING, own_conditions, waiting_condition
from stellwerk.scheduler.outbox import Outbox
from stellwerk.world.pod_status import SCHEDULER_ERROR, UNSCHEDULABLE, Report
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

WAITING_FOR_PODS: Final = "WaitingForPods"
"""Reason of a group's condition, and of its pods', while too few of them exist."""
WAITING_FOR_TURN: Final = "WaitingForTurn"
"""The same where another group of its queue comes first."""
PATIENCE_SECONDS: Final = 1.0
"""A group that is complete sooner than this was never said to wait."""
_WRITERS: Final = 4
_VERSIONS: Final = {WORKLOAD_API: "v1alpha2", COSCHEDULING_API: "v1alpha1"}


_PATCHES: Final = {
    WORKLOAD_API: "application/strategic-merge-patch+json",
    COSCHEDULING_API: "application/merge-patch+json",
}


@dataclass(frozen=True, slots=True)
class Said:
    """Whether a group is placed, and why not: what a condition says, without its times."""

    status: str
    reason: str
    message: str = ""


SCHEDULED: Final = Said("True", "Scheduled")
COUNTED: Final = Said("", "")
"""Nothing but what can be counted."""


@dataclass(slots=True)
class GroupReports:
    """Conditions on their way to the API."""

    world: World
    outbox: Outbox
    _pending: OrderedDict[PodGroupKey, list[Said]] = field(default_factory=OrderedDict)
    """What is to be written: at most the counts, and the newest of everything else."""
    _writing: set[PodGroupKey] = field(default_factory=set)
    _writers: set[asyncio.Task[None]] = field(default_factory=set)
    _told: dict[PodGroupKey, Said] = field(default_factory=dict)
    """What the last event of each group said."""
    _looks: dict[PodGroupKey, asyncio.TimerHandle] = field(default_factory=dict)
    """Groups that are to be looked at when some time has passed."""

    # --- what cycles say ------------------------------------------------------------------------

    def scheduled(self, key: PodGroupKey) -> None:
        """Enough members have a node."""
        members = self.world.pod_groups.groups.get(key)
        if members is not None:
            members.was_placed = True
        self._say(key, SCHEDULED)

    def unschedulable(self, key: PodGroupKey, message: str) -> None:
        """There is no room for enough members, unless enough of them have theirs."""
        if not self._is_satisfied(key):
            self._say(key, Said("False", UNSCHEDULABLE, message))

    def error(self, key: PodGroupKey, message: str) -> None:
        """Something broke."""
        if not self._is_satisfied(key):
            self._say(key, Said("False", SCHEDULER_ERROR, message))

    def waits_for_turn(self, members: GroupMembers, message: str) -> None:
        """Another group of its queue comes first."""
        if not self._is_satisfied(members.key):
            self._say(members.key, Said("False", WAITING_FOR_TURN, message))
        for pod in members.pods.values():
            if not (pod.terminating or pod.spec.scheduling_gates or pod.node_name):
                self.outbox.reports.put(Report(pod, WAITING_FOR_TURN, message))

    def look(self, key: PodGroupKey) -> None:
        """The group or its members have changed: see some time later whether it waits."""
        if key not in self.world.pod_groups.groups:
            self._told.pop(key, None)
        if key in self._looks or not self.is_served(key):
            return
        loop = asyncio.get_running_loop()
        self._looks[key] = loop.call_later(PATIENCE_SECONDS, self._look, key)

    def look_at_all(self) -> None:
        """Scheduling begins: groups may have been waiting for long."""
        for key in self.world.pod_groups.groups:
            self.look(key)

    # --- waiting --------------------------------------------------------------------------------

    def is_served(self, key: PodGroupKey) -> bool:
        """Whether a member is of a profile that places groups."""
        members = self.world.pod_groups.groups.get(key)
        if members is None:
            return False
        profiles = self.world.profiles
        return any(
            (profile := profiles.served.get(name)) is not None and profile.places_groups
            for name in {profiles.profile_name(pod) for pod in members.pods.values()}
        )

    def _look(self, key: PodGroupKey) -> None:
        del self._looks[key]
        book = self.world.pod_groups
        members = book.groups.get(key)
        if members is None or not members.pods or not self.is_served(key):
            return
        self._say(key, COUNTED)
        if self._is_satisfied(key):
            if key.api == WORKLOAD_API:
                self._say(key, SCHEDULED)
            return
        closed, kept = book.why_closed(members), self._why_kept(members)
        if closed or kept:
            self._say(key, Said("False", WAITING_FOR_PODS, closed or kept))
        if closed:
            self._tell_pods(members)

    def _why_kept(self, members: GroupMembers) -> str:
        """Which plugins keep so many members from the queue that the group lacks them."""
        entries, preempting = self.world.queue.entries, self.world.preempting
        kept = Counter(
            entry.gating_plugin
            for uid, pod in members.pods.items()
            if (entry := entries.get(uid)) is not None and entry.place is Place.GATED
            if not (pod.spec.scheduling_gates or uid in preempting)
            if entry.gating_plugin != GANG_SCHEDULING
        )
        needed = members.group.min_count if members.group is not None else 0
        ready = self.world.pod_groups.existing(members) - kept.total()
        if not kept or ready >= needed:
            return ""
        by = ", ".join(f"{count} by {name}" for name, count in sorted(kept.items()))
        return f"waiting for pods that are kept from the queue: {ready} of {needed} are not ({by})"

    def _tell_pods(self, members: GroupMembers) -> None:
        """Say of each pod that waits that it does; without counts, which change with each pod."""
        group = members.group
        name = members.key.name
        message = f'waiting for the pod group "{name}" to exist'
        if group is not None:
            message = f'waiting for enough pods of the pod group "{name}" to exist'
        entries = self.world.queue.entries
        for uid, pod in members.pods.items():
            entry = entries.get(uid)
            if pod.terminating or pod.spec.scheduling_gates:
                continue
            if entry is not None and entry.place is Place.GATED:
                self.outbox.reports.put(Report(pod, WAITING_FOR_PODS, message))
                if all(each.get("message") != message for each in pod.conditions):
                    self._pod_event(pod, message)

    def _pod_event(self, pod: PodInfo, message: str) -> None:
        """An event on a pod that waits for its group: `kubectl describe pod` shows no condition."""
        self.outbox.recorder.event(
            pod_reference(pod),
            "Warning",
            WAITING_FOR_PODS,
            "Scheduling",
            message,
            reporting_controller=pod.spec.scheduler_name,
        )

    def _is_satisfied(self, key: PodGroupKey) -> bool:
        """Whether enough members have a node, whatever becomes of the others."""
        members = self.world.pod_groups.groups.get(key)
        return members is not None and self.world.pod_groups.is_satisfied(members)

    # --- writing --------------------------------------------------------------------------------

    def _say(self, key: PodGroupKey, said: Said) -> None:
        others = [
            each for each in self._pending.get(key, ()) if (each is COUNTED) != (said is COUNTED)
        ]
        self._pending[key] = [*others, said]
        if len(self._writers) < _WRITERS:
            writer = asyncio.get_running_loop().create_task(
                self._write_all(), name="group reports", context=Context()
            )
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)

    async def _write_all(self) -> None:
        while (key := self._next()) is not None:
            statements = self._pending.pop(key)
            members = self.world.pod_groups.groups.get(key)
            group = members.group if members is not None else None
            if members is None or group is None:
                self._told.pop(key, None)
                continue
            self._writing.add(key)
            try:
                for said in statements:
                    await self._write(members.group or group, said)
            finally:
                self._writing.discard(key)

    def _next(self) -> PodGroupKey | None:
        return next((key for key in self._pending if key not in self._writing), None)

    async def _write(self, group: PodGroup, said: Said) -> None:
        patch = self._patch(group, said)
        has_news = patch is not None or group.key.api == COSCHEDULING_API
        if has_news and said.reason and self._told.get(group.key) != said:
            self._told[group.key] = said
            self._event(group, said)
        if patch is None:
            return
        key = group.key
        path = (
            f"/apis/{key.api}/{_VERSIONS[key.api]}/namespaces/{quote(key.namespace, safe='')}"
            f"/podgroups/{quote(key.name, safe='')}/status"
        )
        try:
            await self.outbox.client.patch(path, patch, content_type=_PATCHES[key.api])
        except NotLeader:
            logger.debug("%s is reported on by the process that leads", key.shown)
        except NotFound:
            logger.debug("%s is gone, its condition is not needed any more", key.shown)
        except SchedulerError as failure:
            logger.warning("cannot report on the pod group %s: %s", key.shown, failure)

    def _patch(self, group: PodGroup, said: Said) -> dict[str, Any] | None:
        if group.key.api != WORKLOAD_API:
            members = self.world.pod_groups.groups[group.key]
            status = coscheduling_status(members, self.world.clock.now())
            return {"status": status} if status else None
        if said is COUNTED:
            members = self.world.pod_groups.groups[group.key]
            return own_conditions(
                members, self.world.pod_groups.placed(members), self.world.clock.now()
            )
        members = self.world.pod_groups.groups[group.key]
        return _conditions(group, said, self.world.clock.now(), was_placed=members.was_placed)

    def _event(self, group: PodGroup, said: Said) -> None:
        """An event on the group, under the name of one of the profiles that place it."""
        key = group.key
        members = self.world.pod_groups.groups[key]
        profile_name = self.world.profiles.profile_name
        names = sorted({profile_name(pod) for pod in members.pods.values()})
        is_placed = said.status == "True"
        self.outbox.recorder.event(
            group_reference(group),
            "Normal" if is_placed else "Warning",
            "Scheduled" if is_placed else "FailedScheduling",
            "Scheduling",
            said.message or f"enough pods of the group {key.shown} have a node",
            reporting_controller=names[0] if names else "stellwerk",
        )


def _conditions(
    group: PodGroup, said: Said, now: datetime, *, was_placed: bool
) -> dict[str, Any] | None:
    """The patch of the status of a group that is placed, or waits; None: it says so already.

    PodGroupScheduled is True for good once enough members had a node. `was_placed`: whether they
    had in this process, though the status may not show it yet.
    """
    is_placed = said.status == "True"
    lasting = SCHEDULED if was_placed or group.was_placed else said
    wanted = {"status": lasting.status, "reason": lasting.reason, "message": shown(lasting.message)}
    types = [each["type"] for each in group.conditions if each["type"] not in OWN]
    present = next((each for each in group.conditions if each["type"] == POD_GROUP_SCHEDULED), {})
    condition = {name: value for name, value in wanted.items() if present.get(name) != value}
    waiting = None
    if is_placed:
        waiting = waiting_condition(group, "", "", now)
    elif lasting is SCHEDULED:
        waiting = waiting_condition(group, said.reason, said.message, now)
    changed = [] if waiting is None else [waiting]
    patch: dict[str, Any] = {}
    if condition:
        if "status" in condition:
            condition["lastTransitionTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        changed.insert(0, {"type": POD_GROUP_SCHEDULED, **condition})
        if types:
            order = types if present else [*types, POD_GROUP_SCHEDULED]
            order = order if waiting is None else [*order, WAITING]
            patch["$setElementOrder/conditions"] = [{"type": each} for each in order]
    return {"status": {"conditions": changed, **patch}} if changed else None


def group_reference(group: PodGroup) -> ObjectReference:
    """A group as the object of an event."""
    key = group.key
    api_version = f"{key.api}/{_VERSIONS[key.api]}"
    return ObjectReference(
        "PodGroup", api_version, key.namespace, key.name, group.uid, group.resource_version
    )
