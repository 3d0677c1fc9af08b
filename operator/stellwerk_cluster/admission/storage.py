"""DefaultStorageClass, StorageObjectInUseProtection and PersistentVolumeClaimResize.

Called through the strategies of claims and volumes. Invariant: a volume or claim that is protected
is released by its controller alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.quantity import parse_quantity
from stellwerk_cluster.apimachinery.failures import forbidden
from stellwerk_cluster.apimachinery.objects import EMPTY, timestamp

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader

STORAGE_CLASSES: Final = "storageclasses.storage.k8s.io"
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


def prepare_claim(claim: JsonObject, cluster: Reader) -> None:
    """A new claim is protected; one without a class gets the default class."""
    if cluster.enabled("DefaultStorageClass") and claim["spec"].get("storageClassName") is None:
        defaults = [
            each
            for each in cluster.all(STORAGE_CLASSES)
            if (each["metadata"].get("annotations") or EMPTY).get(_DEFAULT_CLASS) == "true"
        ]
        if defaults:
            # The newest; of several of one second, the first by name.
            ordered = sorted(defaults, key=lambda each: each["metadata"]["name"])
            newest = max(ordered, key=lambda each: each["metadata"]["creationTimestamp"])
            claim["spec"]["storageClassName"] = newest["metadata"]["name"]
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
