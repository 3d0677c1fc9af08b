"""The nominated pods of each node: preemption freed resources there, and they are not bound yet.

The scheduler adds and removes nominations, the queue replaces a pod that was updated, and the
framework reads a node's nominated pods. A nomination outlives its node: the pod's next attempt
looks at all nodes. Invariant: a pod is nominated to at most one node, and the record here is its
newest.
"""

import math
from collections.abc import Callable, Iterable, Sequence

from typing_extensions import override

from stellwerk.framework.services import Nominations
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import Changes


class Nominator(Nominations):
    """Nominated pods by node, those in memory and those that the API has.

    `against` says which of them count against a pod: those of equal or higher priority
    (`Nominations.equal_or_higher`), but for those whose room it may use until they need it.
    """

    def __init__(self) -> None:
        self.by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        self._changes: Changes[str] = Changes()
        self.kept_until: dict[str, float] = {}
        """Time at which the resources kept for a pod will be free (monotonic seconds), by uid.

        Only for resources that other pods free by ending in time. It counts while the pod is
        nominated."""
        self.now: Callable[[], float] = lambda: -math.inf
        """Tells monotonic seconds; the World sets it."""
        self.on_nominated: Callable[[PodInfo, str], None] = lambda *_: None
        """Called with a pod and the node that it is nominated to from now on; empty: none."""

    @property
    @override
    def changes(self) -> Changes[str]:
        return self._changes

    @override
    def pods_for_node(self, node_name: str) -> Sequence[PodInfo]:
        """The pods nominated to a node, in the order of their nomination."""
        return tuple(self.by_node.get(node_name, {}).values())

    @override
    def node_of(self, uid: str) -> str:
        """The node a pod is nominated to; empty: none."""
        return self._node_of.get(uid, "")

    @override
    def against(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """The pods nominated to a node whose room a pod may not take.

        A pod of another namespace that ends before may use the room meanwhile (backfill).
        """
        found = self.equal_or_higher(pod, node_name)
        if not found or not self.depends_on_deadline(pod):
            return found
        ends_at = self.now() + (pod.active_deadline_seconds or 0)
        return [
            other
            for other in found
            if other.namespace == pod.namespace or self.kept_until.get(other.uid, 0.0) < ends_at
        ]

    @override
    def depends_on_deadline(self, pod: PodInfo) -> bool:
        return pod.active_deadline_seconds is not None and bool(self.kept_until)

    def add(self, pod: PodInfo) -> None:
        """Record what the status says; a nomination in memory may still be on its way there."""
        self.nominate(pod, pod.nominated_node_name or self.node_of(pod.uid))

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Nominate before the API has it; an empty name takes the nomination back.

        It is in memory first, so that the next scheduling cycle already counts it.
        """
        self._withdraw(pod.uid)
        if node_name:
            self._node_of[pod.uid] = node_name
            self.by_node.setdefault(node_name, {})[pod.uid] = pod
            self._changes.append(node_name)
        self.on_nominated(pod, node_name)

    def keep_until(self, uids: Iterable[str], seconds: float) -> None:
        """Note when the room is free again that is kept for some pods; what is over is dropped."""
        now = self.now()
        for uid in [uid for uid, until in self.kept_until.items() if until <= now]:
            del self.kept_until[uid]
        self.kept_until.update(dict.fromkeys(uids, seconds))

    def left_seconds(self, uid: str) -> float:
        """Seconds for which a pod's room is kept that others may use meanwhile; 0: they may not."""
        until = self.kept_until.get(uid)
        return 0.0 if until is None else max(0.0, until - self.now())

    def update(self, old: PodInfo, new: PodInfo) -> None:
        """Follow a pod's update.

        An update without a nomination before and after leaves one made in memory in place:
        it may have been under way before the nomination was written (`UpdateNominatedPod`, v1.36).
        """
        silent = not old.nominated_node_name and not new.nominated_node_name
        self.nominate(new, self.node_of(old.uid) if silent else new.nominated_node_name)

    def remove(self, uid: str) -> None:
        """Forget a pod that is deleted, assumed or bound."""
        self.kept_until.pop(uid, None)
        self._withdraw(uid)

    def _withdraw(self, uid: str) -> None:
        node_name = self._node_of.pop(uid, None)
        if node_name is not None:
            pods = self.by_node[node_name]
            del pods[uid]
            if not pods:
                del self.by_node[node_name]
            self._changes.append(node_name)

    def fork(self) -> "Nominator":
        """Copy the nominations; neither side sees changes of the other."""
        fork = Nominator()
        fork.by_node = {node_name: pods.copy() for node_name, pods in self.by_node.items()}
        fork._node_of = self._node_of.copy()
        fork.kept_until = self.kept_until.copy()
        fork._changes = Changes(self._changes.position)
        return fork
