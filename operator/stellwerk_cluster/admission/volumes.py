"""The rules of PersistentVolumes, claims, StorageClasses and CSIDrivers.

Called through their strategies. Invariant: binding a claim to a volume is no rule of admission; the
fields that say it are left to the clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import Cause, bad_value, forbidden_field, required
from stellwerk_cluster.apimachinery.objects import EMPTY, timestamp

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader

STORAGE_CLASSES: Final = "storageclasses.storage.k8s.io"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_VOLUME_FIELDS: Final = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    )
)
_CLAIM_CHANGES: Final = ("volumeName", "resources", "volumeAttributesClassName")


def default_volume(volume: JsonObject) -> None:
    """Retained, a file system, waiting for its controller."""
    spec = volume["spec"]
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if "hostPath" in spec:
        spec["hostPath"].setdefault("type", "")
    volume["status"] = {**volume["status"]}
    volume["status"].setdefault("phase", "Pending")


def prepare_volume(volume: JsonObject, cluster: Reader) -> None:
    """A new volume is protected, and its phase begins now."""
    volume["status"]["lastPhaseTransitionTime"] = timestamp(cluster.now())
    _protect(volume, "kubernetes.io/pv-protection")


def validate_volume(volume: JsonObject) -> list[Cause]:
    """What is wrong with a volume."""
    spec = volume["spec"]
    causes = []
    if not spec.get("accessModes"):
        causes.append(required("spec.accessModes"))
    if not spec.get("capacity"):
        causes.append(required("spec.capacity"))
    if not spec.keys() - _VOLUME_FIELDS:
        causes.append(required("spec", "must specify a volume type"))
    return causes


def default_claim(claim: JsonObject) -> None:
    """A file system, waiting for a volume."""
    claim["spec"].setdefault("volumeMode", "Filesystem")
    claim["status"] = {**claim["status"]}
    claim["status"].setdefault("phase", "Pending")


def prepare_claim(claim: JsonObject, cluster: Reader) -> None:
    """A new claim is protected; one without a class gets the default class."""
    if claim["spec"].get("storageClassName") is None:
        defaults = [
            each
            for each in cluster.all(STORAGE_CLASSES)
            if (each["metadata"].get("annotations") or EMPTY).get(_DEFAULT_CLASS) == "true"
        ]
        if defaults:
            newest = max(defaults, key=lambda each: each["metadata"]["creationTimestamp"])
            claim["spec"]["storageClassName"] = newest["metadata"]["name"]
    _protect(claim, "kubernetes.io/pvc-protection")


def validate_claim(claim: JsonObject) -> list[Cause]:
    """What is wrong with a claim."""
    causes = []
    if not claim["spec"].get("accessModes"):
        causes.append(required("spec.accessModes", "at least 1 access mode is required"))
    if "storage" not in (claim["spec"]["resources"].get("requests") or EMPTY):
        causes.append(required("spec.resources[storage]"))
    return causes


def validate_claim_update(new: JsonObject, old: JsonObject, subresource: str) -> list[Cause]:
    """Only the binding and the size of a claim may change."""
    if subresource == "status":
        return []
    changed = {
        name
        for name in new["spec"].keys() | old["spec"].keys()
        if new["spec"].get(name) != old["spec"].get(name)
    }
    changed.difference_update(_CLAIM_CHANGES)
    if changed == {"storageClassName"} and "storageClassName" not in old["spec"]:
        return []
    if not changed:
        return []
    text = (
        "spec is immutable after creation except resources.requests and "
        "volumeAttributesClassName for bound claims"
    )
    return [forbidden_field("spec", text)]


def default_storage_class(storage_class: JsonObject) -> None:
    """Volumes are deleted with their claims and bound at once."""
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def validate_storage_class(storage_class: JsonObject) -> list[Cause]:
    """What is wrong with a class."""
    return [] if storage_class["provisioner"] else [required("provisioner")]


def validate_storage_class_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> list[Cause]:
    """What of a class may not change."""
    names = ("provisioner", "reclaimPolicy", "volumeBindingMode")
    return [
        bad_value(name, new[name], "field is immutable") for name in names if new[name] != old[name]
    ]


def default_csi_driver(driver: JsonObject) -> None:
    """What a driver is unless it says otherwise."""
    spec = driver["spec"]
    spec.setdefault("attachRequired", True)
    for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(name, False)
    spec.setdefault("volumeLifecycleModes", ["Persistent"])
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")


def _protect(obj: JsonObject, finalizer: str) -> None:
    metadata = obj["metadata"]
    finalizers = metadata.get("finalizers") or []
    if finalizer not in finalizers:
        metadata["finalizers"] = [*finalizers, finalizer]
