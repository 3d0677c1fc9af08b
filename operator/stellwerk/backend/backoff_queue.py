"""Pods whose backoff has not passed: those that were rejected, and apart those whose attempt broke.

Part of the scheduling queue. Invariant: pods leave in the order of the one-second window in which
their backoff ends (`backoffQOrderingWindowDuration`; backoff is flushed as often), and within a
window of rejected pods in activeQ's order, because an idle activeQ takes from here early.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from stellwerk.backend.queued_pod import Place, QueuedPod

_SPARE_ITEMS: Final = 64

_Item: TypeAlias = tuple[float, tuple[float, ...], int, QueuedPod]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failed pod is left alone."""

    initial_seconds: float = 1.0
    max_seconds: float = 10.0
    """0 turns backoff off."""

    def seconds(self, failures: int) -> float:
        """The pause after so many failures in a row: doubled each time, up to the maximum."""
        if failures == 0 or self.max_seconds == 0:
            return 0.0
        # Beyond 2^64 any initial pause is above any maximum; a huge exponent would overflow.
        return min(self.max_seconds, self.initial_seconds * 2.0 ** min(failures - 1, 64))


def set_backoff(entry: QueuedPod, backoff: Backoff) -> None:
    """Work out when the backoff of an entry that has just failed ends."""
    pause = backoff.seconds(entry.consecutive_errors or entry.unschedulable_count)
    entry.backoff_until = math.floor(entry.queued_at + pause) if pause else 0.0


def is_backing_off(entry: QueuedPod, now: float) -> bool:
    """Whether the entry has to wait; all of its last window counts as waiting."""
    return entry.backoff_until > 0 and entry.backoff_until >= math.floor(now)


class _ExpiryHeap:
    """A heap by expiry from which entries are deleted lazily."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._items: list[_Item] = []

    def push(self, entry: QueuedPod, live: int) -> None:
        if len(self._items) > 2 * live + _SPARE_ITEMS:
            self._items = [item for item in self._items if self._is_live(item)]
            heapify(self._items)
        # Errors are ordered by expiry alone; the sequence keeps equal ones in order of arrival.
        key = entry.sort_key if self._place is Place.BACKOFF else ()
        heappush(self._items, (entry.backoff_until, key, entry.sequence, entry))

    def head(self) -> QueuedPod | None:
        items = self._items
        while items:
            if self._is_live(items[0]):
                return items[0][3]
            heappop(items)
        return None

    def pop(self) -> None:
        heappop(self._items)

    def _is_live(self, item: _Item) -> bool:
        return item[3].place is self._place and item[3].sequence == item[2]


class BackoffQueue:
    """See the module docstring. The scheduling queue sets an entry's place before it pushes it."""

    def __init__(self) -> None:
        self._rejected = _ExpiryHeap(Place.BACKOFF)
        self._broken = _ExpiryHeap(Place.ERROR_BACKOFF)

    def push(self, entry: QueuedPod, live: int) -> None:
        """Put in an entry of place BACKOFF or ERROR_BACKOFF; `live` is how many have that place."""
        (self._rejected if entry.place is Place.BACKOFF else self._broken).push(entry, live)

    def pop_early(self) -> QueuedPod | None:
        """Take the next rejected pod although its backoff has not passed; never one that broke."""
        entry = self._rejected.head()
        if entry is not None:
            self._rejected.pop()
        return entry

    def pop_completed(self, now: float) -> Iterator[QueuedPod]:
        """Take every pod whose backoff has passed."""
        for heap in (self._rejected, self._broken):
            while (entry := heap.head()) is not None and not is_backing_off(entry, now):
                heap.pop()
                yield entry
