"""The heartbeats of hollow nodes: new nodes are reported as Ready, and leases renewed.

`NodeHeartbeat` plays this side of every kubelet. Renewals are written while a client watches the
leases, and otherwise when one is read, reports of nodes when those are read: an idle cluster of
healthy nodes does nothing. Invariant: a
node whose machine is down or cut off is not renewed.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import micro_timestamp, timestamp, with_value
from stellwerk_cluster.hollow.machine import machine_of
from stellwerk_cluster.hollow.nodes import WRITTEN_OFF, heard_again, ready_node
from stellwerk_cluster.registry.entries import ADDED, DELETED
from stellwerk_cluster.registry.lease_cache import LEASE_NAMESPACE, LEASES
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent
    from stellwerk_kube.json_values import JsonObject

RENEW_SECONDS: Final = 10.0
"""Time between two renewals of a node's lease: a quarter of its length."""
STATUS_REPORT_SECONDS: Final = 300.0
"""Time after which a kubelet reports the status of its node although nothing has changed."""
_MAX_REPORTS_AT_ONCE: Final = 100
"""Reports that are written in one go, those that are due longest first, so that lists wait less."""
_NODE_LEASE_SECONDS: Final = 40
"""Length of a node's lease (`nodeLeaseDurationSeconds`)."""
_START_SECONDS: Final = 0.5
"""Time after which a new node is ready."""
_FIRST_ADOPTED_ADDRESS: Final = 1 << 16
"""The first address of nodes that were made later."""


class NodeHeartbeat(Worker):
    """Reports nodes and keeps their leases.

    A node that is down or cut off is passed over, and reports anew when it is back.
    """

    def __init__(self, api: Api) -> None:
        """Keep all nodes alive that are and will be in the store of `api`."""
        self._api = api
        self._nodes = api.kinds.resource("nodes")
        self._kind = api.kinds.resource("leases", "coordination.k8s.io")
        self._kept = api.lease_cache
        self._kept.on_read = self._before_read
        self._kept.on_nodes_read = self._before_nodes_read
        self._reported: dict[str, float] = {}
        """Node → its last report, monotonic."""
        self._adopted = 0
        self._followed_until = 0.0
        """Until then, monotonic, renewals are written although no watch is open yet."""
        self._timed: set[str] = set()
        """Nodes whose next renewal is to be written at its time."""
        self._written: dict[str, float] = {}
        """Node → the last renewal that is written, monotonic."""
        self.queue = WorkQueue(api.clock)
        collection = api.store.collection("nodes")
        entries = [entry for entry in collection.entries() if not machine_of(entry.obj)]
        for position, entry in enumerate(entries):
            # Spread over the period, so that 5,000 nodes do not beat at once.
            self._keep(entry.obj, RENEW_SECONDS * (position + 1) / len(entries))
        collection.listeners.append(self._on_node)

    def _on_node(self, event: StoreEvent) -> None:
        name = event.entry.key[1]
        if event.type == ADDED:
            self.queue.add_after(name, _START_SECONDS)
        elif event.type == DELETED:
            self._kept.drop(name)
            self._written.pop(name, None)
            self._reported.pop(name, None)
        elif event.previous is not None:
            silent = machine_of(event.entry.obj)
            if silent:
                self._renew(name)
                self._kept.release(name)
            elif machine_of(event.previous.obj):
                self.queue.add(name)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Report a node that is new or back, or write a renewal that is watched."""
        name = str(key)
        self._timed.discard(name)
        node = self._api.find("nodes", "", name)
        if node is None or machine_of(node):
            return
        if self._kept.renewed(name) is None:
            self._report(name, node)
            self._keep(node, RENEW_SECONDS)
        else:
            self._renew(name)
        if self._is_followed():
            self._follow(name)

    def _report(self, name: str, node: JsonObject) -> None:
        ready = [each for each in node["status"].get("conditions") or () if each["type"] == "Ready"]
        now = timestamp(self._api.now())
        if not ready:
            self._adopted += 1
            number = _FIRST_ADOPTED_ADDRESS + self._adopted
            self._api.modify(
                self._nodes,
                ("", name),
                lambda obj: ready_node(obj, number, now),
                owned_under="status",
            )
        elif ready[0].get("reason") == WRITTEN_OFF:
            self._api.modify(
                self._nodes, ("", name), lambda obj: heard_again(obj, now), owned_under="status"
            )

    # Leases.

    def _keep(self, node: JsonObject, seconds_to_second: float) -> None:
        name = node["metadata"]["name"]
        self._kept.keep(name, seconds_to_second, RENEW_SECONDS)
        self._reported[name] = self._api.clock.monotonic()
        self._renew(name)

    def _before_read(self, name: str | None, watch: bool) -> None:  # noqa: FBT001  (a callback)
        """Write the renewals that are due; for a watch, those to come at their times, too."""
        if watch:
            self._followed_until = self._api.clock.monotonic() + 2 * RENEW_SECONDS
            for each in self._kept.names():
                self._follow(each)
        for each in self._kept.names() if name is None else (name,):
            self._renew(each)

    def _before_nodes_read(self, name: str | None) -> None:
        """Write the reports of nodes that were due since they were last read."""
        now = self._api.clock.monotonic()
        listed = sorted(self._reported, key=self._reported.__getitem__)[:_MAX_REPORTS_AT_ONCE]
        for each in listed if name is None else (name,):
            since = now - self._reported.get(each, now)
            if since < STATUS_REPORT_SECONDS or self._kept.renewed(each) is None:
                continue
            age_seconds = since % STATUS_REPORT_SECONDS
            stamp = timestamp(self._api.now() - timedelta(seconds=age_seconds))
            self._api.modify(
                self._nodes, ("", each), partial(_heard, now=stamp), owned_under="status"
            )
            self._reported[each] = now - age_seconds

    def _is_followed(self) -> bool:
        """Whether a watch shows renewals, or may have been opened just now."""
        if self._api.clock.monotonic() < self._followed_until:
            return True
        triggers = (each.trigger for each in self._api.store.collection(LEASES).watchers)
        return any(
            trigger is None or trigger[0] != "metadata.namespace" or trigger[1] == LEASE_NAMESPACE
            for trigger in triggers
        )

    def _follow(self, name: str) -> None:
        """Write the next renewal at its time."""
        seconds = self._kept.seconds_to_next(name)
        if seconds is not None and name not in self._timed:
            self._timed.add(name)
            self.queue.add_after(name, seconds)

    def _renew(self, name: str) -> None:
        """Write the last renewal of a lease that is kept, if it is not written yet."""
        renewed = self._kept.renewed(name)
        node = self._api.find("nodes", "", name)
        if renewed is None or node is None:
            return
        age = timedelta(seconds=self._api.clock.monotonic() - renewed)
        stamp = micro_timestamp(self._api.now() - age)
        key = (LEASE_NAMESPACE, name)
        lease = self._api.find(LEASES, *key)
        if lease is None:
            self._api.create(self._kind, LEASE_NAMESPACE, _new_lease(node, stamp))
        elif self._written.get(name) != renewed:
            self._api.modify(
                self._kind,
                key,
                lambda obj: {**obj, "spec": {**obj["spec"], "renewTime": stamp}},
                owned_under="",
            )
        self._written[name] = renewed


def _heard(node: JsonObject, now: str) -> JsonObject:
    """The node with the time of another report of the same conditions."""
    conditions = [
        {**each, "lastHeartbeatTime": now} if "lastHeartbeatTime" in each else each
        for each in node["status"].get("conditions") or ()
    ]
    return with_value(node, ("status", "conditions"), conditions)


def _new_lease(node: JsonObject, stamp: str) -> JsonObject:
    metadata = node["metadata"]
    name = metadata["name"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": metadata["uid"]}
    return {
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": _NODE_LEASE_SECONDS,
            "renewTime": stamp,
        },
    }
