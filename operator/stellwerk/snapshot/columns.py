"""Column types of the snapshot, logs of changes, and maps that forks share.

Letters in shapes: N nodes (rows), n rows of a view, R resources, D domains. Units: cpu in
millicores, memory and storage in bytes, the rest counts. Readers that keep results between cycles
hold a cursor for each log that they depend on. Books keep their state in CopyOnWrite maps, so that
a fork costs one copy of the outer map.
Invariants: a row is a slot, and one that holds no node is False in `alive` and means nothing
elsewhere. A cursor gives every key appended since it last caught up, or None: read everything. A
value is changed in place only by the map that is its only owner.
"""

from collections.abc import Collection, Hashable, ItemsView, Iterator, KeysView, Mapping
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from stellwerk_kube.selectors import parse_integer

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
MAX_EXACT_PERCENT_OPERAND: Final = 1 << 46
"""Below 2**46, `floor(100 * a / b)` in float64 equals int64 division.

`100 * a` is exact there. A quotient up to 100 that is not a whole number is at least `1 / b` away
from the next whole number, and float64 rounds by less than that (2**-47).
"""
MAX_REQUESTED: Final = 1 << 61
"""Usage columns stop here, so that usage plus one pod's request (at most 2**62) stays in int64."""
MIN_KEPT_CHANGES: Final = 4096
"""Changes that a log keeps at least. A reader that is further behind reads all rows again."""
_BEFORE_ALL: Final = -1
"""A position before all changes that any log keeps: its reader reads everything."""

Element = TypeVar("Element", bound=np.generic)
"""The NumPy type of a column's values."""
Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value", bound="Copyable")


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


class Changes(Generic[Key]):
    """A log of changes that keeps only the newest ones."""

    def __init__(self, position: int = 0, keep: int = MIN_KEPT_CHANGES) -> None:
        """`position`: where a fork's log goes on; what came before is too long ago to tell."""
        self._changed: list[Key] = []
        self.position = position
        """The number of changes so far."""
        self.keep = keep
        """Number of newest changes that are kept at least; at most twice as many are."""

    def append(self, changed: Key) -> None:
        """Note a change; from time to time the oldest are dropped."""
        self._changed.append(changed)
        self.position += 1
        if len(self._changed) > 2 * self.keep:
            del self._changed[: len(self._changed) - self.keep]

    def since(self, position: int) -> list[Key] | None:
        """The changes since a position, repeats possible; None: too long ago to tell."""
        start = len(self._changed) - self.position + position
        return None if start < 0 else self._changed[start:]


ChangeLog: TypeAlias = Changes[int]
"""Rows that changed."""


class ScoredAmounts(NamedTuple):
    """Amounts of one resource, offered and used, in the form in which scores compute with them.

    All columns are float64, which is divided in a fifth of int64's time; int64 where an offer is
    not below MAX_EXACT_PERCENT_OPERAND. A used amount that float64 rounds is above every offer that
    is float64.
    """

    offers: npt.NDArray[Any]
    """(n,) whole numbers, at least 0."""
    divisors: npt.NDArray[Any]
    """(n,) the same, with 1 in place of 0."""
    used: npt.NDArray[Any]
    """(n,) what pods on the node request."""
    free: npt.NDArray[Any]
    """(n,) the offer without what pods use, silent containers counted with defaults; below 0 where
    they use more."""
    offered_everywhere: bool
    """True if every node offers some."""

    @classmethod
    def of(
        cls, offers: IntColumn, alive: Mask, used: IntColumn, nonzero_used: IntColumn
    ) -> "ScoredAmounts":
        """Make the columns of the nodes in rows that are alive, from columns of int64."""
        kind = np.float64 if offers.max(initial=0) < MAX_EXACT_PERCENT_OPERAND else np.int64
        whole: npt.NDArray[Any] = offers.astype(kind)
        free = whole - nonzero_used.astype(kind)
        everywhere = bool((offers[alive] > 0).all())
        return cls(whole, np.maximum(whole, 1), used.astype(kind), free, everywhere)


class ChangeCursor(Generic[Key]):
    """The position of one reader in one log; a new cursor has seen nothing."""

    __slots__ = ("changes", "position")

    def __init__(self, changes: Changes[Key]) -> None:
        self.changes = changes
        self.position = _BEFORE_ALL
        """Up to where the reader has looked."""

    @property
    def current(self) -> bool:
        """True if nothing changed since the reader last caught up."""
        return self.position == self.changes.position

    def changed(self, at_most: int | None = None) -> list[Key] | None:
        """List the keys to read again, each once, in the order of their first change.

        None: read everything, because the reader never has, because the log no longer has all
        changes since, or because there are more than `at_most`.
        """
        changed = self.changes.since(self.position)
        if changed is None or (at_most is not None and len(changed) > at_most):
            return None
        return list(dict.fromkeys(changed)) if len(changed) > 1 else changed

    def catch_up(self) -> None:
        """Note that everything up to now was read."""
        self.position = self.changes.position

    def advance(self) -> list[Key] | None:
        """Return `changed()`, and note that these keys were read."""
        changed = self.changed()
        self.catch_up()
        return changed


class HasRows(Protocol):
    """The owner of rows: a snapshot."""

    @property
    def size(self) -> int:
        """The number of rows; it never shrinks."""
        ...


class RowCursor(ChangeCursor[int]):
    """A cursor of a reader that keeps whole columns: of a grown snapshot it wants every row."""

    __slots__ = ("_size", "snapshot")

    def __init__(self, snapshot: HasRows, changes: ChangeLog, *, caught_up: bool = False) -> None:
        """`caught_up`: every row was just read."""
        self.changes = changes
        self.snapshot = snapshot
        self.position = changes.position if caught_up else _BEFORE_ALL
        self._size = snapshot.size if caught_up else 0

    @override
    def changed(self, at_most: int | None = None) -> list[int] | None:
        if self._size != self.snapshot.size:
            return None
        return super().changed(at_most)

    @override
    def catch_up(self) -> None:
        self.position = self.changes.position
        self._size = self.snapshot.size


class Copyable(Protocol):
    """A mutable value."""

    def copy(self) -> Self:
        """Return a copy that can be changed without changing this value."""
        ...


class CopyOnWrite(Generic[Key, Value]):
    """Mutable values by key; a value that is shared with a fork is copied before it is changed."""

    __slots__ = ("_own", "_values")

    def __init__(self, shared: dict[Key, Value] | None = None) -> None:
        self._values: dict[Key, Value] = {} if shared is None else shared
        self._own: set[Key] | None = None if shared is None else set()
        """Keys whose value is not shared with a fork; None: all, there has been no fork."""

    def __contains__(self, key: Key) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._values)

    def items(self) -> ItemsView[Key, Value]:
        """Keys and values in order of arrival; values to be read only."""
        return self._values.items()

    def keys(self) -> KeysView[Key]:
        """The keys in order of arrival."""
        return self._values.keys()

    def get(self, key: Key) -> Value | None:
        """The value, to be read only."""
        return self._values.get(key)

    def to_change(self, key: Key) -> Value | None:
        """The value, to be changed in place; good until the next fork."""
        value = self._values.get(key)
        if self._own is not None and value is not None and key not in self._own:
            value = self._values[key] = value.copy()
            self._own.add(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Set a value that nothing else holds."""
        self._values[key] = value
        if self._own is not None:
            self._own.add(key)

    def discard(self, key: Key) -> None:
        """Drop a value."""
        self._values.pop(key, None)
        if self._own is not None:
            self._own.discard(key)

    def fork(self) -> Self:
        """Share the values; each side copies a value before it changes it."""
        self._own = set()
        return type(self)(self._values.copy())


class Counts(CopyOnWrite[Key, dict[Item, int]]):
    """Counts of items by key (host port → row → pods); most occur nowhere."""

    __slots__ = ()

    def add(self, key: Key, item: Item, change: int) -> None:
        """Add `change`, which may be negative; items and keys without a count are dropped."""
        # Without a fork every value is its own: no frame more for each pod that is counted.
        counts = self._values.get(key) if self._own is None else self.to_change(key)
        if counts is None:
            self.put(key, {item: change})
            return
        count = counts.get(item, 0) + change
        if count:
            counts[item] = count
            return
        counts.pop(item, None)
        if not counts:
            self.discard(key)

    def add_each(self, key: Key, items: Collection[Item], change: int) -> None:
        """Add `change` to the count of each item, as often as it is named, under one key."""
        if not items:
            return
        counts = self.to_change(key)
        if counts is None:
            counts = {}
            self.put(key, counts)
        for item in items:
            count = counts.get(item, 0) + change
            if count:
                counts[item] = count
            else:
                counts.pop(item, None)
        if not counts:
            self.discard(key)

    def of(self, key: Key) -> Mapping[Item, int]:
        """Counts by item under a key, only those that are not 0."""
        return self._values.get(key, {})
