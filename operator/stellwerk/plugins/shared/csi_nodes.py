"""The nodes whose CSINode names something, as masks over rows.

VolumeBinding asks for plugins that were migrated, NodeVolumeLimits for drivers that are installed.
Invariant: CSINodes are read anew when one has changed, rows when nodes came, went or moved.
"""

from collections.abc import Callable, Iterable
from typing import Final

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.snapshot.columns import ChangeCursor, Mask
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject


class CSINodeRows:
    """Masks of the nodes whose CSINode has a name, by the name."""

    def __init__(
        self, objects: ObjectStore, names_of: Callable[[JsonObject], Iterable[str]]
    ) -> None:
        """`names_of`: the names that a CSINode has."""
        self._objects: Final = objects
        self._names_of: Final = names_of
        self._csi_nodes = ChangeCursor(objects.changes("CSINode"))
        self._nodes: ChangeCursor[int] | None = None
        self._node_names: dict[str, set[str]] = {}
        self._rows: dict[str, Mask] = {}

    def mask(self, nodes: NodeView, name: str) -> Mask:
        """(n,) bool, True where the CSINode has the name."""
        if not self._csi_nodes.current:
            self._csi_nodes.catch_up()
            self._read()
            self._rows.clear()
        if self._nodes is None or self._nodes.changes is not nodes.snapshot.node_changes:
            self._nodes = ChangeCursor(nodes.snapshot.node_changes)
        if not self._nodes.current:
            self._nodes.catch_up()
            self._rows.clear()
        found = self._rows.get(name)
        if found is None:
            row_of = nodes.snapshot.row_of
            found = self._rows[name] = np.zeros(nodes.snapshot.size, np.bool_)
            having = self._node_names.get(name, ())
            found[[row_of[node] for node in having if node in row_of]] = True
        return nodes.gather(found)

    def _read(self) -> None:
        self._node_names.clear()
        for csi_node in self._objects.list("CSINode"):
            for name in self._names_of(csi_node):
                self._node_names.setdefault(name, set()).add(csi_node["metadata"]["name"])
