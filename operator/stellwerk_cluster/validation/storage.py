"""The rules of PersistentVolumes, StorageClasses, CSIDrivers and CSINodes.

Called through their strategies, and by the lines of StorageClass. Invariant: a volume, a driver and
a node's drivers say what they are once; which claim a volume is bound to is left to the clients.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.internal_form import internal_diff, internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import (
    IMMUTABLE,
    MORE_THAN_ONE_SOURCE,
    immutable,
    no_backsteps,
    qualified_name,
    quantity_not_negative,
    subdomain,
    unique,
)
from stellwerk_cluster.validation.claims import VOLUME_MODES, access_mode_errors
from stellwerk_cluster.validation.placement import node_selector_errors
from stellwerk_cluster.validation.pod_volumes import host_path_errors
from stellwerk_cluster.validation.volume_sources import SHARED_SOURCES, csi_driver_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk_kube.json_values import JsonObject

_MAX_PARAMETERS: Final = 512
"""Parameters of a class (`maxProvisionerParameterLen`)."""
_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLE_MODES: Final = ("Ephemeral", "Persistent")
_MAX_NODE_ID_CHARACTERS: Final = 192
"""Characters of the id that a driver gives a node (`csiNodeIDMaxLength`)."""
_RECLAIM_POLICIES: Final = ("Delete", "Recycle", "Retain")


def validate_volume(volume: JsonObject) -> Iterator[FieldError]:
    """Errors of a volume."""
    spec = volume["spec"]
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required("spec.accessModes")
    yield from access_mode_errors(modes, "spec.accessModes")
    yield from _capacity_errors(spec.get("capacity") or EMPTY)
    policy = spec.get("persistentVolumeReclaimPolicy", "")
    if policy and policy not in _RECLAIM_POLICIES:
        yield unsupported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES)
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        if affinity.get("required") is None:
            text = "must specify required node constraints"
            yield required("spec.nodeAffinity.required", text)
        else:
            yield from node_selector_errors(affinity["required"], "spec.nodeAffinity.required")
    yield from _source_errors(spec)
    root = posixpath.normpath((spec.get("hostPath") or EMPTY).get("path", ""))
    if root == "/" and policy == "Recycle":
        text = "may not be 'recycle' for a hostPath mount of '/'"
        yield forbidden_field("spec.persistentVolumeReclaimPolicy", text)
    yield from _class_errors(spec)


def _capacity_errors(capacity: JsonObject) -> Iterator[FieldError]:
    if not capacity:
        yield required("spec.capacity")
    if "storage" not in capacity or len(capacity) > 1:
        yield unsupported("spec.capacity", capacity, ("storage",))
    for name, amount in capacity.items():
        yield from quantity_not_negative(amount, f"spec.capacity[{name}]")
        if amount == "0":
            yield bad_value(f"spec.capacity[{name}]", amount, "must be greater than zero")


def _source_errors(spec: JsonObject) -> Iterator[FieldError]:
    found = False
    for name, source_errors in _SOURCES.items():
        source = spec.get(name)
        if source is None:
            continue
        if found:
            yield forbidden_field(f"spec.{name}", MORE_THAN_ONE_SOURCE)
            continue
        found = True
        yield from source_errors(source, f"spec.{name}")
        if name == "local" and spec.get("nodeAffinity") is None:
            yield required("spec.local.nodeAffinity", "Local volume requires node affinity")
    if not found:
        yield required("spec", "must specify a volume type")


def _class_errors(spec: JsonObject) -> Iterator[FieldError]:
    if spec.get("storageClassName"):
        yield from subdomain(spec["storageClassName"], "spec.storageClassName")
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        yield unsupported("spec.volumeMode", mode, VOLUME_MODES)
    name = spec.get("volumeAttributesClassName")
    if name is not None:
        field = "spec.volumeAttributesClassName"
        if not name:
            yield required(field, "an empty string is disallowed")
        else:
            yield from subdomain(name, field)
        if spec.get("csi") is None:
            text = "has to be specified when using volumeAttributesClassName"
            yield required("spec.csi", text)


def _local(source: JsonObject, field: str) -> Iterator[FieldError]:
    if not source.get("path"):
        yield required(f"{field}.path")
    else:
        yield from no_backsteps(source["path"], f"{field}.path")


def _csi(source: JsonObject, field: str) -> Iterator[FieldError]:
    yield from csi_driver_name(source.get("driver", ""), f"{field}.driver")
    if not source.get("volumeHandle"):
        yield required(f"{field}.volumeHandle")
    for key in (
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
        "nodeStageSecretRef",
    ):
        if source.get(key) is not None:
            for part in ("name", "namespace"):
                if not source[key].get(part):
                    yield required(f"{field}.{key}.{part}")


_SOURCES: Final[dict[str, Callable[[JsonObject, str], Iterator[FieldError]]]] = {
    "hostPath": host_path_errors,
    **{
        name: SHARED_SOURCES[name]
        for name in (
            "gcePersistentDisk",
            "awsElasticBlockStore",
            "glusterfs",
            "flocker",
            "nfs",
            "rbd",
            "quobyte",
            "cephfs",
            "iscsi",
            "cinder",
            "fc",
            "flexVolume",
            "azureFile",
            "vsphereVolume",
            "photonPersistentDisk",
            "portworxVolume",
            "azureDisk",
            "scaleIO",
        )
    },
    "local": _local,
    "storageos": SHARED_SOURCES["storageos"],
    "csi": _csi,
}


def validate_volume_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a volume: where its data is does not change."""
    if subresource:
        return
    yield from validate_volume(new)
    yield from validate_volume(new)
    spec, was = new["spec"], old["spec"]
    source, source_was = (
        {key: each[key] for key in _SOURCES if key in each} for each in (spec, was)
    )
    if "csi" in source and "controllerExpandSecretRef" not in source_was.get("csi", {}):
        kept = {k: v for k, v in source["csi"].items() if k != "controllerExpandSecretRef"}
        source["csi"] = kept
    if source != source_was:
        difference = internal_diff("PersistentVolumeSource", source_was, source)
        text = f"spec.persistentvolumesource is immutable after creation\n{difference}"
        yield forbidden_field("spec.persistentvolumesource", text)
    if spec.get("volumeMode") != was.get("volumeMode"):
        yield bad_value("volumeMode", spec.get("volumeMode"), IMMUTABLE)
    if "nodeAffinity" in was and spec.get("nodeAffinity") != was["nodeAffinity"]:
        shown = internal_form("VolumeNodeAffinity", spec.get("nodeAffinity"))
        yield bad_value("nodeAffinity", shown, IMMUTABLE)
    if "volumeAttributesClassName" in was and spec.get("volumeAttributesClassName") is None:
        text = "update from non-nil value to nil is forbidden"
        yield forbidden_field("spec.volumeAttributesClassName", text)


def provisioner(value: str, field: str, _owner: JsonObject) -> Iterator[FieldError]:
    """The driver of a class, in letters of any size."""
    return qualified_name(value.lower(), field)


def parameters(value: JsonObject, field: str, _owner: JsonObject) -> Iterator[FieldError]:
    """The parameters of a driver; their names are not empty."""
    if len(value) > _MAX_PARAMETERS:
        text = f"Too long: may not be more than {_MAX_PARAMETERS} bytes"
        yield FieldError(field, "FieldValueTooLong", text)
    if "" in value:
        yield bad_value(field, "", "field must not be empty.")


def allowed_topologies(
    terms: list[JsonObject], field: str, _owner: JsonObject
) -> Iterator[FieldError]:
    """Places by their labels; no label and no value twice."""
    for position, term in enumerate(terms):
        keys = set()
        for index, expression in enumerate(term.get("matchLabelExpressions") or ()):
            where = f"{field}[{position}].matchLabelExpressions[{index}]"
            values, key = expression.get("values") or (), expression.get("key", "")
            if not values:
                yield required(f"{where}.values")
            yield from unique(values, f"{where}.values[{{}}]".format)
            yield from qualified_name(key, f"{where}.key")
            if key in keys:
                yield duplicate(f"{where}.key", key)
            keys.add(key)


def validate_csi_driver(driver: JsonObject) -> Iterator[FieldError]:
    """Errors of a driver."""
    spec = driver["spec"]
    yield from csi_driver_name(driver["metadata"].get("name", ""), "metadata.name")
    for mode in spec["volumeLifecycleModes"]:
        if mode not in _LIFECYCLE_MODES:
            yield unsupported("spec.volumeLifecycleModes", mode, _LIFECYCLE_MODES)
    if spec["fsGroupPolicy"] not in _GROUP_POLICIES:
        yield unsupported("spec.fsGroupPolicy", spec["fsGroupPolicy"], _GROUP_POLICIES)
    audiences = set()
    for position, request in enumerate(spec.get("tokenRequests") or ()):
        where, audience = f"spec.tokenRequests[{position}]", request.get("audience", "")
        if audience in audiences:
            yield duplicate(f"{where}.audience", audience)
        audiences.add(audience)
        seconds = request.get("expirationSeconds")
        if seconds is not None and seconds < 600:  # noqa: PLR2004  (ten minutes)
            text = "may not specify a duration less than 10 minutes"
            yield bad_value(f"{where}.expirationSeconds", seconds, text)


def validate_csi_driver_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a driver."""
    yield from validate_csi_driver(new)
    for name in ("attachRequired", "volumeLifecycleModes"):
        yield from immutable(new["spec"].get(name), old["spec"].get(name), f"spec.{name}")


def validate_csi_node(node: JsonObject) -> Iterator[FieldError]:
    """Errors of the drivers of a node."""
    names = set()
    for position, driver in enumerate(node["spec"].get("drivers") or ()):
        where, name = f"spec.drivers[{position}]", driver.get("name", "")
        yield from csi_driver_name(name, f"{where}.name")
        if name in names:
            yield duplicate(f"{where}.name", name)
        names.add(name)
        node_id = driver.get("nodeID", "")
        if not node_id:
            yield required(f"{where}.nodeID")
        if len(node_id) > _MAX_NODE_ID_CHARACTERS:
            text = f"must be {_MAX_NODE_ID_CHARACTERS} characters or less"
            yield bad_value(f"{where}.nodeID", node_id, text)
        count = (driver.get("allocatable") or EMPTY).get("count")
        if count is not None and count < 0:
            text = "must be greater than or equal to 0"
            yield bad_value(f"{where}.allocatable.count", count, text)
        keys = set()
        for key in driver.get("topologyKeys") or ():
            if not key:
                yield required(f"{where}.topologyKeys", "")
            if key in keys:
                yield duplicate(f"{where}.topologyKeys", key)
            keys.add(key)
            yield from qualified_name(key, f"{where}.topologyKeys")


def validate_csi_node_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """A driver that is there may become countable, and goes; it does not change otherwise."""
    yield from validate_csi_node(new)
    drivers = {each.get("name"): each for each in new["spec"].get("drivers") or ()}
    for driver in old["spec"].get("drivers") or ():
        same = drivers.get(driver.get("name"))
        if same is not None and {**same, "allocatable": None} != {**driver, "allocatable": None}:
            yield bad_value("CSINodeDriver", same, IMMUTABLE)
