"""The events that wait to be written, in the order in which they are.

`event_recorder` fills and empties it. What went well is written first, for there is one such event
a binding, while pods that fit nowhere cause any number of warnings; but of eight that are written
one may be a warning. Invariant: about one topic at most one event waits, the newest, in the place
of the first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

Queued = TypeVar("Queued")

WARNINGS_ONE_OF: Final = 8
"""While others wait."""


class EventQueue(Generic[Queued]):
    """Two lines: events that say that something went well, and warnings."""

    def __init__(self) -> None:
        # A plain dict walks past all that were taken from its front before.
        self._normal: OrderedDict[Hashable, Queued] = OrderedDict()
        self._warnings: OrderedDict[Hashable, Queued] = OrderedDict()
        self._taken = 0

    def __len__(self) -> int:
        return len(self._normal) + len(self._warnings)

    def holds(self, topic: Hashable) -> bool:
        """Whether an event about the topic waits."""
        return topic in self._normal or topic in self._warnings

    def put(self, topic: Hashable, event: Queued, *, warning: bool) -> Queued | None:
        """Let an event wait; the one that it stands in place of, if there was one."""
        line = self._warnings if warning else self._normal
        before = line.get(topic)
        line[topic] = event
        return before

    def take(self) -> Queued:
        """The next event to write.

        Raises:
            KeyError: none waits.
        """
        self._taken += 1
        warning_is_due = self._taken % WARNINGS_ONE_OF == 0 and bool(self._warnings)
        line = self._warnings if warning_is_due or not self._normal else self._normal
        return line.popitem(last=False)[1]
