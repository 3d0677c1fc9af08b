"""backoffQ: pods that wait for their backoff to pass, rejected ones apart from those in error.

Part of the scheduling queue, whose `flush_backoff` moves pods on in time. Pods leave early if

- activeQ is idle: rejected pods alone (`QueuedPod.may_go_early`);
- they are activated, by a plugin or a preemption: any pod (`activate`);
- an attempt for their group takes them along: any pod (`pop_with_group`).

Two kinds of rejected pods do not wait here for what is left of their backoff (`_requeue`): those
for which a plugin that answered Pending says Queue in its hint, and members of a group bound in
part that keeps its order (`keep_group_order`). Nothing else shortens a backoff. An update of the
pod only sorts it again, and a change in the cluster asks hints about unschedulablePods alone.

Invariant: pods whose backoff has passed leave in the order of the one-second window in which it
ended (`backoffQOrderingWindowDuration`; backoff is flushed once a second). Within a window,
rejected pods leave in activeQ's order, because an idle activeQ pops them from here early.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from stellwerk.backend.queued_pod import Place, QueuedPod

MIN_STALE_ITEMS: Final = 64
"""A heap is rebuilt when it has this many more stale items than live ones. With fewer, rebuilding
costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses of a pod after failed attempts.

    `Profiles.backoff` makes it of podInitialBackoffSeconds and podMaxBackoffSeconds of the pod's
    profile, which are 1 and 10 where it names none; `SchedulingQueue` asks it when an attempt has
    failed (`set_backoff`).
    """

    initial_seconds: float = 1.0
    max_seconds: float = 10.0
    """0, which no profile can say, turns backoff off."""

    def seconds(self, failures: int) -> float:
        """Return the pause after this many failures: doubled with each one, up to the maximum."""
        if failures == 0 or self.max_seconds == 0:
            return 0.0
        # Beyond 2^64 any initial pause is above any maximum; a huge exponent would overflow.
        return min(self.max_seconds, self.initial_seconds * 2.0 ** min(failures - 1, 64))


def set_backoff(entry: QueuedPod, backoff: Backoff) -> None:
    """Work out when the backoff of an entry that has just failed ends.

    After an error, the errors since the last rejection count. After a rejection, all rejections
    count since the pod entered the queue, as in kube-scheduler: nothing resets their number.
    """
    pause = backoff.seconds(entry.consecutive_errors or entry.unschedulable_count)
    entry.backoff_expiration = math.floor(entry.queued_at + pause) if pause else 0.0


def is_backing_off(entry: QueuedPod, now: float) -> bool:
    """Return whether the entry's backoff has not passed; it includes all of its last window."""
    return entry.backoff_expiration > 0 and entry.backoff_expiration >= math.floor(now)


class _Item(NamedTuple):
    """An entry in the order of a heap; `sequence` is unique, so that entries are not compared."""

    expiration: float
    sort_key: tuple[float, ...]
    sequence: int
    entry: QueuedPod

    @property
    def is_stale(self) -> bool:
        return self.sequence != self.entry.sequence


class _ExpirationHeap:
    """A heap by expiration from which stale items are dropped when they come up."""

    def __init__(self) -> None:
        self._items: list[_Item] = []

    def push(self, item: _Item, live: int) -> None:
        """Put in an item; `live` is how many items are not stale."""
        if len(self._items) > 2 * live + MIN_STALE_ITEMS:
            self._items = [each for each in self._items if not each.is_stale]
            heapify(self._items)
        heappush(self._items, item)

    def head(self) -> QueuedPod | None:
        items = self._items
        while items:
            if not items[0].is_stale:
                return items[0].entry
            heappop(items)
        return None

    def pop(self) -> None:
        """Drop the head."""
        heappop(self._items)


class BackoffQueue:
    """podBackoffQ and podErrorBackoffQ; the scheduling queue sets place and sequence, then pushes.

    An entry leaves early by getting another sequence: its item here is stale then.
    """

    def __init__(self) -> None:
        self._pod_backoff_q = _ExpirationHeap()
        self._pod_error_backoff_q = _ExpirationHeap()

    def push(self, entry: QueuedPod, live: int) -> None:
        """Put in an entry of place BACKOFF or ERROR_BACKOFF; `live` is how many have that place."""
        expiration, sequence = entry.backoff_expiration, entry.sequence
        if entry.place is Place.BACKOFF:
            item = _Item(expiration, entry.sort_key, sequence, entry)
            self._pod_backoff_q.push(item, live)
        else:
            # Ordered by expiration alone; the sequence keeps equal ones in order of arrival.
            self._pod_error_backoff_q.push(_Item(expiration, (), sequence, entry), live)

    def pop_backoff(self) -> QueuedPod | None:
        """Pop the next rejected pod although its backoff has not passed; never one in error."""
        entry = self._pod_backoff_q.head()
        if entry is not None:
            self._pod_backoff_q.pop()
        return entry

    def pop_all_backoff_completed(self, now: float) -> Iterator[QueuedPod]:
        """Pop every pod whose backoff has passed."""
        for heap in (self._pod_backoff_q, self._pod_error_backoff_q):
            while (entry := heap.head()) is not None and not is_backing_off(entry, now):
                heap.pop()
                yield entry
