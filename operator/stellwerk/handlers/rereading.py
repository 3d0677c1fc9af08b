"""Objects that are read, not watched: after a failure, for the audit, and list by list.

`lifecycle` runs the Rereader, and Resync where the fast lane is not used; the audit's rounds put
objects into the Redelivery that `app` makes. Invariants: an object whose handling failed is read
again, found gone, or marked still, so that no event is lost to an error; what a delivery remembers
of an object is what WatchHandlers were given last, by whichever way; with Resync, an object that
exists, or no longer does, is known to be so one period later at the latest.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk.client.paging import checked_page, pages
from stellwerk_kube.errors import ApiError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.availability import Availability
    from stellwerk.handlers.delivery import Delivery, KnownObject
    from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

DELAY_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 5.0
LIST_PERIOD_SECONDS: Final = 60.0
_LIST_RETRY_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 1.0
_PAGE_ITEMS: Final = 500


@dataclass(frozen=True, slots=True)
class _Marked:
    delivery: Delivery
    uid: str
    obj: KnownObject


class Rereader:
    """Objects to read again, by uid, and the coroutine that reads them after a short delay."""

    def __init__(self, client: ClusterClient, *, delay_seconds: float = DELAY_SECONDS) -> None:
        self._client = client
        self._delay_seconds = delay_seconds
        self._marked: dict[str, _Marked] = {}
        self._wake = asyncio.Event()

    def mark(self, delivery: Delivery, uid: str, obj: KnownObject) -> None:
        """Have an object read again soon."""
        self._marked[uid] = _Marked(delivery, uid, obj)
        self._wake.set()

    async def run(self) -> None:
        """Read what is marked, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(self._delay_seconds)  # failures come in bursts; so do their causes
            marked, self._marked = self._marked, {}
            for item in marked.values():
                await self._read(item)

    async def _read(self, item: _Marked) -> None:
        path = item.delivery.watched.object_path(item.obj.namespace, item.obj.name)
        try:
            obj = await self._client.get(path)
        except NotFound:
            item.delivery.deliver_tombstone(item.uid)
            return
        except ApiError as error:
            logger.warning("%s; trying again", error)
            asyncio.get_running_loop().call_later(
                _RETRY_SECONDS, self.mark, item.delivery, item.uid, item.obj
            )
            return
        if obj.get("metadata", {}).get("uid") == item.uid:
            item.delivery.deliver("MODIFIED", obj)
        else:  # the name belongs to another object now, whose own events arrive
            item.delivery.deliver_tombstone(item.uid)


class Redelivery:
    """The deliveries by kind; without one, nothing is watched yet and nothing happens."""

    def __init__(self) -> None:
        self._deliveries: dict[str, Delivery] = {}

    def attach(self, deliveries: Iterable[Delivery]) -> None:
        """From now on objects go through these."""
        self._deliveries |= {delivery.watched.kind: delivery for delivery in deliveries}

    def put(self, kind: str, obj: JsonObject) -> None:
        """Hand on an object that exists, even if it is known in this version."""
        delivery = self._deliveries.get(kind)
        if delivery is not None:
            delivery.redeliver(obj)

    def gone(self, kind: str, uid: str, namespace: str | None, name: str) -> None:
        """Hand on that an object does not exist, even if it was not known."""
        delivery = self._deliveries.get(kind)
        if delivery is not None:
            delivery.redeliver_deletion(uid, namespace, name)


class Resync:
    """One task per kind: wait until it can be watched, list it, wait for the next period."""

    def __init__(
        self,
        client: ClusterClient,
        availability: Availability,
        *,
        period_seconds: float = LIST_PERIOD_SECONDS,
    ) -> None:
        self._client = client
        self._availability = availability
        self._period_seconds = period_seconds

    async def run(self, deliveries: Iterable[Delivery]) -> None:
        """List every kind again and again, until cancelled."""
        await asyncio.gather(*(self._repeat(delivery) for delivery in deliveries))

    async def _repeat(self, delivery: Delivery) -> None:
        while True:
            await self._availability.wait_for(delivery)
            delivery.list_wanted.clear()
            try:
                await self._list(delivery)
            except ApiError as error:
                logger.warning("%s; trying again", error)
                await asyncio.sleep(_LIST_RETRY_SECONDS)
            else:
                await self._pause(delivery)

    async def _pause(self, delivery: Delivery) -> None:
        """Wait until the next list is due, or wanted before its time."""
        try:
            async with asyncio.timeout(self._period_seconds):
                await delivery.list_wanted.wait()
                await asyncio.sleep(_SETTLE_SECONDS)  # kopf's own list is still coming in
        except TimeoutError:
            pass

    async def _list(self, delivery: Delivery) -> None:
        """Go through a whole list, a page in memory at a time."""
        delivery.begin_listing()
        async for page in pages(self._client.get, delivery.watched.path, limit=_PAGE_ITEMS):
            delivery.heard()
            for obj in checked_page(page, delivery.watched.api_kind)["items"] or ():
                delivery.listed(obj)
        await delivery.end_listing()
