"""When an extender that does not answer is left alone.

Each `HttpExtender` has one. Invariant: after three time-outs in a row at most one call in ten
seconds goes out, until one is answered in time.
"""

from typing import Final

from stellwerk.clock import Clock

TIMEOUTS_IN_A_ROW: Final = 3
PROBE_SECONDS: Final = 10.0


class ExtenderPause:
    """Counts time-outs in a row, and says whether a call may go out."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timeouts = 0
        self._probe_at_seconds = 0.0

    def admits(self) -> bool:
        """Whether the next call may go out; a call that may is the probe while others may not."""
        if self._timeouts < TIMEOUTS_IN_A_ROW:
            return True
        now_seconds = self._clock.monotonic()
        if now_seconds < self._probe_at_seconds:
            return False
        self._probe_at_seconds = now_seconds + PROBE_SECONDS
        return True

    def timed_out(self) -> None:
        """A call was not answered in time."""
        self._timeouts += 1
        if self._timeouts == TIMEOUTS_IN_A_ROW:
            self._probe_at_seconds = self._clock.monotonic() + PROBE_SECONDS

    def ended(self) -> None:
        """A call ended in time, however."""
        self._timeouts = 0
