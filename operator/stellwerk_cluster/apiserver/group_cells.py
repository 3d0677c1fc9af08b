"""The table cells of groups of pods.

Listed in `cells.CELLS` beside the others. Invariant: as there, a function never raises for a stored
object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from datetime import datetime

    from stellwerk.models.json_values import JsonObject

PLACED: Final = "scheduling.stellwerk.dev/Placed"
"""The condition whose message begins with placed and needed pods, such as `2/4`."""

WAITING: Final = "scheduling.stellwerk.dev/Waiting"
"""The condition of a group that was placed before, and waits again."""


def group_policy(group: JsonObject, _now: datetime) -> str:
    """Gang or Basic."""
    return "Gang" if group["spec"]["schedulingPolicy"].get("gang") is not None else "Basic"


def group_status(group: JsonObject, _now: datetime) -> str:
    """What its conditions say in one word, and how many of how many pods are placed, if one says.

    A disruption goes before what was scheduled.
    """
    conditions = {
        each["type"]: each for each in (group.get("status") or EMPTY).get("conditions") or ()
    }
    placed = conditions.get(PLACED, EMPTY).get("message", "").partition(" ")[0]
    word = _status_word(conditions)
    return f"{word} ({placed})" if placed else word


def _status_word(conditions: dict[str, JsonObject]) -> str:
    disrupted = conditions.get("DisruptionTarget")
    if disrupted is not None and disrupted["status"] == "True":
        return disrupted["reason"] or "DisruptionTarget"
    waiting = conditions.get(WAITING)
    if waiting is not None and waiting["status"] == "True":
        return waiting["reason"] or "Pending"
    scheduled = conditions.get("PodGroupScheduled")
    if scheduled is None:
        return "Pending"
    if scheduled["status"] == "True":
        return "Scheduled"
    return scheduled["reason"] or "Pending"
