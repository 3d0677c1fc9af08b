"""In-place resize: what a running pod's spec asks for now, given or put off.

Called by the hollow kubelet. Invariant: what the status says a container has been given is what
the node's other pods leave room for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.pod_resources import resource_amounts
from stellwerk_cluster.apimachinery.objects import EMPTY, meta
from stellwerk_cluster.hollow.pod_admission import allocatable_of

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.hollow.pod_admission import AdmittedPods

PENDING: Final = "PodResizePending"


def is_resizing(pod: JsonObject) -> bool:
    """Whether a container has been given other resources than the spec says."""
    wanted = {each["name"]: each.get("resources") or EMPTY for each in pod["spec"]["containers"]}
    return any(
        "resources" in each and each["resources"] != wanted.get(each["name"], EMPTY)
        for each in pod["status"].get("containerStatuses") or ()
    )


def resized(pod: JsonObject, node: JsonObject, others: AdmittedPods, now: str) -> JsonObject | None:
    """The pod with what it asks for, or with the condition that says why not; None: no change."""
    asked, allocatable = resource_amounts(pod["spec"]).requests, allocatable_of(node)
    reason = message = ""
    for name in ("cpu", "memory"):
        capacity, used = allocatable.get(name, 0), others.used.get(name, 0)
        if asked.get(name, 0) > capacity:
            reason = "Infeasible"
            message = (
                f"Node didn't have enough capacity: {name}, requested: {asked[name]}, "
                f"capacity: {capacity}"
            )
            break
        if asked.get(name, 0) > capacity - used and not reason:
            reason = "Deferred"
            message = (
                f"Node didn't have enough resource: {name}, requested: {asked[name]}, "
                f"used: {used}, capacity: {capacity}"
            )
    return _put_off(pod, reason, message, now) if reason else _given(pod)


def _given(pod: JsonObject) -> JsonObject:
    wanted = {each["name"]: each.get("resources") or EMPTY for each in pod["spec"]["containers"]}
    statuses = []
    for each in pod["status"]["containerStatuses"]:
        resources = wanted.get(each["name"], EMPTY)
        requests = resources.get("requests")
        allocated = {"allocatedResources": requests} if requests else {}
        statuses.append({**each, "resources": resources, **allocated})
    conditions = [each for each in pod["status"]["conditions"] if each["type"] != PENDING]
    status = {
        **pod["status"],
        "conditions": conditions,
        "containerStatuses": statuses,
        "observedGeneration": meta(pod).get("generation", 1),
    }
    return {**pod, "status": status}


def _put_off(pod: JsonObject, reason: str, message: str, now: str) -> JsonObject | None:
    has = {each["type"]: each for each in pod["status"].get("conditions") or ()}
    was = has.get(PENDING) or EMPTY
    if (was.get("reason"), was.get("message")) == (reason, message):
        return None
    condition = {
        "type": PENDING,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": was.get("lastTransitionTime", now),
        "reason": reason,
        "message": message,
        "observedGeneration": meta(pod).get("generation", 1),
    }
    conditions = [*(each for type_, each in has.items() if type_ != PENDING), condition]
    return {**pod, "status": {**pod["status"], "conditions": conditions}}
