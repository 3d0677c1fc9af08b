"""The status of ResourceQuotas: what they allow, and what the objects of the namespace use.

Admission counts what comes; this controller counts again when a quota changes or something goes.
Invariant: after it has looked, `used` is what the present objects use.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.admission.resource_quota import (
    QUOTAS,
    in_scope,
    may_use,
    object_usage,
    pod_usage_differs,
    total_usage,
)
from stellwerk_cluster.apimachinery.objects import EMPTY, with_value
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.registry.entries import DELETED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_CHANGEABLE: Final = ("services", "persistentvolumeclaims")
"""Resources besides pods of which an update may use less."""
_BATCH_SECONDS: Final = 0.2
"""Time within which deletions are counted once: a namespace of thousands of pods is emptied at
once.
"""


class ResourceQuotaController(Worker):
    """Keeps the status of every quota in step with its namespace."""

    def __init__(self, api: Api) -> None:
        """Follow quotas, and what may count against them."""
        self._api = api
        self._kind = api.kinds.resource(QUOTAS)
        self.queue = WorkQueue(api.clock)
        self._waiting: set[str] = set()
        api.store.listeners.append(self._on_change)
        for entry in api.store.collection(QUOTAS).entries():
            self._look_at(entry.key[0], 0)

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        namespace = event.entry.key[0]
        if not namespace or len(self._api.store.collection(QUOTAS)) == 0:
            return
        if storage_name == QUOTAS:
            self._look_at(namespace, 0)
        elif event.type == DELETED or self._may_use_less(storage_name, event):
            self._look_at(namespace, _BATCH_SECONDS)

    def _may_use_less(self, storage_name: str, event: StoreEvent) -> bool:
        """Whether an update may have ended some use: admission counts only what is added."""
        obj, before = event.entry.obj, event.previous.obj if event.previous else EMPTY
        if storage_name == "pods":
            return is_finished(obj) or (bool(before) and pod_usage_differs(obj, before))
        if storage_name in _CHANGEABLE and before and before["spec"] != obj["spec"]:
            kind = self._api.kinds.resource(storage_name)
            return object_usage(before, kind) != object_usage(obj, kind)
        return False

    def _look_at(self, namespace: str, delay_seconds: float) -> None:
        if namespace not in self._waiting:
            self._waiting.add(namespace)
            self.queue.add_after(namespace, delay_seconds)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Count everything in one namespace."""
        namespace = str(key)
        self._waiting.discard(namespace)
        for entry in list(self._api.store.collection(QUOTAS).entries(namespace)):
            status = self._status(entry.obj, namespace)
            if status != entry.obj["status"]:
                write = partial(with_value, path=("status",), value=status)
                self._api.modify(self._kind, entry.key, write)

    def _status(self, quota: JsonObject, namespace: str) -> JsonObject:
        hard: JsonObject = quota["spec"].get("hard") or EMPTY
        used: JsonObject = {}
        for kind in self._api.kinds:
            if kind.namespaced and may_use(kind, hard):
                objects = self._api.all(kind.storage_name, namespace)
                counted = [
                    object_usage(each, kind) for each in objects if in_scope(quota, each, kind)
                ]
                used |= total_usage(counted)
        shown = {name: used.get(name, "0") for name in hard}
        return {"hard": dict(hard), "used": shown} if hard else {}
