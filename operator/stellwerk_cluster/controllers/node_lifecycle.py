"""Node taints that follow from the state of a node, and eviction by NoExecute taints.

Invariant: of the taints that this controller sets, a node has exactly those that its state asks
for; all others are the user's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk.models.taints import parse_taints, parse_tolerations
from stellwerk_cluster.apimachinery.objects import (
    is_terminating,
    timestamp,
    with_value,
)
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import DELETED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api

_PREFIX: Final = "node.kubernetes.io/"
_PRESSURE_TAINTS: Final = {
    "MemoryPressure": f"{_PREFIX}memory-pressure",
    "DiskPressure": f"{_PREFIX}disk-pressure",
    "PIDPressure": f"{_PREFIX}pid-pressure",
    "NetworkUnavailable": f"{_PREFIX}network-unavailable",
}
NOT_READY: Final = f"{_PREFIX}not-ready"
UNREACHABLE: Final = f"{_PREFIX}unreachable"
UNSCHEDULABLE: Final = f"{_PREFIX}unschedulable"
_OWN: Final = frozenset((NOT_READY, UNREACHABLE, UNSCHEDULABLE, *_PRESSURE_TAINTS.values()))


@dataclass(frozen=True, slots=True)
class _Doomed:
    """A pod to look at again when its toleration may have run out."""

    key: Key


class NodeLifecycleController(Worker):
    """Sets the taints of nodes, and deletes pods when their toleration of NoExecute runs out."""

    def __init__(self, api: Api, index: Index) -> None:
        """Follow nodes and bindings in the store of `api`."""
        self._api = api
        self._index = index
        self._nodes = api.kinds.resource("nodes")
        self._pods = api.kinds.resource("pods")
        self.queue = WorkQueue(api.clock)
        self._doomed_since: dict[str, float] = {}
        """Pod uid → when the taints of its node were first seen to end its stay, monotonic."""
        nodes = api.store.collection("nodes")
        nodes.listeners.append(self._on_node)
        api.store.collection("pods").listeners.append(self._on_pod)
        for entry in nodes.entries():
            self.queue.add(entry.key[1])

    def _on_node(self, event: StoreEvent) -> None:
        if event.type != DELETED:
            self.queue.add(event.entry.key[1])

    def _on_pod(self, event: StoreEvent) -> None:
        pod = event.entry.obj
        if event.type == DELETED:
            self._doomed_since.pop(pod["metadata"]["uid"], None)
        bound_now = pod["spec"].get("nodeName") and (
            event.previous is None or not event.previous.obj["spec"].get("nodeName")
        )
        if bound_now and event.type != DELETED:
            node = self._api.find("nodes", "", pod["spec"]["nodeName"])
            if node is not None and any(_executes(node)):
                self.queue.add(_Doomed(event.entry.key))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Taint one node, or decide about one pod."""
        if isinstance(key, _Doomed):
            self._evict_if_due(key)
            return
        node = self._api.find("nodes", "", str(key))
        if node is None:
            return
        now = timestamp(self._api.now())
        node = self._api.modify(
            self._nodes, ("", str(key)), lambda obj: _tainted(obj, now), owned_under=""
        ).obj
        if not self._doomed_since and not any(_executes(node)):
            return
        for pod in self._index.pods_on(str(key)):
            metadata = pod["metadata"]
            self._evict_if_due(_Doomed((metadata["namespace"], metadata["name"])))

    def _evict_if_due(self, doomed: _Doomed) -> None:
        pod = self._api.find("pods", *doomed.key)
        node = self._api.find("nodes", "", pod["spec"].get("nodeName", "")) if pod else None
        if pod is None or node is None or is_terminating(pod):
            return
        uid = pod["metadata"]["uid"]
        tolerated_seconds = _tolerated_seconds(pod, node)
        if tolerated_seconds is None:
            self._doomed_since.pop(uid, None)
            return
        # Counted from here and not from timeAdded, which taints set by users do not have.
        now = self._api.clock.monotonic()
        left_seconds = self._doomed_since.setdefault(uid, now) + tolerated_seconds - now
        if left_seconds > 0:
            self.queue.add_after(doomed, left_seconds)
        else:
            delete(self._api, self._pods, doomed.key, DeleteOptions(uid=uid))


def _wanted(node: JsonObject) -> Iterator[tuple[str, str]]:
    """(key, effect) of the taints that the state of a node asks for."""
    conditions = {
        each["type"]: each.get("status") for each in node["status"].get("conditions") or ()
    }
    ready = conditions.get("Ready")
    if ready == "False":
        yield NOT_READY, "NoSchedule"
        yield NOT_READY, "NoExecute"
    elif ready == "Unknown":
        yield UNREACHABLE, "NoSchedule"
        yield UNREACHABLE, "NoExecute"
    elif ready is None:
        yield NOT_READY, "NoSchedule"
    for condition, key in _PRESSURE_TAINTS.items():
        if conditions.get(condition) == "True":
            yield key, "NoSchedule"
    if node["spec"].get("unschedulable"):
        yield UNSCHEDULABLE, "NoSchedule"


def _tainted(node: JsonObject, now: str) -> JsonObject:
    wanted = list(_wanted(node))
    has = node["spec"].get("taints") or []
    kept = [
        each for each in has if each["key"] not in _OWN or (each["key"], each["effect"]) in wanted
    ]
    present = {(each["key"], each["effect"]) for each in kept}
    added: list[JsonObject] = [
        {"key": key, "effect": effect, **({"timeAdded": now} if effect == "NoExecute" else {})}
        for key, effect in wanted
        if (key, effect) not in present
    ]
    if not added and kept == has:
        return node
    return with_value(node, ("spec", "taints"), [*kept, *added] or None)


def _executes(node: JsonObject) -> Iterator[JsonObject]:
    return (taint for taint in node["spec"].get("taints") or () if taint["effect"] == "NoExecute")


def _tolerated_seconds(pod: JsonObject, node: JsonObject) -> float | None:
    """How long the pod may stay once the taints are there; None: without end."""
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
