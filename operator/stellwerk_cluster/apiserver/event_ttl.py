"""Events go an hour after they were last written, as those of an API server do.

Made by `cluster.EmbeddedCluster`. Invariant: of more than `MAX_STORED_EVENTS` events the oldest
go at the next cleaning, however many are written within the hour.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api

EVENT_TTL_SECONDS: Final = 3600.0
"""Time for which an event is kept: kube-apiserver's `--event-ttl`."""
MAX_STORED_EVENTS: Final = 50_000
"""Events that are kept. Above it, the oldest go at once, because they are held in memory."""
_EVENTS: Final = "events"
_EXPIRED: Final = "expired"
_TOO_MANY: Final = "too many"
_BATCH_SECONDS: Final = 10.0
"""Events that expire within so long go together."""


class EventExpiry(Worker):
    """Removes events that nothing has written to for an hour."""

    def __init__(
        self, api: Api, *, ttl_seconds: float = EVENT_TTL_SECONDS, most: int = MAX_STORED_EVENTS
    ) -> None:
        """Follow the events in the store of `api`; those that are there count as written now."""
        self._api = api
        self._ttl_seconds = ttl_seconds
        self._most = most
        self._written: dict[Key, float] = {}
        """Event → when it was last written, monotonic; the oldest first."""
        self._timed = False
        self.queue = WorkQueue(api.clock)
        collection = api.store.collection(_EVENTS)
        for entry in collection.entries():
            self._on_event(StoreEvent(ADDED, entry, None))
        collection.listeners.append(self._on_event)

    def _on_event(self, event: StoreEvent) -> None:
        key = event.entry.key
        self._written.pop(key, None)
        if event.type == DELETED:
            return
        self._written[key] = self._api.clock.monotonic()
        if len(self._written) > self._most:
            self.queue.add(_TOO_MANY)
        if not self._timed:
            self._timed = True
            self.queue.add_after(_EXPIRED, self._ttl_seconds)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Remove what has expired, and what is too much."""
        now = self._api.clock.monotonic()
        excess = len(self._written) - self._most
        old = []
        for position, (event, written) in enumerate(self._written.items()):
            if position >= excess and written + self._ttl_seconds > now:
                break
            old.append(event)
        for event in old:
            self._remove(event)
        if key == _EXPIRED:
            self._timed = bool(self._written)
            for oldest in islice(self._written.values(), 1):
                left = oldest + self._ttl_seconds - now
                self.queue.add_after(_EXPIRED, max(_BATCH_SECONDS, left))

    def _remove(self, key: Key) -> None:
        entry = self._api.store.collection(_EVENTS).get(key)
        if entry is None:
            self._written.pop(key, None)
        else:
            self._api.store.remove(_EVENTS, entry)
