"""Kinds of change that an update of a pod or node is, as finely as hints tell changes apart.

Called by event handlers and, for pods without a node, by the queue. Invariant: an update has
exactly the actions of what differs; a pod's in which nothing specific differs is UPDATE_POD_OTHER.
"""

from collections.abc import Iterator, Mapping

from stellwerk.framework.events import Action, ClusterChange, Resource
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
        # The API refuses to change or remove a toleration.
        if len(old.spec.tolerations) != len(new.spec.tolerations):
            actions.append(Action.UPDATE_POD_TOLERATION)
    if old.generated_claims != new.generated_claims:
        actions.append(Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM)
    return actions or [Action.UPDATE_POD_OTHER]


def own_changes(old: PodInfo, new: PodInfo) -> Iterator[ClusterChange]:
    """The changes that an update of a pod without a node is to the pod itself."""
    for action in pod_update_actions(old, new):
        yield ClusterChange(Resource.UNSCHEDULED_POD, action, old, new)


def is_echo(old: PodInfo, new: PodInfo) -> bool:
    """Whether an update shows nothing new; a priority resolved late makes another spec of it."""
    version = new.resource_version
    return bool(version) and version == old.resource_version and new.spec is old.spec


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
