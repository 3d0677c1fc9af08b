"""Defaults of kinds that need few of them, and what their strategies set and clear.

Called through their strategies. Invariant: only fields that the client left out are filled in, and
a field whose gate is off is never stored anew.
"""

from __future__ import annotations

import base64
import copy
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.feature_gates import VOLUME_LIMITS
from stellwerk_cluster.apimachinery.objects import EMPTY, timestamp
from stellwerk_cluster.validation.cluster_objects import NAMESPACE_FINALIZER
from stellwerk_kube.schema.defaults import fill_defaults, label_with_name

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

_DOUBLED: Final = {"type": "Percent", "value": 100, "periodSeconds": 15}
_FOUR_MORE: Final = {"type": "Pods", "value": 4, "periodSeconds": 15}
_BEHAVIOR: Final[JsonObject] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [_FOUR_MORE, _DOUBLED],
    },
    "scaleDown": {"selectPolicy": "Max", "policies": [_DOUBLED]},
}
_RBAC: Final = "rbac.authorization.k8s.io"
_TARGET_CPU_PERCENT: Final = 80
"""Usage of CPU that an autoscaler without metrics aims at (`DefaultCPUUtilization`)."""
FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
COMPOSITE_FINALIZER: Final = "scheduling.k8s.io/compositepodgroup-protection"


def default_behavior(autoscaler: JsonObject) -> None:
    """The defaults of a behaviour: how fast, and which of several policies counts."""
    behavior = autoscaler["spec"].get("behavior")
    if behavior is not None:
        for name, defaults in _BEHAVIOR.items():
            behavior[name] = {**copy.deepcopy(defaults), **(behavior.get(name) or {})}


def prepare_namespace(namespace: JsonObject, _cluster: Reader) -> None:
    """A new namespace is active, has its name as a label, and is held by its controller."""
    given = (namespace.get("spec") or {}).get("finalizers") or []
    held = given if NAMESPACE_FINALIZER in given else [*given, NAMESPACE_FINALIZER]
    namespace["spec"] = {"finalizers": held}
    namespace["status"] = {"phase": "Active"}
    label_with_name(namespace)


def prepare_namespace_update(new: JsonObject, old: JsonObject, subresource: str) -> None:
    """Only the finalize subresource changes the finalizers; the name label always comes back."""
    if subresource != "finalize":
        new["spec"] = old["spec"]


def default_secret(secret: JsonObject) -> None:
    """Plain texts are encoded, the type is Opaque."""
    plain = secret.pop("stringData", None) or {}
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        secret["data"] = dict(sorted({**(secret.get("data") or {}), **encoded}.items()))
    secret.setdefault("type", "Opaque")


def default_definition(definition: JsonObject) -> None:
    """Names that follow from the kind, and the default conversion."""
    spec = definition["spec"]
    names = spec["names"]
    names.setdefault("singular", names["kind"].lower())
    if not names["singular"]:
        names["singular"] = names["kind"].lower()
    names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def prepare_definition(definition: JsonObject, _cluster: Reader) -> None:
    """A new definition is neither accepted nor established."""
    stored = [each["name"] for each in definition["spec"].get("versions") or () if each["storage"]]
    definition["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored or None,
    }


def prepare_definition_update(new: JsonObject, _old: JsonObject, subresource: str) -> None:
    """The storage version joins those in which objects may be stored."""
    if subresource == "status":
        return
    status = new["status"] = dict(new.get("status") or EMPTY)
    stored = list(status.get("storedVersions") or ())
    now = [each["name"] for each in new["spec"].get("versions") or () if each["storage"]]
    status["storedVersions"] = [*stored, *(name for name in now if name not in stored)] or None


def prepare_signing_request_update(new: JsonObject, old: JsonObject, subresource: str) -> None:
    """The spec of a request never changes, and a write of its approval changes conditions alone."""
    new["spec"] = old["spec"]
    if subresource == "approval":
        conditions = (new.get("status") or EMPTY).get("conditions")
        status = {**(old.get("status") or EMPTY), "conditions": conditions}
        new["status"] = {name: value for name, value in status.items() if value is not None}


# --- claims and templates -----------------------------------------------------------------------
def prepare_csi_driver(driver: JsonObject, cluster: Reader) -> None:
    """A new driver says whether nodes without it are left out, where the gate is on."""
    if cluster.feature(VOLUME_LIMITS):
        driver["spec"].setdefault("preventPodSchedulingIfMissing", False)


def default_autoscaler(autoscaler: JsonObject) -> None:
    """At least one replica, for four fifths of the cpu."""
    spec = autoscaler["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": _TARGET_CPU_PERCENT}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    default_behavior(autoscaler)


def default_network_policy(policy: JsonObject) -> None:
    """It is about what comes in; about what goes out, if it has rules for that."""
    spec = policy["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


def default_role_binding(binding: JsonObject) -> None:
    """Roles, users and groups are of the group of access rules."""
    reference = binding["roleRef"]
    if not reference.get("apiGroup"):
        reference["apiGroup"] = _RBAC
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
            subject["apiGroup"] = _RBAC


# --- groups -------------------------------------------------------------------------------------
def prepare_pod_group(group: JsonObject, cluster: Reader) -> None:
    """Protect a new group as long as pods use it; fields whose gate is off have their defaults."""
    fill_defaults("PodGroupSpec", group["spec"])
    protect_pod_group(group, cluster)


def protect_pod_group(group: JsonObject, cluster: Reader) -> None:
    """Let a new group stay as long as pods use it."""
    if cluster.enabled("PodGroupProtection"):
        _add_finalizer(group, FINALIZER)


def protect_composite_pod_group(group: JsonObject, cluster: Reader) -> None:
    """Let a new group of groups stay as long as groups name it as their parent."""
    if cluster.enabled("PodGroupProtection"):
        _add_finalizer(group, COMPOSITE_FINALIZER)


def _add_finalizer(obj: JsonObject, finalizer: str) -> None:
    finalizers = obj["metadata"].get("finalizers") or []
    if finalizer not in finalizers:
        obj["metadata"]["finalizers"] = [*finalizers, finalizer]


def prepare_workload(workload: JsonObject, _cluster: Reader) -> None:
    """Templates always say whether they have constraints."""
    for template in workload["spec"].get("podGroupTemplates") or ():
        template.setdefault("schedulingConstraints", None)


def admit_workload_update(
    new: JsonObject, _old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """Prepare a changed object."""
    prepare_workload(new, cluster)


# --- taints of devices --------------------------------------------------------------------------
def prepare_slice(slice_: JsonObject, cluster: Reader) -> None:
    """Taints of devices say since when they are there."""
    for device in slice_["spec"].get("devices") or ():
        for taint in device.get("taints") or ():
            _date_taint(taint, cluster)


def admit_slice_update(
    new: JsonObject, _old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """Prepare a changed slice."""
    prepare_slice(new, cluster)


def prepare_taint_rule(rule: JsonObject, cluster: Reader) -> None:
    """The taint of a rule says since when it is there."""
    _date_taint(rule["spec"]["taint"], cluster)


def admit_taint_rule_update(
    new: JsonObject, old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """A taint with another effect is a new one, unless the writer says since when it is there."""
    taint, before = new["spec"]["taint"], old["spec"]["taint"]
    if taint.get("effect") != before.get("effect") and taint.get("timeAdded") == before.get(
        "timeAdded"
    ):
        taint["timeAdded"] = timestamp(cluster.now())
    _date_taint(taint, cluster)


def _date_taint(taint: JsonObject, cluster: Reader) -> None:
    if taint.get("timeAdded") is None:
        taint["timeAdded"] = timestamp(cluster.now())
