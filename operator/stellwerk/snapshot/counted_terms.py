"""Columns of pod counts per node, and their sums per topology domain, kept while pods come and go.

`PairCounts` owns them and adds every pod that is counted or taken out. Invariant: sums that are
still valid (same topology, same eligible rows) equal a fresh sum over the column.
"""

from typing import Final, TypeAlias

import numpy as np

from stellwerk.snapshot.columns import IntColumn, Mask, grown
from stellwerk.snapshot.topology import EligibleRows, Topology

_MAX_ROWS_IN_DICT: Final = 64
"""Rows with counts that are kept in a dictionary. Up to this number it is smaller than an array of
all rows, and fast enough; beyond it an array takes its place."""
_MAX_SUMS: Final = 16
"""Sums that are cached for each term: one for each topology key and each set of eligible rows."""
_COUNT_OF_ABSENT_DOMAIN: Final = 1 << 40
"""Count of a domain without nodes: larger than any other, so that it is never the minimum."""

_SumsKey: TypeAlias = tuple[str, EligibleRows | None]


class CountColumn:
    """A count per row: most terms concern few rows, and there may be many terms."""

    __slots__ = ("_array", "_few", "total")

    def __init__(self) -> None:
        self._few: dict[int, int] = {}
        self._array: IntColumn | None = None
        self.total = 0
        """The sum over all rows."""

    def add(self, row: int, change: int) -> None:
        """Add to a row's count."""
        self.total += change
        if self._array is not None:
            if row >= len(self._array):
                self._array = grown(self._array, max(row + 1, 2 * len(self._array)))
            self._array[row] += change
            return
        count = self._few.get(row, 0) + change
        if count:
            self._few[row] = count
            if len(self._few) > _MAX_ROWS_IN_DICT:
                self._array = self.dense(2 * max(self._few) + 1)
                self._few = {}
        else:
            del self._few[row]

    def add_to(self, counts: IntColumn, weight: int) -> None:
        """Add every count, times the weight, to a column of at least as many rows."""
        if self._array is None:
            for row, count in self._few.items():
                counts[row] += weight * count
        else:
            counts += weight * self.dense(len(counts))

    def dense(self, rows: int) -> IntColumn:
        """(rows,) int64, read only: it may be the column itself."""
        if self._array is None:
            made: IntColumn = np.zeros(rows, np.int64)
            if self._few:
                made[list(self._few)] = list(self._few.values())
            return made
        if rows > len(self._array):
            self._array = grown(self._array, 2 * rows)
        return self._array[:rows]


class DomainCounts:
    """Counted pods per domain of a topology, over the rows eligible for some pod."""

    __slots__ = ("_eligible", "_version", "present", "topology", "totals")

    def __init__(
        self, column: CountColumn, topology: Topology, eligible: EligibleRows | None
    ) -> None:
        self.topology = topology
        self._eligible = eligible
        self._version = 0 if eligible is None else eligible.version
        # No node has a label that was made up.
        mask = None if eligible is None or not topology.domain_count else eligible.mask
        self.totals: IntColumn = (
            topology.sums(column.dense(len(topology.has)), mask)
            if topology.domain_count
            else np.zeros(topology.size, np.int64)
        )
        """(D,) int64, counted pods in the domain; 0 at NO_DOMAIN. Read only."""
        self.present: Mask = topology.present if mask is None else topology.eligible_domains(mask)
        """(D,) bool, domains with an eligible node."""

    @property
    def valid(self) -> bool:
        """True if neither labels nor eligible rows have changed since."""
        return self.topology.valid and (
            self._eligible is None or self._eligible.version == self._version
        )

    def add(self, row: int, change: int) -> None:
        """Follow a change of the column; without effect once no longer valid."""
        topology = self.topology
        if (
            self.valid
            and topology.has[row]
            and (self._eligible is None or self._eligible.mask[row])
        ):
            self.totals[topology.domain[row]] += change

    def domain_count(self) -> int:
        """The number of domains with an eligible node."""
        if self._eligible is None:
            return self.topology.domain_count
        return int(np.count_nonzero(self.present))

    def smallest(self) -> int:
        """The smallest count of a domain with an eligible node; 0 without any."""
        if (
            self._eligible is None
            and self.topology.one_node_per_domain
            and self.topology.all_rows_present
        ):
            return int(self.totals.min()) if len(self.totals) else 0
        counts = self.totals[self.present]
        return int(counts.min()) if len(counts) else 0

    def two_smallest(self) -> tuple[int, int, int]:
        """(a domain with the smallest count, its count, the smallest of all other domains)."""
        counts = np.where(self.present, self.totals, _COUNT_OF_ABSENT_DOMAIN)
        first = int(counts.argmin())
        smallest = int(counts[first])
        counts[first] = _COUNT_OF_ABSENT_DOMAIN
        return first, smallest, int(counts.min())


class CountedTerm:
    """Something that pods are counted for, per row and per domain."""

    __slots__ = ("_sums", "column")

    def __init__(self) -> None:
        self.column = CountColumn()
        self._sums: dict[_SumsKey, DomainCounts] = {}

    def add(self, row: int, change: int) -> None:
        """Count a pod in or out."""
        self.column.add(row, change)
        for sums in self._sums.values():
            sums.add(row, change)

    def clear(self) -> None:
        """Forget every count."""
        self.column = CountColumn()
        self._sums.clear()

    def counts_in(self, topology: Topology) -> bool:
        """Return whether any counted pod is in a domain of the topology."""
        if self.column.total == 0 or not topology.domain_count:
            return False
        return topology.complete or bool(self.by_domain(topology).totals.any())

    def by_domain(self, topology: Topology, eligible: EligibleRows | None = None) -> DomainCounts:
        """The counts per domain; good until the next change of the snapshot."""
        if topology.one_node_per_domain:
            return DomainCounts(self.column, topology, eligible)
        key = (topology.key, eligible)
        sums = self._sums.get(key)
        if sums is None or not sums.valid:
            if sums is None and len(self._sums) >= _MAX_SUMS:
                del self._sums[next(iter(self._sums))]
            sums = self._sums[key] = DomainCounts(self.column, topology, eligible)
        return sums
