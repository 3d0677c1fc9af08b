"""Readers of a change for the hint functions of several plugins.

Invariant: a change of an unexpected shape is answered with Queue; a needless attempt is cheap, a
pod that stays unschedulable without reason is not.
"""

from stellwerk.framework.events import ClusterChange, QueueingHint, queue_if
from stellwerk.models.pod import PodInfo
from stellwerk_kube.node import NodeInfo


def is_own_update(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the pod that changed is the rejected one itself."""
    return queue_if(not isinstance(change.new, PodInfo) or change.new.uid == pod.uid)


def had_node(pod: PodInfo) -> bool:
    """Whether the pod counted on a node: it had one, or was nominated to one."""
    return bool(pod.node_name or pod.nominated_node_name)


def changed_node(change: ClusterChange) -> tuple[NodeInfo | None, NodeInfo | None]:
    """The node before and after; None where the change has none, or is about something else."""
    old = change.old if isinstance(change.old, NodeInfo) else None
    new = change.new if isinstance(change.new, NodeInfo) else None
    return old, new
