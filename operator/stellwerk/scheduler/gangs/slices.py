"""The turns that events and bindings get while a group is dealt with.

A group cycle makes one, everything it does for many members passes on between two of them.
Invariant: between two turns of the others there are milliseconds, however large the group is.
"""

import asyncio
from collections.abc import Callable
from typing import Final

SLICE_SECONDS: Final = 0.005
"""After so long the others have their turn; one member's decision is the least that is done."""


class Slices:
    """The time since the others had their turn."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._ends = now() + SLICE_SECONDS

    async def pass_on(self, *, at_once: bool = False) -> None:
        """Let the others have their turn, if this one has lasted long enough."""
        if at_once or self._now() >= self._ends:
            await asyncio.sleep(0)
            self._ends = self._now() + SLICE_SECONDS
