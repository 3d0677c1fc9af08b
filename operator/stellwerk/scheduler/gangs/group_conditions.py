"""Conditions and events of groups, and the conditions of their pods, from `world.gangs.pod_groups`.

Group events and group cycles state what is so, tasks write it, as `updatePodGroupCondition` does
upstream. A group has PodGroupScheduled (from v1alpha3 on PodGroupInitiallyScheduled) and conditions
of Stellwerk's own; a group of coscheduling has the phase and the counters of its plugin's
controller. Invariants: nothing is written inside the scheduling coroutine; at most one write of a
group is under way; nothing is written that the API shows already. PodGroupScheduled is never taken
back: a group that waits again has another condition for that (`WAITING`). A group that never waited
and whose annotations can be used has no condition of ours. Phase and counters follow from the state
of groups alone, so they are the same after a restart.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextvars import Context
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

from stellwerk.backend.queued_pod import UNSCHEDULABLE_PODS, Place
from stellwerk.models.object_reference import ObjectReference, pod_reference
from stellwerk.models.pod_group import (
    COSCHEDULING_API,
    WAITING_FOR_PODS,
    WORKLOAD_API,
    PodGroup,
    PodGroupKey,
)
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.world.gangs.pod_groups import GroupMembers
from stellwerk.world.pod_status import SCHEDULER_ERROR, UNSCHEDULABLE, Report
from stellwerk.world.world import World
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_kube.errors import ApiError, NotFound, NotLeader, SchedulerError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.untrusted_text import shown

logger = logging.getLogger(__name__)
INADMISSIBLE: Final = "WaitingForTurn"
"""Reason of a group's condition, and of its pods', while another group of its queue is first."""
PLACED: Final = "scheduling.stellwerk.dev/Placed"
"""Condition whose message begins with placed and needed pods, such as `2/4`; True: enough."""
ANNOTATIONS: Final = "scheduling.stellwerk.dev/AnnotationsUsable"
PARTLY_BOUND: Final = "scheduling.stellwerk.dev/PartlyBound"
"""Condition of groups that are given back after a time; it says since when too few are bound."""
WAITING: Final = "scheduling.stellwerk.dev/Waiting"
"""Condition of groups that were placed before and wait again: PodGroupScheduled stays True."""
ROOM_NOT_GRANTED: Final = "scheduling.stellwerk.dev/RoomNotGranted"
"""Condition of groups that should have nodes kept; it says why none are."""
ONE_BY_ONE: Final = "scheduling.stellwerk.dev/PlacedOneByOne"
"""Condition of groups whose profile places no groups: members are placed one by one, and
PodGroupScheduled stays as it is."""
ONE_BY_ONE_REASON: Final = "GangSchedulingOff"
OWN_TYPES: Final = frozenset(
    {PLACED, ANNOTATIONS, PARTLY_BOUND, WAITING, ROOM_NOT_GRANTED, ONE_BY_ONE}
)
MAX_CHECKS_PER_ITERATION: Final = 64
"""Groups that are looked at in one iteration of the event loop, about 2 ms: thousands may have come
together."""
CHECK_DELAY_SECONDS: Final = 1.0
"""Time between a change of a group and the look whether it waits: a group that is complete sooner
is never said to wait."""
MAX_GROUP_STATUS_WRITERS: Final = 4
"""Status writes for groups that are under way at the same time; further groups wait, and only the
newest statement of each is written."""
_COSCHEDULING_VERSION: Final = "v1alpha1"
_PATCHES: Final = {
    WORKLOAD_API: "application/strategic-merge-patch+json",
    COSCHEDULING_API: "application/merge-patch+json",
}


@dataclass(frozen=True, slots=True)
class ScheduledCondition:
    """Whether a group is placed, and why not: a condition without its times."""

    status: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Statement:
    """A condition that is to be written, and the uid of the object that it is about."""

    stated: ScheduledCondition
    uid: str


SCHEDULED: Final = ScheduledCondition("True", "Scheduled")
COUNTS_ONLY: Final = ScheduledCondition("", "")
"""Nothing but the counts of pods."""


@dataclass(slots=True)
class GroupConditions:
    """The conditions that are on their way to the API."""

    world: World
    dispatcher: APIDispatcher
    _pending: OrderedDict[PodGroupKey, list[_Statement]] = field(default_factory=OrderedDict)
    """The statements to be written: for a group at most its counts and the newest other one."""
    _writing: set[PodGroupKey] = field(default_factory=set)
    _writers: set[asyncio.Task[None]] = field(default_factory=set)
    _last_event: dict[PodGroupKey, ScheduledCondition] = field(default_factory=dict)
    """The condition of each group as its last event told it."""
    _warned: dict[str, str] = field(default_factory=dict)
    """APIs of groups that cannot be seen, with the reason that the log has."""
    _checks: dict[PodGroupKey, float] = field(default_factory=dict)
    """Groups that are to be looked at, and when, by the loop's time; the first is due first."""
    _next_check: asyncio.TimerHandle | None = None
    """The timer of the first of them."""

    # --- what cycles say ------------------------------------------------------------------------

    def scheduled(self, key: PodGroupKey) -> None:
        """State that enough members have a node."""
        members = self.world.pod_groups.groups.get(key)
        if members is not None:
            members.was_placed = True
        self._write_later(key, SCHEDULED)

    def unschedulable(self, key: PodGroupKey, message: str) -> None:
        """State that there is no room for enough members, unless enough of them have a node."""
        if not self._is_satisfied(key):
            self._write_later(key, ScheduledCondition("False", UNSCHEDULABLE, message))

    def error(self, key: PodGroupKey, message: str) -> None:
        """State that a plugin, an extender or the scheduler itself failed."""
        if not self._is_satisfied(key):
            self._write_later(key, ScheduledCondition("False", SCHEDULER_ERROR, message))

    def inadmissible(self, members: GroupMembers, message: str) -> None:
        """State that another group of its queue comes first, on the group and on its pods."""
        if not self._is_satisfied(members.key):
            self._write_later(members.key, ScheduledCondition("False", INADMISSIBLE, message))
        for pod in members.pods.values():
            if not (pod.terminating or pod.spec.scheduling_gates or pod.node_name):
                self.dispatcher.reports.put(Report(pod, INADMISSIBLE, message))

    def check_later(self, key: PodGroupKey) -> None:
        """Look after `CHECK_DELAY_SECONDS` whether a group that has changed waits."""
        if key not in self.world.pod_groups.groups:
            self._last_event.pop(key, None)
        if key in self._checks or not (self.is_served(key) or self._why_one_by_one(key)):
            return
        self._checks[key] = asyncio.get_running_loop().time() + CHECK_DELAY_SECONDS
        self._await_check()

    def check_all(self) -> None:
        """Look at every group as scheduling begins: some may have been waiting for long."""
        for key in self.world.pod_groups.groups:
            self.check_later(key)

    # --- waiting --------------------------------------------------------------------------------

    def is_served(self, key: PodGroupKey) -> bool:
        """Whether a member is of a profile that places groups; without any, one that has ended."""
        members = self.world.pod_groups.groups.get(key)
        if members is None:
            return False
        profiles = self.world.profiles
        names = {profiles.profile_name(pod) for pod in members.pods.values()}
        return any(
            (profile := profiles.served.get(name)) is not None and profile.places_groups
            for name in names or {each.scheduler_name for each in members.finished.values()}
        )

    def is_observed(self, members: GroupMembers) -> bool:
        """Whether another scheduler serves the profile of a member: nothing is written then."""
        profiles = self.world.profiles
        return bool(profiles.observing) and any(
            profiles.profile_name(pod) in profiles.observing for pod in members.pods.values()
        )

    def _why_one_by_one(self, key: PodGroupKey) -> str:
        """The profiles that place a group's members one by one; empty: it is placed as a group.

        Pods of other schedulers say nothing: these may place groups.
        """
        members = self.world.pod_groups.groups.get(key)
        if members is None or members.group is None or self.is_served(key):
            return ""
        profiles = self.world.profiles
        found = (profiles.served.get(profiles.profile_name(pod)) for pod in members.pods.values())
        names = sorted(
            {each.loaded.name for each in found if each is not None and not each.observes}
        )
        named = ", ".join(f'"{name}"' for name in names)
        return f"gangScheduling is off in the SchedulerProfile {named}" if names else ""

    def _await_check(self) -> None:
        """Set the timer of the first group that is to be looked at, if it is not set."""
        if self._checks and self._next_check is None:
            loop = asyncio.get_running_loop()
            left_seconds = next(iter(self._checks.values())) - loop.time()
            self._next_check = loop.call_later(max(0.0, left_seconds), self._check_due)

    def _check_due(self) -> None:
        """Look at the groups whose time has come: a part of them in one iteration of the loop."""
        self._next_check = None
        now = asyncio.get_running_loop().time()
        first = list(islice(self._checks.items(), MAX_CHECKS_PER_ITERATION))
        try:
            for key in [key for key, due_seconds in first if due_seconds <= now]:
                del self._checks[key]
                self._check(key)
        finally:
            self._await_check()

    def _check(self, key: PodGroupKey) -> None:
        states = self.world.pod_groups
        members = states.groups.get(key)
        one_by_one = self._why_one_by_one(key)
        if one_by_one:
            message = f"the pods of the group are placed one by one: {one_by_one}"
            self._write_later(key, ScheduledCondition("True", ONE_BY_ONE_REASON, message))
        if members is None or not members.pods or not self.is_served(key):
            return
        self._write_later(key, COUNTS_ONLY)
        if self._is_satisfied(key):
            if key.api == WORKLOAD_API:
                self._write_later(key, SCHEDULED)
            return
        self._warn_of_lack(key)
        closed, kept = states.why_closed(members), self._why_kept(members)
        if closed or kept:
            self._write_later(key, ScheduledCondition("False", WAITING_FOR_PODS, closed or kept))
        if closed:
            self._report_pods(members)

    def _warn_of_lack(self, key: PodGroupKey) -> None:
        """Say in the log, once for an API, that pods name groups of it that cannot be seen."""
        lack = self.world.pod_groups.lacks.get(key.api, "")
        if self.world.pod_groups.misses(key.api) and self._warned.get(key.api) != lack:
            self._warned[key.api] = lack
            logger.warning("pods name groups of %s, such as %s: %s", key.api, key.shown, lack)

    def _why_kept(self, members: GroupMembers) -> str:
        """The plugins that keep so many members from the queue that the group lacks them."""
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
        return (
            f"waiting for pods that plugins keep out of the queue: {ready} of {needed} are "
            f"ready ({by})"
        )

    def _report_pods(self, members: GroupMembers) -> None:
        """Report on each pod that waits for its group, without counts: these change too often."""
        group = members.group
        name = members.key.name
        message = self.world.pod_groups.why_closed(members)
        if group is not None and not group.parent:
            message = f'waiting for enough pods of the pod group "{name}" to exist'
        entries = self.world.queue.entries
        for uid, pod in members.pods.items():
            entry = entries.get(uid)
            if pod.terminating or pod.spec.scheduling_gates:
                continue
            if entry is not None and entry.place in UNSCHEDULABLE_PODS:
                self.dispatcher.reports.put(Report(pod, WAITING_FOR_PODS, message))
                if all(each.get("message") != message for each in pod.conditions):
                    # `kubectl describe pod` shows events, and no message of a condition.
                    self.dispatcher.recorder.event(
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

    def _write_later(self, key: PodGroupKey, stated: ScheduledCondition) -> None:
        members = self.world.pod_groups.groups.get(key)
        if members is None or members.group is None:
            return
        others = [
            each
            for each in self._pending.get(key, ())
            if (each.stated is COUNTS_ONLY) != (stated is COUNTS_ONLY)
        ]
        self._pending[key] = [*others, _Statement(stated, members.group.uid)]
        if len(self._writers) < MAX_GROUP_STATUS_WRITERS:
            writer = asyncio.get_running_loop().create_task(
                self._write_all(), name="group reports", context=Context()
            )
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)

    async def _write_all(self) -> None:
        # What was stated of a group that is being written waits, and others go first.
        while key := next((key for key in self._pending if key not in self._writing), None):
            statements = self._pending.pop(key)
            members = self.world.pod_groups.groups.get(key)
            group = members.group if members is not None else None
            if members is None or group is None:
                self._last_event.pop(key, None)
                continue
            self._writing.add(key)
            try:
                for each in statements:
                    newest = members.group or group
                    # What was stated of an object that was made anew since is not true of it, and
                    # nothing is written of one whose pods are observed since.
                    if newest.uid == each.uid and not self.is_observed(members):
                        await self._write(newest, each.stated)
            finally:
                self._writing.discard(key)

    async def _write(self, group: PodGroup, stated: ScheduledCondition) -> None:
        patch = self._patch(group, stated)
        has_news = patch is not None or group.key.api == COSCHEDULING_API
        if has_news and stated.reason and self._last_event.get(group.key) != stated:
            self._last_event[group.key] = stated
            # Of a basic group that is placed, the events of its pods say all that its own would.
            if group.is_gang or stated != SCHEDULED:
                self._event(group, stated)
        if patch is None:
            return
        key = group.key
        path = (
            f"/apis/{_api_version(group)}/namespaces/{quote(key.namespace, safe='')}"
            f"/podgroups/{quote(key.name, safe='')}/status"
        )
        # With the uid: a group that was made anew under the name gets its own status.
        identity = {"metadata": {"uid": group.uid}} if group.uid else {}
        body, content_type = {**identity, **patch}, _PATCHES[key.api]
        try:
            await self.dispatcher.client.patch(path, body, content_type=content_type)
        except NotLeader:
            logger.debug("%s is reported on by the process that leads", key.shown)
        except NotFound:
            logger.debug("%s is gone, its condition is not needed any more", key.shown)
        except ApiError as failure:
            if failure.met_another_object:
                logger.debug("%s was made anew, and gets a condition of its own", key.shown)
                return
            logger.warning("cannot report on the pod group %s: %s", key.shown, failure)
        except SchedulerError as failure:
            logger.warning("cannot report on the pod group %s: %s", key.shown, failure)

    def _patch(self, group: PodGroup, stated: ScheduledCondition) -> dict[str, Any] | None:
        if group.key.api != WORKLOAD_API:
            members = self.world.pod_groups.groups[group.key]
            status = coscheduling_status(members, self.world.clock.now())
            return {"status": status} if status else None
        if stated.reason == ONE_BY_ONE_REASON:
            known = {each["type"]: each for each in group.conditions}
            wanted = {
                "type": ONE_BY_ONE,
                "status": stated.status,
                "reason": stated.reason,
                "message": shown(stated.message),
            }
            changed = _changed_condition(wanted, known, self.world.clock.now())
            return None if changed is None else {"status": {"conditions": [changed]}}
        if stated is COUNTS_ONLY:
            members = self.world.pod_groups.groups[group.key]
            return own_conditions(
                members, self.world.pod_groups.placed(members), self.world.clock.now()
            )
        members = self.world.pod_groups.groups[group.key]
        return conditions_patch(
            group, stated, self.world.clock.now(), was_placed=members.was_placed
        )

    def _event(self, group: PodGroup, stated: ScheduledCondition) -> None:
        """An event on the group, under the name of one of the profiles that place it."""
        key = group.key
        members = self.world.pod_groups.groups[key]
        profile_name = self.world.profiles.profile_name
        names = sorted({profile_name(pod) for pod in members.pods.values()})
        is_off = stated.reason == ONE_BY_ONE_REASON
        is_placed = stated.status == "True" and not is_off
        reason = ONE_BY_ONE_REASON if is_off else "FailedScheduling"
        self.dispatcher.recorder.event(
            group_reference(group),
            "Normal" if is_placed else "Warning",
            "Scheduled" if is_placed else reason,
            "Scheduling",
            stated.message or f"enough pods of the group {key.shown} have a node",
            reporting_controller=names[0] if names else "stellwerk",
        )


def group_reference(group: PodGroup) -> ObjectReference:
    """A group as the object of an event."""
    key = group.key
    return ObjectReference(
        "PodGroup", _api_version(group), key.namespace, key.name, group.uid, group.resource_version
    )


def _api_version(group: PodGroup) -> str:
    """The API in which the group was read, and is written."""
    return f"{group.key.api}/{group.version or _COSCHEDULING_VERSION}"


def conditions_patch(
    group: PodGroup, stated: ScheduledCondition, now: datetime, *, was_placed: bool
) -> dict[str, Any] | None:
    """The patch of the status of a group that is placed, or waits; None: it says so already.

    The condition is True for good once enough members had a node. `was_placed`: whether they had
    in this process, though the status may not show it yet.
    """
    is_placed = stated.status == "True"
    lasting = SCHEDULED if was_placed or group.was_placed else stated
    wanted = {"status": lasting.status, "reason": lasting.reason, "message": shown(lasting.message)}
    types = [each["type"] for each in group.conditions if each["type"] not in OWN_TYPES]
    present = next((each for each in group.conditions if each["type"] == group.scheduled_type), {})
    condition = {name: value for name, value in wanted.items() if present.get(name) != value}
    waiting = None
    if is_placed:
        waiting = waiting_condition(group, "", "", now)
    elif lasting is SCHEDULED:
        waiting = waiting_condition(group, stated.reason, stated.message, now)
    changed = [] if waiting is None else [waiting]
    patch: dict[str, Any] = {}
    if condition:
        if "status" in condition:
            condition["lastTransitionTime"] = rfc3339_seconds(now)
        changed.insert(0, {"type": group.scheduled_type, **condition})
        if types:
            order = types if present else [*types, group.scheduled_type]
            order = order if waiting is None else [*order, WAITING]
            patch["$setElementOrder/conditions"] = [{"type": each} for each in order]
    return {"status": {"conditions": changed, **patch}} if changed else None


def waiting_condition(
    group: PodGroup, reason: str, message: str, now: datetime
) -> dict[str, Any] | None:
    """The condition that a group which was placed before waits again; without a reason: no more.

    None: its status says so already.
    """
    known = {each["type"]: each for each in group.conditions}
    if not reason and WAITING not in known:
        return None
    wanted = {
        "type": WAITING,
        "status": "True" if reason else "False",
        "reason": reason or "Scheduled",
        "message": shown(message),
    }
    return _changed_condition(wanted, known, now)


def own_conditions(members: GroupMembers, placed: int, now: datetime) -> JsonObject | None:
    """The patch of the status; None: it says all that already."""
    group = members.group
    if group is None:
        return None
    known = {each["type"]: each for each in group.conditions}
    changed = [
        each
        for wanted in (
            *_own_wanted(group, placed, known),
            *_own_partly_bound(group, members, known),
            *_own_room(members, known),
            *_own_one_by_one(known),
        )
        if (each := _changed_condition(wanted, known, now)) is not None
    ]
    return {"status": {"conditions": changed}} if changed else None


def _own_wanted(group: PodGroup, placed: int, known: JsonObject) -> Iterator[dict[str, Any]]:
    needed = max(1, group.min_count)
    is_enough = placed >= needed
    if PLACED in known or not is_enough:
        yield {
            "type": PLACED,
            "status": "True" if is_enough else "False",
            "reason": "EnoughPods" if is_enough else "TooFewPods",
            "message": f"{placed}/{needed} pods are placed",
        }
    if ANNOTATIONS in known or group.problems:
        yield {
            "type": ANNOTATIONS,
            "status": "False" if group.problems else "True",
            "reason": "Invalid" if group.problems else "Valid",
            "message": shown("; ".join(group.problems)),
        }


def _own_room(members: GroupMembers, known: JsonObject) -> Iterator[dict[str, Any]]:
    refused = members.room_refused
    if refused or ROOM_NOT_GRANTED in known:
        yield {
            "type": ROOM_NOT_GRANTED,
            "status": "True" if refused else "False",
            "reason": "NotGranted" if refused else "NotAskedFor",
            "message": shown(refused),
        }


def _own_one_by_one(known: JsonObject) -> Iterator[dict[str, Any]]:
    """Take back that the group is placed one by one: a profile that places groups serves it now."""
    if ONE_BY_ONE in known:
        yield {
            "type": ONE_BY_ONE,
            "status": "False",
            "reason": "GangSchedulingOn",
            "message": "",
        }


def _own_partly_bound(
    group: PodGroup, members: GroupMembers, known: JsonObject
) -> Iterator[dict[str, Any]]:
    seconds, is_partly = group.give_back_seconds, members.is_partly_bound
    if seconds is not None and (is_partly or PARTLY_BOUND in known):
        needed = group.min_count - members.succeeded
        message = f"{members.bound}/{needed} pods are bound"
        if is_partly and members.bound >= needed:
            message = f"{message}, too few of a role"
        if is_partly:
            message = f"{message}; members that have not started are deleted after {seconds:g} s"
        yield {
            "type": PARTLY_BOUND,
            "status": "True" if is_partly else "False",
            "reason": "TooFewPods" if is_partly else "NotPartly",
            "message": message,
        }


def _changed_condition(
    wanted: dict[str, Any], known: JsonObject, now: datetime
) -> dict[str, Any] | None:
    """A condition with its time; None: the status has it as it is."""
    before = known.get(wanted["type"], {})
    if all(before.get(name) == value for name, value in wanted.items()):
        return None
    if before.get("status") == wanted["status"]:
        since = before.get("lastTransitionTime")
    else:
        since = rfc3339_seconds(now)
    return {**wanted, "lastTransitionTime": since}


def coscheduling_status(members: GroupMembers, now: datetime) -> JsonObject | None:
    """The fields to be changed; None if the status says it all already."""
    group = members.group
    if group is None:
        return None
    pods = members.pods.values()
    running = sum(pod.phase == "Running" for pod in pods)
    succeeded = members.ended("Succeeded")
    failed = len(members.finished) - succeeded
    bound = sum(bool(pod.node_name) for pod in pods)
    wanted: dict[str, Any] = {
        "phase": _phase(members, group.min_count, bound, running),
        "running": running,
        "succeeded": succeeded,
        "failed": failed,
    }
    owner = _owner(members)
    if owner:
        wanted["occupiedBy"] = owner
    if bound and not group.status.get("scheduleStartTime"):
        wanted["scheduleStartTime"] = rfc3339_seconds(now)
    changed = {
        name: value
        for name, value in wanted.items()
        if group.status.get(name, 0 if isinstance(value, int) else "") != value
    }
    return changed or None


def _phase(members: GroupMembers, needed: int, bound: int, running: int) -> str:
    succeeded = members.ended("Succeeded")
    if succeeded >= needed:
        return "Finished"
    if len(members.finished) > succeeded and running + len(members.finished) >= needed:
        return "Failed"
    if running + succeeded >= needed:
        return "Running"
    if bound + succeeded >= needed:
        return "Scheduled"
    if bound:
        return "Scheduling"
    return "PreScheduling" if len(members.pods) >= needed else "Pending"


def _owner(members: GroupMembers) -> str:
    """The objects whose pods are in the group, as namespace/name."""
    owners = {pod.owner for pod in members.pods.values() if pod.owner is not None}
    return ", ".join(sorted(f"{members.key.namespace}/{name}" for _, name, _ in owners))
