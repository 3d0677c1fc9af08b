"""How long a search for devices may take.

`finder` makes one for all searches of an attempt. Invariant: what a claim invents ends its own
search, and does not take the time of every other pod.
"""

from collections.abc import Callable
from typing import Final

_STEPS_BETWEEN_LOOKS: Final = 32


class SearchTimeoutError(Exception):
    """The search has taken too long."""


class Patience:
    """How long the searches of one attempt may take, by the clock and in steps."""

    def __init__(self, now_seconds: Callable[[], float], seconds: float, most_steps: int) -> None:
        """`seconds`: 0 is no limit; then the steps are the only one."""
        self._now_seconds = now_seconds
        self._until_seconds = now_seconds() + seconds if seconds > 0 else None
        self._steps_left = most_steps

    def step(self) -> bool:
        """One more device is tried; returns whether it is time for a pause.

        Raises:
            SearchTimeoutError: that is enough.
        """
        self._steps_left -= 1
        if self._steps_left < 0:
            raise SearchTimeoutError
        if self._steps_left % _STEPS_BETWEEN_LOOKS:
            return False
        if self._until_seconds is not None and self._now_seconds() > self._until_seconds:
            raise SearchTimeoutError
        return True
