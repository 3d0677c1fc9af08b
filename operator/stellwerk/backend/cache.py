"""Nodes, bound pods and assumed pods: the truth between watch events, with no I/O.

Event handlers add, update and remove; the scheduler assumes and forgets; `update_snapshot` writes
the changed rows before each cycle. Invariant: a pod counts on exactly one node, and on that node
until it is deleted, forgotten, or confirmed elsewhere; keys are uids, because a re-created name
arrives before the old one's deletion.
"""

from collections.abc import Iterator, Mapping

from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import PODS
from stellwerk.snapshot.snapshot import Snapshot


class NodeRecord:
    """A node's name with whatever is known of it: its pods may be seen before the node itself."""

    __slots__ = ("dirty", "name", "node", "nonzero", "pods", "requested", "uncounted", "written")

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: NodeInfo | None = None
        self.written: NodeInfo | None = None
        """The node object that the snapshot's row shows."""
        self.pods: dict[str, PodInfo] = {}
        self.requested: list[int] = []
        """Sums by resource row of the snapshot; exact, not saturated."""
        self.nonzero = [0, 0]
        self.uncounted: list[tuple[PodInfo, int]] = []
        """Pods added (+1) and removed (−1) since the snapshot's row was written."""
        self.dirty = False


class Cache:
    """See the module docstring. All methods are O(1) in nodes and pods, but for update_snapshot."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot or Snapshot()
        self._records: dict[str, NodeRecord] = {}
        self._pods: dict[str, PodInfo] = {}
        """Every pod on a node, assumed ones too, by uid."""
        self._assumed: dict[str, PodInfo] = {}
        self._dirty: list[NodeRecord] = []
        self._namespaces: dict[str, Mapping[str, str] | None] = {}
        """Namespaces changed since the last update_snapshot."""

    # --- nodes ----------------------------------------------------------------------------------

    def set_node(self, node: NodeInfo) -> NodeInfo | None:
        """Add or update a node; returns what it was before (None: it was not there)."""
        record = self._record(node.name)
        before, record.node = record.node, node
        if before is None or not before.same_for_scheduling(node):
            self._mark(record)
        return before

    def remove_node(self, name: str, uid: str = "") -> NodeInfo | None:
        """Remove a node; its pods stay counted until their own deletion. Returns what it was.

        A uid that is not the node's means that the name has been re-used already: nothing happens.
        """
        record = self._records.get(name)
        if record is None or record.node is None or (uid and uid != record.node.uid):
            return None
        before, record.node = record.node, None
        self._mark(record)
        return before

    def node(self, name: str) -> NodeInfo | None:
        """The node of that name."""
        record = self._records.get(name)
        return record.node if record else None

    def nodes(self) -> Iterator[NodeInfo]:
        """Every node."""
        return (record.node for record in self._records.values() if record.node is not None)

    # --- pods -----------------------------------------------------------------------------------

    def pod(self, uid: str) -> PodInfo | None:
        """The pod on a node (bound or assumed) of that uid."""
        return self._pods.get(uid)

    def pods(self) -> Iterator[PodInfo]:
        """Every pod on a node, assumed ones too."""
        return iter(self._pods.values())

    def pods_on(self, node_name: str) -> Mapping[str, PodInfo]:
        """The pods on a node by uid."""
        record = self._records.get(node_name)
        return record.pods if record else {}

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod is assumed and not yet confirmed by the watch."""
        return uid in self._assumed

    @property
    def assumed_pods(self) -> Mapping[str, PodInfo]:
        """Assumed pods by uid."""
        return self._assumed

    def assume_pod(self, pod: PodInfo) -> None:
        """Count a pod on `pod.node_name` before it is bound.

        Raises:
            ValueError: the cache has the pod already.
        """
        if pod.uid in self._pods:
            message = f"pod {pod.uid}({pod.key}) is in the cache, so can't be assumed"
            raise ValueError(message)
        self._put(pod)
        self._assumed[pod.uid] = pod

    def forget_pod(self, uid: str) -> PodInfo | None:
        """Take back an assumption; None if the pod is not assumed (any more)."""
        pod = self._assumed.pop(uid, None)
        if pod is not None:
            self._take(pod)
        return pod

    def set_pod(self, pod: PodInfo) -> PodInfo | None:
        """A bound pod as the watch shows it: added, updated, or an assumption confirmed.

        Returns the pod as it was counted before. The API's word on the node wins over an
        assumption.
        """
        before = self._pods.get(pod.uid)
        self._assumed.pop(pod.uid, None)
        if before is not None:
            if _counts_alike(before, pod):
                self._replace(before, pod)
                return before
            self._take(before)
        self._put(pod)
        return before

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a deleted or finished pod; returns it as it was counted."""
        self._assumed.pop(uid, None)
        pod = self._pods.get(uid)
        if pod is not None:
            self._take(pod)
        return pod

    # --- namespaces -----------------------------------------------------------------------------

    def set_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels, which namespace selectors read; None: it is gone."""
        self._namespaces[namespace] = labels

    # --- snapshot -------------------------------------------------------------------------------

    def update_snapshot(self) -> Snapshot:
        """Write what changed since the last call; the only writer of the snapshot."""
        snapshot = self.snapshot
        if self._namespaces:
            for namespace, labels in self._namespaces.items():
                snapshot.pair_counts.set_namespace(namespace, labels)
            self._namespaces.clear()
        if self._dirty:
            for record in self._dirty:
                record.dirty = False
                self._write(record)
            self._dirty.clear()
            snapshot.trim()
        return snapshot

    def _write(self, record: NodeRecord) -> None:
        snapshot = self.snapshot
        changes, record.uncounted = record.uncounted, []
        row = snapshot.row_of.get(record.name)
        replaced = record.written is not None and (
            record.node is None or record.node.uid != record.written.uid
        )
        if replaced and row is not None:
            # What the row counts is what it was told of: everything but the changes still to come.
            for pod in _before(record.pods, changes):
                snapshot.count_pod(row, pod, -1)
            snapshot.remove_node(record.name)
            row, record.written = None, None
        if record.node is None:
            if not record.pods:
                self._records.pop(record.name, None)
            return
        if record.written is not record.node:
            if row is None:
                changes = [(pod, 1) for pod in record.pods.values()]
            row = snapshot.write_node(record.node, record.pods)
            record.written = record.node
        if row is not None:
            for pod, change in changes:
                snapshot.count_pod(row, pod, change)
            snapshot.write_usage(row, record.requested, (record.nonzero[0], record.nonzero[1]))

    def _record(self, name: str) -> NodeRecord:
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = NodeRecord(name)
        return record

    def _mark(self, record: NodeRecord) -> None:
        if not record.dirty:
            record.dirty = True
            self._dirty.append(record)

    def _put(self, pod: PodInfo) -> None:
        record = self._record(pod.node_name)
        self._pods[pod.uid] = record.pods[pod.uid] = pod
        self._count(record, pod, 1)

    def _take(self, pod: PodInfo) -> None:
        record = self._records[pod.node_name]
        del self._pods[pod.uid], record.pods[pod.uid]
        self._count(record, pod, -1)

    def _count(self, record: NodeRecord, pod: PodInfo, change: int) -> None:
        requested, resource = record.requested, self.snapshot.resource
        for name, amount in pod.amounts.requests.items():
            row = resource(name)
            if row >= len(requested):
                requested.extend([0] * (row + 1 - len(requested)))
            requested[row] += change * amount
        pods_row = self.snapshot.resource_row[PODS]
        if pods_row >= len(requested):
            requested.extend([0] * (pods_row + 1 - len(requested)))
        requested[pods_row] += change
        record.nonzero[0] += change * pod.amounts.nonzero_cpu_millis
        record.nonzero[1] += change * pod.amounts.nonzero_memory_bytes
        record.uncounted.append((pod, change))
        self._mark(record)

    def _replace(self, before: PodInfo, pod: PodInfo) -> None:
        """The same pod with a newer version of what nothing counts (status, resourceVersion)."""
        record = self._records[before.node_name]
        self._pods[pod.uid] = record.pods[pod.uid] = pod
        self.snapshot.note_new_record(record.name)


def _counts_alike(before: PodInfo, after: PodInfo) -> bool:
    return (
        before.node_name == after.node_name
        and before.spec is after.spec
        and before.label_set is after.label_set
        and before.terminating == after.terminating
        and (before.amounts is after.amounts or before.amounts == after.amounts)
    )


def _before(pods: Mapping[str, PodInfo], changes: list[tuple[PodInfo, int]]) -> Iterator[PodInfo]:
    """The pods as they were before the changes."""
    earlier = dict(pods)
    for pod, change in reversed(changes):
        if change > 0:
            earlier.pop(pod.uid, None)
        else:
            earlier[pod.uid] = pod
    return iter(earlier.values())
