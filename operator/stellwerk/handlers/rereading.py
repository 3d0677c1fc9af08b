"""Reads objects again whose handling failed, so that no event is lost to an error.

`delivery` marks, the task of `lifecycle` runs `run()`. Invariant: a marked object is read, found
gone, or marked still.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk.errors import ApiError, NotFound

if TYPE_CHECKING:
    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.delivery import Delivery, KnownObject

logger = logging.getLogger(__name__)

DELAY_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 5.0


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
