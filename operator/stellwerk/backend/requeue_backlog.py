"""The backlog of requeues: work of the queue that is too long for one slice of the event loop.

One change may concern tens of thousands of rejected pods. Each has hints to be called and has to be
moved, and meanwhile new pods must be scheduled. So the queue writes such work as a generator
(`Work`). `begin` does it at once if it is small and no other work waits. Else the scheduler does it
slice by slice (`work_off`), and attempts and events go on in between.
Invariant: work is done in the order in which it came, and none is lost. More than
MAX_PENDING_CHANGES changes are replaced by one retry of every unschedulable pod.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

Work: TypeAlias = Iterator[int]
"""A generator that does a little at each step and yields its cost in units. A unit is one call of a
hint function."""
UNITS_PER_MOVE: Final = 4
"""Cost of moving one pod to another place, in units (calls of a hint function)."""
MAX_UNITS_PER_SLICE: Final = 1_000
"""Units of work before the event loop runs. They take 1 to 2 ms if they are calls of hint
functions, and 4 ms if they are moves."""
MAX_PENDING_CHANGES: Final = 64
"""Changes that may wait in the backlog. Beyond this number, the queue calls no hints for them and
retries every unschedulable pod once. That costs at most one attempt for each pod, and the backlog
has a bound."""


class _Item(NamedTuple):
    work: Work
    is_change: bool


class RequeueBacklog:
    """A first-in, first-out list of work, bounded in its changes."""

    def __init__(self, retry_all: Callable[[], Work]) -> None:
        """`retry_all` makes the work that takes the place of too many changes."""
        self._retry_all = retry_all
        self._items: deque[_Item] = deque()
        self._changes = 0
        self.on_begun: Callable[[], None] = lambda: None
        """Called when `work_off` has something to do; the scheduler wakes up by it."""

    def __bool__(self) -> bool:
        return bool(self._items)

    def begin(self, work: Work, *, is_change: bool = False) -> None:
        """Do a piece of work: at once if it is small and no other waits, else by `work_off`."""
        if not self._items and not _advance(work, MAX_UNITS_PER_SLICE):
            return
        self._items.append(_Item(work, is_change))
        self._changes += is_change
        if self._changes > MAX_PENDING_CHANGES:
            others = [item for item in self._items if not item.is_change]
            # The retry counts as a change itself, so that a second one replaces the first.
            self._items = deque([*others, _Item(self._retry_all(), is_change=True)])
            self._changes = 1
        self.on_begun()

    def work_off(self, units: int | None = None) -> bool:
        """Do one slice, of `units` or MAX_UNITS_PER_SLICE; returns whether anything is left."""
        if self._items:
            item = self._items[0]
            if not _advance(item.work, MAX_UNITS_PER_SLICE if units is None else units):
                self._items.popleft()
                self._changes -= item.is_change
        return bool(self._items)


def _advance(work: Work, units: int) -> bool:
    """Go on with a piece of work until it has spent its units; returns whether any work is left."""
    for spent in work:
        units -= spent
        if units <= 0:
            return True
    return False
