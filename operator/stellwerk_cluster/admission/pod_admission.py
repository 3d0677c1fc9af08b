"""The admission of pods: limits, priority, tolerations, RuntimeClass, scheduling gates.

Called once per created pod: what changes it after defaulting, what only refuses after validation.
Invariant: each step looks at other objects only through the `Reader`, and refuses with the words of
its admission plugin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.limit_ranger import check_limits, give_default_limits
from stellwerk_cluster.admission.optional_plugins import (
    check_anti_affinity,
    check_tolerations,
    merge_namespace_tolerations,
    tolerate_extended_resources,
)
from stellwerk_cluster.admission.priority import admit_priority, forbidden_pod
from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of, timestamp
from stellwerk_cluster.apimachinery.pods import qos_class
from stellwerk_cluster.defaults.pod_strategy import drop_group_of_pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader

RUNTIME_CLASSES: Final = "runtimeclasses.node.k8s.io"
_NO_EXECUTE_KEYS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATION_SECONDS: Final = 300
_TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
GATED_MESSAGE: Final = "Scheduling is blocked due to non-empty scheduling gates"


def admit_pod(pod: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Let the plugins that change a new pod do so, in the API server's order.

    Raises:
        StatusError: one of them refuses the pod (403).
    """
    spec = pod["spec"]
    drop_group_of_pod(pod, None, cluster)
    if cluster.enabled("LimitRanger") and give_default_limits(pod, cluster):
        pod["status"] = {**pod["status"], "qosClass": qos_class(spec)}
    if cluster.enabled("Priority"):
        admit_priority(pod, cluster, kind)
    if cluster.enabled("DefaultTolerationSeconds"):
        _add_default_tolerations(spec)
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
    drop_group_of_pod(new, old, cluster)
    if cluster.enabled("DefaultTolerationSeconds"):
        _add_default_tolerations(new["spec"])
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
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    runtime_class = cluster.find(RUNTIME_CLASSES, "", name) if name else None
    if name and runtime_class is None:
        raise forbidden_pod(pod, kind, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = ((runtime_class or EMPTY).get("overhead") or EMPTY).get("podFixed")
    if overhead is None:
        if spec.get("overhead"):
            why = (
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            )
            raise forbidden_pod(pod, kind, why)
    elif spec.get("overhead", overhead) != overhead:
        why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        raise forbidden_pod(pod, kind, why)
    else:
        spec["overhead"] = overhead
    _add_runtime_scheduling(pod, (runtime_class or EMPTY).get("scheduling") or EMPTY, kind)


def _add_runtime_scheduling(pod: JsonObject, scheduling: JsonObject, kind: ResourceKind) -> None:
    spec = pod["spec"]
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or EMPTY).items():
        if selector.setdefault(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise forbidden_pod(pod, kind, why)
    if selector:
        spec["nodeSelector"] = dict(sorted(selector.items()))
    own = spec.get("tolerations") or []
    added = [each for each in scheduling.get("tolerations") or () if each not in own]
    if added:
        spec["tolerations"] = [*own, *added]


def _add_default_tolerations(spec: JsonObject) -> None:
    tolerations = spec.get("tolerations") or []
    missing = [
        key for key in _NO_EXECUTE_KEYS if not any(_tolerates(each, key) for each in tolerations)
    ]
    if missing:
        spec["tolerations"] = [
            *tolerations,
            *(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATION_SECONDS,
                }
                for key in missing
            ),
        ]


def _tolerates(toleration: JsonObject, key: str) -> bool:
    names_key: bool = toleration.get("key", key) == key
    return names_key and toleration.get("effect", "NoExecute") == "NoExecute"
