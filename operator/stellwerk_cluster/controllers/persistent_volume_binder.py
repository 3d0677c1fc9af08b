"""Claims and volumes: bound to each other, made when a class can, reclaimed when the claim goes.

Whatever provisioner a class names, a hollow volume is made at once. Invariant: a bound volume and
its claim name each other, and a volume is never given to a second claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    is_terminating,
    key_of,
    meta,
    timestamp,
    with_value,
)
from stellwerk_cluster.controllers.volume_matching import (
    SELECTED_NODE,
    best_volume,
    claim_reference,
    class_of,
    is_provisioned,
    provisioned_volume,
    refers_to,
    suits,
)
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.registry.event_recorder import NORMAL, WARNING, StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_VOLUMES: Final = "persistentvolumes"
_CLAIMS: Final = "persistentvolumeclaims"
_CLASSES: Final = "storageclasses.storage.k8s.io"
_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_BOUND: Final = "pv.kubernetes.io/bind-completed"
_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"


@dataclass(frozen=True, slots=True)
class _Volume:
    """A volume in the queue, where claims are keys."""

    name: str


class PersistentVolumeBinder(Worker):
    """Takes claims and volumes through their phases."""

    def __init__(self, api: Api, _index: Index) -> None:
        """Follow claims, volumes and classes in the store of `api`."""
        self._api = api
        self._claims = api.kinds.resource(_CLAIMS)
        self._volumes = api.kinds.resource(_VOLUMES)
        self._events = StoreEventRecorder(api, "persistentvolume-controller")
        self.queue = WorkQueue(api.clock)
        for storage_name, listener in (
            (_CLAIMS, self._on_claim),
            (_VOLUMES, self._on_volume),
            (_CLASSES, self._on_class),
        ):
            collection = api.store.collection(storage_name)
            collection.listeners.append(listener)
            for entry in collection.entries():
                listener(StoreEvent(ADDED, entry, None))

    def _on_claim(self, event: StoreEvent) -> None:
        claim = event.entry.obj
        if event.type == DELETED:
            name = claim["spec"].get("volumeName")
            if name:
                self.queue.add(_Volume(name))
        else:
            self.queue.add(event.entry.key)

    def _on_volume(self, event: StoreEvent) -> None:
        volume = event.entry.obj
        reference = volume["spec"].get("claimRef") or EMPTY
        if event.type == DELETED:
            if reference:
                self.queue.add((reference.get("namespace", ""), reference.get("name", "")))
            return
        self.queue.add(_Volume(event.entry.key[1]))
        if event.previous is None or event.previous.obj["spec"] != volume["spec"]:
            self._queue_pending()

    def _on_class(self, event: StoreEvent) -> None:
        if event.type != DELETED:
            self._queue_pending()

    def _queue_pending(self) -> None:
        for claim in self._api.all(_CLAIMS):
            if claim["status"].get("phase") == "Pending":
                self.queue.add(key_of(claim))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Bring one claim or one volume into its phase."""
        if isinstance(key, _Volume):
            volume = self._api.find(_VOLUMES, "", key.name)
            if volume is not None:
                self._sync_volume(volume)
            return
        assert isinstance(key, tuple)  # noqa: S101  (besides, this queue holds store keys only)
        claim = self._api.find(_CLAIMS, *key)
        if claim is not None and not is_terminating(claim):
            self._sync_claim(claim)

    # Claims.

    def _sync_claim(self, claim: JsonObject) -> None:
        if (meta(claim).get("annotations") or EMPTY).get(_BOUND):
            self._check_bound(claim)
            return
        name = claim["spec"].get("volumeName")
        if name:
            volume = self._api.find(_VOLUMES, "", name)
            free = volume is not None and (
                not volume["spec"].get("claimRef") or refers_to(volume, claim)
            )
            if volume is not None and free and suits(volume, claim):
                self._bind(claim, volume)
            elif volume is not None and not free:
                text = f'volume "{name}" already bound to a different claim.'
                self._report(claim, "FailedBinding", text, WARNING)
            return
        storage_class = self._api.find(_CLASSES, "", class_of(claim)) if class_of(claim) else None
        waits = self._waits(claim, storage_class)
        volume = best_volume(self._api.all(_VOLUMES), claim)
        if volume is not None and (not waits or volume["spec"].get("claimRef")):
            self._bind(claim, volume)
        elif waits:
            text = "waiting for first consumer to be created before binding"
            self._report(claim, "WaitForFirstConsumer", text)
        else:
            self._provision(claim, storage_class)

    @staticmethod
    def _waits(claim: JsonObject, storage_class: JsonObject | None) -> bool:
        """Whether the claim waits for the scheduler to choose a node."""
        chosen = (meta(claim).get("annotations") or EMPTY).get(SELECTED_NODE)
        mode = (storage_class or EMPTY).get("volumeBindingMode")
        return mode == "WaitForFirstConsumer" and not chosen

    def _provision(self, claim: JsonObject, storage_class: JsonObject | None) -> None:
        if storage_class is None and class_of(claim):
            text = f'storageclass.storage.k8s.io "{class_of(claim)}" not found'
            self._report(claim, "ProvisioningFailed", text, WARNING)
            return
        if storage_class is None or storage_class["provisioner"] == _NO_PROVISIONER:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._report(claim, "FailedBinding", text)
            return
        chosen = (meta(claim).get("annotations") or EMPTY).get(SELECTED_NODE, "")
        node = self._api.find("nodes", "", chosen) if chosen else None
        if chosen and node is None:
            # As external-provisioner: the scheduler chooses again.
            text = f'failed to get target node: node "{chosen}" not found'
            self._report(claim, "ProvisioningFailed", text, WARNING)
            path = ("metadata", "annotations", SELECTED_NODE)
            change = partial(with_value, path=path, value=None)
            self._api.modify(self._claims, key_of(claim), change, owned_under="")
            return
        volume = provisioned_volume(claim, storage_class, node)
        name = volume["metadata"]["name"]
        made = self._api.ensure(self._volumes, "", volume).obj
        text = f"Successfully provisioned volume {name}"
        self._report(claim, "ProvisioningSucceeded", text)
        self._bind(claim, made)

    def _bind(self, claim: JsonObject, volume: JsonObject) -> None:
        """Let volume and claim name each other, and be Bound."""
        name, now = volume["metadata"]["name"], timestamp(self._api.now())
        had_reference = bool(volume["spec"].get("claimRef"))

        def bound_volume(obj: JsonObject) -> JsonObject:
            obj = with_value(obj, ("spec", "claimRef"), claim_reference(claim))
            if not had_reference:
                obj = with_value(obj, ("metadata", "annotations", _BY_CONTROLLER), "yes")
            return _with_phase(obj, "Bound", now)

        def bound_claim(obj: JsonObject) -> JsonObject:
            if not obj["spec"].get("volumeName"):
                obj = with_value(obj, ("metadata", "annotations", _BY_CONTROLLER), "yes")
            obj = with_value(obj, ("metadata", "annotations", _BOUND), "yes")
            obj = with_value(obj, ("spec", "volumeName"), name)
            return {**obj, "status": _bound_status(obj, volume)}

        self._api.modify(self._volumes, ("", name), bound_volume, owned_under="")
        self._api.modify(self._claims, key_of(claim), bound_claim, owned_under="")

    def _check_bound(self, claim: JsonObject) -> None:
        """A claim whose volume is gone has lost it; one that may grow does."""
        volume = self._api.find(_VOLUMES, "", claim["spec"].get("volumeName", ""))
        if volume is None or not refers_to(volume, claim):
            if claim["status"].get("phase") != "Lost":
                text = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
                self._report(claim, "ClaimLost", text, WARNING)
                self._set_status(claim, _lost_status(claim))
        elif not suits(volume, claim) and is_provisioned(volume):
            self._grow(claim, volume)
        elif (status := _bound_status(claim, volume)) != claim["status"]:
            self._set_status(claim, status)

    def _grow(self, claim: JsonObject, volume: JsonObject) -> None:
        capacity = {"storage": claim["spec"]["resources"]["requests"]["storage"]}
        self._api.modify(
            self._volumes,
            key_of(volume),
            lambda obj: with_value(obj, ("spec", "capacity"), capacity),
            owned_under="",
        )
        self._api.modify(
            self._claims,
            key_of(claim),
            lambda obj: with_value(obj, ("status", "capacity"), capacity),
            owned_under="status",
        )

    def _set_status(self, claim: JsonObject, status: JsonObject) -> None:
        self._api.modify(
            self._claims,
            key_of(claim),
            lambda obj: {**obj, "status": status},
            owned_under="status",
        )

    # Volumes.

    def _sync_volume(self, volume: JsonObject) -> None:
        reference = volume["spec"].get("claimRef")
        phase = volume["status"].get("phase")
        if not reference:
            self._enter(volume, "Available")
            return
        key: Key = (reference.get("namespace", ""), reference.get("name", ""))
        claim = self._api.find(_CLAIMS, *key)
        if not reference.get("uid"):
            self._enter(volume, "Available")
            if claim is not None:
                self.queue.add(key)
        elif claim is not None and refers_to(volume, claim):
            if claim["spec"].get("volumeName") == volume["metadata"]["name"]:
                self._enter(volume, "Bound")
            self.queue.add(key)
        elif phase != "Failed":
            self._reclaim(volume)

    def _reclaim(self, volume: JsonObject) -> None:
        """The claim is gone: what the reclaim policy says happens."""
        self._enter(volume, "Released")
        policy = volume["spec"].get("persistentVolumeReclaimPolicy")
        if policy == "Delete" and not is_terminating(volume):
            if is_provisioned(volume):
                options = DeleteOptions(uid=volume["metadata"]["uid"])
                delete(self._api, self._volumes, key_of(volume), options)
            else:
                text = "error getting deleter volume plugin for volume: no deletable volume plugin"
                self._report(volume, "VolumeFailedDelete", f"{text} matched", WARNING)
                self._enter(volume, "Failed")

    def _enter(self, volume: JsonObject, phase: str) -> None:
        if volume["status"].get("phase") != phase:
            now = timestamp(self._api.now())
            self._api.modify(
                self._volumes,
                key_of(volume),
                lambda obj: _with_phase(obj, phase, now),
                owned_under="status",
            )

    def _report(self, obj: JsonObject, reason: str, message: str, type_: str = NORMAL) -> None:
        self._events.record(obj, reason, message, type_)


def _bound_status(claim: JsonObject, volume: JsonObject) -> JsonObject:
    """The status of a claim that has its volume.

    The capacity of a claim that is Bound already stays: the driver may have told a smaller one.
    """
    status = {
        **claim["status"],
        "phase": "Bound",
        "accessModes": volume["spec"]["accessModes"],
    }
    if claim["status"].get("phase") != "Bound":
        status["capacity"] = volume["spec"]["capacity"]
    return status


def _lost_status(claim: JsonObject) -> JsonObject:
    """The status of a claim whose volume is gone: it has neither access modes nor capacity."""
    kept = {
        name: value
        for name, value in claim["status"].items()
        if name not in ("accessModes", "capacity")
    }
    return {**kept, "phase": "Lost"}


def _with_phase(volume: JsonObject, phase: str, now: str) -> JsonObject:
    if volume["status"].get("phase") == phase:
        return volume
    status = {**volume["status"], "phase": phase, "lastPhaseTransitionTime": now}
    return {**volume, "status": status}
