"""Pod garbage collection: pods that no kubelet will ever end.

Those of vanished nodes, those that terminate unbound, those of nodes out of service, and finished
ones beyond a limit. Invariant: a pod that still runs on a node that exists and is in service is
never touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    is_terminating,
    key_of,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

QUARANTINE_SECONDS: Final = 40.0
"""Time that a node must be gone before its pods follow: it may register again."""
GC_PERIOD_SECONDS: Final = 20.0
"""Time between two counts of finished pods."""
MAX_FINISHED_PODS: Final = 12_500
"""Finished pods that stay. Above it, the oldest are deleted (`--terminated-pod-gc-threshold`)."""
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_GONE: Final = "PodGC: node no longer exists"
_OUT: Final = "PodGC: the node is out-of-service"


@dataclass(frozen=True, slots=True)
class _Count:
    """Stands in the queue for counting the finished pods."""


class PodGarbageCollector(Worker):
    """Removes pods, without any grace, that would otherwise stay without end."""

    def __init__(self, api: Api, index: Index, *, most_finished: int = MAX_FINISHED_PODS) -> None:
        """Follow pods and nodes; `most_finished` 0 or below keeps all finished pods."""
        self._api = api
        self._index = index
        self._most_finished = most_finished
        self._pods = api.kinds.resource("pods")
        self._finished: dict[Key, None] = {}
        self._counting = False
        self.queue = WorkQueue(api.clock)
        pods = api.store.collection("pods")
        pods.listeners.append(self._on_pod)
        api.store.collection("nodes").listeners.append(self._on_node)
        for entry in pods.entries():
            self._on_pod(StoreEvent(ADDED, entry, None))

    def _on_pod(self, event: StoreEvent) -> None:
        pod, key = event.entry.obj, event.entry.key
        if event.type == DELETED:
            self._finished.pop(key, None)
            return
        if is_finished(pod):
            self._finished[key] = None
            self._count_later()
        node_name = pod["spec"].get("nodeName", "")
        if not node_name:
            if is_terminating(pod):
                self.queue.add(key)
            return
        bound_now = event.previous is None or not event.previous.node_name
        if bound_now and self._api.find("nodes", "", node_name) is None:
            self.queue.add_after(key, QUARANTINE_SECONDS)
        elif is_terminating(pod):
            self.queue.add(key)

    def _count_later(self) -> None:
        if not self._counting and len(self._finished) > self._most_finished > 0:
            self._counting = True
            self.queue.add_after(_Count(), GC_PERIOD_SECONDS)

    def _on_node(self, event: StoreEvent) -> None:
        name = event.entry.key[1]
        if event.type == DELETED:
            for pod in self._index.pods_on(name):
                self.queue.add_after(key_of(pod), QUARANTINE_SECONDS)
        elif _is_out_of_service(event.entry.obj):
            for pod in self._index.pods_on(name):
                self.queue.add(key_of(pod))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Remove one pod if it must go, or the oldest finished ones."""
        if isinstance(key, _Count):
            self._remove_oldest()
            return
        assert isinstance(key, tuple)  # noqa: S101  (besides, this queue holds store keys only)
        pod = self._api.find("pods", *key)
        if pod is None:
            return
        node_name = pod["spec"].get("nodeName", "")
        node = self._api.find("nodes", "", node_name)
        if not node_name:
            if is_terminating(pod):
                self._remove(pod)
        elif node is None:
            self._remove(pod, _GONE)
        elif is_terminating(pod) and _is_out_of_service(node):
            self._remove(pod, _OUT)

    def _remove_oldest(self) -> None:
        self._counting = False
        found = [self._api.find("pods", *key) for key in self._finished]
        pods = [pod for pod in found if pod is not None]
        surplus = len(pods) - self._most_finished
        pods.sort(key=lambda pod: (not _is_evicted(pod), pod["metadata"]["creationTimestamp"]))
        for pod in pods[: max(0, surplus)]:
            self._remove(pod)

    def _remove(self, pod: JsonObject, why: str = "") -> None:
        """Delete a pod at once; one that did not finish fails first, so that its job counts it."""
        uid = pod["metadata"]["uid"]
        if not is_finished(pod) and why:
            now = timestamp(self._api.now())
            self._api.modify(
                self._pods, key_of(pod), lambda obj: _failed(obj, why, now), owned_under="status"
            )
        delete(self._api, self._pods, key_of(pod), DeleteOptions(grace_period_seconds=0, uid=uid))


def _is_evicted(pod: JsonObject) -> bool:
    return bool(pod["status"].get("reason") == "Evicted")


def _is_out_of_service(node: JsonObject) -> bool:
    """Whether a node that is not ready has the taint that says it will not come back."""
    taints = node["spec"].get("taints") or ()
    conditions = (node.get("status") or EMPTY).get("conditions") or ()
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return not ready and any(each["key"] == OUT_OF_SERVICE for each in taints)


def _failed(pod: JsonObject, why: str, now: str) -> JsonObject:
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": why,
        "lastTransitionTime": now,
        "lastProbeTime": None,
    }
    conditions = pod["status"].get("conditions") or ()
    kept = [each for each in conditions if each["type"] != "DisruptionTarget"]
    status = {**pod["status"], "phase": "Failed", "conditions": [*kept, target]}
    return with_value(pod, ("status",), status)
