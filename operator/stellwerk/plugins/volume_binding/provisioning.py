"""Volumes that are still to be made: where a class may provide them, and where there is room.

`binder` calls it for claims that no existing volume serves. Invariant: a driver that does
not publish its capacity has room everywhere.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.plugins.volume_binding.accessible_nodes import (
    AccessibleNodes,
    AccessibleNodesBySelector,
    joined,
)
from stellwerk.snapshot.columns import ChangeCursor, IntColumn, Mask
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import whole_units
from stellwerk_kube.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    parse_label_selector,
)

_KIND: Final = "CSIStorageCapacity"
MAX_PERCENT_BYTES: Final = 2**63 // 100 - 1
"""Bytes of which a hundred times as many fit into int64, so that a share in percent is exact."""
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"


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


class StorageCapacities:
    """The largest volume that each class's driver has room for, row by row."""

    def __init__(self, objects: ObjectStore, accessible: AccessibleNodesBySelector) -> None:
        self._objects = objects
        self._accessible = accessible
        self._cursor = ChangeCursor(objects.changes(_KIND))
        self._published: dict[str, _Capacity] = {}
        self._columns: dict[str, IntColumn] = {}
        self._nodes_version = 0

    def roomy(self, nodes: NodeView, claim: JsonObject, storage_class: JsonObject) -> Mask:
        """(n,) bool, True where the driver has room for the claim, or publishes none.

        Source: `hasEnoughCapacity` of v1.36.
        """
        requests = (claim["spec"].get("resources") or {}).get("requests") or {}
        driver = self._objects.get("CSIDriver", "", storage_class.get("provisioner") or "")
        if "storage" not in requests or not (driver and driver["spec"].get("storageCapacity")):
            return np.ones(len(nodes), np.bool_)
        column = self._largest(nodes.snapshot, storage_class["metadata"]["name"])
        room: Mask = nodes.gather(column) >= whole_units(requests["storage"])
        return room

    def accepted(
        self, nodes: NodeView, claim: JsonObject, storage_class: JsonObject
    ) -> IntColumn | None:
        """(n,) int64, bytes of the storage that has room for the claim; −1: none there.

        None: nothing is known of storage for the claim. Of several CSIStorageCapacities with room,
        which upstream takes in no order, the first by namespace and name counts; one that says only
        its largest volume counts as 0.
        """
        requests = (claim["spec"].get("resources") or {}).get("requests") or {}
        driver = self._objects.get("CSIDriver", "", storage_class.get("provisioner") or "")
        if "storage" not in requests or not (driver and driver["spec"].get("storageCapacity")):
            return None
        self._follow()
        self._accessible.refresh(nodes.snapshot)
        wanted, class_name = whole_units(requests["storage"]), storage_class["metadata"]["name"]
        mine = [
            own
            for _, own in sorted(self._published.items(), reverse=True)
            if own.class_name == class_name and own.limit_bytes >= wanted
        ]
        rows, lengths = joined(own.nodes for own in mine)
        column: IntColumn = np.full(nodes.snapshot.size, -1, np.int64)
        # The last one written stays.
        column[rows] = np.repeat(np.array([own.total_bytes for own in mine], np.int64), lengths)
        return nodes.gather(column)

    def _largest(self, snapshot: Snapshot, class_name: str) -> IntColumn:
        """(N,) int64, bytes, −1 where the class has no storage at all."""
        self._follow()
        nodes_version = self._accessible.refresh(snapshot)
        if nodes_version != self._nodes_version:
            self._nodes_version = nodes_version
            self._columns.clear()
        found = self._columns.get(class_name)
        if found is None:
            found = self._columns[class_name] = np.full(snapshot.size, -1, np.int64)
            mine = [own for own in self._published.values() if own.class_name == class_name]
            rows, lengths = joined(own.nodes for own in mine)
            limits: IntColumn = np.array([own.limit_bytes for own in mine], dtype=np.int64)
            np.maximum.at(found, rows, np.repeat(limits, lengths))
        return found

    def _follow(self) -> None:
        """Read the CSIStorageCapacities that changed."""
        if self._cursor.current:
            return
        keys = self._cursor.advance()
        self._columns.clear()
        if keys is None:
            self._published.clear()
            keys = [_key(capacity) for capacity in self._objects.list(_KIND)]
        for key in keys:
            capacity = self._objects.get(_KIND, *key)
            read = self._read(capacity) if capacity is not None else None
            if read is None:
                self._published.pop("/".join(key), None)
            else:
                self._published["/".join(key)] = read

    def _read(self, capacity: JsonObject) -> "_Capacity | None":
        """The capacity, or None if no node may use it or it does not say how much there is."""
        limit_bytes = capacity_limit(capacity)
        topology = parse_label_selector(capacity.get("nodeTopology"))
        if limit_bytes is None or topology is None:
            return None
        terms = (NodeSelectorTerm(topology.requirements),)
        nodes = self._accessible.of(NodeSelector(terms) if topology.requirements else None)
        total_bytes = min(whole_units(capacity.get("capacity") or "0"), MAX_PERCENT_BYTES)
        return _Capacity(capacity["storageClassName"], nodes, limit_bytes, total_bytes)


class _Capacity(NamedTuple):
    """One CSIStorageCapacity."""

    class_name: str
    nodes: AccessibleNodes
    limit_bytes: int
    """Bytes of the largest volume."""
    total_bytes: int
    """Bytes of all that is left; 0: the driver does not say."""


def _key(obj: JsonObject) -> tuple[str, str]:
    return (obj["metadata"].get("namespace") or "", obj["metadata"]["name"])
