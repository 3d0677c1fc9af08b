"""How long an attempt may hold the loop, and the work that is left when that time is over.

The scheduling coroutine gives each attempt a turn; a costly filter spends it. Invariant: an attempt
whose work is unfinished has decided nothing: the work is finished in slices, and then it is made
anew.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class Turn:
    """The time of one attempt, and what it has left undone."""

    now_seconds: Callable[[], float]
    until_seconds: float
    unfinished: Iterator[None] | None = None
    """Goes on with the work from step to step; its results are kept where it was begun."""

    def completes(self, work: Iterator[None]) -> bool:
        """Do the work until it is done or the time is over; returns whether it is done."""
        for _ in work:
            if self.now_seconds() > self.until_seconds:
                self.unfinished = work
                return False
        return True
