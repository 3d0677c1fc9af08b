"""The one table of the kinds that the operator watches, and where the API serves each.

`lifecycle` makes a Delivery for each row, and one for each further kind that a plugin wants.
Invariant: `kind` is the key under which every other part of the operator knows the kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from stellwerk.models.api_kinds import API_KINDS
from stellwerk.models.pod_group import COSCHEDULING_API
from stellwerk.profiles.spec import profile

_STORAGE: Final = "storage.k8s.io"


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """A kind, where the API serves it, and which of its objects are watched."""

    kind: str
    group: str
    version: str
    """The version that is watched."""
    plural: str
    field_selector: str | None = None
    """Objects outside of it are not watched."""
    served_as: str = ""
    """The API's name of the kind, if another kind of that name is watched, too; empty: `kind`."""
    optional: bool = False
    """Whether most clusters do without it, so that its absence is nothing to warn of."""
    readable: tuple[str, ...] = ()
    """Every version that can be read, newest first, if releases serve different ones."""

    @property
    def versions(self) -> tuple[str, ...]:
        """Every version that can be read, newest first."""
        return self.readable or (self.version,)

    @property
    def may_be_absent(self) -> bool:
        """Whether a discovery that does not name it is believed at once."""
        return self.optional or bool(self.readable)

    @property
    def is_defined(self) -> bool:
        """Whether a definition brings the kind, so that its storage is made when it is applied."""
        return self.optional or self.group == profile.GROUP

    @property
    def core(self) -> bool:
        """Whether every API server has the kind: if it seems absent, the answer is wrong."""
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


def _negotiated(kind: str) -> WatchedKind:
    """Return a kind whose version discovery chooses."""
    found = API_KINDS[kind]
    newest = found.versions[0]
    return WatchedKind(kind, found.group, newest, found.plural, readable=found.versions)


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
    _negotiated("ResourceClaim"),
    _negotiated("ResourceSlice"),
    _negotiated("DeviceClass"),
    _negotiated("DeviceTaintRule"),
    # Groups of pods: kube-scheduler's are behind a gate, the coscheduling plugin's a definition.
    _negotiated("PodGroup"),
    WatchedKind(
        "CoschedulingPodGroup",
        COSCHEDULING_API,
        "v1alpha1",
        "podgroups",
        served_as="PodGroup",
        optional=True,
    ),
)
