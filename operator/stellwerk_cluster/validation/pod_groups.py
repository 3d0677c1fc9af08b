"""Changes of PodGroups and Workloads (scheduling.k8s.io/v1alpha2), and the status of a group.

Called through their strategies; what a new one may say stands in the table. Invariant: no field of
a specification ever changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
)
from stellwerk_cluster.validation.checks import (
    IMMUTABLE,
    subdomain,
    too_many,
)
from stellwerk_cluster.validation.conditions import condition_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

WORKLOADS: Final = "workloads.scheduling.k8s.io"
POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
MOST_CLAIMS: Final = 4


def validate_pod_group_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """What is wrong with a change of a group, or with its status."""
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
    """What is wrong with a change of a workload."""
    yield from _changes(new["spec"], old["spec"])


def _changes(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    for name in (*old, *(each for each in new if each not in old)):
        if new.get(name) != old.get(name):
            yield bad_value(f"spec.{name}", None, IMMUTABLE)
