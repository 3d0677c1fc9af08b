"""The rules of PodGroups and Workloads (scheduling.k8s.io/v1alpha2), and what admission does.

Called through their strategies. Invariant: what a group asks for is said once: no field of its
specification ever changes, and fields whose gate is off are never stored anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.access_rules import path_segment_errors
from stellwerk_cluster.admission.checks import IMMUTABLE, label, qualified_name, subdomain
from stellwerk_cluster.admission.conditions import condition_causes
from stellwerk_cluster.admission.device_checks import too_many
from stellwerk_cluster.admission.pod_admission import chosen_priority_class
from stellwerk_cluster.admission.scheduling_classes import HIGHEST_USER_PRIORITY
from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    duplicate,
    forbidden,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, PREEMPTION, TOPOLOGY
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

WORKLOADS: Final = "workloads.scheduling.k8s.io"
POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
MOST_TEMPLATES: Final = 8
MOST_CLAIMS: Final = 4
_MOST_TOPOLOGIES: Final = 1
_MODES: Final = ("Pod", "PodGroup")
_POLICIES: Final = ("basic", "gang")
_CLAIM_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_GATED: Final = {
    TOPOLOGY: ("schedulingConstraints",),
    PREEMPTION: ("disruptionMode", "priorityClassName", "priority"),
    CLAIMS: ("resourceClaims",),
}
"""Fields of groups and of templates, by the gate that they need."""


# --- groups -------------------------------------------------------------------------------------


def default_pod_group(group: JsonObject) -> None:
    """Pods of a group are disrupted one by one."""
    group["spec"].setdefault("disruptionMode", "Pod")


def prepare_pod_group(group: JsonObject, cluster: Reader) -> None:
    """Drop fields whose gate is off, and protect the group as long as pods use it."""
    _drop_disabled(group["spec"], EMPTY, cluster)
    default_pod_group(group)
    if cluster.enabled("PodGroupProtection"):
        finalizers = group["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            group["metadata"]["finalizers"] = [*finalizers, FINALIZER]


def admit_pod_group(group: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Give a group the priority of its class, or of the class that is the default.

    Raises:
        StatusError: there is no such class, or the group gives another number (403).
    """
    if not (cluster.feature(PREEMPTION) and cluster.enabled("Priority")):
        return
    spec, name = group["spec"], group["metadata"].get("name", "")
    chosen = chosen_priority_class(spec, cluster)
    if chosen is None and spec.get("priorityClassName"):
        why = f"no PriorityClass with name {spec['priorityClassName']} was found"
        raise forbidden(kind, name, why)
    priority = (chosen or EMPTY).get("value", 0)
    if spec.get("priority", priority) != priority:
        why = (
            f"priority set in the pod group ({spec['priority']}) must match the priority computed "
            f"({priority}) based on the priority class set in the spec"
        )
        raise forbidden(kind, name, why)
    if chosen is not None:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = priority


def admit_pod_group_update(
    new: JsonObject, old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """Drop fields whose gate is off and that the group does not have yet."""
    _drop_disabled(new["spec"], old["spec"], cluster)


def check_pod_group(group: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """The template that a group names must exist; it is not compared with the group.

    Raises:
        StatusError: the Workload is not there, or terminating, or lacks the template (403).
    """
    reference = (group["spec"].get("podGroupTemplateRef") or EMPTY).get("workload")
    if reference is None or not cluster.enabled("PodGroupWorkloadExists"):
        return
    name, template = reference["workloadName"], reference["podGroupTemplateName"]
    workload = cluster.find(WORKLOADS, group["metadata"]["namespace"], name)
    if workload is None:
        why = f'Workload "{name}" not found'
    elif is_terminating(workload):
        why = f'Workload "{name}" is being deleted'
    elif template not in {each["name"] for each in workload["spec"]["podGroupTemplates"]}:
        why = f'PodGroupTemplate "{template}" not found in Workload "{name}"'
    else:
        return
    raise forbidden(kind, group["metadata"].get("name", ""), f"PodGroup rejected: {why}")


def validate_pod_group(group: JsonObject) -> Iterator[Cause]:
    """What is wrong with a group."""
    spec = group["spec"]
    reference = spec.get("podGroupTemplateRef")
    if reference is not None:
        field = "spec.podGroupTemplateRef"
        yield from _union_causes(reference, ("workload",), field)
        if reference.get("workload") is not None:
            yield from _reference_causes(reference["workload"], f"{field}.workload")
    yield from _rule_causes(spec, "spec")


def validate_pod_group_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[Cause]:
    """What is wrong with a change of a group, or with its status."""
    if subresource == "status":
        yield from _status_causes(new["status"], new["spec"])
        return
    yield from _changes(new["spec"], old["spec"])


def _status_causes(status: JsonObject, spec: JsonObject) -> Iterator[Cause]:
    yield from condition_causes(status.get("conditions") or (), "status.conditions")
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


# --- workloads ----------------------------------------------------------------------------------


def prepare_workload(workload: JsonObject, cluster: Reader) -> None:
    """Drop the fields of templates whose gate is off."""
    for template in workload["spec"].get("podGroupTemplates") or ():
        _drop_disabled(template, EMPTY, cluster)
        template.setdefault("schedulingConstraints", None)


def admit_workload_update(
    new: JsonObject, old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """Drop the fields of templates whose gate is off and that they do not have yet."""
    had = {each["name"]: each for each in old["spec"].get("podGroupTemplates") or ()}
    for template in new["spec"].get("podGroupTemplates") or ():
        _drop_disabled(template, had.get(template["name"], EMPTY), cluster)
        template.setdefault("schedulingConstraints", None)


def validate_workload(workload: JsonObject) -> Iterator[Cause]:
    """What is wrong with a workload."""
    spec = workload["spec"]
    if spec.get("controllerRef") is not None:
        yield from _controller_causes(spec["controllerRef"], "spec.controllerRef")
    templates, field = spec.get("podGroupTemplates") or (), "spec.podGroupTemplates"
    if not templates:
        yield required(field)
    yield from _named_causes(templates, field, "PodGroupTemplate", MOST_TEMPLATES, _rule_causes)


def validate_workload_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[Cause]:
    """What is wrong with a change of a workload."""
    yield from _changes(new["spec"], old["spec"])


def _controller_causes(reference: JsonObject, field: str) -> Iterator[Cause]:
    if reference.get("apiGroup"):
        yield from subdomain(reference["apiGroup"], f"{field}.apiGroup")
    for key in ("kind", "name"):
        if not reference[key]:
            yield required(f"{field}.{key}")
        for error in path_segment_errors(reference[key]):
            yield bad_value(f"{field}.{key}", reference[key], error)


# --- what groups and templates share ------------------------------------------------------------


def _drop_disabled(spec: JsonObject, old: JsonObject, cluster: Reader) -> None:
    for gate, names in _GATED.items():
        if not cluster.feature(gate):
            for name in names:
                if old.get(name) is None:
                    spec.pop(name, None)


def _changes(new: JsonObject, old: JsonObject) -> Iterator[Cause]:
    for name in (*old, *(each for each in new if each not in old)):
        if new.get(name) != old.get(name):
            yield bad_value(f"spec.{name}", None, IMMUTABLE)


def _rule_causes(spec: JsonObject, field: str) -> Iterator[Cause]:
    """What is wrong with the fields of a group that a template has, too."""
    yield from _policy_causes(spec["schedulingPolicy"], f"{field}.schedulingPolicy")
    constraints = spec.get("schedulingConstraints") or EMPTY
    yield from _topology_causes(
        constraints.get("topology") or (), f"{field}.schedulingConstraints.topology"
    )
    claims, where = spec.get("resourceClaims") or (), f"{field}.resourceClaims"
    yield from _named_causes(claims, where, "PodGroupResourceClaim", MOST_CLAIMS, _claim_causes)
    mode = spec.get("disruptionMode")
    if mode is not None and mode not in _MODES:
        yield unsupported(f"{field}.disruptionMode", mode, _MODES)
    if spec.get("priorityClassName"):
        yield from subdomain(spec["priorityClassName"], f"{field}.priorityClassName")
    priority = spec.get("priority", 0)
    if priority > HIGHEST_USER_PRIORITY:
        text = f"must be less than or equal to {HIGHEST_USER_PRIORITY}"
        yield bad_value(f"{field}.priority", priority, text)


def _policy_causes(policy: JsonObject, field: str) -> Iterator[Cause]:
    yield from _union_causes(policy, _POLICIES, field)
    gang = policy.get("gang")
    if gang is None:
        return
    if not gang["minCount"]:
        yield required(f"{field}.gang.minCount")
    elif gang["minCount"] < 1:
        text = "must be greater than or equal to 1"
        yield bad_value(f"{field}.gang.minCount", gang["minCount"], text)


def _topology_causes(topology: Sequence[JsonObject], field: str) -> Iterator[Cause]:
    if len(topology) > _MOST_TOPOLOGIES:
        yield too_many(field, len(topology), _MOST_TOPOLOGIES)
        return
    for position, each in enumerate(topology):
        where = f"{field}[{position}].key"
        if not each["key"]:
            yield required(where)
        else:
            yield from qualified_name(each["key"], where)


def _named_causes(
    items: Sequence[JsonObject],
    field: str,
    kind: str,
    most: int,
    causes: Callable[[JsonObject, str], Iterator[Cause]],
) -> Iterator[Cause]:
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
        yield from _name_causes(item["name"], f"{where}.name")
        yield from causes(item, where)


def _claim_causes(claim: JsonObject, field: str) -> Iterator[Cause]:
    yield from _union_causes(claim, _CLAIM_SOURCES, field)
    for key in _CLAIM_SOURCES:
        if claim.get(key) is not None:
            yield from subdomain(claim[key], f"{field}.{key}")


def _reference_causes(reference: JsonObject, field: str) -> Iterator[Cause]:
    for key, check in (("workloadName", subdomain), ("podGroupTemplateName", label)):
        if not reference[key]:
            yield required(f"{field}.{key}")
        else:
            yield from check(reference[key], f"{field}.{key}")


def _name_causes(name: str, field: str) -> Iterator[Cause]:
    if not name:
        yield required(field)
    else:
        yield from label(name, field)


def _union_causes(value: JsonObject, members: Sequence[str], field: str) -> Iterator[Cause]:
    """Exactly one of the members may be set."""
    listed = ", ".join(f"`{each}`" for each in members)
    given = [each for each in members if value.get(each) is not None]
    if not given:
        yield bad_value(field, "", f"must specify one of: {listed}")
    elif len(given) > 1:
        shown = f"{{{', '.join(given)}}}"
        yield bad_value(field, shown, f"must specify exactly one of: {listed}")
