"""Cluster events and queueing hints: which change can make which plugin's rejection go away.

Plugins register hints, event handlers classify changes, the queue matches the two. Invariant:
names are those of kube-scheduler's metrics and logs ("Node/UpdateNodeTaint").
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, Flag, auto
from typing import Any, Final, TypeAlias

from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo


class Resource(Enum):
    """What changed. ASSIGNED_POD are pods on nodes, UNSCHEDULED_POD those that wait.

    Both register as POD.
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
    WILDCARD = "*"
    """Everything: timeouts, reloads of a profile."""


class Action(Flag):
    """How it changed."""

    ADD = auto()
    DELETE = auto()
    UPDATE_NODE_ALLOCATABLE = auto()
    UPDATE_NODE_LABEL = auto()
    UPDATE_NODE_TAINT = auto()
    """Also spec.unschedulable."""
    UPDATE_NODE_CONDITION = auto()
    UPDATE_NODE_ANNOTATION = auto()
    UPDATE_NODE_DECLARED_FEATURE = auto()
    UPDATE_POD_LABEL = auto()
    UPDATE_POD_SCALE_DOWN = auto()
    UPDATE_POD_TOLERATION = auto()
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = auto()
    UPDATE_POD_OTHER = auto()
    UPDATE_OTHER = auto()
    """Any change of a kind whose updates are not told apart."""
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
    Action.UPDATE_POD_OTHER: "Update",
    Action.UPDATE_OTHER: "Update",
}


class HintScope(Enum):
    """What of the waiting pod a hint reads.

    Hints are evaluated once per distinct such part, not once per pod.
    """

    SPEC = auto()
    """pod.spec alone."""
    SPEC_AND_NODE_NAMES = auto()
    """pod.spec and pod.node_names: everything the pod asks of a node but its volumes."""
    SPEC_AND_LABELS = auto()
    """pod.spec and pod.label_set."""
    POD = auto()
    """Anything of the pod."""


@dataclass(frozen=True, slots=True, eq=False)
class ClusterChange:
    """One change in the cluster, as hints see it.

    Objects are None where there is none (before an Add …).

    Nodes and pods are parsed records, every other kind is the object as in the API.
    """

    resource: Resource
    action: Action
    old: NodeInfo | PodInfo | dict[str, Any] | None = None
    new: NodeInfo | PodInfo | dict[str, Any] | None = None
    label: str = ""
    """Overrides the name in metrics for changes that are no API event (BackoffComplete …)."""

    @property
    def name(self) -> str:
        """The event's name in metrics and logs."""
        return self.label or f"{self.resource.value}{ACTION_NAMES.get(self.action, 'Update')}"


HintFunction: TypeAlias = Callable[[PodInfo, ClusterChange], bool]
"""(waiting pod, change) → whether the pod may now be schedulable as far as this plugin goes."""


@dataclass(frozen=True, slots=True)
class ClusterEventWithHint:
    """A plugin's registration: these changes may end my rejection, if the hint says so."""

    resource: Resource
    action: Action
    hint: HintFunction | None = None
    """None: always."""
    scope: HintScope = HintScope.SPEC
