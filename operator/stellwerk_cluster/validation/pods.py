"""The rules of pods, at create and at update, and of templates of pods.

Called through the strategies of pods and of what makes pods. Invariant: one `FieldError` for each
wrong field, in the order and the wording of the API server.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.names import annotation_errors, labels_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.pods import MAX_KEPT_SPECS, memo_key
from stellwerk_cluster.validation.checks import (
    MAX_INT32,
    in_range,
    ip_address,
    label,
    one_of,
    qualified_name,
    search_domain,
    subdomain,
)
from stellwerk_cluster.validation.placement import (
    affinity_errors,
    spread_constraint_errors,
    toleration_errors,
)
from stellwerk_cluster.validation.pod_containers import PodContext, container_errors, image_errors
from stellwerk_cluster.validation.pod_security import (
    host_users_errors,
    operating_system_errors,
    pod_security_errors,
)
from stellwerk_cluster.validation.pod_volumes import volume_errors
from stellwerk_cluster.validation.resources import (
    container_resource_errors,
    pod_resource_errors,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk_kube.json_values import JsonObject

RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION_POLICIES: Final = ("PreemptLowerPriority", "Never")
_MAX_NAME_SERVERS: Final = 3
"""Name servers of a pod (`MaxDNSNameservers`)."""
_MAX_SEARCH_PATHS: Final = 32
"""Search paths of a pod (`MaxDNSSearchPaths`)."""
_MAX_SEARCH_CHARACTERS: Final = 2048
"""Characters of all search paths (`MaxDNSSearchListChars`)."""
MIRROR: Final = "kubernetes.io/config.mirror"
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"


def validate_pod(pod: JsonObject) -> Iterator[FieldError]:
    """Errors of a new pod."""
    spec = pod["spec"]
    yield from pod_errors(pod)
    if spec.get("ephemeralContainers"):
        yield forbidden_field("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("schedulingGates") and spec.get("nodeName"):
        text = "cannot be set until all schedulingGates have been cleared"
        yield forbidden_field("spec.nodeName", text)


def pod_errors(pod: JsonObject) -> Iterator[FieldError]:
    """Errors of a pod, new or changed, apart from its labels and the like."""
    spec, metadata = pod["spec"], pod["metadata"]
    annotations = metadata.get("annotations") or EMPTY
    yield from pod_annotation_errors(annotations, spec, "metadata.annotations")
    content = memo_key(spec)
    if content is None or not _is_right(content):
        yield from _own_spec_errors(spec, metadata.get("name", ""))


@lru_cache(maxsize=MAX_KEPT_SPECS)
def _is_right(content: bytes) -> bool:
    """Whether nothing is wrong with a specification: pods of one template are judged once."""
    return next(_own_spec_errors(orjson.loads(content), ""), None) is None


def _own_spec_errors(spec: JsonObject, pod_name: str) -> Iterator[FieldError]:
    yield from pod_spec_errors(spec, "spec", pod_name=pod_name, in_pod=True)
    yield from _token_errors(spec)
    for group in ("containers", "initContainers"):
        for position, container in enumerate(spec.get(group) or ()):
            yield from image_errors(container, f"spec.{group}[{position}]")


def template_errors(template: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of a template of pods."""
    metadata, spec = template.get("metadata") or EMPTY, template.get("spec") or EMPTY
    yield from labels_errors(metadata.get("labels") or {}, f"{field}.labels")
    annotations = metadata.get("annotations") or EMPTY
    yield from annotation_errors(annotations, f"{field}.annotations")
    yield from pod_annotation_errors(annotations, spec, f"{field}.annotations")
    yield from pod_spec_errors(spec, f"{field}.spec")
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        yield forbidden_field(f"{field}.spec.ephemeralContainers", text)


def pod_annotation_errors(
    annotations: JsonObject, spec: JsonObject, field: str
) -> Iterator[FieldError]:
    """Errors of annotations that mean something for a pod."""
    if MIRROR in annotations and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        yield bad_value(f"{field}[{MIRROR}]", annotations[MIRROR], text)
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not _is_deletion_cost(cost):
        yield bad_value(f"{field}[{_DELETION_COST}]", cost, "must be a 32bit integer")


def _is_deletion_cost(text: str) -> bool:
    if not re.fullmatch("-?(0|[1-9][0-9]{0,9})", text):
        return False
    return -MAX_INT32 - 1 <= int(text) <= MAX_INT32


def pod_spec_errors(
    spec: JsonObject, field: str, *, pod_name: str = "", in_pod: bool = False
) -> Iterator[FieldError]:
    """Errors of the specification of a pod, or of a template (`in_pod` False)."""
    volumes, wrong = volume_errors(spec.get("volumes") or (), f"{field}.volumes", pod_name)
    yield from wrong
    claims = spec.get("resourceClaims") or ()
    yield from _claim_errors(claims, f"{field}.resourceClaims")
    grace_seconds = spec.get("terminationGracePeriodSeconds")
    context = PodContext(
        volumes,
        frozenset(each["name"] for each in claims if each.get("name")),
        spec.get("restartPolicy", ""),
        grace_seconds,
        spec.get("hostUsers") is False,
    )
    if grace_seconds is None:
        yield required(f"{field}.terminationGracePeriodSeconds")
    yield from container_errors(spec, field, context)
    yield from pod_resource_errors(spec, f"{field}.resources")
    yield from _host_network_errors(spec, f"{field}.containers", in_pod=in_pod)
    yield from one_of(spec.get("restartPolicy", ""), RESTART_POLICIES, f"{field}.restartPolicy")
    yield from one_of(spec.get("dnsPolicy", ""), _DNS_POLICIES, f"{field}.dnsPolicy")
    yield from _placement_errors(spec, field)
    yield from _name_errors(spec, field)
    yield from _late_errors(spec, field)


def _placement_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of the place of a pod, and of its names there."""
    if spec.get("nodeSelector"):
        yield from labels_errors(spec["nodeSelector"], f"{field}.nodeSelector")
    yield from pod_security_errors(spec, field)
    if spec.get("affinity"):
        yield from affinity_errors(spec["affinity"], f"{field}.affinity")
    yield from _dns_errors(spec, f"{field}.dnsConfig")
    for position, gate in enumerate(spec.get("readinessGates") or ()):
        where = f"{field}.readinessGates[{position}].conditionType"
        yield from qualified_name(gate.get("conditionType", ""), where)
    yield from _gate_errors(spec.get("schedulingGates") or (), f"{field}.schedulingGates")
    constraints = spec.get("topologySpreadConstraints") or ()
    yield from spread_constraint_errors(constraints, f"{field}.topologySpreadConstraints")
    yield from host_users_errors(spec, field)


def _name_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """Names of other objects, and of the host that the pod is."""
    for key in ("serviceAccountName", "nodeName"):
        if spec.get(key):
            yield from subdomain(spec[key], f"{field}.{key}")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_INT32:
        where = f"{field}.activeDeadlineSeconds"
        yield bad_value(where, deadline, in_range(1, MAX_INT32))
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            yield from label(spec[key], f"{field}.{key}")


def _late_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of the fields that the API looks at last."""
    yield from toleration_errors(spec.get("tolerations") or (), f"{field}.tolerations")
    for position, alias in enumerate(spec.get("hostAliases") or ()):
        where = f"{field}.hostAliases[{position}]"
        yield from ip_address(alias.get("ip", ""), f"{where}.ip")
        for index, name in enumerate(alias.get("hostnames") or ()):
            yield from subdomain(name, f"{where}.hostnames[{index}]")
    if spec.get("priorityClassName"):
        yield from subdomain(spec["priorityClassName"], f"{field}.priorityClassName")
    if spec.get("runtimeClassName") is not None:
        yield from subdomain(spec["runtimeClassName"], f"{field}.runtimeClassName")
    if spec.get("preemptionPolicy") is not None:
        policy = spec["preemptionPolicy"]
        yield from one_of(policy, _PREEMPTION_POLICIES, f"{field}.preemptionPolicy")
    if spec.get("overhead"):
        overhead = {"limits": spec["overhead"]}
        yield from container_resource_errors(overhead, f"{field}.overhead")
    yield from operating_system_errors(spec, field)
    yield from scheduling_group_errors(spec, field)


def _host_network_errors(spec: JsonObject, field: str, *, in_pod: bool) -> Iterator[FieldError]:
    """In the host's network, a port of the host is the container's own."""
    for position, container in enumerate(spec["containers"] if spec.get("hostNetwork") else ()):
        for index, port in enumerate(container.get("ports") or ()):
            own, host = port.get("containerPort", 0), port.get("hostPort", 0)
            if (in_pod or host) and host != own:
                where = f"{field}[{position}].ports[{index}].hostPort"
                text = "must match `containerPort` when `hostNetwork` is true"
                yield bad_value(where, host, text)


def _claim_errors(claims: Iterable[JsonObject], field: str) -> Iterator[FieldError]:
    seen = set()
    for position, claim in enumerate(claims):
        where, name = f"{field}[{position}]", claim.get("name", "")
        if not name:
            yield required(f"{where}.name")
        elif name in seen:
            yield duplicate(f"{where}.name", name)
        else:
            yield from label(name, f"{where}.name")
        seen.add(name)
        keys = ("resourceClaimName", "resourceClaimTemplateName")
        given = [key for key in keys if claim.get(key) is not None]
        shown = internal_form("PodResourceClaim", claim)
        if len(given) > 1:
            text = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            yield bad_value(where, shown, text)
        elif not given:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield bad_value(where, shown, text)
        for key in given:
            yield from subdomain(claim[key], f"{where}.{key}")


def _gate_errors(gates: Iterable[JsonObject], field: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, gate in enumerate(gates):
        where, name = f"{field}[{position}]", gate.get("name", "")
        yield from qualified_name(name, where)
        if name in seen:
            yield duplicate(where, name)
        seen.add(name)


def _dns_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    config = spec.get("dnsConfig")
    servers = (config or EMPTY).get("nameservers") or ()
    if spec.get("dnsPolicy") == "None" and not servers:
        where = field if config is None else f"{field}.nameservers"
        what = "`dnsConfig`" if config is None else "at least one DNS nameserver"
        yield required(where, f"must provide {what} when `dnsPolicy` is None")
        return
    if config is not None:
        yield from _dns_config_errors(config, field)


def _dns_config_errors(config: JsonObject, field: str) -> Iterator[FieldError]:
    servers, searches = config.get("nameservers") or (), config.get("searches") or ()
    if len(servers) > _MAX_NAME_SERVERS:
        text = f"must not have more than {_MAX_NAME_SERVERS} nameservers"
        yield bad_value(f"{field}.nameservers", servers, text)
    for position, server in enumerate(servers):
        yield from ip_address(server, f"{field}.nameservers[{position}]")
    if len(searches) > _MAX_SEARCH_PATHS:
        text = f"must not have more than {_MAX_SEARCH_PATHS} search paths"
        yield bad_value(f"{field}.searches", searches, text)
    if len(" ".join(searches)) > _MAX_SEARCH_CHARACTERS:
        text = (
            f"must not have more than {_MAX_SEARCH_CHARACTERS} characters (including spaces) in "
            "the search list"
        )
        yield bad_value(f"{field}.searches", searches, text)
    for position, domain in enumerate(searches):
        if domain != ".":
            yield from search_domain(domain.removesuffix("."), f"{field}.searches[{position}]")
    for position, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(f"{field}.options[{position}]", "must not be empty")


def _token_errors(spec: JsonObject) -> Iterator[FieldError]:
    """A pod without an account has no tokens of one."""
    for position, volume in enumerate(
        () if spec.get("serviceAccountName") else spec.get("volumes") or ()
    ):
        sources = (volume.get("projected") or EMPTY).get("sources") or ()
        for index, source in enumerate(sources):
            if source.get("serviceAccountToken") is not None:
                where = f"spec.volumes[{position}].projected.sources[{index}].serviceAccountToken"
                text = "must not be specified when serviceAccountName is not set"
                yield forbidden_field(where, text)


def scheduling_group_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of the group of a pod; that there is such a group is not asked."""
    group = spec.get("schedulingGroup")
    if group is None:
        return
    name = group.get("podGroupName")
    if name is None:
        text = "must specify one of: `podGroupName`"
        yield bad_value(f"{field}.schedulingGroup.podGroupName", None, text)
    else:
        yield from subdomain(name, f"{field}.schedulingGroup.podGroupName")
