"""The pods of a run under faults: they come at a rate, and go as soon as others need their room.

`fault_runs` starts it. Invariant: there is room for every pod that is created, by the API's own
count, and of a group all members are there or none.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import DELETED, StoreEvent
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod
from tests.support.pod_groups import make_group

PROFILE: Final = "default-scheduler"
_HIGH: Final = "high"


@dataclass(frozen=True)
class Load:
    """How many pods come, and how fast."""

    pods: int = 300
    per_second: float = 100.0
    nodes: int = 25
    pods_a_node: int = 4
    fill: float = 0.95
    """Which part of the room is used at most."""

    @property
    def room(self) -> int:
        """How many pods the nodes have room for."""
        return self.nodes * self.pods_a_node

    @property
    def live(self) -> int:
        """How many pods there may be at once."""
        return int(self.fill * self.room)


class Workload:
    """Pods, alone or in gangs of which all members come, and go, at once."""

    def __init__(
        self, cluster: EmbeddedCluster, load: Load, rng: random.Random, group_size: int = 1
    ) -> None:
        self._cluster = cluster
        self._load = load
        self._rng = rng
        self._size = group_size
        self._pods = cluster.api.kinds.resource("pods")
        self._live = cluster.store.collection("pods")
        self._bound: Counter[str] = Counter()
        """By group, how many of its members have a node; a pod alone is a group of one."""
        self._nodes: set[str] = set()
        """The names of the pods that have one."""
        self.between_bindings = asyncio.Event()
        """Set whenever a member of a group gets a node, and others of it have none."""
        cluster.store.listeners.append(self._on_change)

    def _on_change(self, kind: str, event: StoreEvent) -> None:
        if kind != "pods":
            return
        name = event.entry.obj["metadata"]["name"]
        is_bound = event.type != DELETED and bool(event.entry.obj["spec"].get("nodeName"))
        if is_bound == (name in self._nodes):
            return
        (self._nodes.add if is_bound else self._nodes.discard)(name)
        group = _group_of(name)
        self._bound[group] += 1 if is_bound else -1
        if is_bound and self._bound[group] < self._size:
            self.between_bindings.set()

    @property
    def all_bound(self) -> bool:
        """Whether every pod has a node."""
        return len(self._nodes) == len(self._live)

    async def run(self) -> None:
        """Create all pods."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        for number in range(0, self._load.pods, self._size):
            while not self._make_room():
                await asyncio.sleep(0.02)
                due = loop.time()
            # In a list the newest, which has no node yet, stands before those that take its room.
            self._create(f"p{self._load.pods - number:05}")
            due += self._size / self._load.per_second
            await asyncio.sleep(max(due - loop.time(), 0))

    async def end(self) -> None:
        """See to it that there is room for all, however far `run` has come."""

    def _create(self, group: str) -> None:
        api, gang = self._cluster.api, self._size > 1
        if gang:
            kind = api.kinds.resource("podgroups", "scheduling.k8s.io")
            api.create(kind, "default", _as_sent(make_group(group, self._size)))
        for member in range(self._size):
            pod = make_pod(f"{group}-{member}", cpu="1", scheduler_name=PROFILE)
            if gang:
                pod["spec"]["schedulingGroup"] = {"podGroupName": group}
            api.create(self._pods, "default", _as_sent(pod))

    def _make_room(self) -> bool:
        if not self._has_room() and (leaving := self._leaving()):
            self._delete(self._rng.choice(leaving))
        return self._has_room()

    def _leaving(self) -> list[str]:
        """Groups that may be deleted: all their members have a node."""
        return [group for group, members in self._bound.items() if members == self._size]

    def _delete(self, group: str) -> None:
        for member in range(self._size):
            key = ("default", f"{group}-{member}")
            try:
                delete(self._cluster.api, self._pods, key, DeleteOptions(grace_period_seconds=0))
            except StatusError:
                self._nodes.discard(key[1])
        del self._bound[group]

    def _has_room(self) -> bool:
        return len(self._live) + self._size <= self._load.live


class PreemptingWorkload(Workload):
    """Pods that find every node full, and take the room of others that matter less.

    What is preempted does not come again; in the end so many go that the rest has room.
    """

    def __init__(self, cluster: EmbeddedCluster, load: Load, rng: random.Random) -> None:
        super().__init__(cluster, load, rng)
        kind = cluster.api.kinds.resource("priorityclasses", "scheduling.k8s.io")
        cluster.api.create(kind, "", {"metadata": {"name": _HIGH}, "value": 100})
        self._high: set[str] = set()
        """Groups that may preempt others, and never be preempted."""

    @override
    def _create(self, group: str) -> None:
        pod = make_pod(f"{group}-0", cpu="1", scheduler_name=PROFILE)
        pod["spec"]["terminationGracePeriodSeconds"] = 0
        if len(self._live) >= self._load.room:
            pod["spec"]["priorityClassName"] = _HIGH
            self._high.add(group)
        self._cluster.api.create(self._pods, "default", _as_sent(pod))

    @override
    def _has_room(self) -> bool:
        """Whether half of the room is free, or can be preempted."""
        return len(self._high) < self._load.room // 2

    @override
    def _leaving(self) -> list[str]:
        return [group for group in super()._leaving() if group in self._high]

    @override
    def _delete(self, group: str) -> None:
        super()._delete(group)
        self._high.discard(group)

    @override
    async def end(self) -> None:
        while len(self._live) > self._load.live:
            for group in super()._leaving()[: len(self._live) - self._load.live]:
                self._delete(group)
            await asyncio.sleep(0.02)


def _group_of(name: str) -> str:
    return name.rpartition("-")[0]


def _as_sent(obj: JsonObject) -> JsonObject:
    """Without what the API gives it."""
    del obj["metadata"]["uid"]
    return obj
