"""The statuses of many nodes: thousands of them share a few, which are held once.

The filter phase makes them, PostFilter plugins and the texts of events read them. Invariant: it
reads as the sequence of its statuses, one per node, and what is counted is counted on columns.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

import numpy as np
from typing_extensions import override

from stellwerk.framework.status import Code, Status
from stellwerk.snapshot.columns import Mask, VerdictColumn


class StatusColumn(Sequence[Status]):
    """One status per node, as codes and the few that they stand for; read only."""

    __slots__ = ("_counts", "codes", "different")

    def __init__(self, different: Sequence[Status], codes: VerdictColumn) -> None:
        self.different = different
        """What the codes stand for; perhaps some that no node has, or equal ones."""
        self.codes = codes
        """(n,) int32, for each node the index of its status in `different`."""
        self._counts: Counter[Status] | None = None

    @classmethod
    def of(cls, statuses: Iterable[Status]) -> "StatusColumn":
        """The statuses one by one."""
        listed = list(statuses)
        code_of: dict[Status, int] = {}
        # Mostly the same few objects: comparing each with its like would cost.
        code_of_object = {
            identity: code_of.setdefault(status, len(code_of))
            for identity, status in {id(status): status for status in listed}.items()
        }
        codes = [code_of_object[id(status)] for status in listed]
        return cls(list(code_of), np.array(codes, np.int32))

    @classmethod
    def everywhere(cls, status: Status, nodes: int) -> "StatusColumn":
        """The same for every node."""
        return cls([status], np.zeros(nodes, np.int32))

    @override
    def __len__(self) -> int:
        return len(self.codes)

    @override
    def __iter__(self) -> Iterator[Status]:
        return map(self.different.__getitem__, self.codes.tolist())

    @overload
    def __getitem__(self, index: int) -> Status: ...
    @overload
    def __getitem__(self, index: slice) -> "StatusColumn": ...
    @override
    def __getitem__(self, index: int | slice) -> "Status | StatusColumn":
        if isinstance(index, slice):
            return StatusColumn(self.different, self.codes[index])
        return self.different[int(self.codes[index])]

    def counts(self) -> Mapping[Status, int]:
        """The statuses that nodes have, each with their number; counted once."""
        if self._counts is not None:
            return self._counts
        nodes = np.bincount(self.codes, minlength=len(self.different)).tolist()
        counts: Counter[Status] = Counter()
        for status, having in zip(self.different, nodes, strict=True):
            if having:
                counts[status] += having
        self._counts = counts
        return counts

    def where(self, code: Code) -> Mask:
        """(n,) bool, the nodes whose status has this code."""
        has: Mask = np.array([status.code is code for status in self.different], np.bool_)
        return has[self.codes]
