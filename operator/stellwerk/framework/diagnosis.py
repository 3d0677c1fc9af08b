"""The reasons why no node takes a pod, node by node, and their text in an event.

The filter phase makes a Diagnosis when a cycle fails; PostFilter plugins, events and explanations
read it. Invariant: the texts are kube-scheduler's, reasons counted and sorted as text.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stellwerk.framework.types import Code, Status, StatusColumn
from stellwerk.snapshot.columns import Mask, RowColumn


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The status of every node, and the plugins that rejected the pod."""

    rows: Sequence[int]
    """The snapshot row of each node."""
    statuses: StatusColumn
    """One status per node, in the order of `rows`."""
    pre_filter_message: str = ""
    """Set when PreFilter rejected the pod as a whole."""
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    numbers: RowColumn | None = None
    """`rows` as a column, where there is one already: to make it takes as long as to filter."""

    def row_numbers(self) -> RowColumn:
        """(n,) intp, `rows` as a column; read only."""
        numbers: RowColumn = np.array(self.rows, np.intp) if self.numbers is None else self.numbers
        return numbers

    @classmethod
    def of_pre_filter(cls, rows: Sequence[int], rejection: Status) -> "Diagnosis":
        """PreFilter rejected the pod as a whole: every node has the same status."""
        rejected, pending = rejecting_plugins([rejection])
        everywhere = StatusColumn.everywhere(rejection, len(rows))
        return cls(rows, everywhere, rejection.message, rejected, pending)

    @classmethod
    def of_filters(
        cls,
        rows: Sequence[int],
        numbers: RowColumn,
        statuses: StatusColumn,
        restricted_by: Collection[str],
    ) -> "Diagnosis":
        """The filters rejected node by node; plugins that named only some nodes rejected, too."""
        rejected, pending = rejecting_plugins(statuses.counts().keys())
        rejected |= frozenset(restricted_by)
        return cls(rows, statuses, "", rejected, pending, numbers)


def among_all(statuses: StatusColumn, named: Mask, restricted_by: Collection[str]) -> StatusColumn:
    """The statuses of the nodes that PreFilter named, and the reason why it left out the others."""
    names = " ".join(sorted(restricted_by))
    reason = f"node(s) didn't satisfy plugin(s) [{names}]"
    excluded = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
    codes = np.full(len(named), len(statuses.different), np.int32)
    codes[named] = statuses.codes
    return StatusColumn([*statuses.different, excluded], codes)


def fit_error(diagnosis: Diagnosis, post_filter_message: str = "") -> str:
    """The FailedScheduling event's text (`FitError.Error`): reasons counted, sorted as text.

    `decide.reject` makes it the message of the Failure; `FailureHandler.carry_out` records it as an
    event, and hands it on to be written as the condition PodScheduled (`StatusReports`).
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


def reason_counts(statuses: StatusColumn) -> Mapping[str, int]:
    """The number of nodes with each reason."""
    counts: Counter[str] = Counter()
    for status, nodes in statuses.counts().items():
        for reason in status.reasons:
            counts[reason] += nodes
    return counts


def rejecting_plugins(different: Collection[Status]) -> tuple[frozenset[str], frozenset[str]]:
    """(plugins that said Unschedulable…, plugins that said Pending) among the statuses."""
    pending = {status.plugin for status in different if status.code is Code.PENDING}
    rejected = {
        status.plugin for status in different if status.rejected and status.code is not Code.PENDING
    }
    return frozenset(rejected - {""}), frozenset(pending - {""})
