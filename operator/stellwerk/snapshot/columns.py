"""Column types of the snapshot, and the small structures that columns are made of.

Everything that computes on nodes uses these. Letters in shapes: N nodes (rows), n rows of a view,
R resources, D domains. Units: cpu in millicores, memory and storage in bytes, the rest counts.
Invariant: a row is a slot; a slot that holds no node is False in `alive` and means nothing
elsewhere.
"""

from collections.abc import Hashable
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from stellwerk.models.selectors import parse_integer

IntColumn: TypeAlias = npt.NDArray[np.int64]
"""Amounts, scores, counts."""
IdColumn: TypeAlias = npt.NDArray[np.int32]
"""Ids of interned values; −1 is absent."""
VerdictColumn: TypeAlias = npt.NDArray[np.int32]
"""Codes of a FilterResult; 0 fits."""
RowColumn: TypeAlias = npt.NDArray[np.intp]
"""Rows of the snapshot, used as an index."""
Mask: TypeAlias = npt.NDArray[np.bool_]

ABSENT: Final = -1
MAX_REQUESTED: Final = 1 << 61
"""Usage columns stop here, so that usage plus one pod's request (at most 2**62) stays in int64."""

Key = TypeVar("Key", bound=Hashable)
Element = TypeVar("Element", bound=np.generic)
"""What a column holds."""


class LabelColumn:
    """One label key over all rows, dictionary-encoded."""

    def __init__(self, capacity: int) -> None:
        self.ids: IdColumn = np.full(capacity, ABSENT, dtype=np.int32)
        """(N,) int32, index into `values`; −1 where the node lacks the label."""
        self.values: list[str] = []
        """Every value seen since the column was made, by id."""
        self.id_of: dict[str, int] = {}
        self._integers: IntColumn = np.zeros(0, np.int64)
        self._is_integer: Mask = np.zeros(0, np.bool_)

    def set(self, row: int, value: str | None) -> None:
        """Write one row."""
        if value is None:
            self.ids[row] = ABSENT
            return
        value_id = self.id_of.get(value)
        if value_id is None:
            value_id = self.id_of[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = value_id

    def integers(self) -> tuple[IntColumn, Mask]:
        """(ids + 1,) int64, the values as Gt and Lt read them, and bool, which are integers.

        The last entry is the answer for ABSENT: no integer.
        """
        if len(self._integers) != len(self.values) + 1:
            parsed = [parse_integer(value) for value in self.values]
            self._integers = np.array([number or 0 for number in (*parsed, 0)], np.int64)
            self._is_integer = np.array([number is not None for number in (*parsed, None)])
        return self._integers, self._is_integer

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self.ids = grown(self.ids, capacity, ABSENT)

    def fork(self) -> "LabelColumn":
        """A copy."""
        fork = LabelColumn(0)
        fork.ids, fork.values = self.ids.copy(), self.values.copy()
        fork.id_of = self.id_of.copy()
        return fork


def grown(column: npt.NDArray[Element], capacity: int, fill: int = 0) -> npt.NDArray[Element]:
    """A copy whose last axis has `capacity` entries, new ones filled."""
    larger = np.full((*column.shape[:-1], capacity), fill, dtype=column.dtype)
    larger[..., : column.shape[-1]] = column
    return larger
