"""Objects that are read, not watched: after a failure, and for the audit.

`lifecycle` runs the Rereader; the audit's rounds put objects into the Redelivery that `app` makes.
Invariants: an object whose handling failed is read again, found gone, or marked still, so that no
event is lost to an error; what a delivery remembers of an object is what WatchHandlers were given
last, by a watch, a list or a reading.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_kube.errors import ApiError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk.framework.services import ClusterClient
    from stellwerk.handlers.delivery import Delivery, KnownObject
    from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

DELAY_SECONDS: Final = 1.0
"""Time between a failure and the reading: failures come in bursts, and one reading serves all."""
_RETRY_SECONDS: Final = 5.0
"""Time until an object is marked again whose reading failed."""


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
        """Have objects go through these deliveries from now on."""
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
