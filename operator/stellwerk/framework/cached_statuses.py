"""The statuses of all rows for pods of one spec, nominated pods counted, kept between cycles.

The filter phase keeps one per spec where every filter's answer depends on the spec and the row
alone; then only rows that changed, or whose nominations did, are asked about again. Invariant:
after `write` of the stale rows, each row that holds a node has the status that asking would give.
"""

import numpy as np

from stellwerk.framework.interface import Nominations
from stellwerk.framework.rows_seen import RowsSeen
from stellwerk.framework.status import OK, Status
from stellwerk.framework.status_column import StatusColumn
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Mask, RowColumn
from stellwerk.snapshot.snapshot import Snapshot


class CachedStatuses:
    """See the module docstring."""

    __slots__ = ("_code_of", "_codes", "_seen")

    def __init__(self, rows: int, nominations: Nominations) -> None:
        self._seen = RowsSeen(nominations)
        self._codes = np.zeros(rows, np.int32)
        """(N,) int32, positions in `_code_of`; 0 fits. Free rows have any."""
        self._code_of: dict[Status, int] = {OK: 0}

    def stale(self, snapshot: Snapshot, pod: PodInfo) -> RowColumn | None:
        """The rows to ask about for this pod; None: all, and a column of another length."""
        if len(self._codes) != snapshot.size:
            return None
        rows = self._seen.stale(snapshot, pod)
        if rows is None:
            return None
        stale: RowColumn = np.fromiter(rows, np.intp, len(rows))
        return stale[snapshot.alive[stale]]

    def write(
        self, snapshot: Snapshot, pod: PodInfo, rows: RowColumn, statuses: StatusColumn
    ) -> None:
        """Take over what the filters say now of the stale rows, in their order."""
        code_of = self._code_of
        codes = [code_of.setdefault(status, len(code_of)) for status in statuses.different]
        self._codes[rows] = np.array(codes, np.int32)[statuses.codes]
        self._seen.note(snapshot, pod)

    @property
    def fits(self) -> Mask:
        """(N,) bool, a new array; free rows have any value."""
        fits: Mask = self._codes == 0
        return fits

    def at(self, rows: RowColumn) -> StatusColumn:
        """The statuses of some rows."""
        return StatusColumn(list(self._code_of), self._codes[rows])
