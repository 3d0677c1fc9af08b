"""The admission of pods: limits, priority, tolerations, RuntimeClass, topology, scheduling gates.

Called once per created pod: what changes it after defaulting, what only refuses after validation.
Invariant: each step looks at other objects only through the `Reader`, and refuses with the words of
its admission plugin; a plugin that is off is not called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.admission.limit_ranger import check_limits, limit_ranges
from stellwerk_cluster.admission.priority import admit_priority, forbidden_pod
from stellwerk_cluster.apimachinery.failures import forbidden
from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of, timestamp
from stellwerk_cluster.apimachinery.releases import KEPT_CLAIM_STATUSES, holds
from stellwerk_cluster.defaults.pod_strategy import drop_group_of_pod
from stellwerk_cluster.validation.resources import is_extended
from stellwerk_kube.admission import (
    AdmissionError,
    add_default_tolerations,
    give_default_limits,
    give_runtime,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

_HOSTNAME: Final = "kubernetes.io/hostname"
_DEFAULTS: Final = "scheduler.alpha.kubernetes.io/defaultTolerations"
_ALLOWED: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_MEMORY_PRESSURE: Final = {
    "key": "node.kubernetes.io/memory-pressure",
    "operator": "Exists",
    "effect": "NoSchedule",
}
RUNTIME_CLASSES: Final = "runtimeclasses.node.k8s.io"
_CLAIM_STATUSES: Final = (
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
)
_TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"


def admit_pod(pod: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Let the plugins that change a new pod do so, in the API server's order.

    Raises:
        StatusError: one of them refuses the pod (403).
    """
    spec = pod["spec"]
    drop_group_of_pod(pod, None, cluster)
    if cluster.enabled("LimitRanger"):
        give_default_limits(pod, limit_ranges(pod, cluster))
    if cluster.enabled("Priority"):
        admit_priority(pod, cluster, kind)
    if cluster.enabled("DefaultTolerationSeconds"):
        add_default_tolerations(spec)
    if cluster.enabled("PodTolerationRestriction"):
        merge_namespace_tolerations(pod, cluster, kind)
    if cluster.enabled("ExtendedResourceToleration"):
        tolerate_extended_resources(spec)
    if cluster.enabled("RuntimeClass"):
        _admit_runtime_class(pod, cluster, kind)
    if cluster.enabled("PodTopologyLabels") and spec.get("nodeName"):
        node = cluster.find("nodes", "", spec["nodeName"])
        added = topology_labels(labels_of(node)) if node else {}
        if added:
            labels = {**labels_of(pod), **added}
            pod["metadata"] = {**pod["metadata"], "labels": dict(sorted(labels.items()))}
    if spec.get("schedulingGates"):
        pod["status"] = {**pod["status"], "conditions": [_gated_condition(cluster)]}


def topology_labels(node_labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of zone and region that a pod gets from its node."""
    return {name: node_labels[name] for name in _TOPOLOGY_LABELS if name in node_labels}


def check_pod(pod: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Let the plugins that only refuse look at a valid new pod.

    Raises:
        StatusError: one of them does (403).
    """
    if cluster.enabled("LimitPodHardAntiAffinityTopology"):
        check_anti_affinity(pod, kind)
    if cluster.enabled("LimitRanger"):
        check_limits(pod, cluster, kind)
    if cluster.enabled("PodTolerationRestriction"):
        check_tolerations(pod, cluster, kind)


def admit_pod_update(new: JsonObject, old: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Put back tolerations that an update takes away, where a plugin gives them.

    Raises:
        StatusError: a plugin refuses the change (403).
    """
    if holds(KEPT_CLAIM_STATUSES, cluster.release):
        for name in _CLAIM_STATUSES:
            if name in (old.get("status") or EMPTY) and name not in (new.get("status") or EMPTY):
                new["status"][name] = old["status"][name]
    drop_group_of_pod(new, old, cluster)
    if cluster.enabled("DefaultTolerationSeconds"):
        add_default_tolerations(new["spec"])
    if cluster.enabled("PodTolerationRestriction"):
        merge_namespace_tolerations(new, cluster, kind)
        check_tolerations(new, cluster, kind)
    if cluster.enabled("ExtendedResourceToleration"):
        tolerate_extended_resources(new["spec"])


def _gated_condition(cluster: Reader) -> JsonObject:
    return {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(cluster.now()),
        "reason": "SchedulingGated",
        "message": GATED_MESSAGE,
    }


def _admit_runtime_class(pod: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    name = pod["spec"].get("runtimeClassName")
    runtime_class = cluster.find(RUNTIME_CLASSES, "", name) if name else None
    if name and runtime_class is None:
        raise forbidden_pod(pod, kind, f'pod rejected: RuntimeClass "{name}" not found')
    try:
        give_runtime(pod["spec"], runtime_class)
    except AdmissionError as error:
        raise forbidden_pod(pod, kind, str(error)) from error


def check_anti_affinity(pod: JsonObject, kind: ResourceKind) -> None:
    """Refuse required anti-affinity over anything wider than a node.

    Raises:
        StatusError: the pod has such a term (403).
    """
    affinity = (pod["spec"].get("affinity") or EMPTY).get("podAntiAffinity") or EMPTY
    for term in affinity.get(_REQUIRED) or ():
        key = term.get("topologyKey", "")
        if key != _HOSTNAME:
            why = (
                f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but "
                f"only key {_HOSTNAME} is allowed"
            )
            raise forbidden(kind, pod["metadata"].get("name", ""), why)


def tolerate_extended_resources(spec: JsonObject) -> None:
    """Let a pod onto nodes that are tainted with the extended resources that it requests."""
    names = sorted(
        {
            name
            for group in ("containers", "initContainers")
            for container in spec.get(group) or ()
            for name in (container.get("resources") or EMPTY).get("requests") or ()
            if is_extended(name)
        }
    )
    own = spec.get("tolerations") or []
    added = [{"key": name, "operator": "Exists"} for name in names]
    missing = [each for each in added if each not in own]
    if missing:
        spec["tolerations"] = [*own, *missing]


def merge_namespace_tolerations(pod: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Give a pod the default tolerations of its namespace.

    Raises:
        StatusError: they contradict its own (403).
    """
    defaults = _of_namespace(pod, cluster, kind, _DEFAULTS)
    spec = pod["spec"]
    own = spec.get("tolerations") or []
    by_taint = {_taint(each): each for each in own}
    for toleration in defaults or ():
        same = by_taint.get(_taint(toleration))
        if same is not None and _meaning(same) != _meaning(toleration):
            why = "namespace tolerations and pod tolerations conflict"
            raise forbidden(kind, pod["metadata"].get("name", ""), why)
    added = [each for each in defaults or () if _taint(each) not in by_taint]
    if (pod.get("status") or EMPTY).get("qosClass") != "BestEffort" and "status" in pod:
        added += [dict(_MEMORY_PRESSURE)] if _MEMORY_PRESSURE not in own else []
    if added:
        spec["tolerations"] = [*own, *added]


def check_tolerations(pod: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Refuse tolerations that the namespace does not allow.

    Raises:
        StatusError: the pod has one (403).
    """
    allowed = _of_namespace(pod, cluster, kind, _ALLOWED)
    if not allowed:
        return
    for toleration in pod["spec"].get("tolerations") or ():
        if not any(_covers(each, toleration) for each in allowed):
            why = (
                "pod tolerations (possibly merged with namespace default tolerations) conflict "
                "with its namespace whitelist"
            )
            raise forbidden(kind, pod["metadata"].get("name", ""), why)


def _of_namespace(
    pod: JsonObject, cluster: Reader, kind: ResourceKind, annotation: str
) -> list[JsonObject] | None:
    namespace = cluster.find("namespaces", "", pod["metadata"].get("namespace", "")) or EMPTY
    text = ((namespace.get("metadata") or EMPTY).get("annotations") or EMPTY).get(annotation)
    if not text:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise forbidden(kind, pod["metadata"].get("name", ""), str(error)) from error
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else None


def _taint(toleration: JsonObject) -> tuple[str, str]:
    return toleration.get("key", ""), toleration.get("effect", "")


def _meaning(toleration: JsonObject) -> tuple[str, str, int | None]:
    operator = toleration.get("operator") or "Equal"
    return operator, toleration.get("value", ""), toleration.get("tolerationSeconds")


def _covers(allowed: JsonObject, toleration: JsonObject) -> bool:
    """Whether an allowed toleration matches at least what another one does."""
    if allowed.get("effect") and allowed.get("effect") != toleration.get("effect"):
        return False
    exists = (allowed.get("operator") or "Equal") == "Exists"
    if not allowed.get("key"):
        return exists
    if allowed["key"] != toleration.get("key"):
        return False
    same = allowed.get("value", "") == toleration.get("value", "")
    return exists or ((toleration.get("operator") or "Equal") == "Equal" and same)
