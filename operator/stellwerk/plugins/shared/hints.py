"""What queueing hints of several plugins ask about a change.

Invariant: a change of an unexpected shape wakes the pod; a needless attempt is cheap, a pod that
sleeps on is not.
"""

from stellwerk.framework.events import ClusterChange
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo


def is_own_update(pod: PodInfo, change: ClusterChange) -> bool:
    """Whether the pod that changed is the waiting one itself."""
    return not isinstance(change.new, PodInfo) or change.new.uid == pod.uid


def occupied_room(pod: PodInfo) -> bool:
    """Whether other pods made way for this one: it had a node, or the promise of one."""
    return bool(pod.node_name or pod.nominated_node_name)


def changed_node(change: ClusterChange) -> tuple[NodeInfo | None, NodeInfo | None]:
    """The node before and after; None where the change has none, or is about something else."""
    old = change.old if isinstance(change.old, NodeInfo) else None
    new = change.new if isinstance(change.new, NodeInfo) else None
    return old, new
