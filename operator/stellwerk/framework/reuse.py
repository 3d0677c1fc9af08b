"""Verdicts and raw scores that are kept per pod spec and recomputed only in rows that changed.

The runtime owns one ColumnCache per framework. A fast path that skips work whose result is known:
a kept column always equals what the plugin would answer for the whole view now. Invariant: an
entry's position in the change log it follows says up to where it is current.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from stellwerk.framework.interface import Reuse
from stellwerk.snapshot.columns import ChangeLog, Mask, RowColumn
from stellwerk.snapshot.node_view import NodeView
from stellwerk.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from stellwerk.framework.cached_statuses import CachedStatuses

Element = TypeVar("Element", bound=np.generic)
MAX_CACHE_BYTES = 128 << 20


class CachedColumn(Generic[Element]):
    """One plugin's answer for all rows, current up to a position of a change log."""

    __slots__ = ("normalized", "position", "uniform", "values")

    def __init__(self, values: npt.NDArray[Element], position: int) -> None:
        self.values = values
        self.position = position
        self.uniform: int | None = None
        """The one value of all rows, if they are known to be equal."""
        self.normalized: int | None = None
        """What `uniform` is after normalising, once somebody has worked it out."""


class SpecColumns:
    """Everything kept for one reuse key."""

    __slots__ = ("filters", "fits", "scores", "statuses")

    def __init__(self) -> None:
        self.filters: dict[str, CachedColumn[np.int32]] = {}
        self.scores: dict[str, CachedColumn[np.int64]] = {}
        self.fits: dict[tuple[str, ...], CachedColumn[np.bool_]] = {}
        """By the plugins taken together: True where all of them let the pod pass."""
        self.statuses: dict[tuple[str, ...], CachedStatuses] = {}
        """By the plugins taken together, nominated pods counted; only where it was asked for."""


def log_of(snapshot: Snapshot, reuse: Reuse) -> ChangeLog:
    """The change log that names the rows for which such a column must be recomputed."""
    return snapshot.node_changes if reuse is Reuse.NODE else snapshot.usage_changes


class ColumnCache:
    """Kept columns by reuse key, least recently used first; bounded in bytes."""

    def __init__(self, snapshot: Snapshot, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._snapshot = snapshot
        self._max_bytes = max_bytes
        self._by_key: OrderedDict[Hashable, SpecColumns] = OrderedDict()
        self._asked: tuple[ChangeLog, int, int] | None = None
        self._changed: NodeView | None = None
        """The last answer: the columns of a pod mostly stand at the same position."""

    def columns(self, key: Hashable) -> SpecColumns:
        """The columns of a key, made empty when new; the least recently used make room."""
        found = self._by_key.get(key)
        if found is not None:
            self._by_key.move_to_end(key)
            return found
        limit = max(4, self._max_bytes // max(1, 40 * self._snapshot.size))
        while len(self._by_key) >= limit:
            self._by_key.popitem(last=False)
        found = self._by_key[key] = SpecColumns()
        return found

    def refresh(
        self,
        kept: CachedColumn[Element] | None,
        reuse: Reuse,
        compute: Callable[[NodeView], npt.NDArray[Element]],
    ) -> CachedColumn[Element]:
        """The column, current: computed whole, or only in the rows changed since it was kept."""
        snapshot = self._snapshot
        log = log_of(snapshot, reuse)
        position = log.position
        if kept is not None and kept.position == position:
            return kept
        changed = None if kept is None else self.changed_since(kept, log)
        if kept is None or changed is None:
            return CachedColumn(compute(NodeView(snapshot)).copy(), position)
        kept.values[changed.rows] = compute(changed)
        kept.position = position
        return kept

    def changed_since(self, kept: CachedColumn[Element], log: ChangeLog) -> NodeView | None:
        """The rows to recompute; None: too many, or the snapshot has grown: recompute everything.

        Whoever is handed the view must not change it.
        """
        if len(kept.values) != self._snapshot.size:
            return None
        asked = (log, kept.position, log.position)
        if asked != self._asked:
            self._asked, self._changed = asked, _changed_view(self._snapshot, log, kept.position)
        return self._changed


def _changed_view(snapshot: Snapshot, log: ChangeLog, position: int) -> NodeView | None:
    rows = log.since(position)
    if rows is None or len(rows) > snapshot.size // 2:
        return None
    if len(rows) > 1:
        rows = list(dict.fromkeys(rows))
    return NodeView(snapshot, np.array(rows, dtype=np.intp))


def all_fit(columns: list[npt.NDArray[np.int32]], rows: RowColumn | slice) -> Mask:
    """Rows where every code is 0."""
    if not isinstance(rows, slice) and len(rows) == 1:
        # After each binding one row has changed: integers are a tenth of the cost.
        row = int(rows[0])
        return np.array([not any(codes.item(row) for codes in columns)])
    fits: Mask = columns[0][rows] == 0
    for codes in columns[1:]:
        fits &= codes[rows] == 0
    return fits
