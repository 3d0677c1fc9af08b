"""Garbage collection by owner references: background, foreground and orphaning.

Invariant: an object whose owners are all deleted does not stay, and an owner in foreground deletion
is removed only after the dependents that block it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, meta, with_value
from stellwerk_cluster.controllers.index import Location
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import DELETED, StoreEvent
from stellwerk_cluster.registry.event_recorder import WARNING, StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_FOREGROUND: Final = "foregroundDeletion"
_ORPHAN: Final = "orphan"


class GarbageCollector(Worker):
    """Deletes objects whose owners are all deleted, and releases owners that wait for them."""

    def __init__(self, api: Api, index: Index) -> None:
        """Follow everything in the store of `api`."""
        self._api = api
        self._index = index
        self._events = StoreEventRecorder(api, "garbage-collector-controller")
        self.queue = WorkQueue(api.clock)
        api.store.listeners.append(self._on_change)
        for storage_name in api.store.names():
            for entry in api.store.collection(storage_name).entries():
                is_ending = is_terminating(entry.obj) and meta(entry.obj).get("finalizers")
                if is_ending or "ownerReferences" in meta(entry.obj):
                    self.queue.add(Location(storage_name, entry.key))

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        obj = event.entry.obj
        if event.type == DELETED:
            for location in self._index.dependents(meta(obj)["uid"]):
                self.queue.add(location)
            self._look_at_owners(obj)
            return
        owners_differ = _owners_differ(event)
        if (is_terminating(obj) and meta(obj).get("finalizers")) or owners_differ:
            self.queue.add(Location(storage_name, event.entry.key))
        if event.previous is not None and owners_differ:
            self._look_at_owners(event.previous.obj)

    def _look_at_owners(self, obj: JsonObject) -> None:
        """An owner in foreground deletion may be waiting for this object."""
        for owner in meta(obj).get("ownerReferences") or ():
            location = self._index.by_uid.get(owner["uid"])
            if location is not None:
                self.queue.add(location)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Decide about one object."""
        assert isinstance(key, Location)  # noqa: S101  (this queue holds locations only)
        obj = self._api.find(key.storage_name, *key.key)
        kind = self._kind(key.storage_name)
        if obj is None or kind is None:
            return
        finalizers = meta(obj).get("finalizers") or ()
        if is_terminating(obj):
            if _ORPHAN in finalizers:
                self._orphan(kind, key, obj)
            elif _FOREGROUND in finalizers:
                self._delete_dependents_first(kind, key, obj)
            return
        self._collect(kind, key, obj)

    def _collect(self, kind: ResourceKind, location: Location, obj: JsonObject) -> None:
        """Delete an object that no owner keeps; of several owners, forget those that are gone."""
        owners = meta(obj).get("ownerReferences") or ()
        kept = [each for each in owners if self._keeps(obj, each)]
        if len(kept) == len(owners):
            return
        if kept:
            path = ("metadata", "ownerReferences")
            change = partial(with_value, path=path, value=kept)
            self._api.modify(kind, location.key, change, owned_under="")
            return
        waited_for = any(self._is_waiting(each) for each in owners)
        if waited_for and self._is_owner_of_waiting(obj):
            # The owners and the object would wait for each other, in a circle.
            self._unblock_owners(kind, location, owners)
        policy = "Foreground" if waited_for else "Background"
        options = DeleteOptions(uid=meta(obj)["uid"], propagation=policy)
        delete(self._api, kind, location.key, options)

    def _is_owner_of_waiting(self, obj: JsonObject) -> bool:
        """Whether a dependent of the object is deleted in the foreground, and waits itself."""
        found = self._index.dependents(meta(obj)["uid"])
        dependents = (self._api.find(each.storage_name, *each.key) for each in found)
        return any(each is not None and _waits_for_dependents(each) for each in dependents)

    def _unblock_owners(
        self, kind: ResourceKind, location: Location, owners: Iterable[JsonObject]
    ) -> None:
        """Let the owners of an object go before it does."""
        freed = [
            {**each, "blockOwnerDeletion": False} if each.get("blockOwnerDeletion") else each
            for each in owners
        ]
        change = partial(with_value, path=("metadata", "ownerReferences"), value=freed)
        self._api.modify(kind, location.key, change, owned_under="")

    def _keeps(self, obj: JsonObject, reference: JsonObject) -> bool:
        """Whether an owner is there, where its dependent can have it, and is to stay."""
        location = self._index.by_uid.get(reference["uid"])
        if location is None:
            return False
        if location.key[0] not in ("", meta(obj).get("namespace", "")):
            text = f"ownerRef {location.storage_name} {reference['name']} is in another namespace"
            self._events.record(obj, "OwnerRefInvalidNamespace", text, WARNING)
            return False
        return not self._is_waiting(reference)

    def _is_waiting(self, reference: JsonObject) -> bool:
        """Whether an owner is deleted in the foreground, and waits for its dependents."""
        location = self._index.by_uid.get(reference["uid"])
        owner = self._api.find(location.storage_name, *location.key) if location else None
        return owner is not None and _waits_for_dependents(owner)

    def _kind(self, storage_name: str) -> ResourceKind | None:
        return next((row for row in self._api.kinds if row.storage_name == storage_name), None)

    def _orphan(self, kind: ResourceKind, location: Location, owner: JsonObject) -> None:
        uid = meta(owner)["uid"]
        for dependent in self._index.dependents(uid):
            dependent_kind = self._kind(dependent.storage_name)
            if dependent_kind is not None:
                self._api.modify(
                    dependent_kind, dependent.key, lambda obj: _without_owner(obj, uid)
                )
        self._release(kind, location, _ORPHAN)

    def _delete_dependents_first(
        self, kind: ResourceKind, location: Location, owner: JsonObject
    ) -> None:
        blocked = False
        uid = meta(owner)["uid"]
        for dependent in self._index.dependents(uid):
            obj = self._api.find(dependent.storage_name, *dependent.key)
            dependent_kind = self._kind(dependent.storage_name)
            if obj is None or dependent_kind is None:
                continue
            if not is_terminating(obj):
                self._collect(dependent_kind, dependent, obj)
                obj = self._api.find(dependent.storage_name, *dependent.key) or EMPTY
            blocked = blocked or any(
                each["uid"] == uid and each.get("blockOwnerDeletion")
                for each in meta(obj).get("ownerReferences") or ()
            )
        if not blocked:
            self._release(kind, location, _FOREGROUND)

    def _release(self, kind: ResourceKind, location: Location, finalizer: str) -> None:
        def released(obj: JsonObject) -> JsonObject:
            left = [each for each in meta(obj).get("finalizers") or () if each != finalizer]
            return with_value(obj, ("metadata", "finalizers"), left or None)

        self._api.modify(kind, location.key, released)


def _waits_for_dependents(owner: JsonObject) -> bool:
    """Whether an object is deleted in the foreground: its dependents go first."""
    return is_terminating(owner) and _FOREGROUND in (meta(owner).get("finalizers") or ())


def _owners_differ(event: StoreEvent) -> bool:
    """Whether an object has come with owners, or with other owners than before."""
    owners = meta(event.entry.obj).get("ownerReferences")
    before = meta(event.previous.obj).get("ownerReferences") if event.previous else None
    return owners != before


def _without_owner(obj: JsonObject, uid: str) -> JsonObject:
    left = [each for each in meta(obj).get("ownerReferences") or () if each["uid"] != uid]
    return with_value(obj, ("metadata", "ownerReferences"), left or None)
