"""Indexes of objects by owner, and of pods by node.

One `Index` is shared by all controllers. Invariant: it holds exactly the objects of the store, and
is updated with each change before a controller sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from stellwerk_cluster.apimachinery.objects import controller_of, meta
from stellwerk_cluster.registry.entries import ADDED, DELETED, MODIFIED, StoreEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_ADOPTABLE: Final = ("pods", "replicasets.apps", "controllerrevisions.apps", "jobs.batch")
"""The resources that workloads adopt."""


UsageOf: TypeAlias = "Callable[[JsonObject], Mapping[str, int]]"


def unknown_usage(_: JsonObject) -> Mapping[str, int]:
    """Nothing: for clusters without kubelets."""
    return {}


class Location(NamedTuple):
    """The resource and the key under which an object is stored."""

    storage_name: str
    key: Key


class Index:
    """Finds objects by uid, dependents by the uid of their owners, and pods by node."""

    def __init__(self, api: Api, used: UsageOf = unknown_usage) -> None:
        """Index everything that is in the store of `api`, and follow it."""
        self._api = api
        self.used = used
        """Usage of a running pod: cpu in millicores, memory in bytes."""
        self.by_uid: dict[str, Location] = {}
        self._dependents: dict[str, dict[Location, None]] = {}
        self._pods_by_node: dict[str, dict[Key, None]] = {}
        self._orphans: dict[str, dict[Key, None]] = {name: {} for name in _ADOPTABLE}
        """Resource → the objects that no controller manages."""
        for storage_name in api.store.names():
            for entry in api.store.collection(storage_name).entries():
                self._on_change(storage_name, StoreEvent(ADDED, entry, None))
        api.store.listeners.append(self._on_change)

    def dependents(self, uid: str) -> list[Location]:
        """The objects that name this uid among their owners."""
        return list(self._dependents.get(uid, ()))

    def count(self, uid: str) -> int:
        """The number of objects that name this uid among their owners."""
        return len(self._dependents.get(uid, ()))

    def owned(self, uid: str, storage_name: str) -> list[JsonObject]:
        """The objects of one resource that name this uid among their owners, oldest first."""
        found = [
            self._api.find(storage_name, *location.key)
            for location in self._dependents.get(uid, ())
            if location.storage_name == storage_name
        ]
        return [obj for obj in found if obj is not None]

    def orphans(self, storage_name: str, namespace: str) -> list[Key]:
        """The objects of a resource that no controller manages, in one namespace."""
        return [key for key in self._orphans[storage_name] if key[0] == namespace]

    def pods_on(self, node_name: str) -> list[JsonObject]:
        """The pods that are bound to a node."""
        found = [self._api.find("pods", *key) for key in self._pods_by_node.get(node_name, ())]
        return [pod for pod in found if pod is not None]

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        location = Location(storage_name, event.entry.key)
        if event.type == MODIFIED and event.previous is not None:
            self._update(location, event.previous.obj, event.entry.obj)
        elif event.type == ADDED:
            self._add(location, event.entry.obj)
        elif event.type == DELETED:
            self._remove(location, event.entry.obj)

    def _update(self, location: Location, old: JsonObject, new: JsonObject) -> None:
        same_owners = meta(old).get("ownerReferences") == meta(new).get("ownerReferences")
        if same_owners and _node_name(location, old) == _node_name(location, new):
            return
        self._remove(location, old)
        self._add(location, new)

    def _add(self, location: Location, obj: JsonObject) -> None:
        self.by_uid[meta(obj)["uid"]] = location
        for owner in meta(obj).get("ownerReferences") or ():
            self._dependents.setdefault(owner["uid"], {})[location] = None
        if location.storage_name in self._orphans and controller_of(obj) is None:
            self._orphans[location.storage_name][location.key] = None
        node_name = _node_name(location, obj)
        if node_name:
            self._pods_by_node.setdefault(node_name, {})[location.key] = None

    def _remove(self, location: Location, obj: JsonObject) -> None:
        self.by_uid.pop(meta(obj)["uid"], None)
        self._orphans.get(location.storage_name, {}).pop(location.key, None)
        for owner in meta(obj).get("ownerReferences") or ():
            dependents = self._dependents.get(owner["uid"], {})
            dependents.pop(location, None)
            if not dependents:
                self._dependents.pop(owner["uid"], None)
        node_name = _node_name(location, obj)
        if node_name:
            self._pods_by_node.get(node_name, {}).pop(location.key, None)


def _node_name(location: Location, obj: JsonObject) -> str:
    if location.storage_name != "pods":
        return ""
    name: str = obj["spec"].get("nodeName", "")
    return name
