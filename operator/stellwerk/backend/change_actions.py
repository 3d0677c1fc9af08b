"""What kind of change an update of a pod or node is, as finely as hints tell changes apart.

Called by event handlers and, for pods that wait, by the queue. Invariant: an update has exactly
the actions of what differs; one of a pod in which nothing specific differs is UPDATE_POD_OTHER.
"""

from collections.abc import Mapping

from stellwerk.framework.events import Action
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo


def pod_update_actions(old: PodInfo, new: PodInfo) -> list[Action]:
    """The actions of a pod's update (`PodSchedulingPropertiesChange`, v1.36), never none."""
    actions = []
    if old.labels != new.labels:
        actions.append(Action.UPDATE_POD_LABEL)
    if old.amounts is not new.amounts and _shrank(old.amounts.requests, new.amounts.requests):
        actions.append(Action.UPDATE_POD_SCALE_DOWN)
    if old.spec is not new.spec:
        if old.spec.scheduling_gates and not new.spec.scheduling_gates:
            actions.append(Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)
        # The API lets nobody change or remove a toleration.
        if len(old.spec.tolerations) != len(new.spec.tolerations):
            actions.append(Action.UPDATE_POD_TOLERATION)
    return actions or [Action.UPDATE_POD_OTHER]


def node_update_actions(old: NodeInfo, new: NodeInfo) -> list[Action]:
    """The actions of a node's update; of a heartbeat none (`NodeSchedulingPropertiesChange`)."""
    actions = []
    if old.taints != new.taints or (old.unschedulable and not new.unschedulable):
        actions.append(Action.UPDATE_NODE_TAINT)
    if old.allocatable != new.allocatable:
        actions.append(Action.UPDATE_NODE_ALLOCATABLE)
    if old.labels != new.labels:
        actions.append(Action.UPDATE_NODE_LABEL)
    if old.annotations != new.annotations:
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.declared_features != new.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return actions


def _shrank(old: Mapping[str, int], new: Mapping[str, int]) -> bool:
    """Whether any request became smaller or went away."""
    return any(amount > new.get(resource, -1) for resource, amount in old.items())
