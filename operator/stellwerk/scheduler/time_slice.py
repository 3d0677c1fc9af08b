"""Time slices: the event loop goes on between two steps of something long in the scheduling loop.

Group cycles and costly filters, such as a search for devices, make one each. Invariant: between two
iterations of the event loop there are milliseconds and one step, however many steps there are.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

SLICE_SECONDS: Final = 0.005
"""After so long events and bindings go on; one step is the least that is done."""
FILTER_SLICE_SECONDS: Final = 0.04
"""So long a costly filter may take before it goes on in slices."""
MOST_SLICES: Final = 8
"""So often a decision is made whose costly filters need more time; the last one waits for them."""


class TimeSlice:
    """The time since events and bindings went on."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ends = now() + SLICE_SECONDS

    async def pass_on(self, *, at_once: bool = False) -> None:
        """Let events and bindings go on, if the slice has lasted long enough."""
        if at_once or self._now() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._now() + SLICE_SECONDS


async def in_slices(work: Iterator[None], now: Callable[[], float]) -> None:
    """Do work while the event loop goes on."""
    slices = TimeSlice(now)
    for _ in work:
        await slices.pass_on()
