"""Eviction by NoExecute taints: at once, after `tolerationSeconds`, or never.

Invariant: a pod is deleted when its shortest toleration of the taints has lasted from the moment
they were first seen, and not at all if they go before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk.models.taints import parse_taints, parse_tolerations
from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    is_terminating,
    key_of,
    meta,
    timestamp,
    with_value,
)
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import DELETED, StoreEvent
from stellwerk_cluster.registry.event_recorder import StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.registry.api import Api

_REASON: Final = "TaintManagerEviction"
_DISRUPTION: Final = {
    "type": "DisruptionTarget",
    "status": "True",
    "lastProbeTime": None,
    "reason": "DeletionByTaintManager",
    "message": "Taint manager: deleting due to NoExecute taint",
}


class TaintEvictionController(Worker):
    """Deletes pods when their toleration of the NoExecute taints of their node runs out."""

    def __init__(self, api: Api) -> None:
        """Follow nodes and pods in the store of `api`."""
        self._api = api
        self._kind = api.kinds.resource("pods")
        self._events = StoreEventRecorder(api, "taint-eviction-controller")
        self.queue = WorkQueue(api.clock)
        self._doomed_since: dict[str, float] = {}
        """Pod uid → when the taints of its node were first seen to end its stay, monotonic."""
        nodes = api.store.collection("nodes")
        nodes.listeners.append(self._on_node)
        api.store.collection("pods").listeners.append(self._on_pod)
        for entry in nodes.entries():
            if any(_executes(entry.obj)):
                self._look_at_all(entry.key[1])

    def _on_node(self, event: StoreEvent) -> None:
        before = list(_executes(event.previous.obj)) if event.previous else []
        after = [] if event.type == DELETED else list(_executes(event.entry.obj))
        if before != after:
            self._look_at_all(event.entry.key[1])

    def _look_at_all(self, node_name: str) -> None:
        for entry in self._api.store.collection("pods").on_node(node_name):
            self.queue.add(entry.key)

    def _on_pod(self, event: StoreEvent) -> None:
        pod = event.entry.obj
        if event.type == DELETED:
            self._doomed_since.pop(meta(pod)["uid"], None)
            return
        was = event.previous.obj["spec"] if event.previous else EMPTY
        if not event.entry.node_name or (
            was.get("nodeName") and was.get("tolerations") == pod["spec"].get("tolerations")
        ):
            return
        node = self._api.find("nodes", "", event.entry.node_name)
        if node is not None and any(_executes(node)):
            self.queue.add(event.entry.key)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Decide about one pod."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        pod = self._api.find("pods", *key)
        if pod is None or is_terminating(pod):
            return
        node = self._api.find("nodes", "", pod["spec"].get("nodeName", ""))
        uid, now = meta(pod)["uid"], self._api.clock.monotonic()
        seconds = None if node is None else _tolerated_seconds(pod, node)
        if seconds is None:
            if self._doomed_since.pop(uid, None) is not None:
                text = f"Cancelling deletion of Pod {key[0]}/{key[1]}"
                self._events.record(pod, _REASON, text)
            return
        # Counted from here and not from timeAdded, which taints set by users do not have.
        left = self._doomed_since.setdefault(uid, now) + seconds - now
        if left > 0:
            self.queue.add_after(key, left)
        else:
            self._evict(pod)

    def _evict(self, pod: JsonObject) -> None:
        key, uid = key_of(pod), meta(pod)["uid"]
        text = f"Marking for deletion Pod {key[0]}/{key[1]}"
        self._events.record(pod, _REASON, text)
        condition = {**_DISRUPTION, "lastTransitionTime": timestamp(self._api.now())}
        self._api.modify(self._kind, key, lambda obj: _with_condition(obj, condition))
        delete(self._api, self._kind, key, DeleteOptions(uid=uid))
        self._doomed_since.pop(uid, None)


def _with_condition(pod: JsonObject, condition: JsonObject) -> JsonObject:
    before = pod["status"].get("conditions") or ()
    kept = [each for each in before if each["type"] != condition["type"]]
    return with_value(pod, ("status", "conditions"), [*kept, condition])


def _executes(node: JsonObject) -> Iterator[JsonObject]:
    return (taint for taint in node["spec"].get("taints") or () if taint["effect"] == "NoExecute")


def _tolerated_seconds(pod: JsonObject, node: JsonObject) -> float | None:
    """The seconds that the pod tolerates the taints; None: without end."""
    shortest: float | None = None
    tolerations = parse_tolerations(pod["spec"].get("tolerations"))
    for taint in parse_taints(list(_executes(node))):
        matching = [each for each in tolerations if each.tolerates(taint)]
        if not matching:
            return 0.0
        limits = [
            each.toleration_seconds for each in matching if each.toleration_seconds is not None
        ]
        if limits:
            shortest = min(limits) if shortest is None else min(shortest, *limits)
    return shortest
