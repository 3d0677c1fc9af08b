"""What the scheduler writes into a pod's status: the PodScheduled condition and the nomination.

Used by the failure path and by bindings that take long. Invariant: one strategic merge patch says
both, it names only what changed, and nothing is written when nothing changed (as kube-scheduler).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from stellwerk.models.pod import PodInfo

POD_SCHEDULED: Final = "PodScheduled"
UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"


@dataclass(frozen=True, slots=True)
class Nomination:
    """What is to become of status.nominatedNodeName."""

    node_name: str
    """Empty: remove it."""
    in_any_case: bool = False
    """It was written so lately that the pod may not show it yet: compare with nothing."""


def status_patch(
    pod: PodInfo, now: datetime, *, reason: str, message: str, nomination: Nomination | None
) -> dict[str, Any] | None:
    """The patch that makes PodScheduled False with this reason; None if the pod says so already."""
    status = _condition_patch(pod, now, reason, message)
    status |= nomination_patch(pod, nomination)
    return {"status": status} if status else None


def nomination_patch(pod: PodInfo, nomination: Nomination | None) -> dict[str, Any]:
    """The part of a status patch that sets or removes the nomination, if it changes."""
    if nomination is None:
        return {}
    if nomination.node_name == pod.nominated_node_name and not nomination.in_any_case:
        return {}
    return {"nominatedNodeName": nomination.node_name or None}


def _condition_patch(pod: PodInfo, now: datetime, reason: str, message: str) -> dict[str, Any]:
    wanted = {"status": "False", "reason": reason, "message": message}
    if pod.generation:
        wanted["observedGeneration"] = pod.generation  # type: ignore[assignment]
    types = [condition["type"] for condition in pod.conditions]
    present = next((each for each in pod.conditions if each["type"] == POD_SCHEDULED), None)
    stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    if present is None:
        condition = {
            "type": POD_SCHEDULED,
            "lastProbeTime": None,
            "lastTransitionTime": stamp,
            **wanted,
        }
        types.append(POD_SCHEDULED)
    else:
        condition = {key: value for key, value in wanted.items() if present.get(key) != value}
        if not condition:
            return {}
        if "status" in condition:
            condition["lastTransitionTime"] = stamp
        condition["type"] = POD_SCHEDULED
    patch: dict[str, Any] = {"conditions": [condition]}
    if len(types) > 1 or present is not None:
        patch["$setElementOrder/conditions"] = [{"type": type_} for type_ in types]
    return patch
