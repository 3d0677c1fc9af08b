"""What was derived from stored bytes a short while ago, bounded by the size of those bytes.

Entries keep their parsed object here, and changes their line of a watch stream. Invariant: what is
held goes back to at most `limit_bytes` of stored bytes, beyond the latest holder alone.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Holder(Protocol):
    """What holds something derived, and can derive it again."""

    __slots__ = ()

    def release(self) -> None:
        """Let go of what was derived."""
        ...


class Recent:
    """The holders that derived something last, oldest first."""

    def __init__(self, limit_bytes: int) -> None:
        """Hold what comes from at most so many stored bytes."""
        self._limit_bytes = limit_bytes
        self._held: deque[tuple[Holder, int]] = deque()
        self._bytes = 0

    def keep(self, holder: Holder, size_bytes: int) -> None:
        """Count a holder that has just derived something, and release the oldest beyond."""
        self._held.append((holder, size_bytes))
        self._bytes += size_bytes
        while self._bytes > self._limit_bytes and len(self._held) > 1:
            oldest, size = self._held.popleft()
            oldest.release()
            self._bytes -= size
