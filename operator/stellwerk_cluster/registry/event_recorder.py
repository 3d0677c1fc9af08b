"""Events about objects, as kubelets and controllers write them and `kubectl describe` shows them.

Invariant: what is reported again within a series raises the count of its event, and makes no other;
only the latest series are remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.objects import EMPTY, meta, timestamp

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

NORMAL: Final = "Normal"
WARNING: Final = "Warning"
_MAX_MESSAGE_CHARACTERS: Final = 1024
"""Characters of an event's message, as the API takes them."""
_MAX_SERIES: Final = 4096
"""Events whose repetitions become a series. Above it, the oldest is forgotten."""
_NAMESPACE_GONE: Final = (403, 404)


class StoreEventRecorder:
    """Writes core/v1 events in the name of one component."""

    def __init__(self, api: Api, component: str) -> None:
        """Events say that `component` has seen what they tell."""
        self._api = api
        self._component = component
        self._kind = api.kinds.resource("events")
        self._series: OrderedDict[tuple[str, str, str, str], Key] = OrderedDict()

    def record(
        self,
        about: JsonObject,
        reason: str,
        message: str,
        type_: str = NORMAL,
        *,
        field_path: str = "",
    ) -> None:
        """Report one thing about an object; of one without a namespace, in namespace default.

        `field_path` names the part of the object that it is about, as a container of a pod.

        About what lies in a namespace that is ending or gone, nothing can be reported.
        """
        message = message[:_MAX_MESSAGE_CHARACTERS]
        series = (meta(about)["uid"], field_path, reason, message)
        known = self._series.get(series)
        if known is not None and self._api.find("events", *known) is not None:
            self._series.move_to_end(series)
            self._api.modify(self._kind, known, self._counted)
            return
        namespace = meta(about).get("namespace") or "default"
        event = self._event(about, reason, message, type_)
        if field_path:
            event["involvedObject"]["fieldPath"] = field_path
        try:
            self._series[series] = self._api.create(self._kind, namespace, event).key
        except StatusError as error:
            if error.code not in _NAMESPACE_GONE:
                raise
            return
        if len(self._series) > _MAX_SERIES:
            self._series.popitem(last=False)

    def _event(self, about: JsonObject, reason: str, message: str, type_: str) -> JsonObject:
        metadata, now = meta(about), self._api.now()
        involved = {field: about[field] for field in ("kind", "apiVersion")}
        involved["name"] = metadata["name"]
        for field in ("namespace", "uid", "resourceVersion"):
            if metadata.get(field):
                involved[field] = metadata[field]
        host = (about.get("spec") or EMPTY).get("nodeName", "") if about["kind"] == "Pod" else ""
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
