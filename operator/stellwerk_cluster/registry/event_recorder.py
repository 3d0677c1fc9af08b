"""Events about pods and nodes, as kubelets and controllers write them.

Invariant: what is reported again within a series raises the count of its event, and makes no other.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, meta, timestamp

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_LONGEST_MESSAGE: Final = 1024
_MOST_SERIES: Final = 4096


class EventRecorder:
    """Writes core/v1 events in the name of one component."""

    def __init__(self, api: Api, component: str) -> None:
        """Events say that `component` has seen what they tell."""
        self._api = api
        self._component = component
        self._kind = api.kinds.resource("events")
        self._series: OrderedDict[tuple[str, str, str], Key] = OrderedDict()

    def record(
        self, kind: str, about: JsonObject, reason: str, message: str, type_: str = NORMAL
    ) -> None:
        """Report one thing about an object of a core kind; of nodes, in namespace default."""
        series = (meta(about)["uid"], reason, message)
        known = self._series.get(series)
        if known is not None and self._api.find("events", *known) is not None:
            self._api.modify(self._kind, known, self._counted)
            return
        namespace = meta(about).get("namespace") or "default"
        event = self._event(kind, about, reason, message[:_LONGEST_MESSAGE], type_)
        self._series[series] = self._api.create(self._kind, namespace, event).key
        if len(self._series) > _MOST_SERIES:
            self._series.popitem(last=False)

    def _event(
        self, kind: str, about: JsonObject, reason: str, message: str, type_: str
    ) -> JsonObject:
        metadata, now = meta(about), self._api.now()
        involved = {"kind": kind, "apiVersion": "v1", "name": metadata["name"]}
        for field in ("namespace", "uid", "resourceVersion"):
            if metadata.get(field):
                involved[field] = metadata[field]
        host = (about.get("spec") or EMPTY).get("nodeName", "") if kind == "Pod" else ""
        source = {"component": self._component, **({"host": host} if host else {})}
        stamp = timestamp(now)
        suffix = f"{int(now.timestamp() * 1e9):x}.{self._api.store.revision:x}"
        return {
            "metadata": {"name": f"{metadata['name'][:200]}.{suffix}"},
            "involvedObject": involved,
            "reason": reason,
            "message": message,
            "type": type_,
            "source": source,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "reportingComponent": self._component,
        }

    def _counted(self, event: JsonObject) -> JsonObject:
        count = event.get("count", 1) + 1
        return {**event, "count": count, "lastTimestamp": timestamp(self._api.now())}
