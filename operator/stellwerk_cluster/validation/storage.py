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
from stellwerk_cluster.validation.checks import IMMUTABLE, immutable, qualified_name, unique
from stellwerk_cluster.validation.volume_sources import csi_driver_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_MOST_PARAMETERS: Final = 512
_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_LIFECYCLE_MODES: Final = ("Ephemeral", "Persistent")
_LONGEST_NODE_ID: Final = 192


def provisioner(value: str, field: str, _owner: JsonObject) -> Iterator[FieldError]:
    """The driver of a class, in letters of any size."""
    return qualified_name(value.lower(), field)


def parameters(value: JsonObject, field: str, _owner: JsonObject) -> Iterator[FieldError]:
    """The parameters of a driver; their names are not empty."""
    if len(value) > _MOST_PARAMETERS:
        text = f"Too long: may not be more than {_MOST_PARAMETERS} bytes"
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
