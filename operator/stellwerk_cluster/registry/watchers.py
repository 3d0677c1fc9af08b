"""The buffers between the store and the readers of changes, found by what they read.

The store offers every change to `Watchers`; `apiserver.watching` opens and closes them. Invariant:
a watcher gets every change that its trigger can concern, in order, or is cut off.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk_cluster.apimachinery.selectors import Trigger
    from stellwerk_cluster.registry.entries import StoreEvent

_MAX_WAITING_EVENTS: Final = 65_536
"""Events that wait for a watcher. Above it, its watch is ended."""
_MAX_WAITING_BYTES: Final = 64 << 20
"""Bytes of the events that wait for a watcher. Above it, its watch is ended."""


class Watcher:
    """The buffer between the store and one reader of changes."""

    __slots__ = (
        "_bytes",
        "_cut_off",
        "_limit",
        "_limit_bytes",
        "_wake",
        "buffer",
        "overflowed",
        "trigger",
    )

    def __init__(
        self,
        wake: Callable[[], None],
        cut_off: Callable[[], None],
        *,
        limit: int = _MAX_WAITING_EVENTS,
        limit_bytes: int = _MAX_WAITING_BYTES,
        trigger: Trigger | None = None,
    ) -> None:
        """Call `wake` when the buffer stops being empty, `cut_off` once it is over a limit."""
        self._wake = wake
        self._cut_off = cut_off
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self.trigger = trigger
        """The value that all the changes it reads have in common; None: there is none."""
        self.buffer: deque[StoreEvent] = deque()
        self.overflowed = False

    def offer(self, event: StoreEvent) -> None:
        """Put an event into the buffer."""
        if self.overflowed:
            return
        self._bytes += len(event.entry.data)
        if len(self.buffer) >= self._limit or self._bytes > self._limit_bytes:
            self.overflowed = True
            self.buffer.clear()
            self._cut_off()
            return
        self.buffer.append(event)
        if len(self.buffer) == 1:
            self._wake()

    def drain(self) -> list[StoreEvent]:
        """Take all events out of the buffer."""
        events = list(self.buffer)
        self.buffer.clear()
        self._bytes = 0
        return events


class Watchers:
    """The open watchers of one collection, by trigger: a change is offered to few of many."""

    def __init__(self) -> None:
        """None are open."""
        self._by_trigger: dict[Trigger | None, list[Watcher]] = {}

    def append(self, watcher: Watcher) -> None:
        """Offer changes to a watcher from now on."""
        self._by_trigger.setdefault(watcher.trigger, []).append(watcher)

    def remove(self, watcher: Watcher) -> None:
        """Offer it no more changes."""
        same = self._by_trigger[watcher.trigger]
        same.remove(watcher)
        if not same:
            del self._by_trigger[watcher.trigger]

    def __iter__(self) -> Iterator[Watcher]:
        """All of them."""
        for same in self._by_trigger.values():
            yield from same

    def offer(self, event: StoreEvent) -> None:
        """Offer a change to the watchers whose trigger it meets, before or after the change."""
        if not self._by_trigger:
            return
        for trigger in self._met(event):
            for watcher in self._by_trigger.get(trigger, ()):
                watcher.offer(event)

    def _met(self, event: StoreEvent) -> set[Trigger | None]:
        entry = event.entry
        namespace, name = entry.key
        met: set[Trigger | None] = {
            None,
            ("metadata.namespace", namespace),
            ("metadata.name", name),
            ("spec.nodeName", entry.node_name),
        }
        if event.previous is not None:
            met.add(("spec.nodeName", event.previous.node_name))
        return met
