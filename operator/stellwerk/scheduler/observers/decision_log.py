"""What a decision looks like at trace level: every plugin's score for every node, and the totals.

The scheduling cycle calls it only where the level is on. Invariant: a decision is read, not made.
"""

from logging import Logger
from typing import Final

from stellwerk.framework.scoring import Scores
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import Snapshot

TRACE: Final = 5
"""The level below debug; the command line gives it its name."""


def trace_scores(logger: Logger, pod: PodInfo, scores: Scores, snapshot: Snapshot) -> None:
    """Write a line for each plugin on each node, with what the node has, and one for each total."""
    rows = scores.nodes.row_numbers().tolist()
    names = snapshot.names(scores.nodes.row_numbers())
    for score in scores.by_plugin:
        normalized = score.normalized.tolist()
        for position, (row, name) in enumerate(zip(rows, names, strict=True)):
            logger.log(
                TRACE,
                "%s -> %s: %s, requested %s, allocatable %s, score %d (raw %d, weight %d)",
                pod.key,
                name,
                score.plugin,
                _amounts(snapshot, snapshot.requested, row),
                _amounts(snapshot, snapshot.allocatable, row),
                normalized[position],
                score.raw[position],
                score.weight,
            )
    for name, total in zip(names, scores.total.tolist(), strict=True):
        logger.log(TRACE, "%s: Host %s => Score %d", pod.key, name, total)


def _amounts(snapshot: Snapshot, column: IntColumn, row: int) -> dict[str, int]:
    """Amounts of a row by resource, those that are 0 left out."""
    return {
        resource: int(column[index, row])
        for resource, index in snapshot.resource_row.items()
        if column[index, row]
    }
