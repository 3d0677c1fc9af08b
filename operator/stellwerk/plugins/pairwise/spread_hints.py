"""Queueing hints of PodTopologySpread: the changes that can end its rejection.

Registered by the plugin, called by the queue for unschedulable pods. Invariant: the answers are
those of `isSchedulableAfterPodChange` and `isSchedulableAfterNodeChange` (v1.36).
"""

from collections.abc import Sequence
from typing import Final

from stellwerk.framework.events import (
    QUEUE,
    QUEUE_SKIP,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.pairwise.spread_constraints import (
    SpreadConstraints,
    TopologySpreadConstraint,
)
from stellwerk.plugins.shared.hints import changed_node, had_node

_NODE_CHANGES: Final = (
    Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
)


def spread_hints(constraints: SpreadConstraints) -> Sequence[ClusterEventWithHint]:
    """The plugin's registrations."""
    hints = _SpreadHints(constraints)
    # A default constraint takes its selector from the pod's controller: not part of the spec.
    scope = HintScope.POD if constraints.hard_defaults else HintScope.SPEC_AND_LABELS
    # Of the pod, the function for nodes reads the topology keys alone.
    of_nodes = HintScope.POD if constraints.hard_defaults else HintScope.SPEC
    own_or_other = Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION
    return (
        ClusterEventWithHint(
            Resource.POD, Action.ADD | Action.DELETE, hints.after_pod_add_or_delete, scope
        ),
        ClusterEventWithHint(Resource.POD, own_or_other, hints.after_pod_update, HintScope.POD),
        ClusterEventWithHint(Resource.NODE, _NODE_CHANGES, hints.after_node_change, of_nodes),
    )


class _SpreadHints:
    """The hint functions, which read the constraints of the rejected pod."""

    def __init__(self, constraints: SpreadConstraints) -> None:
        self._constraints = constraints

    def after_pod_add_or_delete(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the pod that was added or deleted counts."""
        other = change.new or change.old
        if not isinstance(other, PodInfo):
            return QUEUE
        if not _concerns(other, pod):
            return QUEUE_SKIP
        return queue_if(
            any(constraint.selector.matches(other.labels) for constraint in self._hard(pod))
        )

    def after_pod_update(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether a pod began or ceased to count, or the rejected pod tolerates more nodes."""
        old, new = change.old, change.new
        if not isinstance(old, PodInfo) or not isinstance(new, PodInfo):
            return QUEUE
        if not (_concerns(new, pod) and _concerns(old, pod)):
            return QUEUE_SKIP
        hard = self._hard(pod)
        tolerates_more = new.uid == pod.uid and new.spec.tolerations != old.spec.tolerations
        if tolerates_more and any(item.needed.tolerations is not None for item in hard):
            return QUEUE
        if new.labels == old.labels:
            return QUEUE_SKIP
        return queue_if(
            any(
                constraint.selector.matches(old.labels) != constraint.selector.matches(new.labels)
                for constraint in hard
            )
        )

    def after_node_change(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether a node joins or leaves the topology, or moves within it."""
        old, new = changed_node(change)
        if old is not None and new is not None and _reads_the_same(pod, old, new):
            return QUEUE_SKIP
        hard = self._hard(pod)
        before, after = _takes_part(old, hard), _takes_part(new, hard)
        if old is None or new is None or before != after:
            return queue_if(before or after)
        return queue_if(
            after
            and (
                old.taints != new.taints
                or any(
                    old.labels[constraint.topology_key] != new.labels[constraint.topology_key]
                    for constraint in hard
                )
            )
        )

    def _hard(self, pod: PodInfo) -> Sequence[TopologySpreadConstraint]:
        return self._constraints.of(pod).hard


def _concerns(other: PodInfo, pod: PodInfo) -> bool:
    """Whether another pod can count for the pod: itself, or one with a node in its namespace."""
    if other.uid == pod.uid:
        return True
    return had_node(other) and other.namespace == pod.namespace


def _reads_the_same(pod: PodInfo, old: NodeInfo, new: NodeInfo) -> bool:
    """Whether the pod has constraints of its own, and they read nothing of what changed.

    Settles most changes of a node's labels cheaply, which are compared with every rejected spec.
    """
    constraints = pod.spec.spread_constraints
    if not constraints or old.taints != new.taints:
        return False
    before, after = old.labels, new.labels
    for constraint in constraints:
        key = constraint.topology_key
        if before.get(key) != after.get(key):
            return False
    return True


def _takes_part(node: NodeInfo | None, constraints: Sequence[TopologySpreadConstraint]) -> bool:
    """Whether the node has every topology key."""
    return node is not None and all(
        constraint.topology_key in node.labels for constraint in constraints
    )
