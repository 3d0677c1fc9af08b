"""pods/binding, pods/eviction and scale.

Called by the HTTP layer. Invariant: a binding changes only what the API server's binding changes,
and is refused with a conflict, never silently, when the pod is bound, gated or terminating.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.selectors import parse_label_selector
from stellwerk_cluster.apimachinery.failures import (
    StatusError,
    bad_request,
    bad_value,
    conflict,
    internal,
    invalid_as,
)
from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    is_terminating,
    labels_of,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.patching import merge_patch
from stellwerk_cluster.apimachinery.selectors import selector_text
from stellwerk_cluster.registry.deletion import delete, parse_delete_options
from stellwerk_cluster.registry.write_rules import precondition_failed

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.registry.api import Api, WriteOptions

_TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
BUDGETS: Final = "poddisruptionbudgets.policy"
_UNOBSERVED_RETRY_SECONDS: Final = 10
_REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_PENDING: Final = "Pending"
_FINISHED: Final = ("Succeeded", "Failed")


def bind(
    api: Api, kind: ResourceKind, key: Key, binding: JsonObject, *, dry_run: bool = False
) -> None:
    """Assign a pod to a node.

    Raises:
        StatusError: the pod is missing (404) or not to be bound (409); the target is malformed
            (500, as in the API server).
    """
    metadata, target = binding.get("metadata") or EMPTY, binding.get("target") or EMPTY
    if metadata.get("name", key[1]) != key[1]:
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
    pod = api.get(kind, *key).obj
    _check_binding_preconditions(kind, key, pod, metadata)
    refusal = _binding_refusal(key[1], pod)
    if refusal:
        raise _binding_conflict(kind, key[1], refusal)
    if not dry_run:
        api.modify(kind, key, lambda obj: _bound(obj, target["name"], metadata, api))


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
    node = api.find("nodes", "", node_name)
    node_labels = labels_of(node) if node else EMPTY
    labels = {
        **labels_of(pod),
        **(metadata.get("labels") or {}),
        **{name: node_labels[name] for name in _TOPOLOGY_LABELS if name in node_labels},
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


def evict(
    api: Api, kind: ResourceKind, key: Key, eviction: JsonObject, query: dict[str, str]
) -> None:
    """Delete a pod unless a PodDisruptionBudget forbids it.

    Raises:
        StatusError: a budget forbids it (429), several budgets match (500), or as for delete.
    """
    if (eviction.get("metadata") or EMPTY).get("name", key[1]) != key[1]:
        message = "name in URL does not match name in Eviction object"
        raise bad_request(message)
    options = parse_delete_options(eviction.get("deleteOptions") or {}, query)
    pod = api.get(kind, *key).obj
    if _needs_no_budget(pod):
        delete(api, kind, key, options)
        return
    budgets = _matching_budgets(api, pod)
    if len(budgets) > 1:
        message = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource "
            "does not support."
        )
        raise internal(message)
    if budgets:
        _spend_budget(api, budgets[0], pod, dry_run=options.dry_run)
    if not options.dry_run:
        _mark_disrupted(api, kind, key)
    delete(api, kind, key, options)


def _needs_no_budget(pod: JsonObject) -> bool:
    phase = pod["status"].get("phase")
    return phase == _PENDING or phase in _FINISHED or is_terminating(pod)


def _matching_budgets(api: Api, pod: JsonObject) -> list[JsonObject]:
    found = []
    for budget in api.all(BUDGETS, pod["metadata"]["namespace"]):
        selector = parse_label_selector(budget["spec"].get("selector"))
        if selector is not None and selector.matches(labels_of(pod)):
            found.append(budget)
    return found


def _is_ready(pod: JsonObject) -> bool:
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in pod["status"].get("conditions") or ()
    )


def _spend_budget(api: Api, budget: JsonObject, pod: JsonObject, *, dry_run: bool) -> None:
    status = budget.get("status") or EMPTY
    name = budget["metadata"]["name"]
    if not _is_ready(pod):
        if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        if status.get("currentHealthy", 0) >= status.get("desiredHealthy", 0) > 0:
            return
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise _budget_refusal(
            f"The disruption budget {name} is still being processed by the server.", retry=True
        )
    allowed = status.get("disruptionsAllowed", 0)
    if allowed <= 0:
        if status.get("currentHealthy", 0) > status.get("desiredHealthy", 0):
            raise _budget_refusal(
                f"The disruption budget {name} does not allow evicting pods currently"
            )
        raise _budget_refusal(
            f"The disruption budget {name} needs {status.get('desiredHealthy', 0)} healthy "
            "pods and has "
            f"{status.get('currentHealthy', 0)} currently",
        )
    if dry_run:
        return
    now = timestamp(api.now())
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: now}
    spent = {
        **status,
        "disruptionsAllowed": allowed - 1,
        "disruptedPods": dict(sorted(disrupted.items())),
    }
    spent["conditions"] = _disruption_allowed(spent, budget["metadata"].get("generation", 0), now)
    budgets = api.kinds.resource("poddisruptionbudgets", "policy")
    api.modify(
        budgets, (budget["metadata"]["namespace"], name), lambda obj: {**obj, "status": spent}
    )


def _disruption_allowed(status: JsonObject, generation: int, now: str) -> list[JsonObject]:
    enough = status["disruptionsAllowed"] > 0
    condition = {
        "type": "DisruptionAllowed",
        "status": "True" if enough else "False",
        "observedGeneration": generation,
        "lastTransitionTime": now,
        "reason": "SufficientPods" if enough else "InsufficientPods",
        "message": "",
    }
    old = next(
        (each for each in status.get("conditions") or () if each["type"] == condition["type"]), None
    )
    if old is not None and old["status"] == condition["status"]:
        condition["lastTransitionTime"] = old["lastTransitionTime"]
    return [each for each in status.get("conditions") or () if each is not old] + [condition]


def _budget_refusal(why: str, *, retry: bool = False) -> StatusError:
    return StatusError(
        429,
        "TooManyRequests",
        _REFUSED,
        details={
            "causes": [{"reason": "DisruptionBudget", "message": why}],
            **({"retryAfterSeconds": _UNOBSERVED_RETRY_SECONDS} if retry else {}),
        },
        retry_after_seconds=_UNOBSERVED_RETRY_SECONDS if retry else None,
    )


def _mark_disrupted(api: Api, kind: ResourceKind, key: Key) -> None:
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": timestamp(api.now()),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }

    def marked(pod: JsonObject) -> JsonObject:
        conditions = [
            each
            for each in pod["status"].get("conditions") or ()
            if each["type"] != condition["type"]
        ]
        return with_value(pod, ("status", "conditions"), [*conditions, condition])

    api.modify(kind, key, marked)


def read_scale(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """The Scale of a workload."""
    metadata = {
        name: obj["metadata"][name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if name in obj["metadata"]
    }
    selector = obj["spec"].get("selector") or EMPTY
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": obj["spec"]["replicas"]} if obj["spec"].get("replicas") else {},
        "status": {
            "replicas": (obj.get("status") or EMPTY).get("replicas", 0),
            "selector": selector_text(selector, plain=kind.kind == "ReplicationController"),
        },
    }


def write_scale(
    api: Api, kind: ResourceKind, key: Key, body: JsonObject, options: WriteOptions, *, merge: bool
) -> JsonObject:
    """Change the number of replicas; the answer is the new Scale.

    Raises:
        StatusError: as for update; 422 for a negative number.
    """
    stored = api.get(kind, *key)
    scale = merge_patch(read_scale(kind, stored.obj), body) if merge else body
    replicas = (scale.get("spec") or EMPTY).get("replicas") or 0
    if replicas < 0:
        cause = bad_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_as("Scale", "autoscaling", key[1], [cause])
    version = (scale.get("metadata") or EMPTY).get("resourceVersion", "")
    patch: JsonObject = {"spec": {"replicas": replicas}}
    if version:
        patch["metadata"] = {"resourceVersion": version}
    return read_scale(kind, api.patch(kind, key, patch, options=options).obj)
