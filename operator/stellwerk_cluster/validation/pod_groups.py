"""Changes of PodGroups and Workloads (scheduling.k8s.io/v1alpha2), and the status of a group.

Called through their strategies; what a new one may say stands in the table. Invariant: no field of
a specification ever changes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    required,
    too_long,
    unsupported,
)
from stellwerk_cluster.validation.checks import (
    IMMUTABLE,
    not_negative,
    qualified_name,
    subdomain,
    too_many,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stellwerk.models.json_values import JsonObject

_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_LONGEST_REASON: Final = 1024
_LONGEST_MESSAGE: Final = 32768
WORKLOADS: Final = "workloads.scheduling.k8s.io"
POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
MOST_CLAIMS: Final = 4


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
    if len(claims) > MOST_CLAIMS:
        yield too_many(field, len(claims), MOST_CLAIMS)
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
    if len(reason) > _LONGEST_REASON:
        yield too_long(f"{where}.reason", _LONGEST_REASON)
    if len(message) > _LONGEST_MESSAGE:
        yield too_long(f"{where}.message", _LONGEST_MESSAGE)
