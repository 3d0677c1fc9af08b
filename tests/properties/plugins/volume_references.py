"""The volume plugins once more, one node at a time and without memory, as plainly as can be.

Property tests hold the array functions against these. Objects are as in the API; `None` means that
the node fits.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from stellwerk.models.pod import PodInfo
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import parse_quantity
from stellwerk_kube.selectors import parse_label_selector, parse_node_selector

Objects = Mapping[str, Mapping[str, JsonObject]]
"""Kind → name → object; claims are all in namespace default."""

DISK = "node(s) had no available disk"
AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
NO_MATCH = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
EXCEEDED = "node(s) exceed max volume count"
ELSEWHERE = "node(s) had no available volume zone"


def disk_conflict(pod: PodInfo, on_node: Iterable[PodInfo]) -> bool:
    """VolumeRestrictions: any pair of volumes that exclude each other."""
    return any(
        _exclude(mine.kind, mine.source, theirs.source)
        for mine in pod.volumes
        for other in on_node
        for theirs in other.volumes
        if mine.kind == theirs.kind
    )


def _exclude(kind: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    both_read = bool(a.get("readOnly") and b.get("readOnly"))
    match kind:
        case "gcePersistentDisk":
            return bool(a["pdName"] == b["pdName"] and not both_read)
        case "awsElasticBlockStore":
            return bool(a["volumeID"] == b["volumeID"])
        case "iscsi":
            return bool(a["iqn"] == b["iqn"] and not both_read)
        case "rbd":
            shared = set(a["monitors"]) & set(b["monitors"])
            same = (a.get("pool"), a["image"]) == (b.get("pool"), b["image"])
            return bool(shared and same and not both_read)
        case _:
            return False


def zone_conflict(volumes: Iterable[JsonObject], labels: Mapping[str, str]) -> bool:
    """VolumeZone: some topology label of some volume does not hold on the node."""
    keys = {
        f"{prefix}/{level}": f"topology.kubernetes.io/{level}"
        for prefix in ("failure-domain.beta.kubernetes.io", "topology.kubernetes.io")
        for level in ("zone", "region")
    }
    if not keys.keys() & labels.keys():
        return False
    for volume in volumes:
        for key, newer in keys.items():
            wanted = volume["metadata"].get("labels", {}).get(key)
            if wanted is not None:
                value = labels.get(key, labels.get(newer))
                if value not in [part.strip() for part in wanted.split("__")]:
                    return True
    return False


def attached_ids(objects: Objects, pods: Iterable[PodInfo]) -> set[tuple[str, str]]:
    """(driver, handle) of the claims that pods use."""
    found = set()
    for pod in pods:
        for volume in pod.volumes:
            claim = objects["PersistentVolumeClaim"].get(volume.claim_name)
            if claim is None:
                continue
            bound = objects["PersistentVolume"].get(claim["spec"].get("volumeName", ""))
            storage_class = objects["StorageClass"].get(claim["spec"]["storageClassName"])
            if bound is not None:
                if "csi" in bound["spec"]:
                    found.add(
                        (bound["spec"]["csi"]["driver"], bound["spec"]["csi"]["volumeHandle"])
                    )
            elif storage_class is not None:
                found.add((storage_class["provisioner"], f"unbound {volume.claim_name}"))
    return found


def exceeds_limits(
    objects: Objects, pod: PodInfo, node_name: str, on_node: Iterable[PodInfo]
) -> bool:
    """NodeVolumeLimits: count everything anew."""
    csi_node = objects["CSINode"].get(node_name)
    if csi_node is None:
        return False
    used = attached_ids(objects, on_node)
    new = attached_ids(objects, [pod]) - used
    attached = set(used)
    for attachment in objects["VolumeAttachment"].values():
        spec = attachment["spec"]
        volume = objects["PersistentVolume"].get(spec["source"]["persistentVolumeName"])
        if spec["nodeName"] == node_name and volume is not None and "csi" in volume["spec"]:
            attached.add((spec["attacher"], volume["spec"]["csi"]["volumeHandle"]))
    for driver in csi_node["spec"]["drivers"]:
        wanted = sum(1 for item in new if item[0] == driver["name"])
        there = sum(1 for item in attached if item[0] == driver["name"])
        limit = driver.get("allocatable", {}).get("count")
        if limit is not None and wanted and there + wanted > limit:
            return True
    return False


def binding_reasons(
    objects: Objects, claims: Iterable[JsonObject], node_name: str, labels: Mapping[str, str]
) -> list[str]:
    """VolumeBinding: the reasons against one node, in kube-scheduler's order."""
    claims = list(claims)
    reasons = []
    for claim in claims:
        if "volumeName" in claim["spec"]:
            volume = objects["PersistentVolume"].get(claim["spec"]["volumeName"])
            if volume is None or not _reachable(volume, labels):
                reasons.append(NO_VOLUME if volume is None else AFFINITY)
                break
    unbound = [claim for claim in claims if "volumeName" not in claim["spec"]]
    reason = _unbound_reason(objects, unbound, node_name, labels)
    if reason:
        reasons.append(reason)
    return sorted(reasons, key=[AFFINITY, NO_MATCH, NO_SPACE, NO_VOLUME].index)


def _unbound_reason(
    objects: Objects, claims: list[JsonObject], node_name: str, labels: Mapping[str, str]
) -> str:
    to_provide: list[JsonObject] = []
    to_match: list[JsonObject] = []
    for claim in claims:
        selected = claim["metadata"]["annotations"].get("volume.kubernetes.io/selected-node")
        if selected not in {None, node_name}:
            return NO_MATCH
        (to_match if selected is None else to_provide).append(claim)
    chosen: set[str] = set()
    for claim in sorted(to_match, key=_request):
        volume = find_matching_volume(objects, claim, labels, chosen)
        if volume is None:
            to_provide.append(claim)
        else:
            chosen.add(volume["metadata"]["name"])
    for claim in to_provide:
        reason = _provision_reason(objects, claim, labels)
        if reason:
            return reason
    return ""


def find_matching_volume(
    objects: Objects, claim: JsonObject, labels: Mapping[str, str], chosen: set[str]
) -> JsonObject | None:
    """The volume that names the claim, or the smallest one that suits it."""
    best = None
    for volume in objects["PersistentVolume"].values():
        spec, reference = volume["spec"], volume["spec"].get("claimRef")
        if (
            volume["metadata"]["name"] in chosen
            or spec["storageClassName"] != claim["spec"]["storageClassName"]
            or (reference is not None and reference["name"] != claim["metadata"]["name"])
            or _capacity(volume) < _request(claim)
        ):
            continue
        if reference is not None:
            return volume if _reachable(volume, labels) else None
        selector = parse_label_selector(claim["spec"].get("selector"))
        if (
            volume["status"]["phase"] == "Available"
            and (selector is None or selector.matches(volume["metadata"]["labels"]))
            and _reachable(volume, labels)
            and set(claim["spec"]["accessModes"]) <= set(spec["accessModes"])
            and (best is None or _capacity(best) > _capacity(volume))
        ):
            best = volume
    return best


def _provision_reason(objects: Objects, claim: JsonObject, labels: Mapping[str, str]) -> str:
    storage_class = objects["StorageClass"][claim["spec"]["storageClassName"]]
    if storage_class["provisioner"] in {"", "kubernetes.io/no-provisioner"}:
        return NO_MATCH
    terms = storage_class.get("allowedTopologies")
    if terms and not any(
        all(labels.get(e["key"]) in e["values"] for e in term["matchLabelExpressions"])
        for term in terms
    ):
        return NO_MATCH
    driver = objects["CSIDriver"].get(storage_class["provisioner"])
    if driver is None or not driver["spec"]["storageCapacity"]:
        return ""
    for capacity in objects["CSIStorageCapacity"].values():
        selector = parse_label_selector(capacity["nodeTopology"])
        if (
            capacity["storageClassName"] == storage_class["metadata"]["name"]
            and parse_quantity(capacity["capacity"]) >= _request(claim)
            and selector is not None
            and selector.matches(labels)
        ):
            return ""
    return NO_SPACE


def _reachable(volume: JsonObject, labels: Mapping[str, str]) -> bool:
    affinity = volume["spec"].get("nodeAffinity")
    selector = parse_node_selector(affinity and affinity["required"])
    return selector is None or selector.matches(labels, "")


def _capacity(volume: JsonObject) -> Fraction:
    return parse_quantity(volume["spec"]["capacity"]["storage"])


def _request(claim: JsonObject) -> Fraction:
    return parse_quantity(claim["spec"]["resources"]["requests"]["storage"])
