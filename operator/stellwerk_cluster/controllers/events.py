"""Events that controllers write about objects, as `kubectl describe` shows them.

One `EventWriter` for each controller. Invariant: the same words about the same object are one Event
whose count grows, and only the objects written about last are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.objects import Key, timestamp

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.registry.api import Api

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_MOST_REMEMBERED: Final = 1024
_LONGEST_MESSAGE: Final = 1024
_LONGEST_NAME: Final = 200
_NAMESPACE_GONE: Final = (403, 404)


class EventWriter:
    """Writes Events under the name of one component."""

    def __init__(self, api: Api, component: str) -> None:
        """`component` is shown as the source, as in `replicaset-controller`."""
        self._api = api
        self._component = component
        self._kind = api.kinds.resource("events")
        self._written: OrderedDict[tuple[str, str, str], Key] = OrderedDict()

    def write(self, obj: JsonObject, reason: str, message: str, type_: str = NORMAL) -> None:
        """Record something about an object; about a terminating namespace, nothing can be."""
        message = message[:_LONGEST_MESSAGE]
        same = (obj["metadata"]["uid"], reason, message)
        earlier = self._written.get(same)
        if earlier is not None and self._count(earlier):
            self._written.move_to_end(same)
            return
        try:
            entry = self._create(obj, reason, message, type_)
        except StatusError as error:
            if error.code not in _NAMESPACE_GONE:
                raise
            return
        self._written[same] = entry
        if len(self._written) > _MOST_REMEMBERED:
            self._written.popitem(last=False)

    def _count(self, key: Key) -> bool:
        """Raise the count of an Event; whether it is still there."""
        if self._api.find(self._kind.storage_name, *key) is None:
            return False
        now = timestamp(self._api.now())
        self._api.modify(
            self._kind,
            key,
            lambda event: {**event, "count": event.get("count", 1) + 1, "lastTimestamp": now},
        )
        return True

    def _create(self, obj: JsonObject, reason: str, message: str, type_: str) -> Key:
        metadata, now = obj["metadata"], self._api.now()
        namespace, stamp = metadata.get("namespace", ""), timestamp(now)
        involved = {
            "kind": obj["kind"],
            "apiVersion": obj["apiVersion"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            **({"namespace": namespace} if namespace else {}),
        }
        suffix = f"{int(now.timestamp() * 1e9):x}{self._api.store.revision:x}"
        event = {
            "metadata": {"name": f"{metadata['name'][:_LONGEST_NAME]}.{suffix}"},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": type_,
            "source": {"component": self._component},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "reportingComponent": self._component,
            "reportingInstance": "",
        }
        return self._api.create(self._kind, namespace or "default", event).key
