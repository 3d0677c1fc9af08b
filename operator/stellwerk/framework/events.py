"""Cluster events and queueing hints: which change can end which plugin's rejection.

Plugins register events. Event handlers classify changes (`node_update_actions`,
`pod_update_actions`; for pods without a node the queue does), and the queue matches the two.
Invariants: names are those of kube-scheduler's metrics and logs ("NodeUpdateNodeTaint"); an update
has one action for each part that differs, and none for parts that no plugin reads.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any, Final, TypeAlias

from stellwerk.models.pod import PodInfo
from stellwerk_kube.node import NodeInfo


class Resource(Enum):
    """The kind of object that changed; ASSIGNED_POD are pods on nodes, UNSCHEDULED_POD all others.

    A registration for POD covers both.
    """

    POD = "Pod"
    ASSIGNED_POD = "AssignedPod"
    UNSCHEDULED_POD = "UnschedulablePod"
    NODE = "Node"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    STORAGE_CLASS = "StorageClass"
    CSI_NODE = "CSINode"
    CSI_DRIVER = "CSIDriver"
    CSI_STORAGE_CAPACITY = "CSIStorageCapacity"
    VOLUME_ATTACHMENT = "VolumeAttachment"
    NAMESPACE = "Namespace"
    RESOURCE_CLAIM = "ResourceClaim"
    RESOURCE_SLICE = "ResourceSlice"
    DEVICE_CLASS = "DeviceClass"
    WILDCARD = "*"
    """Everything: timeouts, reloads of a profile."""


class Action(Flag):
    """The kind of change."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    """Also spec.unschedulable."""
    UPDATE_NODE_CONDITION = auto()
    """The status of a condition; a heartbeat changes none."""
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = auto()
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = auto()
    """status.resourceClaimStatuses or status.extendedResourceClaimStatus."""
    UPDATE_POD_TERMINATING = auto()
    """The deletion of the pod has begun. kube-scheduler has no name for it (Update)."""
    UPDATE_POD_OTHER = auto()
    UPDATE_OTHER = auto()
    """Any update of a kind whose updates are not distinguished."""
    UPDATE_NODE = (
        UPDATE_NODE_ALLOCATABLE
        | UPDATE_NODE_LABEL
        | UPDATE_NODE_TAINT
        | UPDATE_NODE_CONDITION
        | UPDATE_NODE_ANNOTATION
        | UPDATE_NODE_DECLARED_FEATURE
    )
    UPDATE_POD = (
        UPDATE_POD_LABEL
        | UPDATE_POD_SCALE_DOWN
        | UPDATE_POD_TOLERATION
        | UPDATE_POD_SCHEDULING_GATES_ELIMINATED
        | UPDATE_POD_GENERATED_RESOURCE_CLAIM
        | UPDATE_POD_TERMINATING
        | UPDATE_POD_OTHER
    )
    UPDATE = UPDATE_NODE | UPDATE_POD | UPDATE_OTHER
    ALL = ADD | DELETE | UPDATE


ACTION_NAMES: Final = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    Action.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    Action.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    Action.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    Action.UPDATE_POD_TERMINATING: "Update",
    Action.UPDATE_POD_OTHER: "Update",
    Action.UPDATE_OTHER: "Update",
}


class HintScope(Enum):
    """The part of the rejected pod that a hint function reads.

    The function is called once per distinct such part, not once per pod.
    """

    SPEC = auto()
    """pod.spec, and the node that the pod is nominated to."""
    SPEC_AND_NODE_NAMES = auto()
    """SPEC and pod.node_names: everything the pod demands of a node but its volumes."""
    SPEC_AND_LABELS = auto()
    """pod.spec and pod.label_set."""
    POD = auto()
    """Anything of the pod."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """One change in the cluster: kube-scheduler's ClusterEvent with the objects it is about.

    An object is None where there is none (the old one of an Add …). Nodes and pods are parsed
    records, every other kind is the object as in the API.
    """

    resource: Resource | str
    """A text: the kind of a plugin's own objects."""
    action: Action
    old: NodeInfo | PodInfo | dict[str, Any] | None = None
    new: NodeInfo | PodInfo | dict[str, Any] | None = None
    label: str = ""
    """Overrides the name in metrics for changes that are no API event (BackoffComplete …)."""

    @property
    def name(self) -> str:
        """The event's name in metrics and logs."""
        if self.label:
            return self.label
        return f"{resource_name(self.resource)}{ACTION_NAMES.get(self.action, 'Update')}"


def resource_name(resource: Resource | str) -> str:
    """The name of a kind of object in metrics and texts."""
    return resource if isinstance(resource, str) else resource.value


class QueueingHint(Enum):
    """The answers of a hint function; the values are metric labels."""

    QUEUE_SKIP = "QueueSkip"
    """The change does not make the pod schedulable."""
    QUEUE = "Queue"
    """The pod may be schedulable now, as far as this plugin goes."""


# Names of their own, as in kube-scheduler: hint functions run very often, and to look a member
# up in its enum takes Python 3.11 as long as many of them take.
QUEUE: Final = QueueingHint.QUEUE
QUEUE_SKIP: Final = QueueingHint.QUEUE_SKIP


def queue_if(may_be_schedulable: bool) -> QueueingHint:  # noqa: FBT001 a condition is all there is
    """Queue if the condition holds, else QueueSkip."""
    return QUEUE if may_be_schedulable else QUEUE_SKIP


QueueingHintFn: TypeAlias = Callable[[PodInfo, ClusterChange], QueueingHint]
"""(rejected pod, change) → whether the change is a reason to move the pod out of
unschedulablePods."""


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """A plugin's registration: changes that may end its rejections, and how to tell for a pod."""

    resource: Resource | str
    """A text: the kind of a plugin's own objects (`watched_kinds`)."""
    action: Action
    queueing_hint_fn: QueueingHintFn | None = None
    """None: Queue for every pod."""
    scope: HintScope = HintScope.SPEC
    """The part of the pod that the function reads."""


# --- kinds of change that an update is ------------------------------------------------------------


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
    if new.terminating and not old.terminating:
        actions.append(Action.UPDATE_POD_TERMINATING)
    return actions or [Action.UPDATE_POD_OTHER]


def own_changes(old: PodInfo, new: PodInfo) -> Iterator[ClusterChange]:
    """The changes that an update of a pod without a node is to the pod itself."""
    for action in pod_update_actions(old, new):
        yield ClusterChange(Resource.UNSCHEDULED_POD, action, old, new)


def is_echo(old: PodInfo, new: PodInfo) -> bool:
    """Return whether an update shows nothing new.

    A priority that is resolved late makes another spec, so that the spec is compared, too.
    """
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
    if old.conditions != new.conditions:
        actions.append(Action.UPDATE_NODE_CONDITION)
    if old.annotations != new.annotations:
        actions.append(Action.UPDATE_NODE_ANNOTATION)
    if old.declared_features != new.declared_features:
        actions.append(Action.UPDATE_NODE_DECLARED_FEATURE)
    return actions


def _shrank(old: Mapping[str, int], new: Mapping[str, int]) -> bool:
    """Return whether any request became smaller or went away."""
    return any(amount > new.get(resource, -1) for resource, amount in old.items())
