"""Verdicts, raw scores and statuses cached per pod spec, and recomputed only in rows that changed.

Each framework has one ResultCache, which its filter and score phases share; the dry runs of
preemption follow a VerdictCursor as cached statuses do. When a phase uses a column, and which of
its three ways it takes otherwise, is said in the heads of `filter_phase` and `score_phase`.

The cache skips work whose result is known: between two pods of a Deployment one row has changed, so
that the filters of the second pod run on one row and not on 5,000 (12 µs and not 75 µs). Verdicts
and scores are kept from the second attempt for a spec on, because many specs never have a second
pod. A row is computed again if its node has changed, or a pod on it (`Reuse.USAGE`), or, in cached
statuses, a nomination to it. A whole column is computed again for another reuse key, after memory
was short (MAX_CACHE_BYTES), after a plugin was found wrong (`IsolatedPlugin.distrust`), after
`Framework.forget_results`, and in a new framework.

Invariants: a column equals what its plugins would answer for all rows at its position in the change
log, and is brought up to date before it is read. A VerdictCursor names a row if its node, a pod on
it or a nomination that counts there changed since `catch_up`.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Final, Generic

import numpy as np
import numpy.typing as npt

from stellwerk.framework.interface import FilterPlugin, Reuse, ScorePlugin
from stellwerk.framework.services import Nominations
from stellwerk.framework.types import OK, Status, StatusColumn, are_no_codes
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.snapshot.columns import (
    ChangeCursor,
    ChangeLog,
    Element,
    IntColumn,
    Mask,
    RowColumn,
    RowCursor,
    VerdictColumn,
)
from stellwerk.snapshot.snapshot import NodeView, Snapshot

Compute = Callable[[NodeView], npt.NDArray[Element]]
MAX_CACHE_BYTES: Final = 128 << 20
"""Memory for the columns of one framework and for the specs that are their keys. Beyond it, the
least recently used columns are dropped, and their plugins run again. With 5,000 nodes there is
room for about 500 specs."""
MIN_COLUMN_SHARE: Final = 1 / 4
"""Share of the nodes from which a phase uses cached columns. With 5,000 nodes, to compute the
columns of all nodes costs as much as to run the filters on a quarter of them (42 µs). For a pod
that is limited to fewer nodes, such as one of a DaemonSet, plugins run on these rows alone."""
_COLUMN_BYTES_PER_NODE: Final = 40
"""Estimated memory of one spec's columns of all plugins, for each node."""
_MIN_KEPT_KEYS: Final = 4
"""Specs whose columns stay whatever they take. Pods of a few specs that come by turns would
otherwise compute everything again in a cluster whose columns exceed the limit."""
_NEW_KEYS_SHARE: Final = 1 / 4
"""Share of the memory for specs that only one attempt has asked for. Pods of which no two are alike
fill this share alone, and push no columns out of the rest."""
_COMPILED_BYTES_PER_JSON_BYTE: Final = 12
"""Estimated memory of a compiled spec, for each byte of the JSON that it was compiled from."""


class CachedColumn(RowCursor, Generic[Element]):
    """One plugin's answer for all rows, and how far it has followed their changes."""

    __slots__ = ("normalized", "rewritten", "uniform", "values")

    def __init__(
        self, values: npt.NDArray[Element], snapshot: Snapshot, changes: ChangeLog
    ) -> None:
        super().__init__(snapshot, changes, caught_up=True)
        self.values = values
        """(N,) codes, scores or a mask, by the plugin; free rows have any."""
        self.rewritten = True
        """True if `values` changed since `uniform` was worked out."""
        self.uniform: int | None = None
        """The one value of all rows, if they are known to be equal."""
        self.normalized: int | None = None
        """`uniform` after normalising; None: not worked out yet."""

    def write(self, rows: RowColumn | slice, values: npt.NDArray[Element]) -> None:
        """Write the plugin's answers for the rows that changed; no row is new."""
        self.values[rows] = values
        self.position = self.changes.position
        self.rewritten = True


class VerdictCursor:
    """A cursor over the rows that may be judged otherwise than before, for pods of one spec."""

    __slots__ = ("_nominations", "_nominees", "_own", "_snapshot", "_usage")

    def __init__(self, snapshot: Snapshot, nominations: Nominations) -> None:
        self._snapshot = snapshot
        self._nominations = nominations
        self._usage = RowCursor(snapshot, snapshot.usage_changes)
        self._nominees = ChangeCursor(nominations.changes)
        self._own = ("", "")
        """(uid, node) of the pod whose own nomination was left out: it counts for all others."""

    def changed(self, pod: PodInfo) -> set[int] | None:
        """List the rows to judge again for this pod, free ones included; None: all rows."""
        rows, names = self._usage.changed(), self._nominees.changed()
        if rows is None or names is None:
            return None
        own = self._own_of(pod)
        if own != self._own:
            names = [*names, self._own[1], own[1]]
        row_of = self._snapshot.row_of
        return {*rows, *(row_of[name] for name in names if name in row_of)}

    def catch_up(self, pod: PodInfo) -> None:
        """Note that every row was judged for this pod."""
        self._usage.catch_up()
        self._nominees.catch_up()
        self._own = self._own_of(pod)

    def _own_of(self, pod: PodInfo) -> tuple[str, str]:
        return pod.uid, self._nominations.node_of(pod.uid)


class CachedStatuses:
    """The statuses of all rows for pods of one spec, nominated pods counted.

    Only where each filter's answer depends on the spec and the row alone.
    """

    __slots__ = ("_code_of", "_codes", "_cursor", "_snapshot")

    def __init__(self, snapshot: Snapshot, nominations: Nominations) -> None:
        self._snapshot = snapshot
        self._cursor = VerdictCursor(snapshot, nominations)
        self._codes: VerdictColumn = np.zeros(0, np.int32)
        """(N,) int32, positions in `_code_of`; 0 fits. Free rows have any."""
        self._code_of: dict[Status, int] = {OK: 0}

    def refresh(self, pod: PodInfo, ask: Callable[[NodeView], StatusColumn]) -> None:
        """Ask about the rows that changed, or whose nominations did."""
        alive = self._snapshot.alive
        changed = self._cursor.changed(pod)
        if changed is None:
            self._codes, self._code_of = np.zeros(len(alive), np.int32), {OK: 0}
            rows: RowColumn = np.flatnonzero(alive)
        else:
            rows = np.fromiter(changed, np.intp, len(changed))
            rows = rows[alive[rows]]
        if len(rows):
            statuses, code_of = ask(NodeView(self._snapshot, rows)), self._code_of
            codes = [code_of.setdefault(status, len(code_of)) for status in statuses.different]
            self._codes[rows] = np.array(codes, np.int32)[statuses.codes]
        self._cursor.catch_up(pod)

    @property
    def fits(self) -> Mask:
        """(N,) bool, a new array; free rows have any value."""
        fits: Mask = self._codes == 0
        return fits

    def at(self, rows: RowColumn) -> StatusColumn:
        """The statuses of some rows."""
        return StatusColumn(list(self._code_of), self._codes[rows])


class SpecColumns:
    """Everything cached for one reuse key."""

    __slots__ = ("filters", "first_asked", "fits", "kept", "scores", "statuses")

    def __init__(self, asked: tuple[str, int]) -> None:
        self.first_asked = asked
        """(uid of the pod, position of `usage_changes`) of the attempt that asked first."""
        self.kept = False
        """True if another attempt has asked since, so that verdicts and scores are kept."""
        self.filters: dict[str, CachedColumn[np.int32]] = {}
        self.scores: dict[str, CachedColumn[np.int64]] = {}
        self.fits: dict[tuple[str, ...], CachedColumn[np.bool_]] = {}
        """By the plugins taken together: True where all of them let the pod pass."""
        self.statuses: dict[tuple[str, ...], CachedStatuses] = {}
        """By the plugins taken together; only where it was asked for."""


class _Keys:
    """Columns by key, least recently used first; bounded in bytes, but for the latest few."""

    __slots__ = ("_by_key", "_compiled_bytes", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_key: OrderedDict[Hashable, SpecColumns] = OrderedDict()
        self._compiled_bytes = 0
        """Memory of the specs among the keys, which live as long as their columns."""

    def use(self, key: Hashable) -> SpecColumns | None:
        """The columns of a key, which is the one used latest from now on; None: there are none."""
        found = self._by_key.get(key)
        if found is not None:
            self._by_key.move_to_end(key)
        return found

    def put(self, key: Hashable, columns: SpecColumns, columns_bytes: int) -> None:
        """Keep the columns of a further key; the least recently used make room."""
        self._by_key[key] = columns
        self._compiled_bytes += _compiled_bytes(key)
        while (
            len(self._by_key) > _MIN_KEPT_KEYS
            and len(self._by_key) * columns_bytes + self._compiled_bytes > self._max_bytes
        ):
            self.drop(next(iter(self._by_key)))

    def drop(self, key: Hashable) -> None:
        """Keep the columns of a key no longer."""
        del self._by_key[key]
        self._compiled_bytes -= _compiled_bytes(key)

    def clear(self) -> None:
        """Keep nothing."""
        self._by_key.clear()
        self._compiled_bytes = 0


class ResultCache:
    """Cached columns by reuse key, least recently used first; bounded in bytes.

    Keys that came back and keys that did not yet have bounds of their own, so that pods of which no
    two are alike push nothing out.
    """

    def __init__(self, snapshot: Snapshot, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._snapshot = snapshot
        self._max_bytes = max_bytes
        new_bytes = int(max_bytes * _NEW_KEYS_SHARE)
        self._came_back = _Keys(max_bytes - new_bytes)
        self._new = _Keys(new_bytes)
        self._asked: tuple[ChangeLog, int, int] | None = None
        self._rows_asked = 0
        """Number of rows compared with their cached answer so far."""
        self._changed: NodeView | None = None
        """The last answer of `_changed_rows`, for `_asked`."""

    def columns(self, key: Hashable, uid: str = "") -> SpecColumns:
        """Return the columns of a key, empty ones if it is new; the least recently used go.

        `uid`: the pod that asks, mostly once for its verdicts and once for its scores. A second
        attempt, by another pod or after a change, makes the columns worth keeping.
        """
        found = self._came_back.use(key)
        if found is not None:
            return found
        columns_bytes = _COLUMN_BYTES_PER_NODE * self._snapshot.size
        asked = (uid, self._snapshot.usage_changes.position)
        found = self._new.use(key)
        if found is None:
            found = SpecColumns(asked)
            self._new.put(key, found, columns_bytes)
        elif found.first_asked != asked:
            found.kept = True
            self._new.drop(key)
            self._came_back.put(key, found, columns_bytes)
        return found

    def clear(self) -> None:
        """Forget all columns."""
        self._came_back.clear()
        self._new.clear()
        self._asked = self._changed = None

    def row_to_ask(self, fits: Mask) -> int | None:
        """Choose the next row to compare with its cached answer; None: there is none.

        Every second one is a row that fits, because a pod may be bound there. Both kinds are gone
        through row by row, so that each row is compared in time.
        """
        self._rows_asked += 1
        number, alive = self._rows_asked // 2, self._snapshot.alive
        first = alive & (fits if self._rows_asked % 2 else ~fits)
        rows = np.flatnonzero(first if first.any() else alive)
        return int(rows[number % len(rows)]) if len(rows) else None

    def refresh(
        self,
        columns: dict[str, CachedColumn[Element]],
        name: str,
        reuse: Reuse,
        compute: Compute[Element],
    ) -> CachedColumn[Element]:
        """The column of a plugin, current: computed whole, or only in the rows that changed."""
        column = columns.get(name)
        if column is not None:
            if column.position == column.changes.position:
                return column
            changed = self._changed_rows(column)
            if changed is not None:
                column.write(changed.rows, compute(changed))
                return column
        values = compute(NodeView(self._snapshot)).copy()
        column = columns[name] = CachedColumn(values, self._snapshot, self._changes(reuse))
        return column

    def scores(
        self, columns: SpecColumns, plugin: ScorePlugin, compute: Compute[np.int64]
    ) -> CachedColumn[np.int64]:
        """A plugin's raw scores of all rows, current."""
        reuse = plugin.score_reuse
        column = self.refresh(columns.scores, plugin.name, reuse, compute)
        if column.rewritten and reuse is Reuse.NODE:
            # Node objects change rarely, and then most plugins score all nodes alike.
            column.uniform, column.normalized = _uniform(column.values), None
            column.rewritten = False
        return column

    def fits(
        self,
        pod: PodInfo,
        filters: Sequence[FilterPlugin],
        compute: Callable[[int, NodeView], VerdictColumn],
    ) -> Mask:
        """(N,) bool, rows where all of these filters pass; free rows have any value. Read only.

        `compute` asks the filter at an index.
        """
        columns = self.columns(pod.spec, pod.uid)
        if not columns.kept:
            everything = NodeView(self._snapshot)
            asked = [compute(index, everything) for index in range(len(filters))]
            refusing = [codes for codes in asked if not are_no_codes(codes)]
            return _all_fit(refusing, slice(None)) if refusing else np.ones(everything.size, bool)
        together = tuple([plugin.name for plugin in filters])
        fits = columns.fits.get(together)
        if fits is not None and fits.position == fits.changes.position:
            return fits.values
        codes: list[VerdictColumn] = []
        for index, plugin in enumerate(filters):
            column = columns.filters.get(plugin.name)
            if column is None or column.position != column.changes.position:
                ask = partial(compute, index)
                column = self.refresh(columns.filters, plugin.name, plugin.filter_reuse, ask)
            codes.append(column.values)
        changed = None if fits is None else self._changed_rows(fits)
        if fits is None or changed is None:
            everywhere = _all_fit(codes, slice(None))
            fits = CachedColumn(everywhere, self._snapshot, self._changes(Reuse.USAGE))
            columns.fits[together] = fits
        else:
            fits.write(changed.rows, _all_fit(codes, changed.rows))
        return fits.values

    def statuses(
        self, pod: PodInfo, filters: Sequence[FilterPlugin], nominations: Nominations
    ) -> CachedStatuses:
        """The statuses that these filters gave all rows; to be refreshed before they are read."""
        statuses = self.columns(pod.spec, pod.uid).statuses
        together = tuple([plugin.name for plugin in filters])
        found = statuses.get(together)
        if found is None:
            found = statuses[together] = CachedStatuses(self._snapshot, nominations)
        return found

    def _changes(self, reuse: Reuse) -> ChangeLog:
        """The rows for which such a column must be recomputed."""
        snapshot = self._snapshot
        return snapshot.node_changes if reuse is Reuse.NODE else snapshot.usage_changes

    def _changed_rows(self, cursor: RowCursor) -> NodeView | None:
        """Find the rows to recompute, as a view that is shared; None: all rows.

        Above half of the rows, one pass over all of them is cheaper. The columns of a pod mostly
        stand at one position, so that the view of the last call is returned to most of them.
        """
        log = cursor.changes
        asked = (log, cursor.position, log.position)
        if asked != self._asked:
            rows = cursor.changed(at_most=self._snapshot.size // 2)
            self._asked = asked
            self._changed = (
                None if rows is None else NodeView(self._snapshot, np.array(rows, dtype=np.intp))
            )
        return self._changed


def _compiled_bytes(key: Hashable) -> int:
    """The memory of a spec that is a key, or a part of one, in bytes."""
    if isinstance(key, SchedulingSpec):
        return _COMPILED_BYTES_PER_JSON_BYTE * key.size_bytes
    return sum(map(_compiled_bytes, key)) if isinstance(key, tuple) else 0


def _uniform(values: IntColumn) -> int | None:
    """The one value of all rows, if there is one."""
    if len(values) == 0 or not (values == values[0]).all():
        return None
    return int(values[0])


def _all_fit(columns: Sequence[VerdictColumn], rows: RowColumn | slice) -> Mask:
    """Rows where every code is 0."""
    if not isinstance(rows, slice) and len(rows) == 1:
        # After each binding one row has changed: integers are cheaper than one-element arrays.
        row = int(rows[0])
        return np.array([not any(codes.item(row) for codes in columns)])
    fits: Mask = columns[0][rows] == 0
    for codes in columns[1:]:
        fits &= codes[rows] == 0
    return fits
