"""The finalizers that keep claims while pods use them, and volumes while claims are bound to them.

Where the release has it, a bound claim says in a condition whether a pod uses it. Invariant: a
finalizer is taken off only when deletion has begun and nothing uses the object.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.feature_gates import UNUSED_CLAIMS
from stellwerk_cluster.apimachinery.objects import is_terminating, meta, timestamp, with_value
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_CLAIMS: Final = "persistentvolumeclaims"
_VOLUMES: Final = "persistentvolumes"
CLAIM_FINALIZER: Final = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER: Final = "kubernetes.io/pv-protection"


UNUSED: Final = "Unused"
_NO_POD: Final = "No pods are currently referencing this PVC"


class ClaimProtectionController(Worker):
    """Lets a deleted claim go when no pod uses it any more, and says of others whether one does."""

    def __init__(self, api: Api, _index: Index) -> None:
        """Follow claims, and the end of pods, in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource(_CLAIMS)
        self._tells_unused = api.feature(UNUSED_CLAIMS)
        self._users: dict[Key, set[str]] = {}
        """The names of the pods that use a claim, by its namespace and name."""
        self.queue = WorkQueue(api.clock)
        claims, pods = api.store.collection(_CLAIMS), api.store.collection("pods")
        claims.listeners.append(self._on_claim)
        pods.listeners.append(self._on_pod)
        for entry in pods.entries():
            self._on_pod(StoreEvent(ADDED, entry, None))
        for entry in claims.entries():
            self._on_claim(StoreEvent(ADDED, entry, None))

    def _on_claim(self, event: StoreEvent) -> None:
        if event.type != DELETED and (self._tells_unused or is_terminating(event.entry.obj)):
            self.queue.add(event.entry.key)

    def _on_pod(self, event: StoreEvent) -> None:
        namespace, pod = event.entry.key
        gone = event.type == DELETED or is_finished(event.entry.obj)
        for name in claims_of(event.entry.obj):
            users = self._users.setdefault((namespace, name), set())
            was_used = bool(users)
            if gone:
                users.discard(pod)
            else:
                users.add(pod)
            if gone or (self._tells_unused and not was_used):
                self.queue.add((namespace, name))
            if not users:
                del self._users[namespace, name]

    @override
    def reconcile(self, key: Hashable) -> None:
        """Let one claim go if it may, or say whether it is used."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        claim = self._api.find(_CLAIMS, *key)
        if claim is None:
            return
        used = key in self._users
        if is_terminating(claim):
            if not used:
                release(self._api, self._kind, key, CLAIM_FINALIZER)
        elif self._tells_unused and claim["status"].get("phase") == "Bound":
            self._tell(key, claim, used=used)

    def _tell(self, key: Key, claim: JsonObject, *, used: bool) -> None:
        """Write the condition if it has another status; its time says since when."""
        status = "False" if used else "True"
        conditions = claim["status"].get("conditions") or ()
        if any((each["type"], each["status"]) == (UNUSED, status) for each in conditions):
            return
        condition = {
            "type": UNUSED,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(self._api.now()),
            "reason": "PodUsingPVC" if used else "NoPodsUsingPVC",
            **({} if used else {"message": _NO_POD}),
        }

        def told(obj: JsonObject) -> JsonObject:
            others = [
                each for each in obj["status"].get("conditions") or () if each["type"] != UNUSED
            ]
            return with_value(obj, ("status", "conditions"), [*others, condition])

        self._api.modify(self._kind, key, told, owned_under="status")


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
