"""pods/binding: the subresource by which a scheduler assigns a pod to a node.

Called by the HTTP layer. Invariant: a binding changes only what the API server's binding changes,
and is refused with a conflict, never silently, when the pod is bound, gated or terminating.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.admission.pod_admission import topology_labels
from stellwerk_cluster.apimachinery.failures import (
    StatusError,
    bad_request,
    bad_value,
    conflict,
    internal,
)
from stellwerk_cluster.apimachinery.names import subdomain_errors
from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, labels_of, timestamp
from stellwerk_cluster.apimachinery.releases import BINDING_TARGETS, holds
from stellwerk_cluster.registry.write_rules import check_body_namespace, precondition_failed

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_kube.json_values import JsonObject


def bind(
    api: Api, kind: ResourceKind, key: Key, binding: JsonObject, *, dry_run: bool = False
) -> Entry:
    """Assign a pod to a node; return the pod.

    Raises:
        StatusError: the binding is of another pod than its path (400), the pod is missing (404) or
            not to be bound (409), the target is malformed (500, as in the API server).
    """
    metadata, target = binding.get("metadata") or EMPTY, binding.get("target") or EMPTY
    check_body_namespace(key[0], metadata)
    api.check_namespace(kind, *key)
    if metadata.get("name", "") != key[1]:
        message = "name in URL does not match name in Binding object"
        raise bad_request(message)
    if target.get("kind", "") not in ("", "Node"):
        text = (
            f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", '
            '"<empty>"'
        )
        raise internal(text)
    if not target.get("name"):
        message = "target.name: Required value"
        raise internal(message)
    errors = subdomain_errors(target["name"]) if holds(BINDING_TARGETS, api.release) else ()
    if errors:
        wrong = bad_value("target.name", target["name"], errors[0])
        raise internal(f"{wrong.field}: {wrong.message}")
    if not key[1]:
        message = "Name parameter required."
        raise bad_request(message)
    stored = api.get(kind, *key)
    pod = stored.obj
    _check_binding_preconditions(kind, key, pod, metadata)
    refusal = _binding_refusal(key[1], pod)
    if refusal:
        raise _binding_conflict(kind, key[1], refusal)
    if dry_run:
        return stored
    return api.modify(kind, key, lambda obj: _bound(obj, target["name"], metadata, api))


def _check_binding_preconditions(
    kind: ResourceKind, key: Key, pod: JsonObject, metadata: JsonObject
) -> None:
    uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
    found = pod["metadata"]
    if uid and uid != found["uid"]:
        raise precondition_failed(
            kind, key, f"UID in precondition: {uid}, UID in object meta: {found['uid']}"
        )
    if version and version != found["resourceVersion"]:
        text = (
            f"ResourceVersion in precondition: {version}, "
            f"ResourceVersion in object meta: {found['resourceVersion']}"
        )
        raise precondition_failed(kind, key, text)


def _binding_refusal(name: str, pod: JsonObject) -> str:
    spec = pod["spec"]
    if is_terminating(pod):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _binding_conflict(kind: ResourceKind, name: str, why: str) -> StatusError:
    return conflict(kind, name, why, resource="pods/binding")


def _bound(pod: JsonObject, node_name: str, metadata: JsonObject, api: Api) -> JsonObject:
    node = api.store.collection("nodes").get(("", node_name))
    labels = {
        **labels_of(pod),
        **(metadata.get("labels") or {}),
        **topology_labels(node.labels if node and api.enabled("PodTopologyLabels") else EMPTY),
    }
    annotations = {
        **(pod["metadata"].get("annotations") or {}),
        **(metadata.get("annotations") or {}),
    }
    pod_metadata = {**pod["metadata"]}
    if labels:
        pod_metadata["labels"] = dict(sorted(labels.items()))
    if annotations:
        pod_metadata["annotations"] = dict(sorted(annotations.items()))
    status = {**pod["status"], "conditions": _scheduled(pod["status"], timestamp(api.now()))}
    status.pop("nominatedNodeName", None)
    return {
        **pod,
        "metadata": pod_metadata,
        "spec": {**pod["spec"], "nodeName": node_name},
        "status": status,
    }


def _scheduled(status: JsonObject, now: str) -> list[JsonObject]:
    condition = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
    others = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    return [*others, condition]
