"""The one table of kinds: what is served under which path, and how its storage behaves.

Read by storage, verbs, discovery, OpenAPI and tables; CustomResourceDefinitions add rows while the
server runs. Invariant: nothing about a kind is decided by comparing its name elsewhere when a
column here can say it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ALL_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
METADATA_FIELDS: Final = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class Subresource:
    """A path below an object."""

    name: str
    verbs: tuple[str, ...]
    kind: str = ""
    """Kind of its bodies; empty: that of the object itself."""
    group: str = ""
    version: str = ""


STATUS: Final = Subresource("status", ("get", "patch", "update"))
SCALE: Final = Subresource("scale", ("get", "patch", "update"), "Scale", "autoscaling", "v1")


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One row: a kind of object and the resource it is served as."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    fields: tuple[str, ...] = METADATA_FIELDS
    """Field selectors that the kind supports."""
    generation: bool = False
    """Whether metadata.generation counts changes of the specification."""
    answers_delete_with_object: bool = False
    create_on_update: bool = False
    needs_version_on_update: bool = False
    verbs: tuple[str, ...] = ALL_VERBS
    schema: str = ""
    """Name of its type in types.txt; empty: same as the kind."""
    storage: str = ""
    """Resource under whose name it is stored; empty: its own. Two rows with one storage are two
    views of it.
    """
    watch_cache: bool = True
    """Whether watches can go back behind a compaction, as the API server's watch cache allows."""
    singular: str = ""
    list_kind: str = ""
    custom: bool = False

    @property
    def api_version(self) -> str:
        """The apiVersion that its objects carry."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_resource(self) -> str:
        """The resource with its group, as messages name it: `leases.coordination.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_name(self) -> str:
        """The collection that holds its objects."""
        return self.storage or self.qualified_resource

    @property
    def type_name(self) -> str:
        """Its type in types.txt."""
        return self.schema or self.kind

    @property
    def list_name(self) -> str:
        """The kind of a list of it."""
        return self.list_kind or f"{self.kind}List"

    @property
    def singular_name(self) -> str:
        """What kubectl calls one of them."""
        return self.singular or self.kind.lower()

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, if the kind has it."""
        return next((each for each in self.subresources if each.name == name), None)


def _names(*names: str) -> tuple[str, ...]:
    return names


_POD_SUBRESOURCES: Final = (
    Subresource("binding", ("create",), "Binding"),
    Subresource("eviction", ("create",), "Eviction", "policy", "v1"),
    STATUS,
)
_POD_FIELDS: Final = (
    *METADATA_FIELDS,
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
_EVENT_FIELDS: Final = (
    *METADATA_FIELDS,
    *(
        f"involvedObject.{part}"
        for part in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    ),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_NEW_EVENT_FIELDS: Final = (
    *METADATA_FIELDS,
    *(
        f"regarding.{part}"
        for part in (
            "kind",
            "namespace",
            "name",
            "uid",
            "apiVersion",
            "resourceVersion",
            "fieldPath",
        )
    ),
    "reason",
    "reportingController",
    "type",
)
_ALL: Final = ("all",)
_REVIEW: Final = ("create",)

BUILT_IN: Final[tuple[ResourceKind, ...]] = (
    ResourceKind("", "v1", "bindings", "Binding", verbs=("create",)),
    ResourceKind("", "v1", "configmaps", "ConfigMap", short_names=_names("cm")),
    ResourceKind(
        "", "v1", "endpoints", "Endpoints", short_names=_names("ep"), singular="endpoints"
    ),
    ResourceKind(
        "",
        "v1",
        "events",
        "Event",
        short_names=_names("ev"),
        fields=_EVENT_FIELDS,
        storage="events",
        watch_cache=False,
    ),
    ResourceKind("", "v1", "limitranges", "LimitRange", short_names=_names("limits")),
    ResourceKind(
        "",
        "v1",
        "namespaces",
        "Namespace",
        namespaced=False,
        short_names=_names("ns"),
        subresources=(Subresource("finalize", ("update",)), STATUS),
        fields=("metadata.name", "status.phase"),
        answers_delete_with_object=True,
        verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    ),
    ResourceKind(
        "",
        "v1",
        "nodes",
        "Node",
        namespaced=False,
        short_names=_names("no"),
        subresources=(STATUS,),
        fields=("metadata.name", "spec.unschedulable"),
    ),
    ResourceKind(
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short_names=_names("pvc"),
        subresources=(STATUS,),
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "",
        "v1",
        "persistentvolumes",
        "PersistentVolume",
        namespaced=False,
        short_names=_names("pv"),
        subresources=(STATUS,),
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "",
        "v1",
        "pods",
        "Pod",
        short_names=_names("po"),
        categories=_ALL,
        subresources=_POD_SUBRESOURCES,
        fields=_POD_FIELDS,
        generation=True,
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "", "v1", "podtemplates", "PodTemplate", generation=True, answers_delete_with_object=True
    ),
    ResourceKind(
        "",
        "v1",
        "replicationcontrollers",
        "ReplicationController",
        short_names=_names("rc"),
        categories=_ALL,
        subresources=(SCALE, STATUS),
        generation=True,
        fields=(*METADATA_FIELDS, "status.replicas"),
    ),
    ResourceKind(
        "",
        "v1",
        "resourcequotas",
        "ResourceQuota",
        short_names=_names("quota"),
        subresources=(STATUS,),
        answers_delete_with_object=True,
    ),
    ResourceKind("", "v1", "secrets", "Secret", fields=(*METADATA_FIELDS, "type")),
    ResourceKind(
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        short_names=_names("sa"),
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "",
        "v1",
        "services",
        "Service",
        short_names=_names("svc"),
        categories=_ALL,
        subresources=(STATUS,),
        fields=(*METADATA_FIELDS, "spec.clusterIP", "spec.type"),
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "events.k8s.io",
        "v1",
        "events",
        "Event",
        short_names=_names("ev"),
        fields=_NEW_EVENT_FIELDS,
        schema="EventsEvent",
        storage="events",
        watch_cache=False,
    ),
    ResourceKind("apps", "v1", "controllerrevisions", "ControllerRevision"),
    ResourceKind(
        "apps",
        "v1",
        "daemonsets",
        "DaemonSet",
        short_names=_names("ds"),
        categories=_ALL,
        subresources=(STATUS,),
        generation=True,
    ),
    *(
        ResourceKind(
            "apps",
            "v1",
            plural,
            kind,
            short_names=_names(short),
            categories=_ALL,
            subresources=(SCALE, STATUS),
            generation=True,
            fields=(*METADATA_FIELDS, "status.replicas")
            if kind == "ReplicaSet"
            else METADATA_FIELDS,
        )
        for plural, kind, short in (
            ("deployments", "Deployment", "deploy"),
            ("replicasets", "ReplicaSet", "rs"),
            ("statefulsets", "StatefulSet", "sts"),
        )
    ),
    ResourceKind(
        "batch",
        "v1",
        "jobs",
        "Job",
        categories=_ALL,
        subresources=(STATUS,),
        generation=True,
        fields=(*METADATA_FIELDS, "status.successful"),
    ),
    ResourceKind(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short_names=_names("pdb"),
        subresources=(STATUS,),
        generation=True,
    ),
    ResourceKind(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short_names=_names("pc"),
        generation=True,
    ),
    ResourceKind("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", namespaced=False),
    ResourceKind(
        "storage.k8s.io",
        "v1",
        "storageclasses",
        "StorageClass",
        namespaced=False,
        short_names=_names("sc"),
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "storage.k8s.io",
        "v1",
        "csinodes",
        "CSINode",
        namespaced=False,
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "storage.k8s.io",
        "v1",
        "csidrivers",
        "CSIDriver",
        namespaced=False,
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "storage.k8s.io",
        "v1",
        "csistoragecapacities",
        "CSIStorageCapacity",
        list_kind="CSIStorageCapacityList",
    ),
    ResourceKind(
        "storage.k8s.io",
        "v1",
        "volumeattachments",
        "VolumeAttachment",
        namespaced=False,
        subresources=(STATUS,),
        answers_delete_with_object=True,
    ),
    ResourceKind(
        "coordination.k8s.io",
        "v1",
        "leases",
        "Lease",
        create_on_update=True,
        needs_version_on_update=True,
    ),
    *(
        ResourceKind("rbac.authorization.k8s.io", "v1", plural, kind, namespaced=namespaced)
        for plural, kind, namespaced in (
            ("clusterrolebindings", "ClusterRoleBinding", False),
            ("clusterroles", "ClusterRole", False),
            ("rolebindings", "RoleBinding", True),
            ("roles", "Role", True),
        )
    ),
    *(
        ResourceKind(
            "authorization.k8s.io", "v1", plural, kind, namespaced=namespaced, verbs=_REVIEW
        )
        for plural, kind, namespaced in (
            ("localsubjectaccessreviews", "LocalSubjectAccessReview", True),
            ("selfsubjectaccessreviews", "SelfSubjectAccessReview", False),
            ("selfsubjectrulesreviews", "SelfSubjectRulesReview", False),
            ("subjectaccessreviews", "SubjectAccessReview", False),
        )
    ),
    ResourceKind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short_names=_names("crd", "crds"),
        categories=_names("api-extensions"),
        subresources=(STATUS,),
        generation=True,
        needs_version_on_update=True,
        answers_delete_with_object=True,
        fields=("metadata.name",),
    ),
    ResourceKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
)


class KindTable:
    """All kinds that are served now: the built-in ones and those of CustomResourceDefinitions."""

    def __init__(self, rows: tuple[ResourceKind, ...] = BUILT_IN) -> None:
        """Start with the given rows."""
        self._by_resource: dict[tuple[str, str, str], ResourceKind] = {}
        self.changes = 0
        """Grows with every change, so that documents derived from the table can be cached."""
        for row in rows:
            self.add(row)

    def __iter__(self) -> Iterator[ResourceKind]:
        """All rows, in the order they were added."""
        return iter(self._by_resource.values())

    def add(self, row: ResourceKind) -> None:
        """Serve a kind, in place of an earlier row for the same path."""
        self._by_resource[row.group, row.version, row.plural] = row
        self.changes += 1

    def remove(self, row: ResourceKind) -> None:
        """Serve a kind no longer."""
        if self._by_resource.pop((row.group, row.version, row.plural), None) is not None:
            self.changes += 1

    def find(self, group: str, version: str, plural: str) -> ResourceKind | None:
        """The kind served under a path."""
        return self._by_resource.get((group, version, plural))

    def named(self, group: str, kind: str) -> ResourceKind | None:
        """The kind of that name, whatever its version."""
        return next((row for row in self if row.group == group and row.kind == kind), None)

    def resource(self, plural: str, group: str = "") -> ResourceKind:
        """The kind of a resource that is known to be served.

        Raises:
            KeyError: it is not.
        """
        for row in self:
            if row.plural == plural and row.group == group:
                return row
        raise KeyError(plural)

    def groups(self) -> dict[str, list[str]]:
        """The versions of every group, in the order of the table."""
        found: dict[str, list[str]] = {}
        for row in self:
            versions = found.setdefault(row.group, [])
            if row.version not in versions:
                versions.append(row.version)
        return found
