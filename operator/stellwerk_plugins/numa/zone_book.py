"""Pods that change a node's zones between two reports of its exporter, by row.

A book that every NodeResourceTopologyMatch of a scheduler reads. It holds the topology that counts
for a row, the pods that were decided since that was written, and the pods of other schedulers that
were seen since. Invariant: a pod that is taken away and put back between two looks, as a trial
does, is what it was.
"""

from collections.abc import Mapping

from typing_extensions import override

from stellwerk.plugin_api import Book, Changes, NodeInfo, PodInfo
from stellwerk_plugins.numa.requests import is_exclusive, zone_requests
from stellwerk_plugins.numa.topology import Topology


class ZoneBook(Book):
    """Pods that no exporter has reported yet, and the topologies without them, by row."""

    def __init__(self) -> None:
        self.own_profiles: set[str] = set()
        """The schedulerNames whose profiles have the plugin; pods of others are foreign."""
        self.counted: dict[int, Topology] = {}
        """The topology in force where pods are counted into zones."""
        self.assumed: dict[int, dict[str, PodInfo]] = {}
        """Pods decided since the topology in force was written, by uid."""
        self.foreign: dict[int, dict[str, PodInfo]] = {}
        """Pods of other schedulers that came or went since, by uid."""
        self.reserved: dict[int, set[str]] = {}
        """Uids of pods that are being bound."""
        self.changes: Changes[int] = Changes()
        """Rows of which any of this changed."""
        self._settled: set[str] = set()
        """Uids of pods that the topology in force shows, taken off since the last look."""
        self._came: dict[str, tuple[int, PodInfo]] = {}
        """Pods put on a row since the last look."""
        self._opened = False

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        for by_row in (self.counted, self.assumed, self.foreign, self.reserved):
            by_row.pop(row, None)
        self.changes.append(row)

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        uid = pod.uid
        if change < 0:
            if self._came.pop(uid, None) is None and not self._drop(row, uid):
                self._settled.add(uid)
        elif uid in self._settled:
            self._settled.discard(uid)
        else:
            self._came[uid] = (row, pod)
            if self._opened and pod.spec.scheduler_name in self.own_profiles:
                self.assumed.setdefault(row, {})[uid] = pod
        self.changes.append(row)

    def look(self) -> None:
        """Take what came since the last look as lasting; outside of trials only."""
        for uid, (row, pod) in self._came.items():
            if pod.spec.scheduler_name not in self.own_profiles:
                self.foreign.setdefault(row, {})[uid] = pod
                self.changes.append(row)
        self._came.clear()
        self._settled.clear()
        self._opened = True

    def is_dirty(self, row: int, topology: Topology, detect: str) -> bool:
        """Whether pods of other schedulers make the topology in force worthless."""
        foreign = self.foreign.get(row)
        if not foreign or detect == "None":
            return False
        if detect == "All":
            return True
        reported = frozenset(name for zone in topology.zones for name in zone.available)
        return any(is_exclusive(pod, reported) for pod in foreign.values())

    def taken(self, row: int) -> Mapping[str, int]:
        """Billionths by resource that the assumed pods of a row request."""
        total: dict[str, int] = {}
        for pod in self.assumed.get(row, {}).values():
            for resource, amount in zone_requests(pod).pod.items():
                total[resource] = total.get(resource, 0) + amount
        return total

    def synchronise(self, row: int, topology: Topology) -> None:
        """An exporter has seen every pod of the row: its topology counts, and nothing beside."""
        self.counted[row] = topology
        self.assumed.pop(row, None)
        self.foreign.pop(row, None)
        self.changes.append(row)

    def reserve(self, row: int, uid: str) -> None:
        """A pod is about to be bound."""
        self.reserved.setdefault(row, set()).add(uid)
        self.changes.append(row)

    def unreserve(self, row: int, uid: str) -> None:
        """It is bound, or will not be; idempotent."""
        uids = self.reserved.get(row)
        if uids is not None and uid in uids:
            uids.discard(uid)
            self.changes.append(row)

    @override
    def fork(self) -> "ZoneBook":
        fork = ZoneBook()
        fork.own_profiles, fork.counted = self.own_profiles.copy(), self.counted.copy()
        fork.assumed = {row: pods.copy() for row, pods in self.assumed.items()}
        fork.foreign = {row: pods.copy() for row, pods in self.foreign.items()}
        fork.reserved = {row: uids.copy() for row, uids in self.reserved.items()}
        fork._settled, fork._came = self._settled.copy(), self._came.copy()
        fork._opened = self._opened
        return fork

    def _drop(self, row: int, uid: str) -> bool:
        """Take off an assumed pod; whether it was one."""
        pods = self.assumed.get(row)
        return pods is not None and pods.pop(uid, None) is not None
