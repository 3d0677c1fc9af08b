"""Maps whose values forks share until one side changes one, and the counts that are made of them.

Books of the snapshot and the cache keep their state in them, so that a fork costs one copy of the
outer map, however much the values hold. Invariant: a value is changed in place only by the map that
alone holds it.
"""

from collections.abc import Collection, Hashable, ItemsView, Iterator, KeysView, Mapping
from typing import Generic, Protocol, Self, TypeVar


class Copyable(Protocol):
    """A mutable value."""

    def copy(self) -> Self:
        """The same value, to be changed apart."""
        ...


Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item", bound=Hashable)
Value = TypeVar("Value", bound=Copyable)


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
        """The same values, shared; what either side changes from now on the other does not see."""
        self._own = set()
        return type(self)(self._values.copy())


class Counts(CopyOnWrite[Key, dict[Item, int]]):
    """How often each item occurs under a key (host port → row → pods); most occur nowhere."""

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
