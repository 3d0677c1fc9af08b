"""The rules of PriorityClasses and RuntimeClasses, and of changes of groups and Workloads.

Called through their strategies; what a new group may say stands in the table. Invariant: the two
system priority classes keep their values, and no field of the specification of a group changes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    too_long,
    unsupported,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.names import labels_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    IMMUTABLE,
    not_negative,
    qualified_name,
    subdomain,
    too_many,
)
from stellwerk_cluster.validation.declarative import change_errors, declared_errors
from stellwerk_cluster.validation.placement import toleration_errors
from stellwerk_cluster.validation.pod_warnings import DEPRECATED_LABELS
from stellwerk_cluster.validation.resources import container_resource_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject

_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_MAX_REASON_CHARACTERS: Final = 1024
"""Characters of a condition's reason."""
_MAX_MESSAGE_CHARACTERS: Final = 32768
"""Characters of a condition's message."""
WORKLOADS: Final = "workloads.scheduling.k8s.io"
POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
COMPOSITE_POD_GROUPS: Final = "compositepodgroups.scheduling.k8s.io"
MAX_GROUP_CLAIMS: Final = 4
"""Claims of a group (`MaxPodGroupResourceClaims`)."""
MAX_USER_PRIORITY: Final = 1_000_000_000
"""The highest priority of a class that users make (`HighestUserDefinablePriority`)."""
SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_MAX_COMPARED_TOLERATIONS: Final = 100
"""Tolerations that each further one is compared with: more would take time with the square of
them."""
_POLICIES: Final = ("PreemptLowerPriority", "Never")


def validate_pod_group_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a group, or with its status."""
    if subresource == "status":
        yield from _status_errors(new["status"], new["spec"])
        return
    yield from _changes(new["spec"], old["spec"])


def _status_errors(status: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    yield from condition_errors(status.get("conditions") or (), "status.conditions")
    claims, field = status.get("resourceClaimStatuses") or (), "status.resourceClaimStatuses"
    if len(claims) > MAX_GROUP_CLAIMS:
        yield too_many(field, len(claims), MAX_GROUP_CLAIMS)
        return
    known = {each["name"] for each in spec.get("resourceClaims") or ()}
    for position, each in enumerate(claims):
        where = f"{field}[{position}]"
        if each["name"] not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield bad_value(f"{where}.name", each["name"], text)
        if each.get("resourceClaimName") is not None:
            yield from subdomain(each["resourceClaimName"], f"{where}.resourceClaimName")


def validate_workload_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a workload."""
    yield from _changes(new["spec"], old["spec"])


def validate_pod_group_v1beta1(group: JsonObject) -> Iterator[FieldError]:
    """Errors of a group beside what the table says: a child in a tree names its Workload."""
    spec = group["spec"]
    if spec.get("parentCompositePodGroupName") is not None and spec.get("workloadRef") is None:
        text = "must be set when `parentCompositePodGroupName` is set"
        yield required("spec.workloadRef", text)


def validate_composite_pod_group_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a group of groups, or with its status."""
    if subresource == "status":
        yield from condition_errors(new["status"].get("conditions") or (), "status.conditions")
        return
    yield from declared_errors("CompositePodGroup", new)
    yield from change_errors("CompositePodGroup", new, old)
    yield from _policy_changes(new["spec"], old["spec"], "spec")


def validate_pod_group_v1beta1_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a group of 1.37, or with its status."""
    if subresource == "status":
        yield from _status_errors(new["status"], new["spec"])
        return
    yield from declared_errors("PodGroupV1beta1", new)
    yield from change_errors("PodGroupV1beta1", new, old)
    yield from _policy_changes(new["spec"], old["spec"], "spec")


def validate_workload_v1beta1(workload: JsonObject) -> Iterator[FieldError]:
    """Errors of a workload beside what the table says: it has no templates of trees here."""
    if workload["spec"].get("compositePodGroupTemplates") is not None:
        yield forbidden_field("spec.compositePodGroupTemplates", "")


def validate_workload_v1beta1_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a workload of 1.37: its templates are the same ones."""
    yield from declared_errors("WorkloadV1beta1", new)
    yield from validate_workload_v1beta1(new)
    yield from change_errors("WorkloadV1beta1", new, old)
    field = "spec.podGroupTemplates"
    names, before = (
        [each["name"] for each in workload["spec"].get("podGroupTemplates") or ()]
        for workload in (new, old)
    )
    for position, name in enumerate(names):
        if name not in before:
            yield forbidden_field(f"{field}[{position}]", "items may not be added")
    for position, name in enumerate(before):
        if name not in names:
            yield forbidden_field(f"{field}[{position}]", "items may not be removed")
            continue
        place = names.index(name)
        template, was = (each["spec"]["podGroupTemplates"] for each in (new, old))
        yield from _policy_changes(template[place], was[position], f"{field}[{place}]")


def _policy_changes(new: JsonObject, old: JsonObject, at: str) -> Iterator[FieldError]:
    """A gang stays one, and nothing becomes one; how many pods it needs may change."""
    has, had = (spec["schedulingPolicy"].get("gang") is not None for spec in (new, old))
    if has != had:
        done = "set once created" if has else "cleared once set"
        yield bad_value(f"{at}.schedulingPolicy.gang", None, f"field cannot be {done}")


def _changes(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    for name in (*old, *(each for each in new if each not in old)):
        if new.get(name) != old.get(name):
            yield bad_value(f"spec.{name}", None, IMMUTABLE)


def condition_errors(conditions: Sequence[JsonObject], field: str) -> Iterator[FieldError]:
    """Errors of the conditions of a status."""
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        where = f"{field}[{position}]"
        if condition["type"] in seen:
            yield duplicate(f"{where}.type", condition["type"])
        seen.add(condition["type"])
        yield from _one(condition, where)


def _one(condition: JsonObject, where: str) -> Iterator[FieldError]:
    if not condition["type"]:
        yield required(f"{where}.type")
    else:
        yield from qualified_name(condition["type"], f"{where}.type")
    if condition["status"] not in _STATUSES:
        yield unsupported(f"{where}.status", condition["status"], _STATUSES)
    yield from not_negative(condition.get("observedGeneration", 0), f"{where}.observedGeneration")
    if condition["lastTransitionTime"] is None:
        yield required(f"{where}.lastTransitionTime")
    reason, message = condition["reason"], condition["message"]
    if not reason:
        yield required(f"{where}.reason")
    elif not re.fullmatch(_REASON, reason):
        text = (
            "a condition reason must start with alphabetic character, optionally followed by a "
            "string of alphanumeric characters or '_,:', and must end with an alphanumeric "
            "character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',"
            f"  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
        )
        yield bad_value(f"{where}.reason", reason, text)
    if len(reason) > _MAX_REASON_CHARACTERS:
        yield too_long(f"{where}.reason", _MAX_REASON_CHARACTERS)
    if len(message) > _MAX_MESSAGE_CHARACTERS:
        yield too_long(f"{where}.message", _MAX_MESSAGE_CHARACTERS)


def validate_priority_class(priority_class: JsonObject) -> list[FieldError]:
    """Errors of a class."""
    errors = []
    name, value = priority_class["metadata"].get("name", ""), priority_class["value"]
    if name.startswith("system-"):
        why = _not_of_system(priority_class, name, value)
        if why:
            text = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {why}"
            )
            errors.append(forbidden_field("metadata.name", text))
    elif value > MAX_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {MAX_USER_PRIORITY}"
        errors.append(forbidden_field("value", text))
    if priority_class["preemptionPolicy"] not in _POLICIES:
        errors.append(
            unsupported("preemptionPolicy", priority_class["preemptionPolicy"], _POLICIES)
        )
    return errors


def _not_of_system(priority_class: JsonObject, name: str, value: int) -> str:
    """The reason for which a class is not one of the system's, or nothing."""
    known = SYSTEM_CLASSES.get(name)
    if known is None:
        return f"{name} is not a known system priority class"
    if known != value:
        return f"value of {name} PriorityClass must be {known}"
    if priority_class.get("globalDefault"):
        return f"globalDefault of {name} PriorityClass must be false"
    return ""


def validate_priority_class_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> list[FieldError]:
    """Errors of a change of a class."""
    errors = []
    if new["value"] != old["value"]:
        errors.append(forbidden_field("value", "may not be changed in an update."))
    if new["preemptionPolicy"] != old["preemptionPolicy"]:
        errors.append(bad_value("preemptionPolicy", new["preemptionPolicy"], "field is immutable"))
    return errors


def validate_runtime_class(runtime_class: JsonObject) -> list[FieldError]:
    """Errors of a class besides its handler."""
    overhead = (runtime_class.get("overhead") or EMPTY).get("podFixed") or EMPTY
    errors = [*container_resource_errors({"limits": overhead}, "overhead")]
    scheduling = runtime_class.get("scheduling") or EMPTY
    errors += labels_errors(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or []
    errors += toleration_errors(tolerations, "scheduling.tolerations")
    seen: list[JsonObject] = []
    for position, toleration in enumerate(tolerations):
        if toleration in seen[:_MAX_COMPARED_TOLERATIONS]:
            shown = internal_form("Toleration", toleration)
            errors.append(duplicate(f"scheduling.tolerations[{position}]", shown))
        seen.append(toleration)
    return errors


def runtime_class_warnings(runtime_class: JsonObject, _old: JsonObject | None) -> Iterator[str]:
    """Warnings about a class: labels of nodes that went."""
    for key in (runtime_class.get("scheduling") or EMPTY).get("nodeSelector") or ():
        if key in DEPRECATED_LABELS:
            yield f"scheduling.nodeSelector: {DEPRECATED_LABELS[key]}"
