"""Slices that name no node: which of them each node sees, found out for all nodes at once.

`inventory` has one. Invariant: the rows of a group see the same slices, so that pools of a thousand
devices in the network are gathered once, and not once per node.
"""

from typing import Final, TypeAlias

import numpy as np

from stellwerk.models.resource_slice import Reach, Slice
from stellwerk.models.selectors import NodeSelector
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.snapshot.columns import Mask, RowCursor
from stellwerk.snapshot.snapshot import NodeView, Snapshot

Group: TypeAlias = tuple[Slice, ...]
"""The slices that some nodes see."""
_ReachKey: TypeAlias = tuple[str, bool, NodeSelector | None]

_MOST_ROWS: Final = 64
"""So many changed rows are looked at one by one."""


class SharedSlices:
    """The slices, and the group of each row."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Follow the nodes of a snapshot."""
        self._snapshot = snapshot
        self._rows = RowCursor(snapshot, snapshot.node_changes)
        self._slices: dict[str, Slice] = {}
        self._groups: dict[Group, Group] = {}
        self._group_of: list[Group] = []

    def put(self, each: Slice) -> None:
        """A slice is there, or changed."""
        self._slices[each.name] = each
        self._group_of = []

    def remove(self, name: str) -> None:
        """A slice is gone; idempotent."""
        if self._slices.pop(name, None) is not None:
            self._group_of = []

    def seen_by(self, row: int) -> Group:
        """The slices for the node of a row; one object for all rows that see the same."""
        if not self._slices:
            return ()
        if not self._rows.current or not self._group_of:
            self._refresh()
        return self._group_of[row]

    def _refresh(self) -> None:
        changed = self._rows.changed(_MOST_ROWS)
        self._rows.catch_up()
        if changed is None or not self._group_of:
            self._divide()
            return
        for row in changed:
            node = self._snapshot.nodes[row]
            slices = () if node is None else self._slices.values()
            seen = tuple(each for each in slices if node is not None and each.includes(node))
            self._group_of[row] = self._groups.setdefault(seen, seen)

    def _divide(self) -> None:
        """Find the rows that see the same."""
        slices = list(self._slices.values())
        masks: dict[_ReachKey, Mask] = {}
        seen = np.array([self._seeing(each, masks) for each in slices])
        packed = np.ascontiguousarray(np.packbits(seen, axis=0).T)
        patterns = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, first, group_of = np.unique(patterns, return_index=True, return_inverse=True)
        groups: list[Group] = [
            tuple([slices[number] for number in np.flatnonzero(seen[:, row]).tolist()])
            for row in first.tolist()
        ]
        self._groups = {group: group for group in groups}
        self._group_of = [groups[number] for number in group_of.ravel().tolist()]

    def _seeing(self, each: Slice, masks: dict[_ReachKey, Mask]) -> Mask:
        """(N,) bool, the rows that a slice is for."""
        seeing: Mask = np.zeros(self._snapshot.size, np.bool_)
        for reach in each.reaches:
            key = reach.node_name, reach.all_nodes, reach.selector
            found = masks.get(key)
            if found is None:
                found = masks[key] = self._included(reach)
            seeing |= found
        return seeing

    def _included(self, reach: Reach) -> Mask:
        """(N,) bool, the rows that are among the nodes."""
        included: Mask = np.zeros(self._snapshot.size, np.bool_)
        if reach.node_name:
            row = self._snapshot.row_of.get(reach.node_name)
            if row is not None:
                included[row] = True
        elif reach.all_nodes:
            included[:] = True
        elif reach.selector is not None:
            included = matching_nodes(NodeView(self._snapshot), reach.selector)
        return included
