"""Admission plugins that are off unless enabled: tolerations of namespaces and devices, topology.

Called by `pod_admission` for pods. Invariant: a plugin that is off is not called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import forbidden
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.resource_names import is_extended

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader

_HOSTNAME: Final = "kubernetes.io/hostname"
_DEFAULTS: Final = "scheduler.alpha.kubernetes.io/defaultTolerations"
_ALLOWED: Final = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_MEMORY_PRESSURE: Final = {
    "key": "node.kubernetes.io/memory-pressure",
    "operator": "Exists",
    "effect": "NoSchedule",
}


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
