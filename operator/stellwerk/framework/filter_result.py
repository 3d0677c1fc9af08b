"""What filters say about the rows of a view: one plugin's FilterResult, all plugins' Verdicts.

Filter plugins make the first, `row_filters` the second, preemption and explain read them.
Invariant: a row's status is that of the first plugin, in the profile's order, that rejects it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

# np.unique looks into it, which would have it loaded while the first rejected pod waits.
import numpy.ma
import numpy.typing as npt

from stellwerk.framework.status import OK, Status
from stellwerk.framework.status_column import StatusColumn
from stellwerk.snapshot.columns import Mask, RowColumn, VerdictColumn

FITS: Final = -1


@dataclass(frozen=True, slots=True)
class FilterResult:
    """A verdict per row as a small code; texts are made only when they are read."""

    codes: VerdictColumn
    """(n,) int32; 0 fits, every other code stands for a status."""
    status: Callable[[int], Status]
    """Code (not 0) → the status with its reasons."""

    @classmethod
    def of_mask(cls, fails: np.ndarray[Any, np.dtype[np.bool_]], status: Status) -> "FilterResult":
        """One status for every row where `fails` is True."""
        return cls(fails.astype(np.int32), lambda _: status)

    @classmethod
    def everywhere(cls, rows: int) -> "FilterResult":
        """Every row fits."""
        return cls(np.zeros(rows, np.int32), lambda _: OK)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Per row of a view: the index of the plugin that rejected it first, or FITS."""

    rejected_by: npt.NDArray[np.int16]
    """(n,) int16, index into `results`; −1 fits."""
    results: Sequence[FilterResult]
    """What each plugin said, in the profile's order."""

    @property
    def fits(self) -> Mask:
        """(n,) bool."""
        fits: Mask = self.rejected_by < 0
        return fits

    def status(self, position: int) -> Status:
        """The status of one row."""
        plugin = int(self.rejected_by[position])
        if plugin < 0:
            return OK
        result = self.results[plugin]
        return result.status(int(result.codes[position]))

    def statuses(self, *, every_reason: bool = False) -> StatusColumn:
        """The status of every row; each different one is made once.

        With `every_reason`, the reasons of all plugins that reject the row, not of the first only.
        """
        codes = [result.codes for result in self.results]
        if every_reason:
            keys, axis = np.stack([self.rejected_by, *codes], dtype=np.int32), 1
        else:
            said = _codes_of_first(self.rejected_by, codes)
            keys, axis = (self.rejected_by.astype(np.int64) << 32) + said, 0
        _, first, column = np.unique(keys, axis=axis, return_index=True, return_inverse=True)
        make = self._every if every_reason else self.status
        different = [make(position) for position in first.tolist()]
        return StatusColumn(different, column.reshape(-1).astype(np.int32))

    def _every(self, position: int) -> Status:
        """The first rejection, with the reasons of the later ones added."""
        first = self.status(position)
        if first.ok:
            return first
        reasons = [
            reason
            for result in self.results
            if result.codes[position]
            for reason in result.status(int(result.codes[position])).reasons
        ]
        return Status(first.code, tuple(dict.fromkeys(reasons)), first.plugin)


def _codes_of_first(
    rejected_by: npt.NDArray[np.int16], codes: Sequence[npt.NDArray[np.int32]]
) -> npt.NDArray[np.int32]:
    """(n,) int32, the code that the rejecting plugin gave; 0 where the row fits."""
    first = np.zeros(len(rejected_by), np.int32)
    for plugin in np.unique(rejected_by).tolist():
        if plugin != FITS:
            np.copyto(first, codes[plugin], where=rejected_by == plugin)
    return first


def merge_passes(first: Verdicts, positions: RowColumn, second: Verdicts) -> Verdicts:
    """Two passes: rejections of the first, over some positions of the second's rows, come first."""
    rows = len(second.rejected_by)
    earlier = np.full(rows, FITS, np.int16)
    earlier[positions] = first.rejected_by
    later = np.where(second.rejected_by < 0, FITS, second.rejected_by + len(first.results))
    rejected_by = np.where(earlier < 0, later, earlier).astype(np.int16)
    spread = [_spread(result, positions, rows) for result in first.results]
    return Verdicts(rejected_by, [*spread, *second.results])


def _spread(result: FilterResult, positions: RowColumn, rows: int) -> FilterResult:
    """A result over some positions as one over all rows."""
    codes = np.zeros(rows, np.int32)
    codes[positions] = result.codes
    return FilterResult(codes, result.status)
