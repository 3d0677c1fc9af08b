"""Adoption: objects without a controller join the workload whose selector chooses them.

Held by the controllers of workloads. Invariant: an object with a controller is never taken from it,
and one that its workload's selector no longer chooses is released.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.objects import (
    Key,
    controller_of,
    is_terminating,
    key_of,
    labels_of,
    meta,
    with_value,
)
from stellwerk_cluster.registry.entries import DELETED
from stellwerk_kube.selectors import LabelSelector, parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent
    from stellwerk_kube.json_values import JsonObject


class ControllerRefManager:
    """Finds, adopts and releases the children of one kind of workload."""

    def __init__(self, api: Api, index: Index, kind: ResourceKind, child: ResourceKind) -> None:
        """Children of the kind `child` belong to workloads of `kind`."""
        self._api = api
        self._index = index
        self._kind = kind
        self._child = child
        self._to_scan: set[Key] = set()
        """Workloads whose namespace may hold children that they could adopt."""

    def scan(self, key: Key) -> None:
        """The workload is new or has changed: look at all children without a controller."""
        self._to_scan.add(key)

    def candidates(self, event: StoreEvent) -> Iterator[Key]:
        """The workloads that could adopt the object of an event, if it has no controller."""
        obj = event.entry.obj
        if event.type == DELETED or is_terminating(obj) or controller_of(obj) is not None:
            return
        if event.previous is not None and _same_identity(event.previous.obj, obj):
            return
        for entry in self._api.store.collection(self._kind.storage_name).entries(
            event.entry.key[0]
        ):
            selector = selector_of(entry.obj)
            if selector is not None and selector.matches(event.entry.labels):
                self._to_scan.add(entry.key)
                yield entry.key

    def claim(self, workload: JsonObject, reference: JsonObject) -> list[JsonObject]:
        """The children of the workload, once it has adopted and released what it should."""
        uid, key = workload["metadata"]["uid"], key_of(workload)
        selector = selector_of(workload)
        if key in self._to_scan and selector is not None:
            self._to_scan.discard(key)
            self._adopt(key[0], selector, reference)
        claimed = []
        for obj in self._index.owned(uid, self._child.storage_name):
            owner = controller_of(obj)
            if owner is None or owner["uid"] != uid:
                continue
            if selector is not None and selector.matches(labels_of(obj)):
                claimed.append(obj)
            elif not is_terminating(obj):
                self._release(obj, uid)
        return claimed

    def _adopt(self, namespace: str, selector: LabelSelector, reference: JsonObject) -> None:
        collection = self._api.store.collection(self._child.storage_name)
        for key in self._index.orphans(self._child.storage_name, namespace):
            entry = collection.get(key)
            if entry is None or not selector.matches(entry.labels):
                continue
            obj = entry.obj
            if controller_of(obj) is None and not is_terminating(obj):
                owners = [*(meta(obj).get("ownerReferences") or ()), reference]
                self._write_owners(obj, owners)

    def _release(self, obj: JsonObject, uid: str) -> None:
        kept = [each for each in meta(obj).get("ownerReferences") or () if each["uid"] != uid]
        self._write_owners(obj, kept)

    def _write_owners(self, obj: JsonObject, owners: list[JsonObject]) -> None:
        path = ("metadata", "ownerReferences")
        self._api.modify(
            self._child,
            key_of(obj),
            lambda stored: with_value(stored, path, owners or None),
            owned_under="",
        )


def selector_of(workload: JsonObject) -> LabelSelector | None:
    """The selector of a workload; that of a ReplicationController is a plain map.

    None where the kind has none.
    """
    selector = workload["spec"].get("selector")
    if workload["kind"] == "ReplicationController":
        selector = {"matchLabels": selector or {}}
    return parse_label_selector(selector)


def _same_identity(old: JsonObject, new: JsonObject) -> bool:
    """Whether labels and owners are what they were."""
    return labels_of(old) == labels_of(new) and (
        meta(old).get("ownerReferences") == meta(new).get("ownerReferences")
    )
