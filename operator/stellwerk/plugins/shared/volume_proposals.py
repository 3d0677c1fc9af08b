"""Changes that may help against a rejection for volumes.

VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits propose them; what two of them
propose is one change.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from stellwerk.framework.changes import Change, EditPod, PodPart, SetLabels
from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.label_changes import LabelChanges, label_changes
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.selectors import NodeSelector, parse_node_selector

_MAX_VOLUMES_LEFT_OUT: Final = 4
"""Volumes that are left out one by one to see which of them is in the way."""


def without_volumes(pod: PodInfo) -> Iterator[Change]:
    """The pod without one of its volumes."""
    for volume in pod.volumes[:_MAX_VOLUMES_LEFT_OUT]:
        claim = f" (claim {volume.claim_name})" if volume.claim_name else ""
        words = f"do without volume {volume.name}{claim}"
        yield EditPod(words, _without_volume(volume.name), PodPart.NEEDS)


def volume_labels(objects: ObjectStore, pod: PodInfo, node: NodeInfo) -> Iterator[Change]:
    """The labels that the pod's bound volumes ask of their nodes."""
    needed: LabelChanges = {}
    for required in _volume_affinities(objects, pod):
        if not required.matches(node.labels, node.name):
            option = next(label_changes(required, node), None)
            if option is None:
                return
            needed |= option
    if needed:
        yield SetLabels(node.name, tuple(needed.items()))


def _volume_affinities(objects: ObjectStore, pod: PodInfo) -> Iterator[NodeSelector]:
    for volume in pod.volumes:
        if not volume.claim_name:
            continue
        claim = objects.get("PersistentVolumeClaim", pod.namespace, volume.claim_name)
        name = ((claim or {}).get("spec") or {}).get("volumeName")
        bound = objects.get("PersistentVolume", "", name) if name else None
        affinity = ((bound or {}).get("spec") or {}).get("nodeAffinity") or {}
        required = parse_node_selector(affinity.get("required"))
        if required is not None:
            yield required


def _without_volume(name: str) -> Callable[[PodInfo], PodInfo]:
    def edit(pod: PodInfo) -> PodInfo:
        left = tuple(each for each in pod.volumes if each.name != name)
        return replace(pod, details=replace(pod.details, volumes=left))

    return edit
