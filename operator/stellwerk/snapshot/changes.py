"""What changed, in order, and the cursors that follow it.

The snapshot, the nominator and the object store append; whatever keeps results between cycles
holds a cursor for each log that they depend on. Invariant: what a cursor gives contains every key
appended since it last caught up, or is None: look at everything.
"""

from collections.abc import Hashable
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from typing_extensions import override

Key = TypeVar("Key", bound=Hashable)

CHANGES_KEPT: Final = 4096
"""A reader that lags behind by more looks at everything."""
_BEFORE_ALL: Final = -1
"""A position that no log can tell the changes since."""


class Changes(Generic[Key]):
    """A log of what changed, of which only the newest part is held."""

    def __init__(self, position: int = 0, keep: int = CHANGES_KEPT) -> None:
        """`position`: where a fork's log goes on; what came before is too long ago to tell."""
        self._changed: list[Key] = []
        self.position = position
        """The number of changes so far."""
        self.keep = keep
        """So many of the newest are held at least, and at most twice as many."""

    def append(self, changed: Key) -> None:
        """Note a change; from time to time the oldest are dropped."""
        self._changed.append(changed)
        self.position += 1
        if len(self._changed) > 2 * self.keep:
            del self._changed[: len(self._changed) - self.keep]

    def since(self, position: int) -> list[Key] | None:
        """What changed since a position, repeats possible; None: too long ago to tell."""
        start = len(self._changed) - self.position + position
        return None if start < 0 else self._changed[start:]


ChangeLog: TypeAlias = Changes[int]
"""Rows that changed."""


class ChangeCursor(Generic[Key]):
    """How far one reader has followed one log; a new cursor has seen nothing."""

    __slots__ = ("changes", "position")

    def __init__(self, changes: Changes[Key]) -> None:
        self.changes = changes
        self.position = _BEFORE_ALL
        """Up to where the reader has looked."""

    @property
    def current(self) -> bool:
        """Whether nothing changed since the reader last caught up."""
        return self.position == self.changes.position

    def changed(self, at_most: int | None = None) -> list[Key] | None:
        """What to look at again, each key once, in the order of their first change.

        None: look at everything, because the reader never has, because it was too long ago to tell,
        or because more than `at_most` changes were noted.
        """
        changed = self.changes.since(self.position)
        if changed is None or (at_most is not None and len(changed) > at_most):
            return None
        return list(dict.fromkeys(changed)) if len(changed) > 1 else changed

    def catch_up(self) -> None:
        """Everything up to now has been looked at."""
        self.position = self.changes.position

    def advance(self) -> list[Key] | None:
        """What to look at again, as `changed` says; it counts as looked at from now on."""
        changed = self.changed()
        self.catch_up()
        return changed


class HasRows(Protocol):
    """What rows belong to: a snapshot."""

    @property
    def size(self) -> int:
        """The number of rows; it never shrinks."""
        ...


class RowCursor(ChangeCursor[int]):
    """A cursor of a reader that keeps whole columns: of a grown snapshot it wants every row."""

    __slots__ = ("_size", "snapshot")

    def __init__(self, snapshot: HasRows, changes: ChangeLog, *, caught_up: bool = False) -> None:
        """`caught_up`: every row has just been looked at."""
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
