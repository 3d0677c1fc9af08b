"""Changes of many rows of a snapshot at once, in place, undone before any other reader looks.

Group decisions and preemption across nodes place and remove pods here, and run filters and scores
on the common result; in an overlay every row is a hypothesis of its own. Invariant: on leaving,
every column, count, map and list is as it was before.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import Self

from stellwerk.models.node_acts import cordoned
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.pod_counts import Usage
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.node import NodeInfo


class Trial:
    """A journal of changes; `with` undoes them on leaving, the last one first.

    Each row that changed is in the change logs once for each change and once for each undoing, so
    that cached columns are computed again and never mix the two states. Nothing may be awaited
    within; trials may be nested.

    Some things stay: free rows that were added and the capacity for them, rows of resources that
    were asked for, ids of label values that no node has, label columns and terms that were asked
    for, version numbers. No answer depends on them, and nodes that are added later
    get the rows that they would have got.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._undo = ExitStack()
        self._pods_left: dict[str, Mapping[str, PodInfo]] = {}
        """Pods of nodes that were removed, by node name."""

    def __enter__(self) -> Self:
        self._snapshot.open_trials += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._undo.close()
        # Not reached if undoing failed: the cache then refuses to go on with a wrong snapshot.
        self._snapshot.open_trials -= 1

    # --- pods -----------------------------------------------------------------------------------

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        """Place a pod on a node.

        Raises:
            KeyError: there is no such node.
            ValueError: the pod is on it already.
        """
        snapshot = self._snapshot
        row = snapshot.row_of[node_name]
        pods = snapshot.pods[row]
        if pod.uid in pods:
            raise ValueError(f"cannot add {pod.key} to {node_name}: it is there already")
        placed = pod.with_node(node_name)
        self._change_pods(row, {**pods, pod.uid: placed}, [placed], 1)

    def remove_pods(self, pods: Iterable[PodInfo]) -> None:
        """Take pods off their nodes.

        Raises:
            KeyError: a pod's node is not there, or the pod is not on it.
        """
        snapshot = self._snapshot
        removed: dict[int, list[PodInfo]] = {}
        for pod in pods:
            row = snapshot.row_of[pod.node_name]
            removed.setdefault(row, []).append(snapshot.pods[row][pod.uid])
        for row, counted in removed.items():
            uids = {pod.uid for pod in counted}
            remaining = {uid: pod for uid, pod in snapshot.pods[row].items() if uid not in uids}
            self._change_pods(row, remaining, counted, -1)

    def _change_pods(
        self, row: int, pods: Mapping[str, PodInfo], changed: list[PodInfo], change: int
    ) -> None:
        snapshot = self._snapshot
        before, usage = snapshot.pods[row], snapshot.usage(row)
        snapshot.pods[row] = pods
        self._undo.callback(self._restore_pods, row, before, changed, -change, usage.copy())
        for pod in changed:
            usage.count(pod, change)
            snapshot.count_pod(row, pod, change)
        snapshot.write_usage(row, usage)

    def _restore_pods(
        self,
        row: int,
        pods: Mapping[str, PodInfo],
        changed: list[PodInfo],
        change: int,
        usage: Usage,
    ) -> None:
        snapshot = self._snapshot
        snapshot.pods[row] = pods
        for pod in reversed(changed):
            snapshot.count_pod(row, pod, change)
        snapshot.write_usage(row, usage)

    # --- nodes ----------------------------------------------------------------------------------

    def set_node(self, node: NodeInfo) -> None:
        """Add a node or change it; another uid than the node's means a new node of that name.

        A node that was removed in this trial comes back with its pods.
        """
        snapshot = self._snapshot
        row = snapshot.row_of.get(node.name)
        if row is None:
            self._add_node(node)
            return
        before = snapshot.node_at(row)
        if before.uid != node.uid:
            self.remove_node(node.name)
            self._add_node(node)
            return
        self._undo.callback(self._rewrite_node, before, self._with_image_sizes(row))
        snapshot.write_node(node, snapshot.pods[row])

    def cordon(self, node_name: str) -> None:
        """Cordon a node: make it unschedulable, with the taint that comes with it.

        Raises:
            KeyError: there is no such node.
        """
        snapshot = self._snapshot
        node = snapshot.node_at(snapshot.row_of[node_name])
        self.set_node(cordoned(node))

    def remove_node(self, node_name: str) -> None:
        """Remove a node with its pods.

        Raises:
            KeyError: there is no such node.
        """
        snapshot = self._snapshot
        row, order = snapshot.row_of[node_name], snapshot.row_of.copy()
        node, pods, usage = snapshot.node_at(row), snapshot.pods[row], snapshot.usage(row)
        self._pods_left[node_name] = pods
        self._undo.callback(self._restore_order, order)
        self._undo.callback(self._put_node, node, self._with_image_sizes(row), pods, usage)
        self._free_node(node_name)

    def _add_node(self, node: NodeInfo) -> None:
        snapshot = self._snapshot
        pods, usage = self._pods_left.pop(node.name, {}), Usage.none()
        for pod in pods.values():
            usage.count(pod, 1)
        self._undo.callback(self._restore_order, snapshot.row_of.copy())
        self._put_node(node, node, pods, usage)
        self._undo.callback(self._free_node, node.name)

    def _put_node(
        self, node: NodeInfo, written: NodeInfo, pods: Mapping[str, PodInfo], usage: Usage
    ) -> None:
        """Show a node in a free row: the one that was freed last."""
        snapshot = self._snapshot
        row = snapshot.write_node(written, pods)
        snapshot.nodes[row] = node
        for pod in pods.values():
            snapshot.count_pod(row, pod, 1)
        snapshot.write_usage(row, usage)

    def _restore_order(self, row_of: dict[str, int]) -> None:
        """The nodes are the same again, but in another order of arrival."""
        self._snapshot.row_of = row_of

    def _free_node(self, node_name: str) -> None:
        snapshot = self._snapshot
        row = snapshot.row_of[node_name]
        for pod in snapshot.pods[row].values():
            snapshot.count_pod(row, pod, -1)
        snapshot.remove_node(node_name)

    def _rewrite_node(self, node: NodeInfo, written: NodeInfo) -> None:
        snapshot = self._snapshot
        row = snapshot.row_of[node.name]
        snapshot.write_node(written, snapshot.pods[row])
        snapshot.nodes[row] = node

    def _with_image_sizes(self, row: int) -> NodeInfo:
        """The row's node with the image sizes that are shown: the books cannot tell them again."""
        snapshot = self._snapshot
        node = snapshot.node_at(row)
        return replace(node, images=snapshot.images.with_sizes_kept(row, node.images))
