"""Requeueing that is too much for one turn of the loop, cut into slices.

Part of the scheduling queue. One change may concern tens of thousands of rejected pods, each with a
spec of its own whose hints are to be asked, and each to be moved; pods that come meanwhile shall
not wait for that. Small work is done at once, as if there were no backlog; the rest is done slice
by slice by whatever drives the queue. Invariant: work is done in the order in which it came, and
none is lost: of too many changes that wait, all pods that they may concern count as worth an
attempt, which costs no more than one each.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

Work: TypeAlias = Iterator[int]
"""Does a little at each step, and says how many hint functions it has called, or the like."""

MOVE_UNITS: Final = 4
"""To move a pod takes about as long as to call so many hint functions."""
SLICE_UNITS: Final = 1_000
"""One or two milliseconds."""
MOST_CHANGES: Final = 64
"""Of more that wait, none is looked at any more."""


class _Item(NamedTuple):
    work: Work
    is_change: bool


class RequeueBacklog:
    """Work in slices; `everything` makes the work that takes the place of too many changes."""

    def __init__(self, everything: Callable[[], Work]) -> None:
        self._everything = everything
        self._items: deque[_Item] = deque()
        self._changes = 0
        self.on_begun: Callable[[], None] = lambda: None
        """Called when there is work that `work_off` has to do."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def begin(self, work: Work, *, is_change: bool = False) -> None:
        """Do a piece of work: at once if it is small and none is before it."""
        if not self._items and not _advance(work, SLICE_UNITS):
            return
        self._items.append(_Item(work, is_change))
        self._changes += is_change
        if self._changes > MOST_CHANGES:
            self._collapse()
        self.on_begun()

    def work_off(self) -> bool:
        """Do one slice; returns whether anything is left."""
        if self._items:
            item = self._items[0]
            if not _advance(item.work, SLICE_UNITS):
                self._items.popleft()
                self._changes -= item.is_change
        return bool(self._items)

    def _collapse(self) -> None:
        others = [item for item in self._items if not item.is_change]
        # As a change, it gives way to the next of its kind: there is never more than one.
        self._items = deque([*others, _Item(self._everything(), is_change=True)])
        self._changes = 1


def _advance(work: Work, units: int) -> bool:
    """Go on with a piece of work for so many units; returns whether anything is left of it."""
    for spent in work:
        units -= spent
        if units <= 0:
            return True
    return False
