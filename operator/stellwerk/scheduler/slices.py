"""The turns that events and bindings get while something long is done in the coroutine.

Group cycles and costly filters make one each, and pass on between two of their steps. Invariant:
between two turns of the others there are milliseconds and one step, however many steps there are.
"""

import asyncio
from collections.abc import Callable
from typing import Final

SLICE_SECONDS: Final = 0.005
"""After so long the others have their turn; one step is the least that is done."""


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
