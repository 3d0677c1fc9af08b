"""The verdict of every filter on every node for one pod, even where an earlier filter rejects.

Explanations begin with these verdicts, and plugins find them in the cycle state of `explain` and
`propose`. Invariant: every node is accounted for. A node that no filter rejects here, but that is
not feasible, is counted as rejected by PreFilter or by pods nominated to it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.types import CycleState, Feasibility, FilterResult, Status
from stellwerk.snapshot.columns import IntColumn, Mask, RowColumn

_KEY: Final = "FilterResults"


@dataclass(frozen=True, slots=True)
class FilterResults:
    """The verdicts of all plugins on all nodes."""

    found: Feasibility
    rows: RowColumn
    """(n,) the rows of the nodes, in the order of their arrival."""
    results: Mapping[str, FilterResult]
    """Plugin → its verdicts, by position in `rows`; empty where PreFilter turned the pod away."""
    diagnosis: Diagnosis
    """The first rejection of each node, nominated pods counted."""

    @classmethod
    def of(cls, state: CycleState) -> "FilterResults | None":
        """Those that a cycle state holds; None: nothing is being explained."""
        return state.get(_KEY, cls)

    def keep_in(self, state: CycleState) -> None:
        """Have `explain` and `propose` find them in the cycle state."""
        state.write(_KEY, self)

    @property
    def fails(self) -> IntColumn:
        """(n,) number of plugins that reject each node."""
        total = np.zeros(len(self.rows), np.int64)
        for result in self.results.values():
            total += result.codes != 0
        return total

    @property
    def fits(self) -> Mask:
        """(n,) bool, the nodes that take the pod."""
        mask: Mask = self.found.fits[self.rows]
        return mask

    def failing(self, position: int) -> list[str]:
        """List the plugins that reject one node."""
        return [name for name, result in self.results.items() if result.codes[position]]

    def status(self, plugin: str, position: int) -> Status:
        """The status of one plugin for one node that it turns away."""
        result = self.results[plugin]
        return result.status(int(result.codes[position]))

    def statuses(self, plugin: str) -> Sequence[tuple[Status, list[int]]]:
        """The statuses of one plugin with the positions that have them, the most frequent first."""
        result = self.results[plugin]
        codes = result.codes
        rejected = np.unique(codes[codes != 0]).tolist()
        by_code = [
            (result.status(code), np.flatnonzero(codes == code).tolist()) for code in rejected
        ]
        return sorted(by_code, key=lambda each: -len(each[1]))
