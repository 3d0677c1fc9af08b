"""The queueing hint of NodeResourcesFit for deleted pods: which preemptors a pod's end wakes.

kube-scheduler v1.36 retries every pod that was rejected for want of resources when another pod
ends. If hundreds of pods preempt, each victim's end would then cause an attempt of every other
preemptor, and none of these attempts would succeed. Invariant: a pod is spared only while victims
of its own preemption are leaving, during which it cannot preempt others, and only if it does not
fit the node that was freed. An end on its own node always wakes it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from stellwerk.framework.events import ClusterChange
from stellwerk.framework.services import Handle
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.resources.amounts import is_counted
from stellwerk.plugins.shared.victims import is_leaving_as_victim
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_amounts import PODS

if TYPE_CHECKING:
    from stellwerk.models.scheduling_spec import SchedulingSpec


class FreedRoom:
    """Judges whether a rejected pod may be schedulable after another pod was deleted.

    The free amounts of the node are counted once for each change, and pods of one spec are judged
    once: hundreds of preemptors are mostly alike.
    """

    def __init__(
        self,
        handle: Handle,
        lets_through: Callable[[PodInfo, NodeInfo, str], bool] = lambda _pod, _node, _name: False,
    ) -> None:
        """`lets_through`: whether the filter ignores that the node lacks a resource of the pod."""
        self._handle = handle
        self._lets_through = lets_through
        self._counted_for: tuple[ClusterChange, int] | None = None
        """The change, and the position of nominations, for which `_free` and `_fitting` hold."""
        self._free: dict[str, int] = {}
        """Free amounts of the node by resource, nominated pods not counted."""
        self._fitting: dict[SchedulingSpec, bool] = {}
        """True if pods of a spec fit the node."""
        self._leaving: dict[str, PodInfo] = {}
        """A victim on each node that was found leaving it. It counts until the node has another
        record of that pod."""

    def may_help(self, pod: PodInfo, change: ClusterChange) -> bool:
        """Return whether the pod may be schedulable after another one was deleted."""
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
        """Return whether victims are leaving the nominated node, which still takes pods."""
        snapshot = self._handle.snapshot
        row = snapshot.row_of.get(node_name)
        if row is None or snapshot.unschedulable[row]:
            return False
        pods = self._handle.pods_on(node_name)
        known = self._leaving.get(node_name)
        if known is not None and pods.get(known.uid) is known and known.priority < pod.priority:
            return True
        if len(self._leaving) > 2 * len(self._handle.nominations.by_node):
            # Most of those preemptors are on their nodes by now.
            self._leaving.clear()
        for other in pods.values():
            if other.priority < pod.priority and is_leaving_as_victim(other):
                self._leaving[node_name] = other
                return True
        return False

    def _fits(self, pod: PodInfo, node_name: str, change: ClusterChange) -> bool:
        """Return whether the pod, nominated elsewhere, fits beside those nominated to this node.

        The nominated pods that count are the same for all pods of a spec. Two kinds of pods are
        judged by themselves: those whose amounts are not their spec's, and those with a deadline.
        """
        row = self._handle.snapshot.row_of.get(node_name)
        if row is None:
            return False
        node, nominations = self._handle.snapshot.node_at(row), self._handle.nominations
        position = nominations.changes.position
        counted_for = self._counted_for
        if counted_for is None or counted_for[0] is not change or counted_for[1] != position:
            self._counted_for = change, position
            self._free = self._count_free(node)
            self._fitting.clear()
        if pod.amounts is not pod.spec.amounts or nominations.depends_on_deadline(pod):
            return self._has_room(pod, node)
        fits = self._fitting.get(pod.spec)
        if fits is None:
            fits = self._fitting[pod.spec] = self._has_room(pod, node)
        return fits

    def _has_room(self, pod: PodInfo, node: NodeInfo) -> bool:
        against = self._handle.nominations.against(pod, node.name)
        if self._free[PODS] <= len(against):
            return False
        for name, amount in pod.amounts.requests.items():
            if amount and is_counted(name):
                kept = sum(other.amounts.requests.get(name, 0) for other in against)
                short = amount > self._free.get(name, 0) - kept
                if short and not self._lets_through(pod, node, name):
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
