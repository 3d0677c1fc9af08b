"""Time slices: the event loop goes on between two steps of something long in the scheduling loop.

Group cycles and costly filters, such as a search for devices, make one each. Invariant: between two
iterations of the event loop there are milliseconds and one step, however many steps there are.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

TIME_SLICE_SECONDS: Final = 0.005
"""Time after which long work yields to events and bindings. One step is always done, however long
it takes."""
FILTER_SLICE_SECONDS: Final = 0.04
"""Time that costly filters may take in one go. Beyond it they are worked off in slices, and the
decision is made again with what they have found."""
MAX_SLICES: Final = 8
"""Tries of a decision whose costly filters need more time. The last one has no limit: a cluster
that changes all the time must not keep a pod from being decided."""


class TimeSlice:
    """The time since work yielded last: `pass_on` yields when it is long enough ago."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ends = now() + TIME_SLICE_SECONDS

    async def pass_on(self, *, at_once: bool = False) -> None:
        """Yield to events and bindings if the slice is used up, or `at_once`."""
        if at_once or self._now() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._now() + TIME_SLICE_SECONDS


async def in_slices(work: Iterator[None], now: Callable[[], float]) -> None:
    """Do work step by step, and yield to events and bindings between slices of it."""
    slices = TimeSlice(now)
    for _ in work:
        await slices.pass_on()
