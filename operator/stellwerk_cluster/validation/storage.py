"""The rules of StorageClasses, CSIDrivers and CSINodes.

Called through their strategies. Invariant: a driver, a class and a node's drivers say what they are
once; what they are does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import IMMUTABLE, immutable, qualified_name
from stellwerk_cluster.validation.volume_sources import csi_driver_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_RECLAIM_POLICIES: Final = ("Delete", "Retain")
_BINDING_MODES: Final = ("Immediate", "WaitForFirstConsumer")
_MOST_PARAMETERS: Final = 512
_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLE_MODES: Final = ("Ephemeral", "Persistent")
_LONGEST_NODE_ID: Final = 192


def validate_storage_class(storage_class: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a class."""
    provisioner = storage_class["provisioner"]
    if not provisioner:
        yield required("provisioner")
    else:
        yield from qualified_name(provisioner.lower(), "provisioner")
    parameters = storage_class.get("parameters") or EMPTY
    if len(parameters) > _MOST_PARAMETERS:
        text = f"Too long: may not be more than {_MOST_PARAMETERS} bytes"
        yield FieldError("parameters", "FieldValueTooLong", text)
    if "" in parameters:
        yield bad_value("parameters", "", "field must not be empty.")
    policy, mode = storage_class["reclaimPolicy"], storage_class["volumeBindingMode"]
    if policy not in _RECLAIM_POLICIES:
        yield unsupported("reclaimPolicy", policy, _RECLAIM_POLICIES)
    if mode not in _BINDING_MODES:
        yield unsupported("volumeBindingMode", mode, _BINDING_MODES)
    yield from _topology_errors(storage_class.get("allowedTopologies") or ())


def _topology_errors(terms: list[JsonObject] | tuple[()]) -> Iterator[FieldError]:
    for position, term in enumerate(terms):
        keys = set()
        for index, expression in enumerate(term.get("matchLabelExpressions") or ()):
            where = f"allowedTopologies[{position}].matchLabelExpressions[{index}]"
            values, key = expression.get("values") or (), expression.get("key", "")
            if not values:
                yield required(f"{where}.values")
            seen = set()
            for place, value in enumerate(values):
                if value in seen:
                    yield duplicate(f"{where}.values[{place}]", value)
                seen.add(value)
            yield from qualified_name(key, f"{where}.key")
            if key in keys:
                yield duplicate(f"{where}.key", key)
            keys.add(key)


def validate_storage_class_update(
    new: JsonObject, old: JsonObject, _subresource: str
) -> Iterator[FieldError]:
    """What of a class may not change."""
    yield from validate_storage_class(new)
    for name in ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"):
        yield from immutable(new.get(name), old.get(name), name)


def validate_csi_driver(driver: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a driver."""
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
    """What of a driver may not change."""
    yield from validate_csi_driver(new)
    for name in ("attachRequired", "volumeLifecycleModes"):
        yield from immutable(new["spec"].get(name), old["spec"].get(name), f"spec.{name}")


def validate_csi_node(node: JsonObject) -> Iterator[FieldError]:
    """What is wrong with the drivers of a node."""
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
        if len(node_id) > _LONGEST_NODE_ID:
            text = f"must be {_LONGEST_NODE_ID} characters or less"
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
