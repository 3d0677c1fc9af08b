"""Changes of pods: through the pod itself, its subresources, and while it has scheduling gates.

Called through the strategy of pods. Invariant: what an update leaves out although admission once
filled it in is no change; a pod with gates may run in ever fewer places; a resize changes cpu and
memory alone, and never the QoS class; a container that has ended for good does not run again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    go_quoted,
    required,
)
from stellwerk_cluster.apimachinery.internal_form import internal_diff, internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    MAX_INT32,
    in_range,
    ip_address,
    one_of_each_family,
    parsed_ip,
    qualified_name,
    subdomain,
)
from stellwerk_cluster.validation.placement import toleration_errors
from stellwerk_cluster.validation.pods import MIRROR, pod_annotation_errors, pod_errors
from stellwerk_kube.pod_amounts import qos_class

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

_SYSTEM_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")
_MAX_ADDRESSES: Final = 2
"""Addresses of a pod: one of IPv4 and one of IPv6."""
_RESIZABLE: Final = ("cpu", "memory")
_ONLY: Final = "only cpu and memory resources are mutable"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TERMS: Final = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
_FREE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` "
    "(only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def pod_status_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Errors of a change of the status of a pod."""
    status, was, spec = new["status"], old["status"], old["spec"]
    for position, condition in enumerate(status.get("conditions") or ()):
        if condition.get("type") not in _SYSTEM_CONDITIONS:
            where = f"metadata.conditions[{position}].Type"
            yield from qualified_name(condition.get("type", ""), where)
    nominated = status.get("nominatedNodeName", "")
    if nominated and nominated != was.get("nominatedNodeName"):
        yield from subdomain(nominated, "status.nominatedNodeName")
    policy = spec.get("restartPolicy", "Always")
    restarted = frozenset(
        each["name"]
        for each in spec.get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    )
    none: frozenset[str] = frozenset()
    for group, own_policy, exempt in (
        ("containerStatuses", policy, none),
        ("initContainerStatuses", policy, restarted),
        ("ephemeralContainerStatuses", "Never", none),
    ):
        yield from _transition_errors(status, was, group, own_policy, exempt)
    yield from _claim_errors(status, spec)
    yield from _pod_address_errors(status)
    yield from _host_address_errors(status)


def _transition_errors(
    status: JsonObject, was: JsonObject, group: str, policy: str, exempt: frozenset[str]
) -> Iterator[FieldError]:
    if policy == "Always":
        return
    running = {
        each.get("name")
        for each in status.get(group) or ()
        if "terminated" not in (each.get("state") or EMPTY)
    }
    for position, before in enumerate(was.get(group) or ()):
        ended = (before.get("state") or EMPTY).get("terminated")
        if ended is None or before.get("name") in exempt:
            continue
        if ended.get("exitCode", 0) != 0 and policy == "OnFailure":
            continue
        if before.get("name") in running:
            text = "may not be transitioned to non-terminated state"
            yield forbidden_field(f"status.{group}[{position}].state", text)


def _claim_errors(status: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    known = {each["name"] for each in spec.get("resourceClaims") or ()}
    seen = set()
    for position, claim in enumerate(status.get("resourceClaimStatuses") or ()):
        where, name = f"status.resourceClaimStatuses[{position}].name", claim.get("name", "")
        if name not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield bad_value(where, name, text)
        if name in seen:
            yield duplicate(where, name)
        seen.add(name)
        if claim.get("resourceClaimName") is not None:
            yield from subdomain(claim["resourceClaimName"], where)


def _pod_address_errors(status: JsonObject) -> Iterator[FieldError]:
    yield from _address_errors(status.get("podIPs") or (), "status.podIPs")


def _host_address_errors(status: JsonObject) -> Iterator[FieldError]:
    addresses, field = status.get("hostIPs") or (), "status.hostIPs"
    if addresses and status.get("hostIP", "") != addresses[0].get("ip", ""):
        text = "must be equal to `hostIP`"
        yield bad_value(f"{field}[0].ip", addresses[0].get("ip", ""), text)
    yield from _address_errors(addresses, field)


def _address_errors(addresses: list[JsonObject] | tuple[()], field: str) -> Iterator[FieldError]:
    texts = [each.get("ip", "") for each in addresses]
    for position, text in enumerate(texts):
        yield from ip_address(text, f"{field}[{position}]")
    if len(texts) > _MAX_ADDRESSES or not one_of_each_family(texts, parsed_ip):
        shown = [{"IP": text} for text in texts]
        why = "may specify no more than one IP for each IP family"
        yield bad_value(field, shown, why)
    seen = set()
    for position, text in enumerate(texts):
        if text in seen:
            yield duplicate(f"{field}[{position}]", {"IP": text})
        seen.add(text)


def validate_pod_update(new: JsonObject, old: JsonObject, subresource: str) -> Iterator[FieldError]:
    """Errors of a change of a pod."""
    if subresource == "status":
        yield from pod_status_errors(new, old)
        return
    yield from pod_errors(new)
    if subresource == "resize":
        yield from resize_errors(new, old)
        return
    yield from _annotation_changes(new, old)
    if subresource == "ephemeralcontainers":
        yield from _ephemeral_changes(new["spec"], old["spec"])
    else:
        yield from _spec_changes(new["spec"], old["spec"])


def _annotation_changes(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    has, had = (each["metadata"].get("annotations") or EMPTY for each in (new, old))
    where = "metadata.annotations"
    if has.get(MIRROR) != had.get(MIRROR):
        text = "may not add" if MIRROR not in had else "may not remove or update"
        yield forbidden_field(f"{where}[{MIRROR}]", f"{text} mirror pod annotation")
    yield from pod_annotation_errors(has, new["spec"], where)


def _ephemeral_changes(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    field = "spec.ephemeralContainers"
    given = {each["name"]: each for each in spec.get("ephemeralContainers") or ()}
    for container in was.get("ephemeralContainers") or ():
        name = go_quoted(container["name"])
        same = given.get(container["name"])
        if same is None:
            text = f"existing ephemeral containers {name} may not be removed\n"
            yield forbidden_field(field, text)
        elif same != container:
            difference = internal_diff("EphemeralContainer", container, same)
            text = f"existing ephemeral containers {name} may not be changed\n{difference}"
            yield forbidden_field(field, text)


def _spec_changes(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    for group in ("containers", "initContainers"):
        field, containers = f"spec.{group}", spec.get(group) or ()
        if len(containers) != len(was.get(group) or ()):
            yield forbidden_field(field, "pod updates may not add or remove containers")
            return
        yield from _image_changes(containers, field)
    deadline = list(_deadline_errors(spec, was))
    yield from deadline
    if deadline and "activeDeadlineSeconds" in spec:
        return
    yield from _toleration_changes(spec, was)
    yield from _gate_changes(spec, was)
    if spec == was:
        return
    frozen = _with_free_fields(spec, was)
    if was.get("schedulingGates"):
        yield from gated_changes(frozen, was)
    if frozen != was:
        difference = internal_diff("PodSpec", was, frozen)
        yield forbidden_field("spec", f"{_FREE}\n{difference}")


def _image_changes(containers: list[JsonObject] | tuple[()], field: str) -> Iterator[FieldError]:
    for position, container in enumerate(containers):
        image, where = container.get("image", ""), f"{field}[{position}].image"
        if not image:
            yield required(where)
        if image != image.strip():
            text = "must not have leading or trailing whitespace"
            yield bad_value(where, image, text)


def _deadline_errors(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    deadline, had = spec.get("activeDeadlineSeconds"), was.get("activeDeadlineSeconds")
    field = "spec.activeDeadlineSeconds"
    if deadline is None:
        if had is not None:
            text = "must not update from a positive integer to nil value"
            yield bad_value(field, None, text)
    elif not 0 <= deadline <= MAX_INT32:
        yield bad_value(field, deadline, in_range(0, MAX_INT32))
    elif had is not None and deadline > had:
        yield bad_value(field, deadline, "must be less than or equal to previous value")


def _toleration_changes(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    """Tolerations may be added, and the seconds of those that are there may change."""
    tolerations = spec.get("tolerations") or ()
    has = {_shape(each) for each in tolerations}
    if not all(_shape(each) in has for each in was.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        yield forbidden_field("spec.tolerations", text)
        return
    yield from toleration_errors(tolerations, "spec.tolerations")


def _shape(toleration: JsonObject) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((k, str(v)) for k, v in toleration.items() if k != "tolerationSeconds"))


def _gate_changes(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    had = {gate["name"] for gate in was.get("schedulingGates") or ()}
    for position, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name", "") not in had:
            text = (
                f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            )
            yield forbidden_field(f"spec.schedulingGates[{position}].name", text)


def _with_free_fields(spec: JsonObject, was: JsonObject) -> JsonObject:
    """The new specification with the old values of all fields that may change."""
    frozen = dict(spec)
    for group in ("containers", "initContainers"):
        if spec.get(group):
            frozen[group] = [
                {**each, "image": before.get("image", "")}
                for each, before in zip(spec[group], was[group], strict=True)
            ]
    free = ["activeDeadlineSeconds", "schedulingGates", "tolerations"]
    negative = was.get("terminationGracePeriodSeconds", 0) < 0
    if negative and spec.get("terminationGracePeriodSeconds") == 1:
        free.append("terminationGracePeriodSeconds")
    for name in free:
        frozen.pop(name, None)
        if name in was:
            frozen[name] = was[name]
    return frozen


def gated_changes(spec: JsonObject, was: JsonObject) -> Iterator[FieldError]:
    """Errors of a change of node selector and node affinity, which are put back."""
    selector, had = spec.get("nodeSelector") or EMPTY, was.get("nodeSelector") or EMPTY
    if any(selector.get(key) != value for key, value in had.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield bad_value("spec.nodeSelector", selector, text)
    _put_back(spec, was, "nodeSelector")
    affinity, affinity_was = spec.get("affinity"), was.get("affinity")
    own, own_was = ((each or EMPTY).get("nodeAffinity") for each in (affinity, affinity_was))
    if own == own_was:
        return
    yield from _affinity_errors(own or EMPTY, own_was)
    rest = {name: each for name, each in (affinity or EMPTY).items() if name != "nodeAffinity"}
    if own_was is not None:
        rest["nodeAffinity"] = own_was
    if rest or affinity_was is not None:
        spec["affinity"] = rest
    else:
        spec.pop("affinity", None)


def _put_back(spec: JsonObject, was: JsonObject, name: str) -> None:
    spec.pop(name, None)
    if name in was:
        spec[name] = was[name]


def _affinity_errors(affinity: JsonObject, was: JsonObject | None) -> Iterator[FieldError]:
    terms, had = (
        ((each or EMPTY).get(_REQUIRED) or EMPTY).get("nodeSelectorTerms") or []
        for each in (affinity, was)
    )
    if not had:
        return
    if len(terms) != len(had):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield bad_value(_TERMS, internal_form("[NodeSelectorTerm]", terms), text)
        return
    for position, (term, before) in enumerate(zip(terms, had, strict=True)):
        if not _narrows(term, before):
            text = "only additions are allowed (no mutations or deletions)"
            shown = internal_form("NodeSelectorTerm", term)
            yield bad_value(f"{_TERMS}[{position}]", shown, text)


def _narrows(term: JsonObject, before: JsonObject) -> bool:
    """Whether a term has all that it had, and perhaps more; an empty one matches nothing."""
    if not before.get("matchExpressions") and not before.get("matchFields"):
        return not term.get("matchExpressions") and not term.get("matchFields")
    for key in ("matchExpressions", "matchFields"):
        kept = before.get(key) or []
        if (term.get(key) or [])[: len(kept)] != kept:
            return False
    return True


def resize_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Errors of a change of the resources of a pod."""
    spec, was = new["spec"], old["spec"]
    if MIRROR in (old["metadata"].get("annotations") or EMPTY):
        yield forbidden_field("", "static pods cannot be resized")
        return
    if (was.get("os") or EMPTY).get("name") == "windows":
        yield forbidden_field("", "windows pods cannot be resized")
        return
    decided = old["status"].get("qosClass", "BestEffort")
    if qos_class(spec) != decided:
        text = "Pod QOS Class may not change as a result of resizing"
        yield bad_value("spec", decided, text)
    for group in ("initContainers", "containers"):
        pairs = zip(spec.get(group) or (), was.get(group) or (), strict=True)
        for position, (container, before) in enumerate(pairs):
            yield from _container_errors(container, before, group, position)


def _container_errors(
    container: JsonObject, before: JsonObject, group: str, position: int
) -> Iterator[FieldError]:
    if container == before:
        return
    runs_on = group == "containers" or before.get("restartPolicy") == "Always"
    if not runs_on:
        yield forbidden_field("spec", "resources for non-sidecar init containers are immutable")
        return
    resources, had = (each.get("resources") or EMPTY for each in (container, before))
    for part in ("requests", "limits"):
        amounts, were = resources.get(part) or EMPTY, had.get(part) or EMPTY
        field = f"spec.{group}[{position}].resources.{part}"
        if were.keys() - amounts.keys():
            yield forbidden_field(field, f"resource {part} cannot be removed")
        others = {name for name in {*amounts, *were} if name not in _RESIZABLE}
        if any(amounts.get(name) != were.get(name) for name in others):
            yield forbidden_field("spec", _ONLY)
    if container.get("resizePolicy") != before.get("resizePolicy"):
        yield forbidden_field("spec", _ONLY)
