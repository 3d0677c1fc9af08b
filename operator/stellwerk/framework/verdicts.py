"""What the filters of a profile said about the rows of a view, and how that reads in an event.

The runtime makes Verdicts, preemption and explain read them. Invariant: a row's status is that of
the first plugin, in the profile's order, that rejects it.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stellwerk.framework.interface import Diagnosis, FilterResult
from stellwerk.framework.status import OK, Code, Status
from stellwerk.snapshot.columns import Mask, RowColumn

FITS = -1


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

    def statuses(self, positions: Iterable[int], *, every_reason: bool = False) -> list[Status]:
        """The statuses of some rows; each distinct one is made once.

        With `every_reason`, the reasons of all plugins that reject the row, not of the first only.
        """
        chosen = np.fromiter(positions, np.intp)
        rejected_by = self.rejected_by[chosen]
        codes = [result.codes[chosen] for result in self.results]
        if not every_reason:
            codes = [_codes_of_first(rejected_by, codes)]
        keys = list(zip(rejected_by.tolist(), *(each.tolist() for each in codes), strict=True))
        make = self._every if every_reason else self.status
        made = {
            key: OK if key[0] == FITS else make(position)
            for key, position in dict(zip(keys, chosen.tolist(), strict=True)).items()
        }
        return [made[key] for key in keys]

    def _every(self, position: int) -> Status:
        """The first rejection, with the reasons of the later ones added."""
        first = self.status(position)
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


def fit_error(diagnosis: Diagnosis, post_filter_message: str = "") -> str:
    """The FailedScheduling event's text (`FitError.Error`): reasons counted, sorted as text."""
    if not diagnosis.rows:
        return "no nodes available to schedule pods"
    text = f"0/{len(diagnosis.rows)} nodes are available:"
    if diagnosis.pre_filter_message:
        text += f" {diagnosis.pre_filter_message}."
    else:
        counted = reason_counts(diagnosis.statuses)
        reasons = sorted(f"{count} {reason}" for reason, count in counted.items())
        if reasons:
            text += f" {', '.join(reasons)}."
    return f"{text} {post_filter_message}" if post_filter_message else text


def reason_counts(statuses: Sequence[Status]) -> Mapping[str, int]:
    """How many nodes have each reason."""
    counts: Counter[str] = Counter()
    nodes = Counter(map(id, statuses))
    for status in distinct(statuses):
        for reason in status.reasons:
            counts[reason] += nodes[id(status)]
    return counts


def distinct(statuses: Sequence[Status]) -> Collection[Status]:
    """The different objects: thousands of nodes share a few, and comparing them all would cost."""
    return dict(zip(map(id, statuses), statuses, strict=True)).values()


def rejecting_plugins(statuses: Sequence[Status]) -> tuple[frozenset[str], frozenset[str]]:
    """(plugins that said Unschedulable…, plugins that said Pending) among the statuses."""
    different = distinct(statuses)
    pending = {status.plugin for status in different if status.code is Code.PENDING}
    rejected = {
        status.plugin for status in different if status.rejected and status.code is not Code.PENDING
    }
    return frozenset(rejected - {""}), frozenset(pending - {""})
