"""The progress bar of a simulation: how far it is, how fast, how long it will take.

Experiments show one. Invariant: it writes to a terminal alone, and leaves an empty line behind.
"""

import sys
from typing import Final, TextIO

from stellwerk.clock import Clock, SystemClock

_WIDTH: Final = 30


class Progress:
    """One line that is written over and over."""

    def __init__(
        self, total: int, output: TextIO | None = None, clock: Clock | None = None
    ) -> None:
        """`total`: arrivals of all runs; `output`: standard error, unless given."""
        self._total = max(1, total)
        self._output = output or sys.stderr
        self._clock = clock or SystemClock()
        self._started_seconds = self._clock.monotonic()
        self._shown = self._output.isatty()

    def show(self, before: int, arrived: int = 0) -> None:
        """Say how many pods have arrived, in runs before this one and in it."""
        if self._shown:
            self._output.write(f"\r{self.line(before + arrived)}\x1b[K")
            self._output.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            self._output.write("\r\x1b[K")
            self._output.flush()

    def line(self, arrived: int) -> str:
        """The bar with rate and time left."""
        share = min(1.0, arrived / self._total)
        bar = "#" * int(_WIDTH * share)
        elapsed = self._clock.monotonic() - self._started_seconds
        rate = arrived / elapsed if elapsed > 0 else 0.0
        left = f"{(self._total - arrived) / rate:.0f} s left" if rate else "…"
        return f"[{bar:<{_WIDTH}}] {100 * share:3.0f} %  {rate:.0f} pods/s  {left}"
