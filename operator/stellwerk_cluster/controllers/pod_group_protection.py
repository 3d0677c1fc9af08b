"""The finalizers that keep a group while pods use it, and a group of groups while it has children.

Invariant: one is taken off only when deletion of the group has begun and every pod that names the
group has ended, or no group names it as its parent: a parent goes after its children.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import is_terminating
from stellwerk_cluster.apimachinery.pods import group_of, is_finished
from stellwerk_cluster.controllers.volume_protection import release
from stellwerk_cluster.defaults.kind_defaults import COMPOSITE_FINALIZER, FINALIZER
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.validation.scheduling import COMPOSITE_POD_GROUPS, POD_GROUPS
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api


class PodGroupProtectionController(Worker):
    """Lets a deleted group go when no pod uses it any more."""

    def __init__(self, api: Api, _index: Index) -> None:
        """Follow groups, and the pods that name them, in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource("podgroups", "scheduling.k8s.io")
        self._using: dict[Key, set[Key]] = {}
        """Pods that have not ended, by the group that they name."""
        self.queue = WorkQueue(api.clock)
        groups = api.store.collection(POD_GROUPS)
        pods = api.store.collection("pods")
        groups.listeners.append(self._on_group)
        pods.listeners.append(self._on_pod)
        for entry in pods.entries():
            self._on_pod(StoreEvent(ADDED, entry, None))
        for entry in groups.entries():
            self._on_group(StoreEvent(ADDED, entry, None))

    def _on_group(self, event: StoreEvent) -> None:
        if is_terminating(event.entry.obj) and event.type != DELETED:
            self.queue.add(event.entry.key)

    def _on_pod(self, event: StoreEvent) -> None:
        name = group_of(event.entry.obj)
        if not name:
            return
        group = (event.entry.key[0], name)
        users = self._using.setdefault(group, set())
        if event.type != DELETED and not is_finished(event.entry.obj):
            users.add(event.entry.key)
            return
        users.discard(event.entry.key)
        if not users:
            del self._using[group]
            self.queue.add(group)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Let one group go if it may."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        group = self._api.find(POD_GROUPS, *key)
        if group is not None and is_terminating(group) and key not in self._using:
            release(self._api, self._kind, key, FINALIZER)


class CompositePodGroupProtectionController(Worker):
    """Lets a deleted group of groups go when no group names it as its parent any more."""

    def __init__(self, api: Api, _index: Index) -> None:
        """Follow groups of both kinds in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource("compositepodgroups", "scheduling.k8s.io")
        self._children: dict[Key, set[tuple[str, Key]]] = {}
        """Storage name and key of the groups that name a parent, by that."""
        self.queue = WorkQueue(api.clock)
        for storage_name in (POD_GROUPS, COMPOSITE_POD_GROUPS):
            collection = api.store.collection(storage_name)
            follow = partial(self._on_group, storage_name)
            collection.listeners.append(follow)
            for entry in collection.entries():
                follow(StoreEvent(ADDED, entry, None))

    def _on_group(self, storage_name: str, event: StoreEvent) -> None:
        key, group = event.entry.key, event.entry.obj
        is_gone = event.type == DELETED
        if storage_name == COMPOSITE_POD_GROUPS and is_terminating(group) and not is_gone:
            self.queue.add(key)
        name = group["spec"].get("parentCompositePodGroupName")
        if not name:
            return
        parent, child = (key[0], name), (storage_name, key)
        children = self._children.setdefault(parent, set())
        if not is_gone:
            children.add(child)
            return
        children.discard(child)
        if not children:
            del self._children[parent]
            self.queue.add(parent)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Let one group go if it may."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        group = self._api.find(COMPOSITE_POD_GROUPS, *key)
        if group is not None and is_terminating(group) and key not in self._children:
            release(self._api, self._kind, key, COMPOSITE_FINALIZER)
