"""A scheduler that stands for kube-scheduler in changes of hands: it holds its lease and binds.

Not a judge of decisions: it takes the nodes in turn. Invariant: it binds only while the lease
kube-system/kube-scheduler is its own, and gives the lease back when it is stopped, as
kube-scheduler does.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle

from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.registry.binding import bind
from stellwerk_cluster.registry.entries import StoreEvent
from stellwerk_kube.json_values import JsonObject

NAME = "default-scheduler"
IDENTITY = "kube-scheduler_1"
_LEASE = ("kube-system", "kube-scheduler")
_PAUSE_SECONDS = 0.02


class LeaseScheduler:
    """Serves the pods that name no scheduler; `start` and `stop` as often as wanted."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._api = cluster.api
        self._leases = self._api.kinds.resource("leases", "coordination.k8s.io")
        self._nodes = cycle(sorted(node["metadata"]["name"] for node in self._api.all("nodes")))
        self._task: asyncio.Task[None] | None = None
        self._seen: tuple[JsonObject, float] | None = None
        """The record of another holder, and when it was first seen."""
        self.bound: set[str] = set()
        """The uids of the pods that it has bound."""
        self.ran_out = 0
        """How often it has taken the lease of a holder that had not given it up."""

    async def start(self) -> None:
        """Run, and stand by while another one has the lease."""
        self._task = asyncio.create_task(self._run(), name="kube-scheduler")

    async def stop(self) -> None:
        """End, and release the lease if it is held."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        if self.holder == IDENTITY:
            self._hold("")

    @property
    def holder(self) -> str:
        """Who has the lease; empty: it is free."""
        lease = self._api.find("leases.coordination.k8s.io", *_LEASE)
        return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")

    async def _run(self) -> None:
        while True:
            if not self.holder:
                self._hold(IDENTITY)
            elif self.holder != IDENTITY and self._has_run_out():
                self.ran_out += 1
                self._hold(IDENTITY)
            if self.holder == IDENTITY:
                self._bind_all()
            await asyncio.sleep(_PAUSE_SECONDS)

    def _has_run_out(self) -> bool:
        """Whether the holder has renewed nothing for as long as it may (`isLeaseValid`)."""
        lease = self._api.find("leases.coordination.k8s.io", *_LEASE) or {}
        spec, now_seconds = lease["spec"], asyncio.get_running_loop().time()
        if self._seen is None or self._seen[0] != spec:
            self._seen = (spec, now_seconds)
        return now_seconds - self._seen[1] > float(spec["leaseDurationSeconds"])

    def _hold(self, identity: str) -> None:
        namespace, name = _LEASE
        spec = {"holderIdentity": identity, "leaseDurationSeconds": 15}
        if self._api.find("leases.coordination.k8s.io", *_LEASE) is None:
            metadata = {"name": name, "namespace": namespace}
            self._api.create(self._leases, namespace, {"metadata": metadata, "spec": spec})
        else:
            self._api.patch(self._leases, _LEASE, {"spec": spec})

    def _bind_all(self) -> None:
        pods = self._api.kinds.resource("pods")
        for pod in list(self._api.all("pods")):
            if _waits(pod):
                metadata = pod["metadata"]
                namespace, name = metadata["namespace"], metadata["name"]
                target = {"kind": "Node", "name": next(self._nodes)}
                binding = {"metadata": {"name": name}, "target": target}
                bind(self._api, pods, (namespace, name), binding)
                self.bound.add(metadata["uid"])


def _waits(pod: JsonObject) -> bool:
    spec = pod["spec"]
    return (
        spec.get("schedulerName", NAME) == NAME
        and not spec.get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
    )


class Placements:
    """How often each pod was given a node."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.of: Counter[str] = Counter()
        self.at_seconds: list[float] = []
        """When, on the loop's clock."""
        self._cluster = cluster
        cluster.api.store.listeners.append(self._on_change)

    def _on_change(self, storage_name: str, event: StoreEvent) -> None:
        if storage_name != "pods" or event.previous is None:
            return
        before, after = event.previous.obj["spec"], event.entry.obj["spec"]
        if before.get("nodeName") != after.get("nodeName"):
            self.of[event.entry.obj["metadata"]["uid"]] += 1
            self.at_seconds.append(asyncio.get_running_loop().time())

    def waiting(self) -> list[str]:
        """Names of the pods that have no node."""
        pods = self._cluster.api.all("pods")
        return [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]


@asynccontextmanager
async def kube_scheduler(cluster: EmbeddedCluster) -> AsyncIterator[LeaseScheduler]:
    """One that runs, and is stopped at the end."""
    scheduler = LeaseScheduler(cluster)
    await scheduler.start()
    try:
        yield scheduler
    finally:
        await scheduler.stop()
