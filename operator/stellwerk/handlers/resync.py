"""Periodic lists of every kind: the safety net under kopf's own path.

Used only where the fast lane is not: kopf reports no deletion of what vanished while a watch was
broken, and not when a first list is complete. When kopf lists a kind anew, it is listed here at
once, as a whole. Invariant: an object that exists, or no longer does,
is known to be so one period later at the latest.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from stellwerk.client.paging import checked_page, pages
from stellwerk.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.availability import Availability
    from stellwerk.handlers.delivery import Delivery

logger = logging.getLogger(__name__)

PERIOD_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 2.0
_SETTLE_SECONDS: Final = 1.0
_PAGE_ITEMS: Final = 500


class Resync:
    """One task per kind: wait until it can be watched, list it, wait for the next period."""

    def __init__(
        self,
        client: ClusterClient,
        availability: Availability,
        *,
        period_seconds: float = PERIOD_SECONDS,
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
                await asyncio.sleep(_RETRY_SECONDS)
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
