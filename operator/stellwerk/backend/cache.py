"""Nodes, bound pods and assumed pods: the state between watch events, with no I/O.

Event handlers add, update and remove; the scheduler assumes and forgets; `update_snapshot` writes
the changed rows before each cycle. Invariant: a pod counts on exactly one node, and on that node
until it is deleted, forgotten, or confirmed on another one. Neither time nor the end of its node
changes that: `scheduler.binding_outcomes` asks the API about a pod that is assumed for long. Who
changes the cache also wakes the pods that the change may help; the cache knows no queue. Keys are
uids, because the events of a re-created pod may arrive before the deletion of the old one, and
both have one name.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import CopyOnWrite
from stellwerk.snapshot.existing_terms import MAX_TERMS_AT_ONCE
from stellwerk.snapshot.pod_counts import Usage
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.snapshot.trial import Trial
from stellwerk_kube.node import NodeInfo

if TYPE_CHECKING:
    from stellwerk.models.scheduling_spec import SchedulingSpec


class NodeRecord:
    """A node's name with whatever is known of it: its pods may be seen before the node itself."""

    __slots__ = ("name", "node", "pods", "uncounted", "usage", "written")

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: NodeInfo | None = None
        self.written: NodeInfo | None = None
        """The node object that the snapshot's row shows."""
        self.pods: dict[str, PodInfo] = {}
        self.usage = Usage.none()
        self.uncounted: list[tuple[PodInfo, int]] = []
        """Pods added (+1) and removed (−1) since the snapshot's row was written, if it was."""

    def copy(self) -> "NodeRecord":
        """Copy the record; the node and the pods themselves are shared."""
        record = NodeRecord(self.name)
        record.node, record.written = self.node, self.written
        record.pods, record.usage = self.pods.copy(), self.usage.copy()
        record.uncounted = self.uncounted.copy()
        return record


class Cache:
    """Nodes and their pods; every method is O(1) in them, but for update_snapshot and fork.

    While a trial is open, what would change the cache or its snapshot raises RuntimeError.
    """

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        self.snapshot = snapshot or Snapshot()
        self._records: CopyOnWrite[str, NodeRecord] = CopyOnWrite()
        self._pods: dict[str, PodInfo] = {}
        """Every pod on a node, assumed ones too, by uid."""
        self.rows_updated = 0
        """Number of rows of the snapshot written so far."""
        self.assumed_pods: dict[str, PodInfo] = {}
        """Pods on nodes that are assumed, and not yet confirmed by the watch; written here only."""
        self._dirty: dict[str, None] = {}
        """Names of nodes that changed since the last update_snapshot, in order of change."""
        self._namespaces: dict[str, Mapping[str, str] | None] = {}
        """Namespaces changed since the last update_snapshot."""
        self._large: dict[SchedulingSpec, None] = {}
        """Specs with many terms whose pods came since the last `index_terms`."""
        self.on_forgotten: Callable[[str], None] = lambda _: None
        """Called with the uid of a pod whose assumption was taken back."""
        self.on_write: Callable[[int], None] = lambda _: None
        """Called before the snapshot is written, with how many changed nodes at most; 0: all."""
        self.unindexed = 0
        """Number of next updates of the snapshot before which `index_terms` has work to do."""

    # --- nodes ----------------------------------------------------------------------------------

    def set_node(self, node: NodeInfo) -> NodeInfo | None:
        """Add or update a node; returns what it was before (None: it was not there)."""
        self._refuse_in_trial()
        record = self._record(node.name)
        before, record.node = record.node, node
        if before is None or not before.same_for_scheduling(node):
            self._dirty[node.name] = None
        return before

    def remove_node(self, name: str, uid: str = "") -> NodeInfo | None:
        """Remove a node; its pods stay counted until their own deletion. Returns what it was.

        A uid that is not the node's means that the name has been re-used already: nothing happens.
        """
        self._refuse_in_trial()
        before = self.node(name)
        if before is None or (uid and uid != before.uid):
            return None
        self._record(name).node = None
        self._dirty[name] = None
        return before

    def node(self, name: str) -> NodeInfo | None:
        """The node of that name."""
        record = self._records.get(name)
        return record.node if record else None

    def nodes(self) -> Iterator[NodeInfo]:
        """Every node."""
        return (record.node for _, record in self._records.items() if record.node is not None)

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

    def assume_pod(self, pod: PodInfo) -> None:
        """Count a pod on `pod.node_name` before it is bound.

        Raises:
            ValueError: the cache has the pod already.
        """
        self._refuse_in_trial()
        if pod.uid in self._pods:
            message = f"pod {pod.uid}({pod.key}) is in the cache, so can't be assumed"
            raise ValueError(message)
        self._put(pod)
        self.assumed_pods[pod.uid] = pod

    def forget_pod(self, uid: str) -> PodInfo | None:
        """Take back an assumption; None if the pod is not assumed (any more)."""
        self._refuse_in_trial()
        pod = self.assumed_pods.pop(uid, None)
        if pod is not None:
            self._take(pod)
            self.on_forgotten(uid)
        return pod

    def set_pod(self, pod: PodInfo) -> PodInfo | None:
        """A bound pod as the watch shows it: added, updated, or an assumption confirmed.

        Returns the pod as it was counted before. The API's word on the node wins over an
        assumption.
        """
        self._refuse_in_trial()
        before = self._pods.get(pod.uid)
        self.assumed_pods.pop(pod.uid, None)
        if before is not None:
            if counts_alike(before, pod):
                # Only what nothing counts has changed, such as the status: no row is written.
                record = self._record(before.node_name)
                self._pods[pod.uid] = record.pods[pod.uid] = pod
                self.snapshot.write_records(record.name, record.pods)
                return before
            self._take(before)
        self._put(pod)
        return before

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a deleted or finished pod; returns it as it was counted."""
        self._refuse_in_trial()
        self.assumed_pods.pop(uid, None)
        pod = self._pods.get(uid)
        if pod is not None:
            self._take(pod)
        return pod

    # --- namespaces -----------------------------------------------------------------------------

    def set_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels, which namespace selectors read; None: it is gone."""
        self._refuse_in_trial()
        self._namespaces[namespace] = labels

    # --- snapshot -------------------------------------------------------------------------------

    def index_terms(self) -> Iterator[None]:
        """Index the terms of pods that have thousands, in steps before the next update_snapshot.

        Events may come between two steps. Without it, update_snapshot does all at once.
        """
        self.unindexed = max(0, self.unindexed - 1)
        large, self._large = self._large, {}
        return self.snapshot.pair_counts.index_terms(large)

    @property
    def is_dirty(self) -> bool:
        """True if update_snapshot has something to write."""
        return bool(self._dirty or self._namespaces)

    @property
    def changed_nodes(self) -> int:
        """The number of rows that update_snapshot has to write."""
        return len(self._dirty)

    def write_ahead(self, nodes: int) -> bool:
        """Write up to `nodes` changed nodes before update_snapshot does; returns if any are left.

        After a list of a large cluster all of them take seconds, in which the event loop must run.
        Nothing may be decided in between.
        """
        self._refuse_in_trial()
        if self._dirty:
            self.on_write(nodes)
        for name in list(islice(self._dirty, nodes)):
            del self._dirty[name]
            self._write(self._record(name))
            self.rows_updated += 1
        return bool(self._dirty)

    def update_snapshot(self) -> Snapshot:
        """Write all changes since the last call; only this and `write_ahead` write the snapshot."""
        self._refuse_in_trial()
        snapshot = self.snapshot
        if self.is_dirty:
            self.on_write(0)
        if self._namespaces:
            for namespace, labels in self._namespaces.items():
                snapshot.pair_counts.set_namespace(namespace, labels)
            self._namespaces.clear()
        if self._dirty:
            self.rows_updated += len(self._dirty)
            for name in self._dirty:
                self._write(self._record(name))
            self._dirty.clear()
        if snapshot.unfilled:
            snapshot.fill_books()
        return snapshot

    def fork(self) -> "Cache":
        """A cache of the same nodes and pods, with a snapshot of its own, as of now.

        Nodes, pods and the specs that they share are not copied. The record of a node is copied by
        the side that changes it first, so that neither side sees changes of the other.
        """
        self._refuse_in_trial()
        fork = Cache(self.snapshot.fork())
        fork._records = self._records.fork()
        fork._pods, fork.assumed_pods = self._pods.copy(), self.assumed_pods.copy()
        fork._dirty, fork._namespaces = self._dirty.copy(), self._namespaces.copy()
        return fork

    def trial(self) -> Trial:
        """A trial on the snapshot as of now, or within a trial: `with cache.trial() as trial`."""
        if not self.snapshot.open_trials:
            self.update_snapshot()
        return Trial(self.snapshot)

    def _write(self, record: NodeRecord) -> None:
        snapshot = self.snapshot
        # Books count the pods that came and went since the row was written, not all pods of the
        # node: a binding to a node with 110 pods costs one count.
        changes, record.uncounted = record.uncounted, []
        row = snapshot.row_of.get(record.name)
        replaced = record.written is not None and (
            record.node is None or record.node.uid != record.written.uid
        )
        if replaced and row is not None:
            # The row counts everything but the changes still to come.
            for pod in _before(record.pods, changes):
                snapshot.count_pod(row, pod, -1)
            snapshot.remove_node(record.name)
            row, record.written = None, None
        if record.node is None:
            if not record.pods:
                self._records.discard(record.name)
            return
        if record.written is not record.node:
            if row is None:
                changes = [(pod, 1) for pod in record.pods.values()]
            row = snapshot.write_node(record.node, record.pods)
            record.written = record.node
        if row is not None:
            snapshot.pods[row] = record.pods
            for pod, change in changes:
                snapshot.count_pod(row, pod, change)
            snapshot.write_usage(row, record.usage)

    def _refuse_in_trial(self) -> None:
        if self.snapshot.open_trials:
            raise RuntimeError("cannot change or fork the cache while a trial is open")

    def _record(self, name: str) -> NodeRecord:
        """The record of a node, to be changed; made when new."""
        record = self._records.to_change(name)
        if record is None:
            record = NodeRecord(name)
            self._records.put(name, record)
        return record

    def _put(self, pod: PodInfo) -> None:
        record = self._record(pod.node_name)
        self._pods[pod.uid] = record.pods[pod.uid] = pod
        if pod.spec.pod_affinity.size > MAX_TERMS_AT_ONCE:
            self._large[pod.spec] = None
        self._count(record, pod, 1)

    def _take(self, pod: PodInfo) -> None:
        record = self._record(pod.node_name)
        del self._pods[pod.uid], record.pods[pod.uid]
        self._count(record, pod, -1)

    def _count(self, record: NodeRecord, pod: PodInfo, change: int) -> None:
        if pod.spec.pod_affinity.size > MAX_TERMS_AT_ONCE:
            # Its terms are indexed before the next update. The one after that drops the terms that
            # are idle by then.
            self.unindexed = 2
        record.usage.count(pod, change)
        if record.written is not None:  # else all its pods are counted when its row is written
            record.uncounted.append((pod, change))
        self._dirty[record.name] = None


def counts_alike(before: PodInfo, after: PodInfo) -> bool:
    """Whether two states of a pod differ in nothing that its node counts."""
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
