"""The objects of hollow nodes, and their heartbeats.

`hollow_nodes` makes manifests for N equal machines; `NodeHeartbeat` plays the status side of a
kubelet for every node. Invariant: a hollow node is Ready from its first status on, and its
addresses are its own.
"""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.admission.nodes import NOT_READY
from stellwerk_cluster.apimachinery.objects import (
    deep_copy,
    micro_timestamp,
    pick,
    timestamp,
    with_value,
)
from stellwerk_cluster.hollow.machine import machine_of
from stellwerk_cluster.registry.entries import ADDED, DELETED
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.hollow.kubelet import KubeletOptions
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent

ZONES: Final = ("zone-a", "zone-b", "zone-c")
REGION: Final = "region-1"
CAPACITY: Final = {"cpu": "4", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"}
KUBELET_VERSION: Final = "v1.36.2"
_FIRST_ADDRESS: Final = IPv4Address("10.1.0.1")
_LEASE_SECONDS: Final = 40
_RENEW_SECONDS: Final = 10.0
_LONGEST_RENEWAL: Final = 30.0
_RENEWALS: Final = 100
"""Renewals per second, beyond which their period grows."""
_WRITTEN_OFF: Final = "NodeStatusUnknown"
"""The reason of conditions that the node lifecycle controller has set to Unknown."""
_START_SECONDS: Final = 0.5
_FIRST_ADOPTED: Final = 1 << 16
"""Nodes that were made later get their addresses from here on."""
_LEASE_NAMESPACE: Final = "kube-node-lease"
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


def hollow_nodes(count: int) -> list[JsonObject]:
    """Manifests of nodes `node-1` to `node-N`, zones round robin."""
    return [
        {
            "metadata": {
                "name": f"node-{number}",
                "labels": {
                    "beta.kubernetes.io/arch": "amd64",
                    "beta.kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "kubernetes.io/hostname": f"node-{number}",
                    "kubernetes.io/os": "linux",
                    "node.kubernetes.io/instance-type": "hollow",
                    "topology.kubernetes.io/region": REGION,
                    "topology.kubernetes.io/zone": ZONES[(number - 1) % len(ZONES)],
                },
            }
        }
        for number in range(1, count + 1)
    ]


def ready_node(manifest: JsonObject, number: int, now: str) -> JsonObject:
    """The node of a manifest, with what a kubelet would report where the manifest is silent."""
    node = deep_copy(manifest)
    name = node["metadata"]["name"]
    labels = node["metadata"].setdefault("labels", {})
    labels.setdefault("kubernetes.io/hostname", name)
    labels.setdefault("kubernetes.io/os", "linux")
    labels.setdefault("kubernetes.io/arch", "amd64")
    status = node.setdefault("status", {})
    allocatable = status.get("allocatable") or status.get("capacity") or CAPACITY
    status.setdefault("capacity", dict(allocatable))
    status["allocatable"] = dict(allocatable)
    given = {condition["type"] for condition in status.get("conditions") or ()}
    own = [condition for condition in _conditions(now) if condition["type"] not in given]
    status["conditions"] = [*(status.get("conditions") or ()), *own]
    address = str(_FIRST_ADDRESS + number)
    default_addresses = [
        {"type": "InternalIP", "address": address},
        {"type": "Hostname", "address": name},
    ]
    status.setdefault("addresses", default_addresses)
    given_info = {key: value for key, value in (status.get("nodeInfo") or {}).items() if value}
    status["nodeInfo"] = {**_node_info(name), **given_info}
    return node


def heard_again(node: JsonObject, now: str) -> JsonObject:
    """The node with the conditions that were written off reported as of a node that is well."""
    fresh = {each["type"]: each for each in _conditions(now)}
    conditions = [
        fresh.get(each["type"], each) if each.get("reason") == _WRITTEN_OFF else each
        for each in node["status"]["conditions"]
    ]
    return with_value(node, ("status", "conditions"), conditions)


def _conditions(now: str) -> list[JsonObject]:
    pressures = [(type_, "False", reason, text) for type_, reason, text in _PRESSURES]
    ready = ("Ready", "True", "KubeletReady", "kubelet is posting ready status")
    return [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": text,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for type_, status, reason, text in (*pressures, ready)
    ]


def _node_info(name: str) -> JsonObject:
    return {
        "architecture": "amd64",
        "bootID": name,
        "containerRuntimeVersion": "hollow://1",
        "kernelVersion": "hollow",
        "kubeProxyVersion": "",
        "kubeletVersion": KUBELET_VERSION,
        "machineID": name,
        "operatingSystem": "linux",
        "osImage": "Hollow",
        "systemUUID": name,
    }


def register_nodes(
    api: Api, manifests: Iterable[JsonObject], options: KubeletOptions | None = None
) -> None:
    """Create nodes that are Ready, without the taint that every new node gets.

    Those that a restored cluster has kept stay as they are.

    Raises:
        StatusError: a manifest is invalid.
    """
    kind = api.kinds.resource("nodes")
    configuration = options.configuration if options else None
    now = timestamp(api.now())
    for number, manifest in enumerate(manifests):
        if api.find(kind.storage_name, "", (manifest.get("metadata") or {}).get("name", "")):
            continue
        node = ready_node(manifest, number, now)
        if configuration is not None and not pick(manifest, ("status", "allocatable")):
            node["status"]["allocatable"] = configuration.allocatable(node["status"]["capacity"])
        entry = api.create(kind, "", node)
        api.modify(kind, entry.key, without_not_ready_taint)


def without_not_ready_taint(node: JsonObject) -> JsonObject:
    """The node without the taint of admission, as the node lifecycle controller leaves it."""
    taints = [each for each in node["spec"].get("taints") or () if each["key"] != NOT_READY]
    spec = {name: value for name, value in node["spec"].items() if name != "taints"}
    return {**node, "spec": {**spec, "taints": taints} if taints else spec}


class NodeHeartbeat(Worker):
    """The node side of every kubelet: reports new nodes as Ready and renews their leases.

    A node that is down or cut off is passed over, and reports anew when it is heard of again.
    """

    def __init__(self, api: Api, *, renew_seconds: float | None = None) -> None:
        """Keep all nodes alive that are and will be in the store of `api`."""
        self._api = api
        self._nodes = api.kinds.resource("nodes")
        self._kind = api.kinds.resource("leases", "coordination.k8s.io")
        self._fixed_seconds = renew_seconds
        self._adopted = 0
        self._due: dict[str, float] = {}
        """Node → when its next renewal is due, so that a node has one at a time."""
        self.queue = WorkQueue(api.clock)
        self._collection = api.store.collection("nodes")
        entries = self._collection.entries()
        for position, entry in enumerate(entries):
            if machine_of(entry.obj):
                continue
            self._renew(entry.key[1], entry.uid)
            # Spread over the period, so that 5,000 nodes do not beat at once.
            seconds = self._period() * (position + 1) / len(entries)
            self.queue.add_after(entry.key[1], seconds)
        self._collection.listeners.append(self._on_node)

    def _period(self) -> float:
        """Seconds between two renewals; longer in clusters of more than 1,000 nodes."""
        if self._fixed_seconds is not None:
            return self._fixed_seconds
        return min(_LONGEST_RENEWAL, max(_RENEW_SECONDS, len(self._collection) / _RENEWALS))

    def _on_node(self, event: StoreEvent) -> None:
        name = event.entry.key[1]
        if event.type == ADDED:
            self.queue.add_after(name, _START_SECONDS)
        elif event.previous is not None and event.type != DELETED:
            silent = machine_of(event.entry.obj)
            if machine_of(event.previous.obj) and not silent:
                self.queue.add(name)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Report and renew one node, for as long as it exists."""
        name = str(key)
        node = self._api.find("nodes", "", name)
        if node is None or machine_of(node):
            return
        ready = [each for each in node["status"].get("conditions") or () if each["type"] == "Ready"]
        now = timestamp(self._api.now())
        if not ready:
            self._adopted += 1
            number = _FIRST_ADOPTED + self._adopted
            self._api.modify(
                self._nodes,
                ("", name),
                lambda obj: ready_node(obj, number, now),
                owned_under="status",
            )
        elif ready[0].get("reason") == _WRITTEN_OFF:
            self._api.modify(
                self._nodes, ("", name), lambda obj: heard_again(obj, now), owned_under="status"
            )
        self._renew(name, node["metadata"]["uid"])
        due = self._due.get(name, 0.0)
        monotonic = self._api.clock.monotonic()
        if due <= monotonic:
            self._due[name] = monotonic + self._period()
            self.queue.add_after(name, self._period())

    def _renew(self, name: str, uid: str) -> None:
        lease_key = (_LEASE_NAMESPACE, name)
        renewed = micro_timestamp(self._api.now())
        if self._api.find(self._kind.storage_name, *lease_key) is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}
            body = {
                "metadata": {"name": name, "ownerReferences": [owner]},
                "spec": {
                    "holderIdentity": name,
                    "leaseDurationSeconds": _LEASE_SECONDS,
                    "renewTime": renewed,
                },
            }
            self._api.create(self._kind, _LEASE_NAMESPACE, body)
            return
        self._api.modify(
            self._kind,
            lease_key,
            lambda lease: {**lease, "spec": {**lease["spec"], "renewTime": renewed}},
            owned_under="",
        )
