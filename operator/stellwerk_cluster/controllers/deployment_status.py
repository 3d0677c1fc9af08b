"""The status of a Deployment: counts, and the conditions Available and Progressing.

Used by `deployment`. Invariant: `ProgressDeadlineExceeded` comes only after progressDeadlineSeconds
in which no count moved on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, parse_timestamp, timestamp
from stellwerk_cluster.controllers.rollout import roll_limits, total_of

if TYPE_CHECKING:
    from datetime import datetime

    from stellwerk_kube.json_values import JsonObject

NO_DEADLINE: Final = 2**31 - 1
"""The value of progressDeadlineSeconds that means none: the largest int32."""
PAUSED: Final = "DeploymentPaused"
_COMPLETE: Final = "NewReplicaSetAvailable"
_CONDITIONS: Final = ("Available", "Progressing", "ReplicaFailure")
"""The types of conditions that the controller writes; those of others are theirs."""
_LATE: Final = "ProgressDeadlineExceeded"


def status_of(
    workload: JsonObject, current: JsonObject | None, owned: list[JsonObject], now: datetime
) -> JsonObject:
    """The status that the ReplicaSets of a Deployment come to."""
    counts = _counts(current, owned)
    conditions = [_available(workload, counts)]
    progressing = _progressing(workload, current, counts, now)
    conditions += [progressing] if progressing else []
    conditions += _failures(owned)
    before = (workload.get("status") or EMPTY).get("conditions") or []
    return {
        "observedGeneration": workload["metadata"]["generation"],
        **{name: count for name, count in counts.items() if count},
        **_terminating(owned),
        # A condition that changes goes to the end of the list (`SetDeploymentCondition`), and
        # progress is written after availability.
        "conditions": [
            *(each for each in before if each["type"] not in _CONDITIONS),
            *_stamped(workload, conditions, now),
        ],
    }


def seconds_to_deadline(workload: JsonObject, status: JsonObject, now: datetime) -> float | None:
    """The seconds until the rollout's progress is checked again; None: never."""
    deadline = workload["spec"].get("progressDeadlineSeconds", NO_DEADLINE)
    condition = _condition(status, "Progressing")
    if deadline == NO_DEADLINE or condition.get("status") != "True":
        return None
    if condition.get("reason") == _COMPLETE:
        return None
    left: float = deadline - _seconds_without_progress(condition, now)
    return max(0.0, left) + 1.0


def _counts(current: JsonObject | None, owned: list[JsonObject]) -> dict[str, int]:
    total, available = total_of(owned, "replicas"), total_of(owned, "availableReplicas")
    return {
        "replicas": total,
        "updatedReplicas": (current or {"status": EMPTY})["status"].get("replicas", 0),
        "readyReplicas": total_of(owned, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(0, max(total_of(owned), total) - available),
    }


def _terminating(owned: list[JsonObject]) -> JsonObject:
    """The count of pods that are being deleted, once every ReplicaSet has told its own."""
    told = [each["status"].get("terminatingReplicas") for each in owned]
    return EMPTY if None in told else {"terminatingReplicas": sum(filter(None, told))}


def _available(workload: JsonObject, counts: dict[str, int]) -> JsonObject:
    least = workload["spec"]["replicas"] - roll_limits(workload["spec"])[1]
    if counts["availableReplicas"] >= least:
        text = "Deployment has minimum availability."
        return _new("Available", "True", "MinimumReplicasAvailable", text)
    text = "Deployment does not have minimum availability."
    return _new("Available", "False", "MinimumReplicasUnavailable", text)


def _progressing(
    workload: JsonObject, current: JsonObject | None, counts: dict[str, int], now: datetime
) -> JsonObject | None:
    spec, before = workload["spec"], _condition(workload.get("status") or EMPTY, "Progressing")
    if spec.get("progressDeadlineSeconds", NO_DEADLINE) == NO_DEADLINE:
        return None
    if spec.get("paused"):
        paused = _new("Progressing", "Unknown", PAUSED, "Deployment is paused")
        return before if before.get("reason") == _LATE else paused
    if before.get("reason") == PAUSED:
        return _new("Progressing", "Unknown", "DeploymentResumed", "Deployment is resumed")
    subject = f'ReplicaSet "{current["metadata"]["name"]}"' if current else "Deployment"
    wanted = spec["replicas"]
    done = (counts["updatedReplicas"], counts["replicas"], counts["availableReplicas"])
    if done == (wanted, wanted, wanted):
        text = f"{subject} has successfully progressed."
        return _new("Progressing", "True", _COMPLETE, text)
    if before.get("reason") == _COMPLETE and counts["updatedReplicas"] == counts["replicas"]:
        return before
    return _on_the_way(workload, before, counts, subject, now)


def _on_the_way(
    workload: JsonObject, before: JsonObject, counts: dict[str, int], subject: str, now: datetime
) -> JsonObject:
    """The condition of a rollout that has not come to its end."""
    if not before or _has_moved(workload.get("status") or EMPTY, counts):
        moved = _new("Progressing", "True", "ReplicaSetUpdated", f"{subject} is progressing.")
        return {**moved, "lastUpdateTime": timestamp(now)}
    waited = _seconds_without_progress(before, now)
    if before.get("reason") != _LATE and waited > workload["spec"]["progressDeadlineSeconds"]:
        return _new("Progressing", "False", _LATE, f"{subject} has timed out progressing.")
    return before


def _seconds_without_progress(condition: JsonObject, now: datetime) -> float:
    """The seconds since a condition was written.

    A condition of another client that has no time counts as written long ago, as the zero time does
    in kube-controller-manager.
    """
    written = condition.get("lastUpdateTime")
    return (now - parse_timestamp(written)).total_seconds() if written else float("inf")


def _has_moved(status: JsonObject, counts: dict[str, int]) -> bool:
    """Whether new pods came, old ones went, or more are ready than before."""
    old_before = status.get("replicas", 0) - status.get("updatedReplicas", 0)
    return bool(
        counts["updatedReplicas"] > status.get("updatedReplicas", 0)
        or counts["replicas"] - counts["updatedReplicas"] < old_before
        or counts["readyReplicas"] > status.get("readyReplicas", 0)
        or counts["availableReplicas"] > status.get("availableReplicas", 0)
    )


def _failures(owned: list[JsonObject]) -> list[JsonObject]:
    """The condition that keeps a ReplicaSet from making pods."""
    found = [_condition(each["status"], "ReplicaFailure") for each in owned]
    return [
        _new("ReplicaFailure", each["status"], each.get("reason", ""), each.get("message", ""))
        for each in found
        if each
    ][:1]


def created(replica_set_name: str, now: datetime) -> JsonObject:
    """The condition of a rollout that has just begun."""
    text = f'Created new replica set "{replica_set_name}"'
    new = _new("Progressing", "True", "NewReplicaSetCreated", text)
    return {**new, "lastUpdateTime": timestamp(now), "lastTransitionTime": timestamp(now)}


def with_condition(status: JsonObject, condition: JsonObject) -> JsonObject:
    """The status with a condition in place of that of its type."""
    others = [each for each in status.get("conditions") or () if each["type"] != condition["type"]]
    before = _condition(status, condition["type"])
    if before.get("status") == condition["status"] and before.get("lastTransitionTime"):
        condition = {**condition, "lastTransitionTime": before["lastTransitionTime"]}
    return {**status, "conditions": [*others, condition]}


def _condition(status: JsonObject, type_: str) -> JsonObject:
    found = (each for each in status.get("conditions") or () if each["type"] == type_)
    return next(found, EMPTY)


def _new(type_: str, status: str, reason: str, message: str) -> JsonObject:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def _stamped(workload: JsonObject, conditions: list[JsonObject], now: datetime) -> list[JsonObject]:
    """The conditions with their times; those that did not change keep theirs."""
    status, stamp = workload.get("status") or EMPTY, timestamp(now)
    stamped = []
    for condition in conditions:
        old = _condition(status, condition["type"])
        same_status = old.get("status") == condition["status"]
        same = same_status and old.get("reason") == condition.get("reason")
        # Another client may have written the old condition, without times.
        updated = old.get("lastUpdateTime") if same else None
        since = old.get("lastTransitionTime") if same_status else None
        times = {"lastUpdateTime": updated or stamp, "lastTransitionTime": since or stamp}
        stamped.append({**times, **condition})
        if since:
            stamped[-1]["lastTransitionTime"] = since
    return stamped
