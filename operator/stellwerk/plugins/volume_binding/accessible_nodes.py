"""The nodes that can use a volume, or a pool of storage; found once per distinct selector.

`volume_pools` and `provisioning` keep one AccessibleNodes per volume or capacity; `refresh` brings
all of them up to date before a search. Invariant: after it, rows are those whose node fulfils the
selector.
"""

from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.snapshot.columns import ChangeCursor, RowColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.selectors import NodeSelector, parse_node_selector

_MAX_ROWS_ONE_BY_ONE: Final = 8
"""Changed rows that are looked at one by one. If there are more, all are found anew."""


def node_selector(volume: JsonObject) -> NodeSelector | None:
    """The nodes that can use a volume; None: all."""
    return parse_node_selector((volume["spec"].get("nodeAffinity") or {}).get("required"))


class AccessibleNodes:
    """The rows that fulfil one selector."""

    __slots__ = ("__weakref__", "rows", "selector")

    def __init__(self, selector: NodeSelector | None) -> None:
        self.selector = selector
        self.rows: RowColumn = np.zeros(0, np.intp)
        """Ascending; free rows are possible."""

    def find(self, snapshot: Snapshot) -> None:
        """Find the rows anew."""
        view = NodeView(snapshot)
        self.rows = (
            view.row_numbers()
            if self.selector is None
            else np.flatnonzero(matching_nodes(view, self.selector))
        )

    def refresh_row(self, snapshot: Snapshot, row: int) -> None:
        """Take up or drop a row whose node has changed."""
        node = snapshot.nodes[row]
        accessible = self.selector is None or (
            node is not None and self.selector.matches(node.labels, node.name)
        )
        place = int(np.searchsorted(self.rows, row))
        was_accessible = place < len(self.rows) and bool(self.rows[place] == row)
        if accessible and not was_accessible:
            self.rows = np.insert(self.rows, place, row)
        elif was_accessible and not accessible:
            self.rows = np.delete(self.rows, place)


class AccessibleNodesBySelector:
    """The accessible nodes of every selector in use."""

    def __init__(self) -> None:
        self._by_selector: WeakValueDictionary[NodeSelector | None, AccessibleNodes] = (
            WeakValueDictionary()
        )
        self._unfound: list[AccessibleNodes] = []
        self._cursor: ChangeCursor[int] | None = None
        self._version = 0

    def of(self, selector: NodeSelector | None) -> AccessibleNodes:
        """The nodes of a selector (None: all); their rows are there after `refresh`."""
        found = self._by_selector.get(selector)
        if found is None:
            found = self._by_selector[selector] = AccessibleNodes(selector)
            self._unfound.append(found)
        return found

    def refresh(self, snapshot: Snapshot) -> int:
        """Bring all rows up to date; returns a number that grows when nodes change."""
        changed = self._changed_rows(snapshot)
        for each in self._unfound if changed is not None else self._by_selector.values():
            each.find(snapshot)
        self._unfound.clear()
        for row in changed or ():
            for each in self._by_selector.values():
                each.refresh_row(snapshot, row)
        if changed is None or changed:
            self._version += 1
        return self._version

    def _changed_rows(self, snapshot: Snapshot) -> list[int] | None:
        """Rows to look at again; None: all."""
        if self._cursor is None or self._cursor.changes is not snapshot.node_changes:
            self._cursor = ChangeCursor(snapshot.node_changes)
        changed = self._cursor.advance()
        return None if changed is None or len(changed) > _MAX_ROWS_ONE_BY_ONE else changed


def joined(accessible: Iterable[AccessibleNodes]) -> tuple[RowColumn, list[int]]:
    """(all rows one after the other, the number that each selector has)."""
    rows = [each.rows for each in accessible]
    return (np.concatenate(rows) if rows else np.zeros(0, np.intp)), [len(own) for own in rows]
