"""Admission plugins of single kinds: namespaces, nodes, storage, Ingresses, Jobs, ResourceClaims.

Called through the strategies of their kinds. Invariant: a plugin that is off changes and refuses
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import forbidden
from stellwerk_cluster.apimachinery.feature_gates import JOBS
from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, timestamp
from stellwerk_cluster.defaults.pod_strategy import drop_group_of_template
from stellwerk_cluster.validation.device_checks import devices_of
from stellwerk_cluster.validation.jobs import runs_all_at_once
from stellwerk_cluster.validation.scheduling import WORKLOADS
from stellwerk_kube.admission import default_class, give_storage_class
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

_PROTECTED_NAMESPACES: Final = ("default", "kube-system", "kube-public")
_ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"
_INGRESS_CLASSES: Final = "ingressclasses.networking.k8s.io"
_DEFAULT_INGRESS_CLASS: Final = "ingressclass.kubernetes.io/is-default-class"
_OLD_CLASS: Final = "kubernetes.io/ingress.class"
NOT_READY = "node.kubernetes.io/not-ready"
STORAGE_CLASSES: Final = "storageclasses.storage.k8s.io"


def protect_namespace(namespace: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Three namespaces stay: NamespaceLifecycle.

    Raises:
        StatusError: it is one of them (403).
    """
    name = namespace["metadata"]["name"]
    if name in _PROTECTED_NAMESPACES and cluster.enabled("NamespaceLifecycle"):
        raise forbidden(kind, name, "this namespace may not be deleted")


def check_admin_access(claim: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Requests for adminAccess are for namespaces that are labelled for it.

    Raises:
        StatusError: the claim's namespace is not (403).
    """
    requests = devices_of(claim).get("requests") or ()
    if not any((each.get("exactly") or EMPTY).get("adminAccess") for each in requests):
        return
    metadata = claim["metadata"]
    namespace = cluster.find("namespaces", "", metadata["namespace"]) or EMPTY
    labels = (namespace.get("metadata") or EMPTY).get("labels") or EMPTY
    if labels.get(_ADMIN_LABEL) != "true":
        why = (
            f"admin access to devices requires the `{_ADMIN_LABEL}: true` label on the "
            "containing namespace"
        )
        raise forbidden(kind, metadata.get("name") or "", why)


def admit_job_update(new: JsonObject, old: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """The size of a gang is said once: its Workload and its group never change.

    Raises:
        StatusError: the change would make it another one (403).
    """
    drop_group_of_template(new, old, cluster, kind)
    gang = cluster.feature(JOBS) and cluster.enabled("JobValidation")
    if gang and runs_all_at_once(old["spec"]):
        parallelism = new["spec"].get("parallelism")
        if parallelism != old["spec"]["parallelism"]:
            why = "spec.parallelism: field is immutable for a Job whose pods are a gang"
            raise forbidden(kind, old["metadata"]["name"], why)


def admit_ingress(ingress: JsonObject, cluster: Reader, _kind: ResourceKind) -> None:
    """An Ingress without a class gets the default class (DefaultIngressClass)."""
    annotations = ingress["metadata"].get("annotations") or EMPTY
    named = "ingressClassName" in ingress["spec"] or _OLD_CLASS in annotations
    if named or not cluster.enabled("DefaultIngressClass"):
        return
    default = default_class(cluster.all(_INGRESS_CLASSES), _DEFAULT_INGRESS_CLASS)
    if default:
        ingress["spec"]["ingressClassName"] = default


def prepare_node(node: JsonObject, cluster: Reader) -> None:
    """Add the not-ready taint (TaintNodesByCondition admission), whatever the body says."""
    if not cluster.enabled("TaintNodesByCondition"):
        return
    taints = node["spec"].get("taints") or []
    if not any(
        taint.get("key") == NOT_READY and taint.get("effect") == "NoSchedule" for taint in taints
    ):
        node["spec"]["taints"] = [*taints, {"key": NOT_READY, "effect": "NoSchedule"}]


def check_pod_group(group: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """The template that a group names must exist; it is not compared with the group.

    Raises:
        StatusError: the Workload is not there, or terminating, or lacks the template (403).
    """
    reference = (group["spec"].get("podGroupTemplateRef") or EMPTY).get("workload")
    if reference is None or not cluster.enabled("PodGroupWorkloadExists"):
        return
    name, template = reference["workloadName"], reference["podGroupTemplateName"]
    workload = cluster.find(WORKLOADS, group["metadata"]["namespace"], name)
    if workload is None:
        why = f'Workload "{name}" not found'
    elif is_terminating(workload):
        why = f'Workload "{name}" is being deleted'
    elif template not in {each["name"] for each in workload["spec"]["podGroupTemplates"]}:
        why = f'PodGroupTemplate "{template}" not found in Workload "{name}"'
    else:
        return
    raise forbidden(kind, group["metadata"].get("name", ""), f"PodGroup rejected: {why}")


def prepare_claim(claim: JsonObject, cluster: Reader) -> None:
    """A new claim is protected; one without a class gets the default class."""
    if cluster.enabled("DefaultStorageClass"):
        give_storage_class(claim, cluster.all(STORAGE_CLASSES))
    protect(claim, "kubernetes.io/pvc-protection", cluster)


def admit_claim_update(
    new: JsonObject, old: JsonObject, cluster: Reader, kind: ResourceKind
) -> None:
    """Only a bound claim grows, and only if its class says so (PersistentVolumeClaimResize).

    Raises:
        StatusError: it may not (403).
    """
    size, was = (
        parse_quantity(
            ((each["spec"].get("resources") or EMPTY).get("requests") or EMPTY).get("storage", "0")
        )
        for each in (new, old)
    )
    if size <= was or not cluster.enabled("PersistentVolumeClaimResize"):
        return
    name = new["metadata"]["name"]
    if old["status"].get("phase") != "Bound":
        raise forbidden(kind, name, "only bound persistent volume claims can be expanded")
    class_name = new["spec"].get("storageClassName", "")
    storage_class = cluster.find(STORAGE_CLASSES, "", class_name) if class_name else None
    if not (storage_class or EMPTY).get("allowVolumeExpansion"):
        why = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions "
            "the pvc must support resize"
        )
        raise forbidden(kind, name, why)


def prepare_volume(volume: JsonObject, cluster: Reader) -> None:
    """A new volume is protected, and its phase begins now."""
    volume["status"]["lastPhaseTransitionTime"] = timestamp(cluster.now())
    protect(volume, "kubernetes.io/pv-protection", cluster)


def protect(obj: JsonObject, finalizer: str, cluster: Reader) -> None:
    """Keep an object from going while it is in use (StorageObjectInUseProtection)."""
    if not cluster.enabled("StorageObjectInUseProtection"):
        return
    metadata = obj["metadata"]
    finalizers = metadata.get("finalizers") or []
    if finalizer not in finalizers:
        metadata["finalizers"] = [*finalizers, finalizer]
