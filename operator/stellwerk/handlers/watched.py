"""Which kinds are watched, and where each goes: one table.

`lifecycle` registers a handler for each row, `delivery` looks up the sink. Invariant: `kind` is the
key under which every other part of the operator knows the kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from stellwerk.models import profile
from stellwerk.models.pod_group_key import COSCHEDULING_API, WORKLOAD_API

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk.framework.watch_handlers import WatchHandlers
    from stellwerk.models.json_values import JsonObject

    Sink = Callable[[str | None, JsonObject], None]


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind, where the API serves it, and what of it is not worth watching."""

    kind: str
    group: str
    version: str
    plural: str
    field_selector: str | None = None
    served_as: str = ""
    """What the API calls it, where another kind of that name is watched; empty: `kind`."""
    optional: bool = False
    """Whether most clusters do without it: nothing waits for its first list."""

    @property
    def core(self) -> bool:
        """Whether every API server has the kind: where it seems absent, the answer is wrong."""
        return not self.group

    @property
    def api_kind(self) -> str:
        """The kind as objects and lists say it."""
        return self.served_as or self.kind

    @property
    def indispensable(self) -> bool:
        """Whether nothing can be decided without it: without pods, every node looks empty."""
        return self.kind in {"Pod", "Node"}

    @property
    def group_version_path(self) -> str:
        """The API path under which discovery lists the kind."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def path(self) -> str:
        """The API path of all objects of the kind that are watched, in every namespace."""
        query = f"?fieldSelector={quote(self.field_selector)}" if self.field_selector else ""
        return f"{self.collection_path}{query}"

    @property
    def collection_path(self) -> str:
        """The API path of all objects of the kind, in every namespace."""
        return f"{self.group_version_path}/{self.plural}"

    def object_path(self, namespace: str | None, name: str) -> str:
        """Return the API path of one object."""
        inside = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        return f"{self.group_version_path}{inside}/{self.plural}/{quote(name, safe='')}"

    def sink(self, events: WatchHandlers) -> Sink:
        """Return the function of WatchHandlers that takes this kind's events."""
        match self.kind:
            case "Pod":
                return events.on_pod
            case "Node":
                return events.on_node
            case _:
                return partial(events.on_object, self.kind)


_STORAGE: Final = "storage.k8s.io"
_DEVICES: Final = "resource.k8s.io"

WATCHED: Final = (
    # A finished pod holds nothing; it leaves the selector, and so arrives as deleted.
    WatchedKind("Pod", "", "v1", "pods", "status.phase!=Succeeded,status.phase!=Failed"),
    WatchedKind("Node", "", "v1", "nodes"),
    WatchedKind("PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses"),
    WatchedKind(profile.KIND, profile.GROUP, profile.VERSION, profile.PLURAL),
    WatchedKind("Namespace", "", "v1", "namespaces"),
    WatchedKind("Service", "", "v1", "services"),
    WatchedKind("ReplicationController", "", "v1", "replicationcontrollers"),
    WatchedKind("ReplicaSet", "apps", "v1", "replicasets"),
    WatchedKind("StatefulSet", "apps", "v1", "statefulsets"),
    WatchedKind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims"),
    WatchedKind("PersistentVolume", "", "v1", "persistentvolumes"),
    WatchedKind("StorageClass", _STORAGE, "v1", "storageclasses"),
    WatchedKind("CSINode", _STORAGE, "v1", "csinodes"),
    WatchedKind("CSIDriver", _STORAGE, "v1", "csidrivers"),
    WatchedKind("CSIStorageCapacity", _STORAGE, "v1", "csistoragecapacities"),
    WatchedKind("VolumeAttachment", _STORAGE, "v1", "volumeattachments"),
    WatchedKind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets"),
    WatchedKind("ResourceClaim", _DEVICES, "v1", "resourceclaims"),
    WatchedKind("ResourceSlice", _DEVICES, "v1", "resourceslices"),
    WatchedKind("DeviceClass", _DEVICES, "v1", "deviceclasses"),
    # Groups of pods: kube-scheduler's are behind a gate, the coscheduling plugin's a definition.
    WatchedKind("PodGroup", WORKLOAD_API, "v1alpha2", "podgroups", optional=True),
    WatchedKind(
        "CoschedulingPodGroup",
        COSCHEDULING_API,
        "v1alpha1",
        "podgroups",
        served_as="PodGroup",
        optional=True,
    ),
)
