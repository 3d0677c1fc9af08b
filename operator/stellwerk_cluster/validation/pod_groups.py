"""The rules of PodGroups and Workloads (scheduling.k8s.io/v1alpha2).

Called through their strategies. Invariant: no field of a specification ever changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.names import path_segment_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import IMMUTABLE, label, qualified_name, subdomain
from stellwerk_cluster.validation.conditions import condition_errors
from stellwerk_cluster.validation.device_checks import too_many
from stellwerk_cluster.validation.scheduling_classes import HIGHEST_USER_PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stellwerk.models.json_values import JsonObject

WORKLOADS: Final = "workloads.scheduling.k8s.io"
POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
MOST_TEMPLATES: Final = 8
MOST_CLAIMS: Final = 4
_MOST_TOPOLOGIES: Final = 1
_MODES: Final = ("Pod", "PodGroup")
_POLICIES: Final = ("basic", "gang")
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")


def validate_pod_group(group: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a group."""
    spec = group["spec"]
    reference = spec.get("podGroupTemplateRef")
    if reference is not None:
        field = "spec.podGroupTemplateRef"
        yield from _union_errors(reference, ("workload",), field)
        if reference.get("workload") is not None:
            yield from _reference_errors(reference["workload"], f"{field}.workload")
    yield from _rule_errors(spec, "spec")


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


def validate_workload(workload: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a workload."""
    spec = workload["spec"]
    if spec.get("controllerRef") is not None:
        yield from _controller_errors(spec["controllerRef"], "spec.controllerRef")
    templates, field = spec.get("podGroupTemplates") or (), "spec.podGroupTemplates"
    if not templates:
        yield required(field)
    yield from _named_errors(templates, field, "PodGroupTemplate", MOST_TEMPLATES, _rule_errors)


def validate_workload_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """What is wrong with a change of a workload."""
    yield from _changes(new["spec"], old["spec"])


def _controller_errors(reference: JsonObject, field: str) -> Iterator[FieldError]:
    if reference.get("apiGroup"):
        yield from subdomain(reference["apiGroup"], f"{field}.apiGroup")
    for key in ("kind", "name"):
        if not reference[key]:
            yield required(f"{field}.{key}")
        for error in path_segment_errors(reference[key]):
            yield bad_value(f"{field}.{key}", reference[key], error)


def _changes(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    for name in (*old, *(each for each in new if each not in old)):
        if new.get(name) != old.get(name):
            yield bad_value(f"spec.{name}", None, IMMUTABLE)


def _rule_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """What is wrong with the fields of a group that a template has, too."""
    yield from _policy_errors(spec["schedulingPolicy"], f"{field}.schedulingPolicy")
    constraints = spec.get("schedulingConstraints") or EMPTY
    yield from _topology_errors(
        constraints.get("topology") or (), f"{field}.schedulingConstraints.topology"
    )
    claims, where = spec.get("resourceClaims") or (), f"{field}.resourceClaims"
    yield from _named_errors(claims, where, "PodGroupResourceClaim", MOST_CLAIMS, _claim_errors)
    mode = spec.get("disruptionMode")
    if mode is not None and mode not in _MODES:
        yield unsupported(f"{field}.disruptionMode", mode, _MODES)
    if spec.get("priorityClassName"):
        yield from subdomain(spec["priorityClassName"], f"{field}.priorityClassName")
    priority = spec.get("priority", 0)
    if priority > HIGHEST_USER_PRIORITY:
        text = f"must be less than or equal to {HIGHEST_USER_PRIORITY}"
        yield bad_value(f"{field}.priority", priority, text)


def _policy_errors(policy: JsonObject, field: str) -> Iterator[FieldError]:
    yield from _union_errors(policy, _POLICIES, field)
    gang = policy.get("gang")
    if gang is None:
        return
    if not gang["minCount"]:
        yield required(f"{field}.gang.minCount")
    elif gang["minCount"] < 1:
        text = "must be greater than or equal to 1"
        yield bad_value(f"{field}.gang.minCount", gang["minCount"], text)


def _topology_errors(topology: Sequence[JsonObject], field: str) -> Iterator[FieldError]:
    if len(topology) > _MOST_TOPOLOGIES:
        yield too_many(field, len(topology), _MOST_TOPOLOGIES)
        return
    for position, each in enumerate(topology):
        where = f"{field}[{position}].key"
        if not each["key"]:
            yield required(where)
        else:
            yield from qualified_name(each["key"], where)


def _named_errors(
    items: Sequence[JsonObject],
    field: str,
    kind: str,
    most: int,
    errors: Callable[[JsonObject, str], Iterator[FieldError]],
) -> Iterator[FieldError]:
    """What is wrong with a list whose items have names: their number, their names, and the rest."""
    if len(items) > most:
        yield too_many(field, len(items), most)
        return
    seen: set[str] = set()
    for position, item in enumerate(items):
        where = f"{field}[{position}]"
        if item["name"] in seen:
            yield duplicate(where, internal_form(kind, item))
        seen.add(item["name"])
        yield from _name_errors(item["name"], f"{where}.name")
        yield from errors(item, where)


def _claim_errors(claim: JsonObject, field: str) -> Iterator[FieldError]:
    yield from _union_errors(claim, _CLAIM_SOURCES, field)
    for key in _CLAIM_SOURCES:
        if claim.get(key) is not None:
            yield from subdomain(claim[key], f"{field}.{key}")


def _reference_errors(reference: JsonObject, field: str) -> Iterator[FieldError]:
    for key, check in (("workloadName", subdomain), ("podGroupTemplateName", label)):
        if not reference[key]:
            yield required(f"{field}.{key}")
        else:
            yield from check(reference[key], f"{field}.{key}")


def _name_errors(name: str, field: str) -> Iterator[FieldError]:
    if not name:
        yield required(field)
    else:
        yield from label(name, field)


def _union_errors(value: JsonObject, members: Sequence[str], field: str) -> Iterator[FieldError]:
    """Exactly one of the members may be set."""
    listed = ", ".join(f"`{each}`" for each in members)
    given = [each for each in members if value.get(each) is not None]
    if not given:
        yield bad_value(field, "", f"must specify one of: {listed}")
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        yield bad_value(field, shown, f"must specify exactly one of: {listed}")
