"""The way into the handlers for objects that were read, not watched: the audit's repairs.

`app` makes one, `lifecycle` attaches the deliveries, the audit's rounds put objects in. Invariant:
what a delivery remembers of an object is what the sink was given last, by whichever way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk.handlers.delivery import Delivery
    from stellwerk.models.json_values import JsonObject


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
