"""The finalizers that keep claims while pods use them, and volumes while claims are bound to them.

Invariant: a finalizer is taken off only when deletion has begun and nothing uses the object.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import is_terminating, meta, with_value
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api

_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"


class ClaimProtectionController(Worker):
    """Lets a deleted claim go when no pod uses it any more."""

    def __init__(self, api: Api, _index: Index) -> None:
        """Follow claims, and the end of pods, in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource(_CLAIMS)
        self.queue = WorkQueue(api.clock)
        claims = api.store.collection(_CLAIMS)
        claims.listeners.append(self._on_claim)
        api.store.collection("pods").listeners.append(self._on_pod)
        for entry in claims.entries():
            self._on_claim(StoreEvent(ADDED, entry, None))

    def _on_claim(self, event: StoreEvent) -> None:
        if is_terminating(event.entry.obj) and event.type != DELETED:
            self.queue.add(event.entry.key)

    def _on_pod(self, event: StoreEvent) -> None:
        if event.type == DELETED or is_finished(event.entry.obj):
            for name in claims_of(event.entry.obj):
                self.queue.add((event.entry.key[0], name))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Let one claim go if it may."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        claim = self._api.find(_CLAIMS, *key)
        if claim is None or not is_terminating(claim):
            return
        namespace, name = key
        if not any(
            name in claims_of(pod) and not is_finished(pod)
            for pod in self._api.all("pods", namespace)
        ):
            release(self._api, self._kind, key, CLAIM_FINALIZER)


class VolumeProtectionController(Worker):
    """Lets a deleted volume go when it is bound to no claim."""

    def __init__(self, api: Api, _index: Index) -> None:
        """Follow the volumes in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource(_VOLUMES)
        self.queue = WorkQueue(api.clock)
        volumes = api.store.collection(_VOLUMES)
        volumes.listeners.append(self._on_volume)
        for entry in volumes.entries():
            self._on_volume(StoreEvent(ADDED, entry, None))

    def _on_volume(self, event: StoreEvent) -> None:
        if is_terminating(event.entry.obj) and event.type != DELETED:
            self.queue.add(event.entry.key)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Let one volume go if it may."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        volume = self._api.find(_VOLUMES, *key)
        if volume is None or not is_terminating(volume):
            return
        if volume["status"].get("phase") != "Bound":
            release(self._api, self._kind, key, VOLUME_FINALIZER)


def claims_of(pod: JsonObject) -> list[str]:
    """The names of the claims that a pod mounts, those of its ephemeral volumes too."""
    return list(_claims_of(pod))


def _claims_of(pod: JsonObject) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim"):
            yield volume["persistentVolumeClaim"]["claimName"]
        elif volume.get("ephemeral") is not None:
            yield f"{pod['metadata']['name']}-{volume['name']}"


def release(api: Api, kind: ResourceKind, key: Key, finalizer: str) -> None:
    """Take a finalizer off an object."""
    has = meta(api.get(kind, *key).obj).get("finalizers") or []
    left = [each for each in has if each != finalizer]
    if left != has:
        change = partial(with_value, path=("metadata", "finalizers"), value=left or None)
        api.modify(kind, key, change, owned_under="")
