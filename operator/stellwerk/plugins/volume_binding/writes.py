"""The writes that a reserved pod's claims need, and the cluster's progress with them.

VolumeBinding's Reserve makes it, PreBind writes it and waits for it. After each event `progress` is
judged again: if a claim or a volume is deleted or bound otherwise meanwhile, if the node has gone
or cannot reach the volume, or if a provisioner has given the node up, the binding fails, and the
pod is tried again. What was written stays written, as upstream. Invariant: the objects are copies
of what the API showed, with the binding added and nothing else changed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from stellwerk.framework.services import ObjectStore
from stellwerk.plugins.shared.volume_claims import is_fully_bound, not_found
from stellwerk.plugins.volume_binding.binder import SELECTED_NODE, is_migrated, reachable_by
from stellwerk.plugins.volume_binding.volume_pools import claim_uid
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo

_BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


@dataclass(frozen=True, slots=True)
class BindingProgress:
    """The state of a binding."""

    bound: bool = False
    failure: str = ""
    """The reason for which it will come to nothing; empty while there is hope."""


_WAITING: Final = BindingProgress()


@dataclass(slots=True)
class VolumeWrites:
    """Volumes and claims to write, before and after they are written."""

    volumes: list[JsonObject] = field(default_factory=list)
    """Volumes that name their claim."""
    their_claims: list[JsonObject] = field(default_factory=list)
    """The claim of each volume, as it was."""
    claims: list[JsonObject] = field(default_factory=list)
    """Claims that name their node, for which a volume is to be made."""
    awaited: list[JsonObject] = field(default_factory=list)
    """Claims that another pod writes, as they were assumed for it."""

    def __bool__(self) -> bool:
        return bool(self.volumes or self.claims or self.awaited)

    def objects(self) -> Iterator[tuple[str, JsonObject]]:
        """(kind, object) of everything to write."""
        for volume in self.volumes:
            yield "PersistentVolume", volume
        for claim in self.claims:
            yield "PersistentVolumeClaim", claim

    def progress(self, objects: ObjectStore, node: NodeInfo) -> BindingProgress:
        """The cluster's progress with what was written (`checkBindings`)."""
        for volume, claim in zip(self.volumes, self.their_claims, strict=True):
            progress = _static_progress(objects, node, volume, claim)
            if not progress.bound:
                return progress
        for claim in self.claims:
            progress = _provision_progress(objects, node, claim)
            if not progress.bound:
                return progress
        for claim in self.awaited:
            progress = _awaited_progress(objects, node, claim)
            if not progress.bound:
                return progress
        return BindingProgress(bound=True)


def bound_to_claim(volume: JsonObject, claim: JsonObject) -> JsonObject:
    """The volume with a reference to the claim (`GetBindVolumeToClaim`)."""
    metadata, reference = claim["metadata"], volume["spec"].get("claimRef") or {}
    namespace, name, uid = metadata.get("namespace") or "", metadata["name"], claim_uid(claim)
    same_claim = (reference.get("namespace"), reference.get("name")) == (namespace, name)
    annotations = dict(volume["metadata"].get("annotations") or {})
    if not same_claim:
        annotations.setdefault(_BOUND_BY_CONTROLLER, "yes")
    if not same_claim or reference.get("uid") != uid:
        reference = {
            "kind": "PersistentVolumeClaim",
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "apiVersion": "v1",
            "resourceVersion": metadata.get("resourceVersion") or "",
        }
    return {
        **volume,
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": _with_annotations(volume, annotations),
        "spec": {**volume["spec"], "claimRef": reference},
    }


def with_selected_node(claim: JsonObject, node_name: str) -> JsonObject:
    """The claim with the annotation that names to a provisioner the node of its volume."""
    annotations = {**(claim["metadata"].get("annotations") or {}), SELECTED_NODE: node_name}
    return {
        **claim,
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _with_annotations(claim, annotations),
    }


def path_of(obj: JsonObject) -> str:
    """The API path of a volume or claim."""
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace")
    if namespace:
        return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
    return f"/api/v1/persistentvolumes/{name}"


def _with_annotations(obj: JsonObject, annotations: dict[str, str]) -> JsonObject:
    return {**obj["metadata"], "annotations": annotations} if annotations else obj["metadata"]


def _static_progress(
    objects: ObjectStore, node: NodeInfo, written: JsonObject, claim: JsonObject
) -> BindingProgress:
    name, claim_metadata = written["metadata"]["name"], claim["metadata"]
    volume = objects.stored("PersistentVolume", "", name)
    if volume is None:
        return BindingProgress(
            failure=f"failed to check binding: {not_found('persistentvolume', name)}"
        )
    namespace, claim_name = claim_metadata.get("namespace") or "", claim_metadata["name"]
    shown = objects.stored("PersistentVolumeClaim", namespace, claim_name)
    if shown is None:
        missing = not_found("persistentvolumeclaim", claim_name)
        return BindingProgress(failure=f"failed to check binding: {missing}")
    if _is_newer(written, volume):
        return _WAITING
    if failure := _out_of_reach(objects, node, volume):
        return BindingProgress(failure=failure)
    if not (volume["spec"].get("claimRef") or {}).get("uid"):
        return BindingProgress(failure=f'ClaimRef got reset for pv "{name}"')
    return BindingProgress(bound=is_fully_bound(shown))


def _provision_progress(
    objects: ObjectStore, node: NodeInfo, written: JsonObject
) -> BindingProgress:
    name = written["metadata"]["name"]
    namespace = written["metadata"].get("namespace") or ""
    claim = objects.stored("PersistentVolumeClaim", namespace, name)
    if claim is None:
        missing = not_found("persistentvolumeclaim", name)
        return BindingProgress(failure=f"failed to check provisioning pvc: {missing}")
    if _is_newer(written, claim):
        return _WAITING
    annotations = claim["metadata"].get("annotations")
    if not annotations:
        return BindingProgress(failure=f'selectedNode annotation reset for PVC "{name}"')
    if annotations.get(SELECTED_NODE) != node.name:
        # A provisioner that gives up takes the annotation away, for the pod to be scheduled anew.
        return BindingProgress(failure=f'provisioning failed for PVC "{name}"')
    volume = objects.stored("PersistentVolume", "", claim["spec"].get("volumeName") or "")
    if volume is None:
        # Not made yet, or the claim's event has overtaken the volume's.
        return _WAITING
    failure = _out_of_reach(objects, node, volume)
    return BindingProgress(bound=not failure and is_fully_bound(claim), failure=failure)


def _awaited_progress(objects: ObjectStore, node: NodeInfo, assumed: JsonObject) -> BindingProgress:
    """The progress of a claim whose volume is made for another pod, which has chosen its node.

    It comes to nothing where that pod gives up, or where the volume turns out to be out of reach:
    the waiting pod is then scheduled anew, to where the volume is.
    """
    name, namespace = assumed["metadata"]["name"], assumed["metadata"].get("namespace") or ""
    stored = objects.stored("PersistentVolumeClaim", namespace, name)
    shown = objects.get("PersistentVolumeClaim", namespace, name)
    if stored is None or shown is None or claim_uid(stored) != claim_uid(assumed):
        missing = not_found("persistentvolumeclaim", name)
        return BindingProgress(failure=f"failed to check provisioning pvc: {missing}")
    volume_name = stored["spec"].get("volumeName") or ""
    if not volume_name:
        given_up = SELECTED_NODE not in (shown["metadata"].get("annotations") or {})
        failure = f'provisioning failed for PVC "{name}"' if given_up else ""
        return BindingProgress(failure=failure)
    volume = objects.stored("PersistentVolume", "", volume_name)
    if volume is None:
        return _WAITING
    failure = _out_of_reach(objects, node, volume)
    return BindingProgress(bound=not failure and is_fully_bound(stored), failure=failure)


def _out_of_reach(objects: ObjectStore, node: NodeInfo, volume: JsonObject) -> str:
    """The reason for which the node cannot use the volume; empty if it can."""
    migrated = is_migrated(objects.get("CSINode", "", node.name), volume)
    if reachable_by(volume, node.labels, migrated=migrated):
        return ""
    return (
        f'pv "{volume["metadata"]["name"]}" node affinity doesn\'t match node "{node.name}": '
        "no matching NodeSelectorTerms"
    )


def _is_newer(written: JsonObject, shown: JsonObject) -> bool:
    """Whether the watch has yet to show what was written."""
    mine, theirs = (str(obj["metadata"].get("resourceVersion") or "") for obj in (written, shown))
    if mine.isdecimal() and theirs.isdecimal():
        return int(mine) > int(theirs)
    return False
