"""How many events of a stream are handled in a row before other tasks have their turn.

`watch_stream` asks after each event. A stream that uses up its turn has more to say than it could,
and is behind: its turns double until they suffice, so that what was not read does not pile up while
pods are tried that are known already. Invariant: where a stream had nothing to say for a turn of
the loop, its next turn is an ordinary one.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

EVENTS_PER_TURN: Final = 32
"""How many events are handled in a row, in an ordinary turn."""
TURN_SECONDS: Final = 0.002
"""The same, however few they are: of pods that are all different each takes its time."""
LONGEST_TURN: Final = 4
"""In ordinary turns: bindings wait for it, too."""


class StreamTurn:
    """What one stream has used of its turn, event by event."""

    __slots__ = ("_began_seconds", "_events", "_length", "_used_up")

    def __init__(self) -> None:
        self._events = 0
        """Handled since the loop has turned."""
        self._began_seconds = 0.0
        self._used_up = False
        self._length = 1

    def used_up(self, began_seconds: float) -> bool:
        """Whether others should have a turn now; asked after an event, with when it began."""
        events = self._events = self._events + 1
        if events == 1:
            self._began_seconds = began_seconds
            asyncio.get_running_loop().call_soon(self._turned)
        length = self._length
        self._used_up = (
            events >= length * EVENTS_PER_TURN
            or time.monotonic() - self._began_seconds >= length * TURN_SECONDS
        )
        return self._used_up

    def _turned(self) -> None:
        """The loop has turned: the stream gave way, or had nothing more to say."""
        self._length = min(2 * self._length, LONGEST_TURN) if self._used_up else 1
        self._events, self._used_up = 0, False
