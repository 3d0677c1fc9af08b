"""Claims, volumes and the like for tests, in the API's shape, and a small world to decide in."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.extension_points import FILTER, PRE_FILTER
from stellwerk.framework.handle import ProfileHandle
from stellwerk.framework.offline import offline_services
from stellwerk.framework.types import CycleState, Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_cache
from tests.support.memory_client import MemoryClient

GI = 1 << 30


def claim_volume(*claim_names: str) -> list[JsonObject]:
    """spec.volumes that use claims."""
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claim_names]


def make_claim(
    name: str,
    *,
    storage: str = "1Gi",
    storage_class: str | None = "wait",
    volume: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    annotations: Mapping[str, str] | None = None,
    phase: str = "Pending",
    owner_uid: str = "",
    **spec: Any,
) -> JsonObject:
    """A v1.PersistentVolumeClaim in namespace default; with a volume it is fully bound."""
    bound = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    metadata: JsonObject = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "annotations": {**bound, **(annotations or {})},
    }
    if owner_uid:
        metadata["ownerReferences"] = [{"controller": True, "uid": owner_uid}]
    claim: JsonObject = {
        "metadata": metadata,
        "spec": {
            "accessModes": list(modes),
            "resources": {"requests": {"storage": storage}},
            **spec,
        },
        "status": {"phase": phase},
    }
    if storage_class is not None:
        claim["spec"]["storageClassName"] = storage_class
    if volume:
        claim["spec"]["volumeName"] = volume
    return claim


def make_volume(
    name: str,
    *,
    storage: str = "1Gi",
    storage_class: str = "wait",
    modes: Sequence[str] = ("ReadWriteOnce",),
    claim: str = "",
    nodes: Mapping[str, Sequence[str]] | None = None,
    labels: Mapping[str, str] | None = None,
    source: Mapping[str, Any] | None = None,
    **spec: Any,
) -> JsonObject:
    """A v1.PersistentVolume: Available, or Bound to a claim; `nodes` are labels that nodes need."""
    volume: JsonObject = {
        "metadata": {"name": name, "resourceVersion": "1", "labels": dict(labels or {})},
        "spec": {
            "capacity": {"storage": storage},
            "accessModes": list(modes),
            "storageClassName": storage_class,
            **(source or {"csi": {"driver": "csi.example.com", "volumeHandle": name}}),
            **spec,
        },
        "status": {"phase": "Bound" if claim else "Available"},
    }
    if claim:
        reference = {"namespace": "default", "name": claim, "uid": f"uid-{claim}"}
        volume["spec"]["claimRef"] = reference
    if nodes is not None:
        terms = [{"key": k, "operator": "In", "values": list(v)} for k, v in nodes.items()]
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        volume["spec"]["nodeAffinity"] = {"required": required}
    return volume


def make_class(
    name: str = "wait",
    *,
    mode: str | None = "WaitForFirstConsumer",
    provisioner: str = "csi.example.com",
    zones: Sequence[str] = (),
) -> JsonObject:
    """A StorageClass; `zones` are its allowed topologies."""
    storage_class: JsonObject = {"metadata": {"name": name}, "provisioner": provisioner}
    if mode is not None:
        storage_class["volumeBindingMode"] = mode
    if zones:
        expression = {"key": "topology.kubernetes.io/zone", "values": list(zones)}
        storage_class["allowedTopologies"] = [{"matchLabelExpressions": [expression]}]
    return storage_class


def make_csi_node(
    node: str,
    limits: Mapping[str, int | None] | None = None,
    *,
    migrated: Iterable[str] = (),
) -> JsonObject:
    """A CSINode with the counts of its drivers, and the in-tree plugins it has handed over."""
    drivers = [
        {"name": driver, **({} if count is None else {"allocatable": {"count": count}})}
        for driver, count in (limits or {}).items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)}
    return {"metadata": {"name": node, "annotations": annotations}, "spec": {"drivers": drivers}}


def make_attachment(
    name: str, node: str, volume: str, *, driver: str = "csi.example.com"
) -> JsonObject:
    """A VolumeAttachment."""
    source = {"persistentVolumeName": volume}
    spec = {"nodeName": node, "attacher": driver, "source": source}
    return {"metadata": {"name": name}, "spec": spec}


class StorageWorld:
    """Nodes, pods and storage objects, and the handle through which plugins see them."""

    def __init__(
        self,
        nodes: Iterable[JsonObject] = (),
        pods: Iterable[JsonObject] = (),
        compatibility: Compatibility = AS_RECORDED,
    ) -> None:
        self.cache = make_cache(nodes, pods)
        self.objects = IndexedObjectStore()
        self.client = MemoryClient(self._watch)
        self.muted = False
        """While True, the watch does not show what is written."""
        self.steps: list[Callable[[], object]] = []
        """What the rest of the cluster does while somebody waits, one step at a time."""
        offline = offline_services(self.cache.snapshot, self.objects, Nominator(), Random(0))
        services = replace(
            offline,
            client=self.client,
            wait_until=self._wait_until,
            compatibility=compatibility,
        )
        self.handle = ProfileHandle(services, "default-scheduler")

    def add(self, kind: str, *objects: JsonObject) -> None:
        """Show objects to the plugins; volumes and claims exist in the API too."""
        for obj in objects:
            if kind in {"PersistentVolume", "PersistentVolumeClaim"}:
                self.client.put(_path(kind, obj), {"kind": kind, **obj})
            else:
                self.objects.set(kind, obj)

    def change(self, kind: str, name: str, change: Callable[[JsonObject], object]) -> None:
        """Change a claim or volume as a controller would."""
        namespace = "default" if kind == "PersistentVolumeClaim" else ""
        path = _path(kind, {"metadata": {"name": name, "namespace": namespace}})
        obj = self.client.objects[path]
        change(obj)
        self.client.put(path, obj)

    def view(self) -> NodeView:
        """All rows."""
        return NodeView(self.cache.update_snapshot())

    def verdicts(
        self, plugin: Any, pod: PodInfo, state: CycleState | None = None
    ) -> Status | dict[str, tuple[str, ...]]:
        """The PreFilter's status unless it is Success, else the reasons by failing node."""
        assert PRE_FILTER.implemented_by(plugin)
        state = state or CycleState()
        view = self.view()
        status = plugin.pre_filter(state, pod, view).status
        return status if not status.ok else self.filter(plugin, state, pod, view)

    def filter(
        self, plugin: Any, state: CycleState, pod: PodInfo, view: NodeView
    ) -> dict[str, tuple[str, ...]]:
        """The reasons by node, only failing ones."""
        assert FILTER.implemented_by(plugin)
        result = plugin.filter(state, pod, view)
        assert result.codes.dtype == np.int32
        return {
            node.name: result.status(int(code)).reasons
            for code, node in zip(result.codes, view.nodes(), strict=True)
            if node is not None and code
        }

    def _watch(self, obj: JsonObject) -> None:
        if not self.muted:
            self.objects.set(obj["kind"], obj)

    async def _wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:
        assert timeout_seconds >= 0
        while not predicate():
            if not self.steps:
                return False
            self.steps.pop(0)()
        return True


def _path(kind: str, obj: JsonObject) -> str:
    name = obj["metadata"]["name"]
    if kind == "PersistentVolume":
        return f"/api/v1/persistentvolumes/{name}"
    return f"/api/v1/namespaces/{obj['metadata']['namespace']}/persistentvolumeclaims/{name}"
