"""Conditions that Stellwerk adds to a PodGroup: how many pods are placed, what is not usable.

Group reports write them, apart from PodGroupScheduled. Invariant: a group that never waited and
whose annotations can be used has none of them.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod_group import PodGroup
from stellwerk.models.untrusted_text import shown

PLACED: Final = "scheduling.stellwerk.dev/Placed"
"""Its message begins with placed and needed pods, such as `2/4`; True: that is enough."""
ANNOTATIONS: Final = "scheduling.stellwerk.dev/AnnotationsUsable"
PARTLY_BOUND: Final = "scheduling.stellwerk.dev/PartlyBound"
"""Only of groups that are given back after a time: since when too few of their pods are bound."""
WAITING: Final = "scheduling.stellwerk.dev/Waiting"
"""Only of groups that were placed before, and wait again: PodGroupScheduled stays True."""
OWN: Final = frozenset({PLACED, ANNOTATIONS, PARTLY_BOUND, WAITING})


def own_conditions(members: GroupMembers, placed: int, now: datetime) -> JsonObject | None:
    """The patch of the status; None: it says all that already."""
    group = members.group
    if group is None:
        return None
    known = {each["type"]: each for each in group.conditions}
    changed = [
        each
        for wanted in (*_wanted(group, placed, known), *_given_back(group, members, known))
        if (each := _changed(wanted, known, now)) is not None
    ]
    return {"status": {"conditions": changed}} if changed else None


def waiting_condition(
    group: PodGroup, reason: str, message: str, now: datetime
) -> dict[str, Any] | None:
    """That a group which was placed before waits again; without a reason: no more.

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
    return _changed(wanted, known, now)


def _changed(wanted: dict[str, Any], known: JsonObject, now: datetime) -> dict[str, Any] | None:
    """A condition with its time; None: the status has it as it is."""
    before = known.get(wanted["type"], {})
    if all(before.get(name) == value for name, value in wanted.items()):
        return None
    if before.get("status") == wanted["status"]:
        since = before.get("lastTransitionTime")
    else:
        since = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {**wanted, "lastTransitionTime": since}


def _wanted(group: PodGroup, placed: int, known: JsonObject) -> Iterator[dict[str, Any]]:
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


def _given_back(
    group: PodGroup, members: GroupMembers, known: JsonObject
) -> Iterator[dict[str, Any]]:
    seconds, is_partly = group.give_back_seconds, members.is_partly_bound
    if seconds is not None and (is_partly or PARTLY_BOUND in known):
        needed = group.min_count - members.succeeded
        message = f"{members.bound}/{needed} pods are bound"
        if is_partly:
            message = f"{message}; what has not started is given back after {seconds:g} s"
        yield {
            "type": PARTLY_BOUND,
            "status": "True" if is_partly else "False",
            "reason": "TooFewPods" if is_partly else "NotPartly",
            "message": message,
        }
