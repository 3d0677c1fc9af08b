"""The status of a coscheduling PodGroup: phase and counters, as its plugin's controller keeps them.

Group reports write it. Invariant: it follows from the book of groups alone, so that a restart says
the same.
"""

from datetime import datetime
from typing import Any

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.models.json_values import JsonObject


def coscheduling_status(members: GroupMembers, now: datetime) -> JsonObject | None:
    """The fields to be changed; None if the status says it all already."""
    group = members.group
    if group is None:
        return None
    pods = members.pods.values()
    running = sum(pod.phase == "Running" for pod in pods)
    succeeded = sum(phase == "Succeeded" for phase in members.finished.values())
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
        wanted["scheduleStartTime"] = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    changed = {
        name: value
        for name, value in wanted.items()
        if group.status.get(name, 0 if isinstance(value, int) else "") != value
    }
    return changed or None


def _phase(members: GroupMembers, needed: int, bound: int, running: int) -> str:
    succeeded = sum(phase == "Succeeded" for phase in members.finished.values())
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
