"""Which pods the end of a pod may help that were rejected for want of room.

NodeResourcesFit asks for each of them. kube-scheduler v1.36 tries all of them; with hundreds of
pods that preempt, each victim's end would cause an attempt of every other preemptor. Invariant: a
pod is spared only while victims of its own preemption are on their way out, so that it may not
preempt others, and where it does not fit the node that was freed; what happens on its own node
wakes it always.
"""

from stellwerk.framework.events import ClusterChange
from stellwerk.framework.services import Handle
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import PODS
from stellwerk.plugins.resources.amounts import is_counted
from stellwerk.plugins.shared.victims import is_leaving_as_victim


class FreedRoom:
    """What is free by now on the node that a pod has left; counted once for each change."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._change: ClusterChange | None = None
        self._free: dict[str, int] = {}

    def may_help(self, pod: PodInfo, change: ClusterChange) -> bool:
        """Whether a rejected pod may be schedulable after another one was deleted."""
        gone = change.old
        if not isinstance(gone, PodInfo):
            return True
        freed = gone.node_name or gone.nominated_node_name
        if not freed:
            return False
        nominated = self._handle.nominations.node_of(pod.uid)
        if nominated in {"", freed} or self._fits(pod, freed, change):
            return True
        return not self._waits_for_victims(pod, nominated)

    def _waits_for_victims(self, pod: PodInfo, node_name: str) -> bool:
        """Whether pods are leaving the nominated node, which still takes pods, for this one."""
        snapshot = self._handle.snapshot
        row = snapshot.row_of.get(node_name)
        if row is None or snapshot.unschedulable[row]:
            return False
        return any(
            other.priority < pod.priority and is_leaving_as_victim(other)
            for other in self._handle.pods_on(node_name).values()
        )

    def _fits(self, pod: PodInfo, node_name: str, change: ClusterChange) -> bool:
        """Whether the node has what the pod requests, beside those nominated to it."""
        row = self._handle.snapshot.row_of.get(node_name)
        if row is None:
            return False
        if change is not self._change:
            self._change = change
            self._free = self._count_free(self._handle.snapshot.node_at(row))
        against = self._handle.nominations.against(pod, node_name)
        if self._free[PODS] <= len(against):
            return False
        for name, amount in pod.amounts.requests.items():
            if amount and is_counted(name):
                kept = sum(other.amounts.requests.get(name, 0) for other in against)
                if amount > self._free.get(name, 0) - kept:
                    return False
        return True

    def _count_free(self, node: NodeInfo) -> dict[str, int]:
        free = dict(node.allocatable)
        pods = self._handle.pods_on(node.name)
        for pod in pods.values():
            for name, amount in pod.amounts.requests.items():
                free[name] = free.get(name, 0) - amount
        free[PODS] = node.allocatable.get(PODS, 0) - len(pods)
        return free
