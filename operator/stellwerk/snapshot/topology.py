"""The domains that one topology key divides the nodes into, and which rows count for a pod.

`NodeLabels` makes a Topology when a key is first asked for and drops it when any node's labels
change. Invariant: tables by domain have one entry per domain index; where no two nodes share a
value (hostnames), the domain index is the row itself, so that counts per node need no summing.
"""

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from stellwerk.snapshot.columns import (
    ABSENT,
    Element,
    IdColumn,
    IntColumn,
    LabelColumn,
    Mask,
    RowColumn,
)

NO_DOMAIN: Final = 0
"""The domain index of rows without the label, where domains are not rows."""


class RowsInView(Protocol):
    """The rows of a view: a NodeView, which stands above this module."""

    def row_numbers(self) -> RowColumn:
        """(n,) the snapshot row at each position."""
        ...

    def gather(self, column: npt.NDArray[Element]) -> npt.NDArray[Element]:
        """A column at the rows of the view; read only."""
        ...


class EligibleRows(Protocol):
    """Rows that count for a pod: those its node affinity and tolerations let it have."""

    mask: Mask
    """(N,) bool; free rows are False."""
    version: int
    """Grows whenever `mask` changes."""


class Topology:
    """Domains by index; letter D is the length of a table by domain."""

    __slots__ = (
        "all_rows_present",
        "complete",
        "domain",
        "domain_count",
        "has",
        "key",
        "one_node_per_domain",
        "present",
        "size",
        "unnamed",
        "valid",
    )

    def __init__(self, key: str, column: LabelColumn, rows: int, node_count: int) -> None:
        self.key = key
        self.valid = True
        """False once a node's labels have changed: `NodeLabels` then has a new one."""
        ids = column.ids[:rows]
        self.has: Mask = ids != ABSENT
        """(N,) bool, whether the row's node has the label; free rows are False."""
        labelled = int(np.count_nonzero(self.has))
        self.complete = labelled == node_count
        """Whether every node has the label."""
        self.all_rows_present = labelled == rows
        """Whether every row has the label, and no row is free."""
        self.domain: RowColumn = ids.astype(np.intp) + 1
        """(N,) domain index of the row, NO_DOMAIN without the label; unless one node per domain."""
        rows_in: IntColumn = np.bincount(self.domain, minlength=len(column.values) + 1)
        rows_in[NO_DOMAIN] = 0
        self.one_node_per_domain = bool(rows_in.max(initial=0) <= 1)
        """Whether no two nodes share a value; the domain index is then the row."""
        self.present: Mask = self.has if self.one_node_per_domain else rows_in > 0
        """(D,) bool, whether the domain has a node."""
        self.domain_count = labelled if self.one_node_per_domain else int(np.count_nonzero(rows_in))
        """Domains that have a node."""
        self.size = rows if self.one_node_per_domain else len(rows_in)
        """D, the length of a table."""
        self.unnamed = self._unnamed(ids, column.id_of.get(""))
        """Index of the domain whose label value is empty; None without such a node."""

    def _unnamed(self, ids: IdColumn, value_id: int | None) -> int | None:
        if value_id is None or value_id not in ids:
            return None
        row = int(np.argmax(ids == value_id))
        return row if self.one_node_per_domain else int(self.domain[row])

    def domains_at(self, nodes: RowsInView) -> RowColumn:
        """(n,) domain index at each position; meaningless where the node lacks the label."""
        return nodes.row_numbers() if self.one_node_per_domain else nodes.gather(self.domain)

    def at_rows(
        self, table: npt.NDArray[Element], nodes: RowsInView, missing: float
    ) -> npt.NDArray[Element]:
        """(n,) a table's entry for the domain of each position; `missing` where there is none."""
        if self.one_node_per_domain:
            values = nodes.gather(table)
            if self.complete:
                return values
            return np.where(nodes.gather(self.has), values, table.dtype.type(missing))
        if table[NO_DOMAIN] != missing:
            table = table.copy()
            table[NO_DOMAIN] = missing
        return table.take(nodes.gather(self.domain))

    def sums(self, counts: IntColumn, eligible: Mask | None) -> IntColumn:
        """(D,) int64, a column of counts per row summed over each domain's eligible rows."""
        if eligible is not None:
            counts = np.where(eligible, counts, 0)
        if self.one_node_per_domain:
            return counts if self.complete else np.where(self.has, counts, 0)
        sums: IntColumn = np.bincount(self.domain, weights=counts, minlength=self.size).astype(
            np.int64
        )
        sums[NO_DOMAIN] = 0
        return sums

    def eligible_domains(self, eligible: Mask) -> Mask:
        """(D,) bool, whether the domain has an eligible node."""
        if self.one_node_per_domain:
            return eligible & self.has
        found: Mask = np.bincount(self.domain[eligible], minlength=self.size) > 0
        found[NO_DOMAIN] = False
        return found
