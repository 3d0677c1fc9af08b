"""The claims of ephemeral volumes: each pod has its own, which goes with it.

Invariant: a claim of that name that does not belong to the pod is left alone, with an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import controller_of, is_terminating, meta
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.registry.event_recorder import WARNING, StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_CLAIMS: Final = "persistentvolumeclaims"


class EphemeralVolumeController(Worker):
    """Creates the claims that pods ask for inside their volumes."""

    def __init__(self, api: Api, _index: Index) -> None:
        """Follow the pods in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource(_CLAIMS)
        self._events = StoreEventRecorder(api, "ephemeral_volume")
        self.queue = WorkQueue(api.clock)
        pods = api.store.collection("pods")
        pods.listeners.append(self._on_pod)
        api.store.collection(_CLAIMS).listeners.append(self._on_claim)
        for entry in pods.entries():
            self._on_pod(StoreEvent(ADDED, entry, None))

    def _on_pod(self, event: StoreEvent) -> None:
        if event.type == DELETED or event.previous is not None:
            return
        volumes = event.entry.obj["spec"].get("volumes") or ()
        if any(volume.get("ephemeral") is not None for volume in volumes):
            self.queue.add(event.entry.key)

    def _on_claim(self, event: StoreEvent) -> None:
        """Make a claim again that another client has deleted, if its pod still uses it."""
        owner = controller_of(event.entry.obj)
        if event.type == DELETED and owner is not None and owner["kind"] == "Pod":
            self.queue.add((event.entry.key[0], owner["name"]))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Create the missing claims of one pod."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        pod = self._api.find("pods", *key)
        if pod is None or is_terminating(pod):
            return
        for volume in pod["spec"].get("volumes") or ():
            if volume.get("ephemeral") is not None:
                self._ensure(pod, volume)

    def _ensure(self, pod: JsonObject, volume: JsonObject) -> None:
        metadata, template = pod["metadata"], volume["ephemeral"]["volumeClaimTemplate"]
        name, namespace = f"{metadata['name']}-{volume['name']}", metadata["namespace"]
        found = self._api.find(_CLAIMS, namespace, name)
        if found is not None:
            owners = meta(found).get("ownerReferences") or ()
            if all(each["uid"] != metadata["uid"] for each in owners):
                text = f"PVC {namespace}/{name} was not created for pod {namespace}"
                text = f"{text}/{metadata['name']} (pod is not owner)"
                self._events.record(pod, "ConflictingClaim", text, WARNING)
            return
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        given = template.get("metadata") or {}
        body = {
            "metadata": {
                "name": name,
                "labels": dict(given.get("labels") or {}),
                "annotations": dict(given.get("annotations") or {}),
                "ownerReferences": [owner],
            },
            "spec": dict(template["spec"]),
        }
        self._api.create(self._kind, namespace, body)
