"""Volumes that are still to be made: where a class may provide them, and where there is room.

`volume_binder` calls it for claims that no existing volume serves. Invariant: a driver that does
not publish its capacity has room everywhere.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from stellwerk.framework.interface import JsonObject, ObjectStore
from stellwerk.models.quantity import whole_units
from stellwerk.models.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    parse_label_selector,
)
from stellwerk.plugins.node_matching import matching_nodes, matching_term
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.node_view import NodeView

_NO_PROVISIONER = "kubernetes.io/no-provisioner"


def capacity_limit(capacity: JsonObject) -> int | None:
    """The largest volume in bytes that a CSIStorageCapacity has room for; None: it does not say."""
    limit = capacity.get("maximumVolumeSize") or capacity.get("capacity")
    return None if limit is None else whole_units(limit)


def provisionable(nodes: NodeView, storage_class: JsonObject | None) -> Mask:
    """(n,) bool, True where the class has a provisioner that may make volumes for the node."""
    provisioner = (storage_class or {}).get("provisioner")
    if not provisioner or provisioner == _NO_PROVISIONER:
        return np.zeros(len(nodes), np.bool_)
    terms = (storage_class or {}).get("allowedTopologies")
    if not terms:
        return np.ones(len(nodes), np.bool_)
    return matching_nodes(nodes, NodeSelector(tuple(_topology_terms(terms))))


def _topology_terms(terms: Iterable[JsonObject]) -> Iterator[NodeSelectorTerm]:
    for term in terms:
        yield NodeSelectorTerm(
            tuple(
                Requirement(item["key"], "In", frozenset(item.get("values") or ()))
                for item in term.get("matchLabelExpressions") or ()
            )
        )


def roomy(
    objects: ObjectStore, nodes: NodeView, claim: JsonObject, storage_class: JsonObject
) -> Mask:
    """(n,) bool, True where the driver has room for the claim, or does not tell.

    Source: `hasEnoughCapacity` of v1.36.
    """
    everywhere: Mask = np.ones(len(nodes), np.bool_)
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    driver = objects.get("CSIDriver", "", storage_class.get("provisioner") or "")
    if "storage" not in requests or not (driver and driver["spec"].get("storageCapacity")):
        return everywhere
    size_bytes = whole_units(requests["storage"])
    room = ~everywhere
    class_name = storage_class["metadata"]["name"]
    for capacity in objects.list_by("CSIStorageCapacity", "storageClassName", class_name):
        limit_bytes = capacity_limit(capacity)
        selector = parse_label_selector(capacity.get("nodeTopology"))
        if limit_bytes is None or limit_bytes < size_bytes or selector is None:
            continue
        if not selector.requirements:
            return everywhere
        room |= matching_term(nodes, NodeSelectorTerm(selector.requirements))
    return room
