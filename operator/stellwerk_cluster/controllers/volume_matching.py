"""The match of PersistentVolumes and claims, and the volume a provisioner would make.

Used by `persistent_volume_binder`; pure functions. Invariant: of the volumes that suit, the
smallest is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, labels_of, meta
from stellwerk_kube.quantity import parse_quantity
from stellwerk_kube.selectors import parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from stellwerk_kube.json_values import JsonObject

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"


def size_of(claim: JsonObject) -> Fraction:
    """The storage that a claim asks for."""
    requests = (claim["spec"].get("resources") or EMPTY).get("requests") or EMPTY
    return parse_quantity(requests.get("storage", "0"))


def class_of(obj: JsonObject) -> str:
    """The storage class of a claim or a volume; empty: none."""
    return str(obj["spec"].get("storageClassName") or "")


def refers_to(volume: JsonObject, claim: JsonObject) -> bool:
    """Whether a volume is bound to, or kept for, this claim."""
    reference = volume["spec"].get("claimRef") or EMPTY
    metadata = claim["metadata"]
    return (
        reference.get("name") == metadata["name"]
        and reference.get("namespace") == metadata["namespace"]
        and reference.get("uid", metadata["uid"]) in ("", metadata["uid"])
    )


def suits(volume: JsonObject, claim: JsonObject) -> bool:
    """Whether a volume has the size, modes, class and labels that a claim asks for."""
    spec, wanted = volume["spec"], claim["spec"]
    capacity = parse_quantity((spec.get("capacity") or EMPTY).get("storage", "0"))
    selector = parse_label_selector(wanted.get("selector") or {})
    return (
        capacity >= size_of(claim)
        and class_of(volume) == class_of(claim)
        and set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and spec.get("volumeMode", "Filesystem") == wanted.get("volumeMode", "Filesystem")
        and selector is not None
        and selector.matches(labels_of(volume))
    )


def best_volume(volumes: Iterable[JsonObject], claim: JsonObject) -> JsonObject | None:
    """The volume kept for the claim, else the smallest free one that suits it."""
    free = []
    for volume in volumes:
        if is_terminating(volume):
            continue
        if volume["spec"].get("claimRef"):
            if refers_to(volume, claim) and suits(volume, claim):
                return volume
        elif suits(volume, claim):
            free.append(volume)
    return min(free, key=_capacity_and_name, default=None)


def _capacity_and_name(volume: JsonObject) -> tuple[Fraction, str]:
    capacity = (volume["spec"].get("capacity") or EMPTY).get("storage", "0")
    return parse_quantity(capacity), volume["metadata"]["name"]


def claim_reference(claim: JsonObject) -> JsonObject:
    """The reference by which a volume names its claim."""
    metadata = claim["metadata"]
    return {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


_OF_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})
"""The access modes of volumes that several nodes may use at once."""


def provisioned_volume(
    claim: JsonObject, storage_class: JsonObject, node: JsonObject | None
) -> JsonObject:
    """A volume as the provisioner of a class would make it.

    It is in the zone of the chosen node, unless many nodes may use it.
    """
    name, spec = f"pvc-{claim['metadata']['uid']}", claim["spec"]
    provisioner = storage_class["provisioner"]
    driver = provisioner.rpartition("/")[2] or provisioner
    volume: JsonObject = {
        "metadata": {"name": name, "annotations": {PROVISIONED_BY: provisioner}},
        "spec": {
            "accessModes": list(spec["accessModes"]),
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "claimRef": claim_reference(claim),
            "csi": {"driver": driver, "volumeHandle": name},
            "persistentVolumeReclaimPolicy": storage_class.get("reclaimPolicy", "Delete"),
            "storageClassName": storage_class["metadata"]["name"],
            "volumeMode": spec.get("volumeMode", "Filesystem"),
        },
    }
    if storage_class.get("mountOptions"):
        volume["spec"]["mountOptions"] = storage_class["mountOptions"]
    # Volumes that many nodes may use are file systems on a network, which every zone reaches.
    is_shared = not _OF_MANY_NODES.isdisjoint(spec["accessModes"])
    terms = _topology(storage_class, None if is_shared else node)
    if terms:
        volume["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return volume


def _topology(storage_class: JsonObject, node: JsonObject | None) -> list[JsonObject]:
    """The topology of the volume: the zone of the node, else where the class allows."""
    zone = labels_of(node).get(ZONE_LABEL) if node else None
    if zone:
        expression = {"key": ZONE_LABEL, "operator": "In", "values": [zone]}
        return [{"matchExpressions": [expression]}]
    return [
        {
            "matchExpressions": [
                {"key": each["key"], "operator": "In", "values": each["values"]}
                for each in term.get("matchLabelExpressions") or ()
            ]
        }
        for term in storage_class.get("allowedTopologies") or ()
    ]


def is_provisioned(volume: JsonObject) -> bool:
    """Whether a provisioner made the volume, which can then also delete it."""
    return PROVISIONED_BY in (meta(volume).get("annotations") or EMPTY)
