"""The drivers of hollow nodes: they publish the devices that descriptions give to each node.

`cluster.EmbeddedCluster` makes one where descriptions are given. Invariant: every node that a
driver runs on has the slices of its description, also after a slice was deleted or changed; they
go with the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from stellwerk_cluster.registry.entries import ADDED, DELETED
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from stellwerk_cluster.hollow.device_descriptions import DeviceDescription, Published
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent
    from stellwerk_kube.json_values import JsonObject

_GROUP = "resource.k8s.io"


class DevicePublisher(Worker):
    """Keeps the slices of all nodes as described."""

    def __init__(self, api: Api, descriptions: Sequence[DeviceDescription]) -> None:
        """Publish for the nodes that are and will be in the store of `api`.

        Raises:
            StatusError: the API refuses a class or a slice.
        """
        self._api = api
        self._slices = api.kinds.resource("resourceslices", _GROUP)
        self._published = [each for of_file in descriptions for each in of_file.published]
        self.queue = WorkQueue(api.clock)
        classes = api.kinds.resource("deviceclasses", _GROUP)
        for description in descriptions:
            for each in description.classes:
                api.ensure(classes, "", each)
        nodes = api.store.collection("nodes")
        for entry in nodes.entries():
            self.reconcile(entry.key[1])
        nodes.listeners.append(self._on_node)
        api.store.collection(self._slices.storage_name).listeners.append(self._on_slice)

    def _on_node(self, event: StoreEvent) -> None:
        if event.type != DELETED:
            before, node = event.previous, event.entry.obj
            if before is None or _labels(before.obj) != _labels(node):
                self.queue.add(event.entry.key[1])

    def _on_slice(self, event: StoreEvent) -> None:
        if event.type != ADDED:
            node_name = event.entry.obj["spec"].get("nodeName")
            if node_name:
                self.queue.add(node_name)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Publish what one node has, for as long as it exists."""
        node = self._api.find("nodes", "", str(key))
        if node is None:
            return
        for published in self._published:
            if published.runs_on(node):
                self._publish(published, node)

    def _publish(self, published: Published, node: JsonObject) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": True}
        specs = published.slices(name)
        names = [f"{name}-{published.driver}-{number}" for number in range(len(specs))]
        shown = [self._api.find(self._slices.storage_name, "", each) for each in names]
        if all(
            each is not None and _described(each["spec"]) == _described(spec)
            for each, spec in zip(shown, specs, strict=True)
        ):
            return
        newest = max((each["spec"]["pool"]["generation"] for each in shown if each), default=0)
        for slice_name, before, spec in zip(names, shown, specs, strict=True):
            metadata = {"name": slice_name, "ownerReferences": [owner]}
            new = {**spec, "pool": {**spec["pool"], "generation": newest + 1}}
            if before is None:
                self._api.create(self._slices, "", {"metadata": metadata, "spec": new})
            else:
                self._api.update(self._slices, ("", slice_name), {**before, "spec": new})


def _labels(node: JsonObject) -> JsonObject:
    labels: JsonObject = node["metadata"].get("labels") or {}
    return labels


def _described(spec: JsonObject) -> JsonObject:
    """A slice's spec without the generation of its pool."""
    return {**spec, "pool": {**spec["pool"], "generation": 0}}
