"""The claims of a pod's volumes, and the volumes that overlays use or free.

The volume plugins ask. Invariant: every text is kube-scheduler's.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from stellwerk.framework.events import ClusterChange, QueueingHint, queue_if
from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod import PodInfo
from stellwerk.models.volumes import (
    BIND_COMPLETED,
    CLAIM,
    EPHEMERAL,
    PodVolume,
    UsageKey,
    storage_class_name,
)
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject

BY_NAME: Final = frozenset({CLAIM})
"""Volumes that name a claim."""
ANY_CLAIM: Final = frozenset({CLAIM, EPHEMERAL})
"""Also those whose claim is made for the pod."""


def claim_volumes(pod: PodInfo, kinds: frozenset[str] = ANY_CLAIM) -> Iterator[PodVolume]:
    """The pod's volumes that use a claim."""
    return (volume for volume in pod.details.volumes if volume.kind in kinds)


def find_claim(objects: ObjectStore, pod: PodInfo, volume: PodVolume) -> JsonObject | None:
    """The claim that a volume of the pod uses."""
    return objects.get("PersistentVolumeClaim", pod.namespace, volume.claim_name)


def is_fully_bound(claim: JsonObject) -> bool:
    """Whether the claim has a volume and the controller has confirmed it."""
    annotations = claim["metadata"].get("annotations") or {}
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations


def reach_labels(objects: ObjectStore, claims: Iterable[JsonObject]) -> frozenset[str]:
    """The labels of nodes that say who reaches the volumes that are to be made for claims.

    As the drivers of their classes have registered them with their nodes. Reads every CSINode.
    """
    names = {storage_class_name(claim) for claim in claims if not is_fully_bound(claim)}
    classes = (objects.get("StorageClass", "", name) for name in names)
    drivers = {str(each.get("provisioner")) for each in classes if each is not None}
    if not drivers:
        return frozenset()
    return frozenset(
        str(key)
        for csi_node in objects.list("CSINode")
        for driver in (csi_node.get("spec") or {}).get("drivers") or ()
        if driver.get("name") in drivers
        for key in driver.get("topologyKeys") or ()
    )


def not_found(resource: str, name: str) -> str:
    """The API's words for an object that is not there; `resource` in lower case, singular."""
    return f'{resource} "{name}" not found'


def foreign_claim(pod: PodInfo, claim: JsonObject) -> str:
    """The reason against the claim of an ephemeral volume; empty if it was made for the pod.

    Source: ephemeral.VolumeIsForPod.
    """
    metadata = claim["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if any(owner.get("controller") and owner.get("uid") == pod.uid for owner in owners):
        return ""
    return (
        f"PVC {metadata.get('namespace')}/{metadata['name']} was not created for pod {pod.key} "
        "(pod is not owner)"
    )


def overlay_uses(nodes: NodeView) -> Iterator[tuple[int, Sequence[UsageKey], int]]:
    """(position, keys, +1 or −1) of pods with volumes that the view's overlay adds or removes."""
    if nodes.overlay is None:
        return
    for position, pod, change in nodes.overlay.changes():
        if pod.volumes:
            keys = [key for volume in pod.volumes for key in volume.usage_keys(pod.namespace)]
            yield position, keys, change


def uses_own_claim(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the claim is one of the pod's, those of ephemeral volumes included."""
    return queue_if(_uses(pod, change, ANY_CLAIM))


def uses_named_claim(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the claim is one that the pod names."""
    return queue_if(_uses(pod, change, BY_NAME))


def _uses(pod: PodInfo, change: ClusterChange, kinds: frozenset[str]) -> bool:
    if not isinstance(change.new, dict):
        return True
    metadata = change.new["metadata"]
    return metadata.get("namespace") == pod.namespace and any(
        volume.claim_name == metadata["name"] for volume in claim_volumes(pod, kinds)
    )
