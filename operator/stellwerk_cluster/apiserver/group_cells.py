"""The table cells of groups of pods.

Listed in `cells.CELLS` beside the others. Invariant: as there, a function never raises for a stored
object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from datetime import datetime

    from stellwerk.models.json_values import JsonObject


def group_policy(group: JsonObject, _now: datetime) -> str:
    """Gang or Basic."""
    return "Gang" if group["spec"]["schedulingPolicy"].get("gang") is not None else "Basic"


def group_status(group: JsonObject, _now: datetime) -> str:
    """What its conditions say in one word; a disruption goes before what was scheduled."""
    conditions = {
        each["type"]: each for each in (group.get("status") or EMPTY).get("conditions") or ()
    }
    disrupted = conditions.get("DisruptionTarget")
    if disrupted is not None and disrupted["status"] == "True":
        return disrupted["reason"] or "DisruptionTarget"
    scheduled = conditions.get("PodGroupScheduled")
    if scheduled is None:
        return "Pending"
    if scheduled["status"] == "True":
        return "Scheduled"
    return scheduled["reason"] or "Pending"
