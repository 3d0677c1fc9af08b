"""Nodes that are no longer heard of, and the taints that follow from the state of a node.

Invariant: of the taints that this controller sets, a node has those that its state asks for, those
that evict as soon as the rate of its zone allows; all others are the user's. While no node of the
cluster is ready, none is tainted: then it is the view from here that has failed, and not the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    key_of,
    labels_of,
    meta,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_ready
from stellwerk_cluster.registry.entries import DELETED, StoreEvent
from stellwerk_cluster.registry.event_recorder import WARNING, StoreEventRecorder
from stellwerk_cluster.registry.lease_cache import LEASE_NAMESPACE, LEASES
from stellwerk_cluster.work import Worker, WorkQueue
from stellwerk_kube.node import zone_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject


NODES_PER_SECOND: Final = 0.1
"""Nodes that are tainted per second in a zone where most nodes are ready, and in one where none is
(`--node-eviction-rate`)."""
NODES_PER_SECOND_IF_UNHEALTHY: Final = 0.01
"""Nodes that are tainted per second in a large zone where many nodes are not ready
(`--secondary-node-eviction-rate`)."""
MIN_UNHEALTHY_SHARE: Final = 0.55
"""Share of nodes that are not ready from which a zone is unhealthy
(`--unhealthy-zone-threshold`)."""
MAX_SMALL_ZONE_NODES: Final = 50
"""Nodes of a small zone, where no node is tainted while many are not ready
(`--large-cluster-size-threshold`)."""
_MAX_IGNORED_NODES: Final = 2
"""Nodes that are not ready and make no zone unhealthy, however small the zone is."""


class ZoneState(Enum):
    """The health of a zone, by how many of its nodes are ready."""

    NORMAL = "Normal"
    PARTIAL_DISRUPTION = "PartialDisruption"
    FULL_DISRUPTION = "FullDisruption"


@dataclass(slots=True)
class Zone:
    """The nodes of one zone, and those that wait for their taint."""

    ready: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    waiting: dict[str, None] = field(default_factory=dict)
    """Nodes in the order in which they will be tainted."""
    next_at: float = 0.0
    """The time at which the next node may be tainted, monotonic."""

    @property
    def state(self) -> ZoneState:
        """The state of the zone (`ComputeZoneState`, v1.36)."""
        unready, total = len(self.unready), len(self.ready) + len(self.unready)
        if unready and unready == total:
            return ZoneState.FULL_DISRUPTION
        if unready > _MAX_IGNORED_NODES and unready / total >= MIN_UNHEALTHY_SHARE:
            return ZoneState.PARTIAL_DISRUPTION
        return ZoneState.NORMAL

    @property
    def rate(self) -> float:
        """Nodes that may be tainted per second, while not all zones are fully disrupted."""
        if self.state is not ZoneState.PARTIAL_DISRUPTION:
            return NODES_PER_SECOND
        large = len(self.ready) + len(self.unready) > MAX_SMALL_ZONE_NODES
        return NODES_PER_SECOND_IF_UNHEALTHY if large else 0.0


class Zones:
    """All zones by name."""

    def __init__(self) -> None:
        """Without any node."""
        self._zones: dict[str, Zone] = {}
        self._zone_of: dict[str, str] = {}

    def __getitem__(self, name: str) -> Zone:
        """The zone of that name."""
        return self._zones[name]

    def __contains__(self, node_name: object) -> bool:
        """Whether a node is counted."""
        return node_name in self._zone_of

    def names(self) -> list[str]:
        """The names of all zones that have nodes."""
        return list(self._zones)

    def put(self, node_name: str, zone_name: str, *, ready: bool) -> None:
        """Count a node, where it is and as it is now."""
        if self._zone_of.get(node_name, zone_name) != zone_name:
            self.drop(node_name)
        zone = self._zones.setdefault(zone_name, Zone())
        self._zone_of[node_name] = zone_name
        (zone.ready if ready else zone.unready).add(node_name)
        (zone.unready if ready else zone.ready).discard(node_name)
        if ready:
            zone.waiting.pop(node_name, None)

    def drop(self, node_name: str) -> None:
        """Count a node no longer."""
        zone_name = self._zone_of.pop(node_name, None)
        if zone_name is None:
            return
        zone = self._zones[zone_name]
        zone.ready.discard(node_name)
        zone.unready.discard(node_name)
        zone.waiting.pop(node_name, None)
        if not zone.ready and not zone.unready:
            del self._zones[zone_name]

    def zone_of(self, node_name: str) -> Zone:
        """The zone that a node is counted in."""
        return self._zones[self._zone_of[node_name]]

    @property
    def all_disrupted(self) -> bool:
        """Whether no node of any zone is ready."""
        return bool(self._zones) and not any(zone.ready for zone in self._zones.values())

    def next_node(self, zone_name: str, now: float) -> tuple[str | None, float | None]:
        """The node to taint now, and in how many seconds to ask again; None: on the next change."""
        zone = self._zones.get(zone_name)
        if zone is None or not zone.waiting or self.all_disrupted or not zone.rate:
            return None, None
        if now < zone.next_at:
            return None, zone.next_at - now
        node_name = next(iter(zone.waiting))
        del zone.waiting[node_name]
        zone.next_at = now + 1 / zone.rate
        return node_name, 1 / zone.rate


NODE_MONITOR_GRACE_SECONDS: Final = 50.0
"""Time that a lease may go without renewal."""
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
_SILENT_CONDITIONS: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@dataclass(frozen=True, slots=True)
class _Lease:
    """A node to look at again when its lease may have run out."""

    node_name: str


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A zone whose next node may be tainted."""

    zone_name: str


class NodeLifecycleController(Worker):
    """Writes nodes off that are not heard of, and sets the taints of all nodes.

    A node without a lease is not watched: nothing has promised to renew one. Nor is one whose lease
    is kept, until it is released.
    """

    def __init__(self, api: Api) -> None:
        """Follow nodes and their leases in the store of `api`."""
        self._api = api
        self._nodes = api.kinds.resource("nodes")
        self._pods = api.kinds.resource("pods")
        self._events = StoreEventRecorder(api, "node-controller")
        self.queue = WorkQueue(api.clock)
        self._zones = Zones()
        self._renewed: dict[str, float] = {}
        """Node → when its lease was last seen to change, monotonic: clocks may differ."""
        self._all_disrupted = False
        nodes, leases = api.store.collection("nodes"), api.store.collection(LEASES)
        nodes.listeners.append(self._on_node)
        leases.listeners.append(self._on_lease)
        for entry in nodes.entries():
            self.queue.add(entry.key[1])
        api.lease_cache.on_released.append(self._saw)
        for entry in leases.entries(LEASE_NAMESPACE):
            self._saw(entry.key[1], api.clock.monotonic())

    def _on_node(self, event: StoreEvent) -> None:
        name = event.entry.key[1]
        if event.type == DELETED:
            self._zones.drop(name)
            self._renewed.pop(name, None)
        else:
            self.queue.add(name)

    def _on_lease(self, event: StoreEvent) -> None:
        namespace, name = event.entry.key
        if namespace == LEASE_NAMESPACE:
            if event.type == DELETED:
                self._renewed.pop(name, None)
            elif self._api.lease_cache.renewed(name) is None:
                self._saw(name, self._api.clock.monotonic())

    def _saw(self, name: str, renewed: float) -> None:
        """The lease of a node was renewed then, monotonic."""
        watched = name in self._renewed
        self._renewed[name] = renewed
        if not watched:
            left = renewed + NODE_MONITOR_GRACE_SECONDS - self._api.clock.monotonic()
            self.queue.add_after(_Lease(name), left)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Look at one lease, taint one node, or let the next one of a zone be tainted."""
        if isinstance(key, _Lease):
            self._look_at_lease(key)
        elif isinstance(key, _Waiting):
            self._taint_next(key)
        else:
            self._look_at_node(str(key))

    def _look_at_lease(self, lease: _Lease) -> None:
        renewed = self._renewed.get(lease.node_name)
        node = self._api.find("nodes", "", lease.node_name)
        kept = self._api.lease_cache.renewed(lease.node_name) is not None
        if renewed is None or node is None or kept:
            self._renewed.pop(lease.node_name, None)
            return
        left = renewed + NODE_MONITOR_GRACE_SECONDS - self._api.clock.monotonic()
        if left > 0:
            self.queue.add_after(lease, left)
            return
        del self._renewed[lease.node_name]  # its next renewal begins anew
        if _ready(node) != "Unknown":
            now = timestamp(self._api.now())
            self._api.modify(
                self._nodes,
                ("", lease.node_name),
                lambda obj: _unheard_of(obj, now),
                owned_under="status",
            )

    def _look_at_node(self, name: str) -> None:
        node = self._api.find("nodes", "", name)
        if node is None:
            return
        ready = _ready(node) == "True"
        was_ready = name in self._zones.zone_of(name).ready if name in self._zones else None
        self._zones.put(name, zone_key(labels_of(node)), ready=ready)
        if was_ready and not ready:
            self._report_not_ready(node)
        now = timestamp(self._api.now())
        key = ("", name)
        node = self._api.modify(
            self._nodes, key, lambda obj: _tainted(obj, now), owned_under=""
        ).obj
        if missing_execution(node):
            self._zones.zone_of(name).waiting.setdefault(name)
        if was_ready is None or was_ready != ready or missing_execution(node):
            self._follow_zones()

    def _follow_zones(self) -> None:
        """A node more or less is ready: rates may have changed."""
        if self._zones.all_disrupted and not self._all_disrupted:
            for node in list(self._api.all("nodes")):
                self._api.modify(self._nodes, key_of(node), _without_execution, owned_under="")
        self._all_disrupted = self._zones.all_disrupted
        for zone_name in self._zones.names():
            if self._zones[zone_name].waiting:
                self.queue.add(_Waiting(zone_name))

    def _taint_next(self, zone: _Waiting) -> None:
        name, seconds = self._zones.next_node(zone.zone_name, self._api.clock.monotonic())
        if seconds is not None:
            self.queue.add_after(zone, seconds)
        if name is not None and self._api.find("nodes", "", name) is not None:
            now = timestamp(self._api.now())
            self._api.modify(
                self._nodes, ("", name), lambda obj: _executing(obj, now), owned_under=""
            )

    def _report_not_ready(self, node: JsonObject) -> None:
        """Say so, and that its pods are not ready either."""
        name = meta(node)["name"]
        text = f"Node {name} status is now: NodeNotReady"
        self._events.record(node, "NodeNotReady", text)
        now = timestamp(self._api.now())
        for entry in self._api.store.collection("pods").on_node(name):
            if is_ready(entry.obj):
                pod = self._api.modify(
                    self._pods, entry.key, lambda obj: _unready(obj, now), owned_under="status"
                ).obj
                self._events.record(pod, "NodeNotReady", "Node is not ready", WARNING)


def _ready(node: JsonObject) -> str | None:
    for condition in node["status"].get("conditions") or ():
        if condition["type"] == "Ready":
            status: str | None = condition.get("status")
            return status
    return None


def _unheard_of(node: JsonObject, now: str) -> JsonObject:
    """The node with what the kubelet reported as Unknown."""
    has = {each["type"]: each for each in node["status"].get("conditions") or ()}
    for type_ in _SILENT_CONDITIONS:
        was = has.get(type_)
        never = {
            "type": type_,
            "reason": "NodeStatusNeverUpdated",
            "message": "Kubelet never posted node status.",
        }
        stopped = {
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
        change = {"status": "Unknown", "lastTransitionTime": now}
        has[type_] = {**never, **change} if was is None else {**was, **stopped, **change}
    return with_value(node, ("status", "conditions"), list(has.values()))


def _unready(pod: JsonObject, now: str) -> JsonObject:
    conditions = [
        {**each, "status": "False", "lastTransitionTime": now} if each["type"] == "Ready" else each
        for each in pod["status"]["conditions"]
    ]
    return with_value(pod, ("status", "conditions"), conditions)


def _wanted(node: JsonObject) -> Iterator[str]:
    """The keys of the NoSchedule taints that the state of a node asks for."""
    ready = _ready(node)
    if ready == "Unknown":
        yield UNREACHABLE
    elif ready != "True":
        yield NOT_READY
    conditions = {
        each["type"]: each.get("status") for each in node["status"].get("conditions") or ()
    }
    for condition, key in _PRESSURE_TAINTS.items():
        if conditions.get(condition) == "True":
            yield key
    if node["spec"].get("unschedulable"):
        yield UNSCHEDULABLE


def _execution_key(node: JsonObject) -> str:
    """The key of the NoExecute taint that the state of a node asks for; empty: none."""
    return {"False": NOT_READY, "Unknown": UNREACHABLE}.get(_ready(node) or "", "")


def missing_execution(node: JsonObject) -> bool:
    """Whether the node should be tainted NoExecute, and is not yet."""
    key = _execution_key(node)
    has = node["spec"].get("taints") or ()
    return bool(key) and not any((t["key"], t["effect"]) == (key, "NoExecute") for t in has)


def _tainted(node: JsonObject, now: str) -> JsonObject:
    """The node with its NoSchedule taints; an own NoExecute taint stays if it is still asked for.

    One that is there under another key than is asked for now changes its key at once.
    """
    has, execution = node["spec"].get("taints") or [], _execution_key(node)
    wanted = {(key, "NoSchedule"): EMPTY for key in _wanted(node)}
    if execution and any(t["effect"] == "NoExecute" and t["key"] in _OWN for t in has):
        wanted[execution, "NoExecute"] = {"timeAdded": now}
    kept = [
        each for each in has if each["key"] not in _OWN or (each["key"], each["effect"]) in wanted
    ]
    present = {(each["key"], each["effect"]) for each in kept}
    added = [
        {"key": key, "effect": effect, **more}
        for (key, effect), more in wanted.items()
        if (key, effect) not in present
    ]
    if not added and kept == has:
        return node
    return with_value(node, ("spec", "taints"), [*kept, *added] or None)


def _executing(node: JsonObject, now: str) -> JsonObject:
    if not missing_execution(node):
        return node
    taint = {"key": _execution_key(node), "effect": "NoExecute", "timeAdded": now}
    return with_value(node, ("spec", "taints"), [*(node["spec"].get("taints") or ()), taint])


def _without_execution(node: JsonObject) -> JsonObject:
    has = node["spec"].get("taints") or []
    kept = [each for each in has if each["effect"] != "NoExecute" or each["key"] not in _OWN]
    return node if kept == has else with_value(node, ("spec", "taints"), kept or None)
