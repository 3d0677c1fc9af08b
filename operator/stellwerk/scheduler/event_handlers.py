"""What a Pod, a Node or any other watched object means to the cache and the queue.

Implements WatchHandlers for kopf's handlers; synchronous, no I/O. Invariant: after an event, the
cache and the queue show the object as the event does, and every pod that the change may help has
been told.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from typing_extensions import override

from stellwerk.backend.change_actions import node_update_actions, pod_update_actions
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import parse_node
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.scheduler.parts import Parts

logger = logging.getLogger(__name__)

Parsed = TypeVar("Parsed")
DELETED: Final = "DELETED"

_RESOURCES: Final = {
    "Namespace": Resource.NAMESPACE,
    "PersistentVolume": Resource.PERSISTENT_VOLUME,
    "PersistentVolumeClaim": Resource.PERSISTENT_VOLUME_CLAIM,
    "StorageClass": Resource.STORAGE_CLASS,
    "CSINode": Resource.CSI_NODE,
    "CSIDriver": Resource.CSI_DRIVER,
    "CSIStorageCapacity": Resource.CSI_STORAGE_CAPACITY,
    "VolumeAttachment": Resource.VOLUME_ATTACHMENT,
}
"""Kinds whose changes can wake pods; the others are only kept."""


class EventHandlers(WatchHandlers):
    """See the module docstring."""

    def __init__(self, parts: Parts, on_synced: Callable[[str], None]) -> None:
        self._parts = parts
        self._on_synced = on_synced
        self._unresolved: dict[str, JsonObject] = {}
        """Pods without a priority whose class nobody has shown yet."""

    # --- pods -----------------------------------------------------------------------------------

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> None:
        if event_type == DELETED:
            self._pod_gone(obj["metadata"])
            return
        pod = _well_formed(self._parse, obj)
        if self._parts.raw.wanted:
            self._parts.raw.on_pod(pod.uid, None if pod.finished else obj)
        if pod.finished:
            self._pod_gone(obj["metadata"])
        elif pod.node_name:
            self._pod_bound(pod)
        else:
            self._pod_unbound(pod)
        self._parts.notify()

    def _parse(self, obj: JsonObject) -> PodInfo:
        """The pod; if admission left its priority open, with the one its class has."""
        if obj["spec"].get("priority") is not None:
            return parse_pod(obj)
        classes = self._parts.priority_classes
        uid = _uid(obj["metadata"])
        pod = parse_pod(obj, classes.resolver(uid))
        if classes.is_waiting(uid):
            # Its class may only be listed later: then the pod is parsed again.
            self._unresolved[uid] = obj
        return pod

    def _priorities_known(self, uids: Iterable[str]) -> None:
        for uid in uids:
            obj = self._unresolved.pop(uid, None)
            if obj is not None:
                self.on_pod("MODIFIED", obj)

    def _pod_bound(self, pod: PodInfo) -> None:
        parts = self._parts
        parts.unconfirmed.pop(pod.uid, None)
        parts.unserved.remove(pod.uid)
        parts.reports.drop(pod.uid)
        confirmed = parts.cache.is_assumed(pod.uid)
        before = parts.cache.set_pod(pod)
        parts.queue.delete(pod.uid)
        if pod.terminating:
            parts.preemptor.on_leaving(pod.uid)
        if before is None or confirmed:
            parts.changed(ClusterChange(Resource.ASSIGNED_POD, Action.ADD, None, pod))
            return
        for action in pod_update_actions(before, pod):
            parts.changed(ClusterChange(Resource.ASSIGNED_POD, action, before, pod))

    def _pod_unbound(self, pod: PodInfo) -> None:
        parts, now = self._parts, self._parts.clock.monotonic()
        if pod.uid not in parts.queue:
            if parts.profiles.serves(pod.spec.scheduler_name):
                parts.queue.add(pod, now)
            else:
                parts.unserved.put(pod)
            return
        if pod.terminating and parts.cache.is_assumed(pod.uid):
            self._assumed_pod_going(pod.uid)
        before = parts.queue.update(pod, now)
        if before is not None and before.nominated_node_name != pod.nominated_node_name:
            # Whoever a lower or equal nomination stood in the way of may fit now.
            self._nomination_changed(before)

    def _assumed_pod_going(self, uid: str) -> None:
        """The deletion of a pod that is being bound has begun: its room is free at once.

        Whatever its binding is at goes on, and is refused by the API in the end.
        """
        parts = self._parts
        waiting = parts.waiting.get_waiting(uid)
        if waiting is not None:
            waiting.reject("", "pod is deleted")
            return
        assumed = parts.cache.forget_pod(uid)
        if assumed is not None:
            parts.room_freed(assumed)

    def _nomination_changed(self, pod: PodInfo) -> None:
        if pod.nominated_node_name:
            self._parts.queue.move_all_to_active_or_backoff(
                ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, pod, None),
                self._parts.clock.monotonic(),
                max_priority=pod.priority,
            )

    def _pod_gone(self, metadata: JsonObject) -> None:
        parts, uid = self._parts, _uid(metadata)
        parts.unserved.remove(uid)
        parts.reports.drop(uid)
        parts.raw.on_pod(uid, None)
        self._unresolved.pop(uid, None)
        parts.priority_classes.forget(uid)
        parts.unconfirmed.pop(uid, None)
        waiting = parts.waiting.get_waiting(uid)
        if waiting is not None:
            waiting.reject("", "pod is deleted")
        pending = parts.queue.delete(uid)
        if pending is not None:
            parts.preemptor.abandon(uid)
            self._nomination_changed(pending)
        removed = parts.cache.remove_pod(uid)
        parts.preemptor.on_leaving(uid)
        if removed is not None:
            parts.changed(ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, removed, None))
        parts.notify()

    # --- nodes ----------------------------------------------------------------------------------

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        parts = self._parts
        if event_type == DELETED:
            metadata = obj["metadata"]
            removed = parts.cache.remove_node(metadata["name"], metadata.get("uid") or "")
            if removed is not None:
                parts.raw.on_node(metadata["name"], None)
                parts.changed(ClusterChange(Resource.NODE, Action.DELETE, removed, None))
            return
        node = _well_formed(parse_node, obj)
        if parts.raw.wanted:
            parts.raw.on_node(node.name, obj)
        before = parts.cache.set_node(node)
        if before is None:
            parts.changed(ClusterChange(Resource.NODE, Action.ADD, None, node))
            return
        for action in node_update_actions(before, node):
            parts.changed(ClusterChange(Resource.NODE, action, before, node))

    # --- everything else ------------------------------------------------------------------------

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        parts = self._parts
        gone = event_type == DELETED
        if kind == "PriorityClass":
            if gone:
                parts.priority_classes.remove(obj["metadata"]["name"])
            else:
                self._priorities_known(parts.priority_classes.set(obj))
        elif kind == "SchedulerProfile":
            parts.profiles.on_object(obj, gone=gone)
        else:
            self._keep(kind, obj, gone=gone)
        parts.notify()

    def _keep(self, kind: str, obj: JsonObject, *, gone: bool) -> None:
        parts, metadata = self._parts, obj["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        before = parts.objects.get(kind, namespace, name)
        if gone:
            parts.objects.remove(kind, obj)
        else:
            parts.objects.set(kind, obj)
        if kind == "Namespace":
            parts.cache.set_namespace(name, None if gone else metadata.get("labels") or {})
        resource = _RESOURCES.get(kind)
        if resource is not None and not (gone and before is None):
            action = (
                Action.DELETE if gone else Action.ADD if before is None else Action.UPDATE_OTHER
            )
            parts.changed(ClusterChange(resource, action, before, None if gone else obj))

    @override
    def on_synced(self, kind: str) -> None:
        if kind == "PriorityClass":
            self._priorities_known(self._parts.priority_classes.synced())
        self._on_synced(kind)


def _well_formed(parse: Callable[[JsonObject], Parsed], obj: JsonObject) -> Parsed:
    """The parsed object.

    Raises:
        ValueError: it is malformed; whoever delivers events logs, counts and skips it.
    """
    try:
        return parse(obj)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _uid(metadata: JsonObject) -> str:
    return metadata.get("uid") or f"{metadata.get('namespace', 'default')}/{metadata['name']}"
