"""Filters that have more to do than a turn of the loop allows, such as a search for devices.

Cycles give them turns, and let them do the rest in slices before they decide anew. Invariant: what
is undone is done while the loop turns, and after so many turns it is not waited for any more.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

TURN_SECONDS: Final = 0.04
"""So long a costly filter may take before it goes on in slices."""
SLICE_SECONDS: Final = 0.005
MOST_TURNS: Final = 8


async def in_slices(work: Iterator[None], now: Callable[[], float]) -> None:
    """Do work while the loop turns."""
    began_seconds = now()
    for _ in work:
        if now() - began_seconds > SLICE_SECONDS:
            await asyncio.sleep(0)
            began_seconds = now()
