"""The Node authorizer and NodeRestriction: a kubelet's own node and pods, and no others.

The authorizer and the admission plugin for users system:node:NAME in the group system:nodes.
Invariant: a kubelet reads no secret, config map or claim that no pod on its node refers to.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import forbidden
from stellwerk_cluster.apimachinery.users import node_of
from stellwerk_cluster.identity.authorizer import (
    ALLOWED,
    NO_OPINION,
    Authorizer,
    AuthorizerDecision,
    HeldRules,
)
from stellwerk_cluster.identity.bootstrap_roles import bootstrap_roles
from stellwerk_cluster.identity.policy import rule_of
from stellwerk_cluster.registry.user_admission import DeleteAdmission, WriteAdmission

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.identity.attributes import Attributes
    from stellwerk_cluster.identity.policy import PolicyRule
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_REFERRED: Final = {
    ("", "secrets"): ("get", "list", "watch"),
    ("", "configmaps"): ("get", "list", "watch"),
    ("", "persistentvolumeclaims"): ("get",),
    ("", "persistentvolumes"): ("get",),
    ("resource.k8s.io", "resourceclaims"): ("get",),
}
"""Resources that a kubelet reads one by one, where a pod of its node refers to them."""
_LEASES: Final = "kube-node-lease"
_OWN_LEASE: Final = "can only access node lease with the same name as the requesting node"
_OWN_CSI_NODE: Final = "can only access CSINode with the same name as the requesting node"
_NAMED_AS_NODE: Final = {
    ("coordination.k8s.io", "Lease"): _OWN_LEASE,
    ("storage.k8s.io", "CSINode"): _OWN_CSI_NODE,
}
"""Kinds of which a kubelet writes the one object that is named as its node."""


class NodeAuthorizer(Authorizer):
    """Decides for kubelets; has no opinion about other users."""

    def __init__(self, api: Api) -> None:
        """Look for the pods of a node in `api`."""
        self._api = api

    @override
    def decide(self, user: User, asked: Attributes) -> AuthorizerDecision:
        """Whether the act is about the kubelet's own node or its pods."""
        node = node_of(user)
        if not node or asked.path:
            return NO_OPINION
        group, resource = asked.group, asked.resource
        if (group, resource) in _REFERRED and not asked.subresource:
            return self._decide_referred(node, asked)
        if (group, resource) == ("coordination.k8s.io", "leases"):
            return _decide_lease(node, asked)
        if (group, resource) == ("storage.k8s.io", "csinodes"):
            return _own_name(node, asked, _OWN_CSI_NODE)
        if (group, resource) == ("", "serviceaccounts"):
            return self._decide_account(node, asked)
        return ALLOWED if any(rule.allows(asked) for rule in _node_rules()) else NO_OPINION

    @override
    def held(self, user: User, namespace: str) -> HeldRules:
        """Rules cannot say it."""
        if not node_of(user):
            return HeldRules(())
        text = "node authorizer does not support user rule resolution"
        return HeldRules((), (text,), complete=False)

    def _decide_referred(self, node: str, asked: Attributes) -> AuthorizerDecision:
        if asked.verb not in _REFERRED[asked.group, asked.resource]:
            return _no(f"can only read resources of this type ({asked.resource})")
        if not asked.name:
            return _no("No Object name found")
        named = (asked.resource, asked.namespace, asked.name)
        if any(named in _references(pod, self._api) for pod in self._pods_of(node)):
            return ALLOWED
        return _no(f"no relationship found between node '{node}' and this object")

    def _decide_account(self, node: str, asked: Attributes) -> AuthorizerDecision:
        if asked.subresource != "token" or asked.verb != "create" or not asked.name:
            return _no("can only create tokens for individual service accounts")
        for pod in self._pods_of(node):
            account = pod["spec"].get("serviceAccountName", "")
            if (pod["metadata"]["namespace"], account) == (asked.namespace, asked.name):
                return ALLOWED
        return _no(f"no relationship found between node '{node}' and this object")

    def _pods_of(self, node: str) -> Iterator[JsonObject]:
        """The pods bound to a node."""
        return (entry.obj for entry in self._api.store.collection("pods").on_node(node))


class NodeRestriction(WriteAdmission, DeleteAdmission):
    """Refuses what a kubelet does to other nodes and their pods, and to itself where it may not."""

    @override
    def admit(
        self, kind: ResourceKind, obj: JsonObject, old: JsonObject | None, user: User | None
    ) -> None:
        """Compare the object with the node of its writer."""
        node = "" if user is None else node_of(user)
        if not node:
            return
        name = obj["metadata"].get("name", "")
        if kind.kind == "Node" and not kind.group:
            why = _node_refusal(node, name, obj, old)
        elif kind.kind == "Pod" and not kind.group:
            why = _pod_refusal(node, obj, old)
        elif (kind.group, kind.kind) in _NAMED_AS_NODE and name != node:
            why = _NAMED_AS_NODE[kind.group, kind.kind]
        else:
            why = ""
        if why:
            raise forbidden(kind, name, why)

    @override
    def admit_delete(
        self, kind: ResourceKind, obj: JsonObject, user: User | None, *, evicts: bool
    ) -> None:
        """Kubelets delete and evict the pods of their own node alone."""
        node = "" if user is None else node_of(user)
        if not node or kind.kind != "Pod" or kind.group or obj["spec"].get("nodeName") == node:
            return
        subject, verb = (node, "evict") if evicts else (f'"{node}"', "delete")
        why = f"node {subject} can only {verb} pods with spec.nodeName set to itself"
        raise forbidden(kind, obj["metadata"]["name"], why)


def _node_refusal(node: str, name: str, obj: JsonObject, old: JsonObject | None) -> str:
    if name != node:
        return f'node "{node}" is not allowed to modify node "{name}"'
    if old is None:
        return ""
    if obj.get("spec", {}).get("taints") != old.get("spec", {}).get("taints"):
        return f'node "{node}" is not allowed to modify taints'
    changed = _restricted_labels(obj) ^ _restricted_labels(old)
    if changed:
        listed = ", ".join(sorted({key for key, _value in changed}))
        return f"is not allowed to modify labels: {listed}"
    return ""


def _restricted_labels(node: JsonObject) -> set[tuple[str, str]]:
    labels = node["metadata"].get("labels") or {}
    return {
        (key, value)
        for key, value in labels.items()
        if key.partition("/")[0].endswith("node-restriction.kubernetes.io")
    }


def _pod_refusal(node: str, obj: JsonObject, old: JsonObject | None) -> str:
    if old is None:
        if "kubernetes.io/config.mirror" not in (obj["metadata"].get("annotations") or {}):
            return f'pod does not have "kubernetes.io/config.mirror" annotation, node "{node}" can only create mirror pods'  # noqa: E501
        if obj["spec"].get("nodeName") != node:
            return f'node "{node}" can only create pods with spec.nodeName set to itself'
        return ""
    if old["spec"].get("nodeName") != node:
        subject = "pod status for pods with spec.nodeName set to itself"
        return f'node "{node}" can only update {subject}'
    if (obj["metadata"].get("labels") or {}) != (old["metadata"].get("labels") or {}):
        return f'node "{node}" cannot update labels through pod status'
    return ""


@cache
def _node_rules() -> tuple[PolicyRule, ...]:
    role = next(each for each in bootstrap_roles() if each.name == "system:node")
    return tuple(rule_of(each) for each in role.rules)


def _decide_lease(node: str, asked: Attributes) -> AuthorizerDecision:
    if asked.verb not in ("get", "create", "update", "patch", "delete"):
        return _no("can only get, create, update, patch, or delete a node lease")
    if asked.namespace != _LEASES:
        return _no(f'can only access leases in the "{_LEASES}" system namespace')
    return _own_name(node, asked, _OWN_LEASE)


def _own_name(node: str, asked: Attributes, why: str) -> AuthorizerDecision:
    if asked.verb != "create" and asked.name != node:
        return _no(why)
    return ALLOWED


def _no(why: str) -> AuthorizerDecision:
    return AuthorizerDecision(allowed=False, reason=why)


def _references(pod: JsonObject, api: Api) -> set[tuple[str, str, str]]:
    """Resource, namespace and name of what a pod refers to, and of the volumes behind claims."""
    namespace, spec = pod["metadata"]["namespace"], pod["spec"]
    found = {("secrets", namespace, each["name"]) for each in spec.get("imagePullSecrets") or ()}
    for claim in spec.get("resourceClaims") or ():
        if claim.get("resourceClaimName"):
            found.add(("resourceclaims", namespace, claim["resourceClaimName"]))
    for volume in spec.get("volumes") or ():
        found |= {(*each[:1], namespace, each[1]) for each in _of_volume(volume)}
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        found |= {(*each[:1], namespace, each[1]) for each in _of_environment(container)}
    for resource, home, name in tuple(found):
        if resource == "persistentvolumeclaims":
            claim = api.find(resource, home, name)
            bound = claim["spec"].get("volumeName") if claim else ""
            if bound:
                found.add(("persistentvolumes", "", bound))
    return found


def _of_volume(volume: JsonObject) -> Iterator[tuple[str, str]]:
    sources = (volume, *((volume.get("projected") or {}).get("sources") or ()))
    for source in sources:
        if source.get("configMap"):
            yield "configmaps", source["configMap"].get("name", "")
        if source.get("secret"):
            secret = source["secret"]
            yield "secrets", secret.get("secretName") or secret.get("name", "")
    if volume.get("persistentVolumeClaim"):
        yield "persistentvolumeclaims", volume["persistentVolumeClaim"]["claimName"]


def _of_environment(container: JsonObject) -> Iterator[tuple[str, str]]:
    whole = container.get("envFrom") or ()
    single = [each.get("valueFrom") or {} for each in container.get("env") or ()]
    for source in (*whole, *single):
        for key, resource in (
            ("configMapRef", "configmaps"),
            ("configMapKeyRef", "configmaps"),
            ("secretRef", "secrets"),
            ("secretKeyRef", "secrets"),
        ):
            if source.get(key):
                yield resource, source[key].get("name", "")
