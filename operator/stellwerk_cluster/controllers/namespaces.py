"""The end of a namespace: everything in it is deleted, then its finalizer is removed.

Invariant: a namespace keeps its finalizer while an object is left in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import is_terminating, with_value
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent

_LOOK_AGAIN_SECONDS: Final = 0.5


class NamespaceController(Worker):
    """Deletes what a terminating namespace holds, and then its finalizer."""

    def __init__(self, api: Api) -> None:
        """Follow the namespaces in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource("namespaces")
        self.queue = WorkQueue(api.clock)
        api.store.collection("namespaces").listeners.append(self._on_namespace)

    def _on_namespace(self, event: StoreEvent) -> None:
        if is_terminating(event.entry.obj):
            self.queue.add(event.entry.key[1])

    @override
    def reconcile(self, key: Hashable) -> None:
        """Take one terminating namespace a step further."""
        name = str(key)
        namespace = self._api.find("namespaces", "", name)
        if namespace is None or not is_terminating(namespace):
            return
        if self._empty(name):
            self._api.modify(
                self._kind, ("", name), lambda obj: with_value(obj, ("spec", "finalizers"), None)
            )
        else:
            self.queue.add_after(name, _LOOK_AGAIN_SECONDS)

    def _empty(self, namespace: str) -> bool:
        """Delete what is in the namespace; whether nothing is left."""
        left = 0
        seen: set[str] = set()
        for kind in list(self._api.kinds):
            if not kind.namespaced or kind.storage_name in seen or "delete" not in kind.verbs:
                continue
            seen.add(kind.storage_name)
            for entry in self._api.store.collection(kind.storage_name).entries(namespace):
                if (
                    is_terminating(entry.obj)
                    or not delete(self._api, kind, entry.key, DeleteOptions()).gone
                ):
                    left += 1
        return left == 0
