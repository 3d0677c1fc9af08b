"""What the filters of a profile said about the rows of a view, and how that reads in an event.

The runtime makes Verdicts, preemption and explain read them. Invariant: a row's status is that of
the first plugin, in the profile's order, that rejects it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stellwerk.framework.interface import Diagnosis, FilterResult
from stellwerk.framework.status import OK, Code, Status
from stellwerk.snapshot.columns import Mask

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

    def statuses(self, positions: Iterable[int]) -> list[Status]:
        """The statuses of some rows; each distinct one is made once."""
        rejected_by = self.rejected_by.tolist()
        codes = {
            plugin: self.results[plugin].codes.tolist() for plugin in set(rejected_by) - {FITS}
        }
        made: dict[tuple[int, int], Status] = {}
        statuses = []
        for position in positions:
            plugin = rejected_by[position]
            if plugin < 0:
                statuses.append(OK)
                continue
            key = (plugin, codes[plugin][position])
            status = made.get(key)
            if status is None:
                status = made[key] = self.results[plugin].status(key[1])
            statuses.append(status)
        return statuses


def merge_passes(first: Verdicts, second: Verdicts) -> Verdicts:
    """Two passes over the same rows: the first one's rejection counts, then the second one's."""
    shift = len(first.results)
    later = np.where(second.rejected_by < 0, FITS, second.rejected_by + shift)
    rejected_by = np.where(first.rejected_by < 0, later, first.rejected_by).astype(np.int16)
    return Verdicts(rejected_by, [*first.results, *second.results])


def fit_error(diagnosis: Diagnosis, post_filter_message: str = "") -> str:
    """The text of the FailedScheduling event (`FitError.Error`).

    Reasons counted, sorted as text.
    """
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


def reason_counts(statuses: Iterable[Status]) -> Mapping[str, int]:
    """How many nodes have each reason."""
    counts: Counter[str] = Counter()
    for status, count in Counter(statuses).items():
        for reason in status.reasons:
            counts[reason] += count
    return counts


def rejecting_plugins(statuses: Iterable[Status]) -> tuple[frozenset[str], frozenset[str]]:
    """(plugins that said Unschedulable…, plugins that said Pending) among the statuses."""
    distinct = set({id(status): status for status in statuses}.values())
    pending = {status.plugin for status in distinct if status.code is Code.PENDING}
    rejected = {
        status.plugin for status in distinct if status.rejected and status.code is not Code.PENDING
    }
    return frozenset(rejected - {""}), frozenset(pending - {""})
