"""Filters that have more to do than a turn of the loop allows, such as a search for devices.

Cycles give them turns, and let them do the rest in slices before they decide anew. Invariant: what
is undone is done while the loop turns, and after so many turns it is not waited for any more.
"""

from collections.abc import Callable, Iterator
from typing import Final

from stellwerk.scheduler.slices import Slices

TURN_SECONDS: Final = 0.04
"""So long a costly filter may take before it goes on in slices."""
MOST_TURNS: Final = 8


async def in_slices(work: Iterator[None], now: Callable[[], float]) -> None:
    """Do work while the loop turns."""
    slices = Slices(now)
    for _ in work:
        await slices.pass_on()
