"""What the API server refuses about pods, at create and at update.

Called by the verbs for pods and by `workloads` for templates. Invariant: one `Cause` for each wrong
field, in the wording of the API server; of the Go dump that it appends to a forbidden change of the
spec, nothing is imitated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.quantity import parse_quantity
from stellwerk_cluster.admission.placement_validation import (
    affinity_causes,
    spread_causes,
    toleration_causes,
)
from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import (
    label_causes,
    label_errors,
    qualified_name_errors,
    subdomain_errors,
)
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk.models.json_values import JsonObject

_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_STANDARD_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage", "storage")
_IMMUTABLE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: JsonObject) -> list[Cause]:
    """What is wrong with a new pod."""
    spec = pod["spec"]
    causes = pod_spec_causes(spec, "spec")
    gates = spec.get("schedulingGates") or ()
    if gates and spec.get("nodeName"):
        text = "cannot be set until all schedulingGates have been cleared"
        causes.append(forbidden_field("spec.nodeName", text))
    return [*causes, *_gate_causes(gates)]


def pod_spec_causes(spec: JsonObject, field: str) -> list[Cause]:
    """What is wrong with the specification of a pod or template."""
    causes: list[Cause] = []
    if not spec.get("containers"):
        causes.append(required(f"{field}.containers"))
    seen: set[str] = set()
    for group in ("initContainers", "containers"):
        for position, container in enumerate(spec.get(group) or ()):
            causes += _container_causes(container, f"{field}.{group}[{position}]", seen)
    if spec.get("restartPolicy", "Always") not in _RESTART_POLICIES:
        causes.append(
            unsupported(f"{field}.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
        )
    if spec.get("nodeSelector"):
        causes += label_causes(spec["nodeSelector"], f"{field}.nodeSelector")
    causes += toleration_causes(spec.get("tolerations") or (), f"{field}.tolerations")
    for position, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        causes += spread_causes(constraint, f"{field}.topologySpreadConstraints[{position}]")
    return [*causes, *affinity_causes(spec.get("affinity") or EMPTY, f"{field}.affinity")]


def _container_causes(container: JsonObject, field: str, seen: set[str]) -> Iterator[Cause]:
    name = container.get("name", "")
    if not name:
        yield required(f"{field}.name")
    elif name in seen:
        yield duplicate(f"{field}.name", name)
    else:
        for error in label_errors(name):
            yield bad_value(f"{field}.name", name, error)
    seen.add(name)
    if not container.get("image"):
        yield required(f"{field}.image")
    yield from resource_causes(container.get("resources") or EMPTY, f"{field}.resources")


def resource_causes(resources: JsonObject, field: str) -> Iterator[Cause]:
    """What is wrong with requests and limits."""
    limits, requests = resources.get("limits") or EMPTY, resources.get("requests") or EMPTY
    for part, amounts in (("limits", limits), ("requests", requests)):
        for resource, amount in amounts.items():
            where = f"{field}.{part}[{resource}]"
            if resource not in _STANDARD_RESOURCES and not resource.startswith("hugepages-"):
                if "/" not in resource:
                    yield bad_value(
                        where, resource, "must be a standard resource type or fully qualified"
                    )
                    yield bad_value(where, resource, "must be a standard resource for containers")
                elif parse_quantity(amount).denominator != 1:
                    yield bad_value(where, amount, "must be an integer")
        yield from quantity_causes(amounts, f"{field}.{part}")
    for resource, amount in requests.items():
        if resource in limits and parse_quantity(amount) > parse_quantity(limits[resource]):
            text = f"must be less than or equal to {resource} limit of {limits[resource]}"
            yield bad_value(f"{field}.requests", amount, text)


def quantity_causes(amounts: JsonObject, field: str) -> list[Cause]:
    """Amounts below zero."""
    return [
        bad_value(f"{field}[{resource}]", amount, "must be greater than or equal to 0")
        for resource, amount in amounts.items()
        if parse_quantity(amount) < 0
    ]


def _gate_causes(gates: Iterable[JsonObject]) -> Iterator[Cause]:
    seen: set[str] = set()
    for position, gate in enumerate(gates):
        field, name = f"spec.schedulingGates[{position}]", gate.get("name", "")
        for error in qualified_name_errors(name):
            yield bad_value(field, name, error)
        if name in seen:
            yield duplicate(field, name)
        seen.add(name)


def prepare_pod_update(new: JsonObject, old: JsonObject, subresource: str) -> None:
    """What an update may not say is put back; the QoS class stays as it was decided."""
    if subresource == "status":
        new["status"]["qosClass"] = old["status"].get("qosClass", "BestEffort")
    else:
        # Fields that admission filled in and an old manifest does not repeat are no change.
        spec, was = new["spec"], old["spec"]
        for name in (
            "priority",
            "preemptionPolicy",
            "nodeName",
            "serviceAccountName",
            "overhead",
            "priorityClassName",
        ):
            if name in was and name not in spec:
                spec[name] = was[name]


def validate_pod_update(new: JsonObject, old: JsonObject, subresource: str) -> list[Cause]:
    """What is wrong with a change of a pod."""
    if subresource == "status":
        nominated = new["status"].get("nominatedNodeName", "")
        errors = subdomain_errors(nominated) if nominated else []
        return [bad_value("status.nominatedNodeName", nominated, error) for error in errors]
    if subresource:
        return []
    spec, was = new["spec"], old["spec"]
    causes = list(_gate_change_causes(spec, was))
    gated = bool(was.get("schedulingGates"))
    if gated:
        causes += _gated_selector_causes(spec, was)
    causes += _deadline_causes(spec, was)
    if _frozen(spec, gated=gated) != _frozen(was, gated=gated) or not _extends(spec, was):
        causes.append(forbidden_field("spec", _IMMUTABLE))
    return causes


def _gate_change_causes(spec: JsonObject, was: JsonObject) -> Iterator[Cause]:
    had = {gate["name"] for gate in was.get("schedulingGates") or ()}
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate["name"] not in had:
            text = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield forbidden_field(f"spec.schedulingGates[{position}].name", text)


def _gated_selector_causes(spec: JsonObject, was: JsonObject) -> Iterator[Cause]:
    selector, had = spec.get("nodeSelector") or {}, was.get("nodeSelector") or {}
    if any(selector.get(key) != value for key, value in had.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield bad_value("spec.nodeSelector", selector, text)


def _deadline_causes(spec: JsonObject, was: JsonObject) -> Iterator[Cause]:
    deadline, had = spec.get("activeDeadlineSeconds"), was.get("activeDeadlineSeconds")
    field = "spec.activeDeadlineSeconds"
    if had is not None and deadline is None:
        text = "must not update from a positive integer to nil value"
        yield Cause(field, "FieldValueInvalid", f"Invalid value: null: {text}")
    elif had is not None and deadline > had:
        text = "must be less than or equal to previous value"
        yield bad_value(field, deadline, text)


def _frozen(spec: JsonObject, *, gated: bool) -> JsonObject:
    """What of a pod's specification may not change."""
    free = {
        "activeDeadlineSeconds",
        "tolerations",
        "schedulingGates",
        "containers",
        "initContainers",
    }
    if gated:
        free.add("nodeSelector")
    frozen = {name: value for name, value in spec.items() if name not in free}
    if gated and "affinity" in frozen:
        affinity = {
            name: value for name, value in frozen["affinity"].items() if name != "nodeAffinity"
        }
        frozen["affinity"] = affinity
    if gated and not frozen.get("affinity"):
        frozen.pop("affinity", None)
    for group in ("containers", "initContainers"):
        frozen[group] = [
            {name: value for name, value in each.items() if name != "image"}
            for each in spec.get(group) or ()
        ]
    return frozen


def _extends(spec: JsonObject, was: JsonObject) -> bool:
    """Whether every toleration is still there (its tolerationSeconds may change)."""

    def shape(toleration: JsonObject) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((k, str(v)) for k, v in toleration.items() if k != "tolerationSeconds"))

    has = {shape(each) for each in spec.get("tolerations") or ()}
    return all(shape(each) in has for each in was.get("tolerations") or ())
