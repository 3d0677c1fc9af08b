"""The rules of PriorityClasses and RuntimeClasses.

Called through their strategies. Invariant: the two system priority classes keep their values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    unsupported,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.names import labels_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.container_resources import container_resource_errors
from stellwerk_cluster.validation.placement import toleration_errors
from stellwerk_cluster.validation.pod_warnings import DEPRECATED_LABELS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_MOST_COMPARED: Final = 100
_POLICIES: Final = ("PreemptLowerPriority", "Never")


def validate_priority_class(priority_class: JsonObject) -> list[FieldError]:
    """What is wrong with a class."""
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
    elif value > HIGHEST_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        errors.append(forbidden_field("value", text))
    if priority_class["preemptionPolicy"] not in _POLICIES:
        errors.append(
            unsupported("preemptionPolicy", priority_class["preemptionPolicy"], _POLICIES)
        )
    return errors


def _not_of_system(priority_class: JsonObject, name: str, value: int) -> str:
    """Why a class is not one of the system's, or nothing."""
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
    """What is wrong with a change of a class."""
    errors = []
    if new["value"] != old["value"]:
        errors.append(forbidden_field("value", "may not be changed in an update."))
    if new["preemptionPolicy"] != old["preemptionPolicy"]:
        errors.append(bad_value("preemptionPolicy", new["preemptionPolicy"], "field is immutable"))
    return errors


def validate_runtime_class(runtime_class: JsonObject) -> list[FieldError]:
    """What is wrong with a class besides its handler."""
    overhead = (runtime_class.get("overhead") or EMPTY).get("podFixed") or EMPTY
    errors = [*container_resource_errors({"limits": overhead}, "overhead")]
    scheduling = runtime_class.get("scheduling") or EMPTY
    errors += labels_errors(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or []
    errors += toleration_errors(tolerations, "scheduling.tolerations")
    seen: list[JsonObject] = []
    for position, toleration in enumerate(tolerations):
        if toleration in seen[:_MOST_COMPARED]:
            shown = internal_form("Toleration", toleration)
            errors.append(duplicate(f"scheduling.tolerations[{position}]", shown))
        seen.append(toleration)
    return errors


def runtime_class_warnings(runtime_class: JsonObject, _old: JsonObject | None) -> Iterator[str]:
    """What deserves a word about a class: labels of nodes that went."""
    for key in (runtime_class.get("scheduling") or EMPTY).get("nodeSelector") or ():
        if key in DEPRECATED_LABELS:
            yield f"scheduling.nodeSelector: {DEPRECATED_LABELS[key]}"
