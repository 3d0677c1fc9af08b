"""Which rows take a pod, as PreFilter, Filter and extenders leave them.

The filter phase makes one per attempt; extenders narrow it down, the cycle and `decide` read it.
Invariant: `rows`, where they are given, are the rows that are True in `fits`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.status import OK, Code, Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Mask, RowColumn
from stellwerk.snapshot.node_view import NodeView
from stellwerk.snapshot.snapshot import Snapshot


@dataclass(slots=True)
class Feasibility:
    """The feasible rows of one attempt, and what PreFilter said."""

    state: CycleState
    fits: Mask
    """(N,) bool over all rows of the snapshot; free rows are False."""
    pre_filter: Status = OK
    """A rejection of the pod as a whole."""
    node_names: frozenset[str] | None = None
    """Only these nodes were looked at (PreFilter)."""
    restricted_by: tuple[str, ...] = ()
    """The plugins that named them."""
    evaluated: int = 0
    """How many nodes were looked at, in kube-scheduler's sense."""
    rows: RowColumn | None = field(default=None, repr=False)
    """The feasible rows in visiting order, where only some were looked for."""

    unsampled: tuple[Mask, int] | None = field(default=None, repr=False)
    """`fits` and `evaluated` as the filters left them, where only the nominated row was kept."""

    def keep(self, rows: RowColumn, *, evaluated: int) -> None:
        """Let only these of the feasible rows count, having looked at so many nodes."""
        self.rows, self.evaluated = rows, evaluated
        self.fits = np.zeros_like(self.fits)
        self.fits[rows] = True

    def restrict(self, plugin: str, node_names: frozenset[str]) -> None:
        """Let only nodes that this plugin names count, too; none in common rejects the pod."""
        named = self.node_names
        self.node_names = node_names if named is None else named & node_names
        self.restricted_by = (*self.restricted_by, plugin)
        if not self.node_names:
            self.pre_filter = _no_common_node(self.restricted_by)

    def nominated_row(self, pod: PodInfo, snapshot: Snapshot) -> int | None:
        """The row of the node nominated to the pod if it is feasible; it is then taken.

        `evaluateNominatedNode`; extenders may refuse it.
        """
        row = snapshot.row_of.get(pod.nominated_node_name)
        return row if row is not None and self.fits[row] else None

    def candidate_rows(self, snapshot: Snapshot) -> Mask | None:
        """(N,) bool, the rows that PreFilter named; None: all of them."""
        if self.node_names is None:
            return None
        row_of = snapshot.row_of
        named: Mask = np.zeros(snapshot.size, np.bool_)
        named[[row_of[name] for name in self.node_names if name in row_of]] = True
        return named

    def view(self, everything: NodeView) -> NodeView:
        """The feasible rows as a view."""
        if self.rows is not None:
            return everything.take(self.rows)
        if self.fits.all():
            return everything
        return everything.take(np.flatnonzero(self.fits))


def _no_common_node(plugins: Iterable[str]) -> Status:
    names = sorted(plugins)
    reason = f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
    if len(names) == 1:
        reason = f"node(s) didn't satisfy plugin {names[0]}"
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))
