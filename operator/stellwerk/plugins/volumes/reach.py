"""Which rows a volume, or a pool of storage, can be used from; found once per distinct selector.

`pools` and `provisioning` keep a Reach per volume or capacity; `refresh` brings all
of them up to date before a search. Invariant: after it, rows are those whose node fulfils the
selector.
"""

from collections.abc import Iterable
from typing import Final
from weakref import WeakValueDictionary

import numpy as np

from stellwerk.models.json_values import JsonObject
from stellwerk.models.selectors import NodeSelector, parse_node_selector
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.snapshot.columns import ChangeCursor, RowColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot

_FEW_ROWS: Final = 8
"""Up to so many changed rows are looked at one by one; more, and all reaches are found anew."""


def node_selector(volume: JsonObject) -> NodeSelector | None:
    """The nodes that can use a volume; None: all."""
    return parse_node_selector((volume["spec"].get("nodeAffinity") or {}).get("required"))


class Reach:
    """The rows that fulfil one selector."""

    __slots__ = ("__weakref__", "rows", "selector")

    def __init__(self, selector: NodeSelector | None) -> None:
        self.selector = selector
        self.rows: RowColumn = np.zeros(0, np.intp)
        """Ascending; free rows are possible."""

    def find(self, snapshot: Snapshot) -> None:
        """Look at every row."""
        view = NodeView(snapshot)
        self.rows = (
            view.row_numbers()
            if self.selector is None
            else np.flatnonzero(matching_nodes(view, self.selector))
        )

    def look_again(self, snapshot: Snapshot, row: int) -> None:
        """Look at a row whose node has changed."""
        node = snapshot.nodes[row]
        reached = self.selector is None or (
            node is not None and self.selector.matches(node.labels, node.name)
        )
        place = int(np.searchsorted(self.rows, row))
        was_reached = place < len(self.rows) and bool(self.rows[place] == row)
        if reached and not was_reached:
            self.rows = np.insert(self.rows, place, row)
        elif was_reached and not reached:
            self.rows = np.delete(self.rows, place)


class Reaches:
    """Every reach in use, one per selector."""

    def __init__(self) -> None:
        self._reaches: WeakValueDictionary[NodeSelector | None, Reach] = WeakValueDictionary()
        self._unfound: list[Reach] = []
        self._cursor: ChangeCursor[int] | None = None
        self._version = 0

    def of(self, selector: NodeSelector | None) -> Reach:
        """The reach of a selector (None: everything); its rows are there after `refresh`."""
        found = self._reaches.get(selector)
        if found is None:
            found = self._reaches[selector] = Reach(selector)
            self._unfound.append(found)
        return found

    def refresh(self, snapshot: Snapshot) -> int:
        """Bring every reach up to date; returns a number that grows when nodes change."""
        changed = self._changed_rows(snapshot)
        for reach in self._unfound if changed is not None else self._reaches.values():
            reach.find(snapshot)
        self._unfound.clear()
        for row in changed or ():
            for reach in self._reaches.values():
                reach.look_again(snapshot, row)
        if changed is None or changed:
            self._version += 1
        return self._version

    def _changed_rows(self, snapshot: Snapshot) -> list[int] | None:
        """Rows to look at again; None: all."""
        if self._cursor is None or self._cursor.changes is not snapshot.node_changes:
            self._cursor = ChangeCursor(snapshot.node_changes)
        changed = self._cursor.advance()
        return None if changed is None or len(changed) > _FEW_ROWS else changed


def joined(reaches: Iterable[Reach]) -> tuple[RowColumn, list[int]]:
    """(the rows of all reaches one after the other, how many each has)."""
    rows = [reach.rows for reach in reaches]
    return (np.concatenate(rows) if rows else np.zeros(0, np.intp)), [len(own) for own in rows]
