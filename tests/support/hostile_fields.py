"""Every list, map and text that an object can hold, filled up to the size of the object.

The tables say the kind, the path of a field, and what the n-th entry of it is. Objects are those
that an API server lets through, with names as short as they may be, so that there are as many
entries as an object can have.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, TypeAlias

import orjson

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile

MOST_BYTES: Final = 3 << 19
"""1.5 MiB, as JSON: etcd takes no larger object by default."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

Path: TypeAlias = tuple[str | int, ...]
Entry: TypeAlias = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Field:
    """A list or map of an object, and what its entries are; or a text that has no end."""

    kind: str
    path: Path
    entry: Entry | None = None
    """Of a list: the n-th item; of a map: the n-th (key, value); None: the field is a text."""
    mapping: bool = False
    spec: tuple[tuple[Path, Any], ...] = ()
    """Other fields that the object needs for this one to be read."""
    bindable: bool = True
    """Whether a pod with it can be on a node."""

    def filled(self, name: str = "", *, size: int = MOST_BYTES, node_name: str = "") -> JsonObject:
        """The object with as many entries as fit into so many bytes of JSON."""
        obj = base(self.kind, name)
        for path, value in self.spec:
            put(obj, path, deepcopy(value))
        if node_name:
            obj["spec"]["nodeName"] = node_name
        room = size - len(orjson.dumps(obj)) - 100
        if self.entry is None:
            put(obj, self.path, "x" * room)
            return obj
        entries = list(_entries(self.entry, room, mapping=self.mapping))
        put(obj, self.path, dict(entries) if self.mapping else entries)
        return obj


def base(kind: str, name: str = "") -> JsonObject:
    """A small object of a kind, with what tests beside it refer to."""
    name = name or "hostile"
    metadata = {"name": name, "uid": f"{kind}-{name}", "resourceVersion": "1"}
    match kind:
        case "Pod":
            return make_pod(name)
        case "Node":
            return make_node(name, labels={"only": "hostile"})
        case "SchedulerProfile":
            return make_profile(name)
        case _:
            if kind not in CLUSTER_SCOPED:
                metadata["namespace"] = "default"
            return {"kind": kind, "metadata": metadata, **_REST.get(kind, lambda: {"spec": {}})()}


CLUSTER_SCOPED: Final = frozenset(
    {"PriorityClass", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver", "Namespace"}
)
_REST: Final[dict[str, Callable[[], JsonObject]]] = {
    "PriorityClass": lambda: {"value": 5},
    "PersistentVolume": lambda: {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "claimRef": {"namespace": "default", "name": "claim", "uid": "claim"},
        },
        "status": {"phase": "Bound"},
    },
    "PersistentVolumeClaim": lambda: {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "hostile",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Pending"},
    },
    "StorageClass": lambda: {
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    "CSIStorageCapacity": lambda: {"storageClassName": "hostile", "capacity": "1Gi"},
    "PodDisruptionBudget": lambda: {"spec": {}, "status": {"disruptionsAllowed": 1}},
}


def put(obj: JsonObject, path: Path, value: Any) -> None:
    """Set a field, and make what lies on the way to it."""
    place: Any = obj
    for step, following in pairwise(path):
        if isinstance(step, int):
            place = place[step]
        else:
            place = place.setdefault(step, [{}] if isinstance(following, int) else {})
    place[path[-1]] = value


def _entries(entry: Entry, room: int, *, mapping: bool) -> Iterator[Any]:
    number = 0
    while True:
        made = entry(number)
        room -= len(orjson.dumps(dict([made]) if mapping else made)) + (0 if mapping else 1)
        if room < 0:
            return
        yield made
        number += 1


def _pods(*path: str | int) -> Path:
    return ("spec", *path)


def _affinity(*path: str | int) -> Path:
    return ("spec", "affinity", *path)


def _in(number: int, key: str = "app") -> JsonObject:
    return {"key": key, "operator": "In", "values": [f"{number}"]}


_POD_TERM: Final[JsonObject] = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
_SPREAD: Final[JsonObject] = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {},
}
_ONE_TERM: Final = ("nodeAffinity", REQUIRED, "nodeSelectorTerms", 0)
_HARD: Final = {**_SPREAD, "whenUnsatisfiable": "DoNotSchedule"}
_OWN_CLASS: Final = ((("spec", "schedulerName"), "default-scheduler"),)


def _pod(path: Path, entry: Entry | None = None, **more: Any) -> Field:
    return Field("Pod", path, entry, **more)


POD_FIELDS: Final[dict[str, Field]] = {
    "containers": _pod(_pods("containers"), lambda n: {"name": f"c{n}"}),
    "containers with requests": _pod(
        _pods("containers"),
        lambda n: {"name": f"c{n}", "image": f"i{n}", "resources": {"requests": {"cpu": f"{n}m"}}},
    ),
    "containers with resources of their own": _pod(
        _pods("containers"), lambda n: {"name": f"c{n}", "resources": {"requests": {f"e/{n}": "1"}}}
    ),
    "init containers": _pod(_pods("initContainers"), lambda n: {"name": f"c{n}"}),
    "sidecars with resources of their own": _pod(
        _pods("initContainers"),
        lambda n: {
            "name": f"c{n}",
            "restartPolicy": "Always",
            "resources": {"requests": {f"e/{n}": "1"}},
        },
    ),
    "host ports": _pod(
        _pods("containers", 0, "ports"),
        lambda n: {"containerPort": 1, "hostPort": 1 + n % 65535, "hostIP": f"10.0.0.{n >> 16}"},
    ),
    "ports": _pod(_pods("containers", 0, "ports"), lambda n: {"containerPort": n}),
    "requests": _pod(
        _pods("containers", 0, "resources", "requests"), lambda n: (f"e/{n}", "1"), mapping=True
    ),
    "limits": _pod(
        _pods("containers", 0, "resources", "limits"), lambda n: (f"e/{n}", "1"), mapping=True
    ),
    "requests of the pod": _pod(
        _pods("resources", "requests"), lambda n: (f"hugepages-{n}Ki", "1"), mapping=True
    ),
    "requests of different amounts": _pod(
        _pods("containers", 0, "resources", "requests"), lambda n: (f"e/{n}", f"{n}"), mapping=True
    ),
    "environment": _pod(_pods("containers", 0, "env"), lambda n: {"name": f"e{n}"}),
    "restart rules": _pod(
        _pods("containers", 0, "restartPolicyRules"), lambda _: {"action": "Restart"}
    ),
    "overhead": _pod(_pods("overhead"), lambda n: (f"e/{n}", "1"), mapping=True),
    "tolerations": _pod(_pods("tolerations"), lambda n: {"key": f"{n}", "operator": "Exists"}),
    "volumes without a source that counts": _pod(
        _pods("volumes"), lambda n: {"name": f"v{n}", "emptyDir": {}}
    ),
    "claims": _pod(
        _pods("volumes"),
        lambda n: {"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}},
    ),
    "ephemeral volumes": _pod(_pods("volumes"), lambda n: {"name": f"v{n}", "ephemeral": {}}),
    "disks": _pod(
        _pods("volumes"), lambda n: {"name": f"v{n}", "gcePersistentDisk": {"pdName": f"d{n}"}}
    ),
    "monitors of a disk": _pod(
        _pods("volumes", 0, "rbd", "monitors"),
        lambda n: f"m{n}",
        spec=((_pods("volumes"), [{"name": "v", "rbd": {"pool": "p", "image": "i"}}]),),
    ),
    "inline CSI volumes": _pod(
        _pods("volumes"), lambda n: {"name": f"v{n}", "csi": {"driver": f"d{n}"}}
    ),
    "image volumes": _pod(
        _pods("volumes"), lambda n: {"name": f"v{n}", "image": {"reference": f"i{n}"}}
    ),
    "hard spread constraints": _pod(
        _pods("topologySpreadConstraints"), lambda n: {**_HARD, "topologyKey": f"k{n}"}
    ),
    "spread constraints by hostname": _pod(
        _pods("topologySpreadConstraints"),
        lambda n: {**_SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1 + n},
    ),
    "expressions of a spread constraint": _pod(
        _pods("topologySpreadConstraints", 0, "labelSelector", "matchExpressions"),
        _in,
        spec=((_pods("topologySpreadConstraints"), [{**_HARD, "labelSelector": {}}]),),
    ),
    "label keys of a spread constraint": _pod(
        _pods("topologySpreadConstraints", 0, "matchLabelKeys"),
        lambda n: f"k{n}",
        spec=((_pods("topologySpreadConstraints"), [{**_HARD}]),),
    ),
    "node affinity terms": _pod(
        _affinity("nodeAffinity", REQUIRED, "nodeSelectorTerms"),
        lambda n: {"matchExpressions": [{"key": f"{n}", "operator": "Exists"}]},
    ),
    "empty node affinity terms": _pod(
        _affinity("nodeAffinity", REQUIRED, "nodeSelectorTerms"), lambda _: {}
    ),
    "expressions of a node affinity term": _pod(
        _affinity(*_ONE_TERM, "matchExpressions"),
        lambda n: {"key": f"{n}", "operator": "DoesNotExist"},
    ),
    "comparisons of node labels": _pod(
        _affinity("nodeAffinity", REQUIRED, "nodeSelectorTerms"),
        lambda n: {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "Gt", "values": [f"{n}"]}
            ]
        },
    ),
    "values of an expression": _pod(
        _affinity(*_ONE_TERM, "matchExpressions", 0, "values"),
        lambda n: f"{n}",
        spec=(
            (
                _affinity(*_ONE_TERM[:-1]),
                [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In"}]}],
            ),
        ),
    ),
    "node names": _pod(
        _affinity(*_ONE_TERM, "matchFields", 0, "values"),
        lambda n: f"n{n}",
        spec=(
            (
                _affinity(*_ONE_TERM[:-1]),
                [{"matchFields": [{"key": "metadata.name", "operator": "In"}]}],
            ),
        ),
    ),
    "node names, a term for each": _pod(
        _affinity("nodeAffinity", REQUIRED, "nodeSelectorTerms"),
        lambda n: {
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": [f"n{n}"]}]
        },
    ),
    "preferred node affinity terms": _pod(
        _affinity("nodeAffinity", PREFERRED),
        lambda n: {
            "weight": 1,
            "preference": {"matchExpressions": [{"key": f"{n}", "operator": "Exists"}]},
        },
    ),
    "required anti-affinity with keys of their own": _pod(
        _affinity("podAntiAffinity", REQUIRED),
        lambda n: {"topologyKey": f"{n}", "labelSelector": {}},
    ),
    "required anti-affinity without selectors": _pod(
        _affinity("podAntiAffinity", REQUIRED), lambda n: {"topologyKey": f"{n}"}
    ),
    "required anti-affinity with selectors of their own": _pod(
        _affinity("podAntiAffinity", REQUIRED),
        lambda n: {"topologyKey": "a", "labelSelector": {"matchLabels": {"a": f"{n}"}}},
    ),
    "required anti-affinity that matches, by hostname": _pod(
        _affinity("podAntiAffinity", REQUIRED),
        lambda n: {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {
                "matchExpressions": [{"key": "app", "operator": "NotIn", "values": [f"{n}"]}]
            },
        },
    ),
    "required affinity with selectors of their own": _pod(
        _affinity("podAffinity", REQUIRED),
        lambda n: {"topologyKey": "a", "labelSelector": {"matchLabels": {"a": f"{n}"}}},
    ),
    "preferred affinity with keys of their own": _pod(
        _affinity("podAffinity", PREFERRED),
        lambda n: {"weight": 1, "podAffinityTerm": {"topologyKey": f"{n}", "labelSelector": {}}},
    ),
    "preferred anti-affinity, each of a weight": _pod(
        _affinity("podAntiAffinity", PREFERRED),
        lambda n: {"weight": n % 100 + 1, "podAffinityTerm": {**_POD_TERM, "namespaces": [f"{n}"]}},
    ),
    "namespaces of a term": _pod(
        _affinity("podAntiAffinity", REQUIRED, 0, "namespaces"),
        lambda n: f"{n}",
        spec=((_affinity("podAntiAffinity", REQUIRED), [{**_POD_TERM}]),),
    ),
    "namespace selector of a term": _pod(
        _affinity("podAntiAffinity", REQUIRED, 0, "namespaceSelector", "matchExpressions"),
        lambda n: {"key": f"{n}", "operator": "DoesNotExist"},
        spec=((_affinity("podAntiAffinity", REQUIRED), [{**_POD_TERM}]),),
    ),
    "namespace selectors of many terms": _pod(
        _affinity("podAntiAffinity", REQUIRED),
        lambda n: {**_POD_TERM, "namespaceSelector": {"matchLabels": {"a": f"{n}"}}},
    ),
    "expressions of a term": _pod(
        _affinity("podAntiAffinity", REQUIRED, 0, "labelSelector", "matchExpressions"),
        lambda n: {"key": f"{n}", "operator": "DoesNotExist"},
        spec=((_affinity("podAntiAffinity", REQUIRED), [{"topologyKey": "a"}]),),
    ),
    "values of a term's expression": _pod(
        _affinity("podAntiAffinity", REQUIRED, 0, "labelSelector", "matchExpressions", 0, "values"),
        lambda n: f"{n}",
        spec=(
            (
                _affinity("podAntiAffinity", REQUIRED),
                [
                    {
                        "topologyKey": "a",
                        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In"}]},
                    }
                ],
            ),
        ),
    ),
    "label keys of a term": _pod(
        _affinity("podAntiAffinity", REQUIRED, 0, "matchLabelKeys"),
        lambda n: f"{n}",
        spec=((_affinity("podAntiAffinity", REQUIRED), [{**_POD_TERM}]),),
    ),
    "nodeSelector": _pod(_pods("nodeSelector"), lambda n: (f"{n}", ""), mapping=True),
    "labels": _pod(("metadata", "labels"), lambda n: (f"{n}", ""), mapping=True),
    "annotations": _pod(("metadata", "annotations"), lambda n: (f"{n}", ""), mapping=True),
    "owners": _pod(
        ("metadata", "ownerReferences"),
        lambda n: {"apiVersion": "v1", "kind": "K", "name": f"{n}", "uid": f"{n}"},
    ),
    "finalizers": _pod(("metadata", "finalizers"), lambda n: f"e/{n}"),
    "managed fields": _pod(
        ("metadata", "managedFields"), lambda n: {"manager": f"{n}", "fieldsV1": {"f:a": {}}}
    ),
    "scheduling gates": _pod(_pods("schedulingGates"), lambda n: {"name": f"{n}"}, bindable=False),
    "resource claims": _pod(_pods("resourceClaims"), lambda n: {"name": f"{n}"}),
    "conditions": _pod(("status", "conditions"), lambda n: {"type": f"{n}", "status": "True"}),
    "container statuses": _pod(
        ("status", "containerStatuses"),
        lambda n: {
            "name": f"c{n}",
            "resources": {"requests": {"cpu": "1"}},
            "allocatedResources": {"cpu": "1"},
        },
    ),
    "text: schedulerName": _pod(_pods("schedulerName")),
    "text: nodeName": _pod(_pods("nodeName"), bindable=False),
    "text: nominatedNodeName": _pod(("status", "nominatedNodeName"), bindable=False),
    "text: priorityClassName": _pod(_pods("priorityClassName")),
    "text: name": _pod(("metadata", "name")),
    "text: namespace": _pod(("metadata", "namespace")),
    "text: image": _pod(_pods("containers", 0, "image")),
    "text: label": _pod(("metadata", "labels", "app")),
    "text: nodeSelector": _pod(_pods("nodeSelector", "app")),
    "text: topologyKey": _pod(
        _affinity("podAntiAffinity", REQUIRED, 0, "topologyKey"),
        spec=((_affinity("podAntiAffinity", REQUIRED), [{**_POD_TERM}]),),
    ),
}
"""Of a pod; each is tried pending and, where that can be, on a node."""

DIGITS: Final[dict[str, str]] = {
    "an exponent of nine digits": "1e999999999",
    "a negative exponent of nine digits": "1e-999999999",
    "300 digits": "9" * 300,
    "1 MiB of digits": "9" * (1 << 20),
    "1 MiB of digits after the point": "0." + "9" * (1 << 20),
    "an exponent of 1 MiB": "1e" + "9" * (1 << 20),
}
"""Quantities that say more than any number of a cluster."""


def _node(path: Path, entry: Entry | None = None, **more: Any) -> Field:
    return Field("Node", path, entry, **more)


NODE_FIELDS: Final[dict[str, Field]] = {
    "taints": _node(("spec", "taints"), lambda n: {"key": f"{n}", "effect": "PreferNoSchedule"}),
    "hard taints": _node(("spec", "taints"), lambda n: {"key": f"{n}", "effect": "NoSchedule"}),
    "labels": _node(("metadata", "labels"), lambda n: (f"{n}", ""), mapping=True),
    "annotations": _node(
        ("metadata", "annotations"),
        lambda n: (f"scheduler.alpha.kubernetes.io/{n}", ""),
        mapping=True,
    ),
    "images": _node(("status", "images"), lambda n: {"names": [f"{n}"], "sizeBytes": 1}),
    "names of an image": _node(
        ("status", "images", 0, "names"),
        lambda n: f"{n}",
        spec=((("status", "images"), [{"sizeBytes": 1 << 30}]),),
    ),
    "allocatable": _node(("status", "allocatable"), lambda n: (f"e/{n}", "1"), mapping=True),
    "allocatable of different amounts": _node(
        ("status", "allocatable"), lambda n: (f"e/{n}", f"{n}"), mapping=True
    ),
    "capacity": _node(("status", "capacity"), lambda n: (f"e/{n}", "1"), mapping=True),
    "conditions": _node(("status", "conditions"), lambda n: {"type": f"{n}", "status": "True"}),
    "addresses": _node(("status", "addresses"), lambda n: {"type": "Hostname", "address": f"{n}"}),
    "features": _node(("status", "declaredFeatures"), lambda n: f"F{n}"),
    "volumes attached": _node(
        ("status", "volumesAttached"), lambda n: {"name": f"{n}", "devicePath": ""}
    ),
    "managed fields": _node(
        ("metadata", "managedFields"), lambda n: {"manager": f"{n}", "fieldsV1": {"f:a": {}}}
    ),
    "text: zone": _node(("metadata", "labels", "topology.kubernetes.io/zone")),
    "text: annotation": _node(
        ("metadata", "annotations", "scheduler.alpha.kubernetes.io/preferAvoidPods")
    ),
}

_TERMS: Final = ("spec", "nodeAffinity", "required", "nodeSelectorTerms")
OTHER_FIELDS: Final[dict[str, Field]] = {
    "annotations of a PriorityClass": Field(
        "PriorityClass", ("metadata", "annotations"), lambda n: (f"{n}", ""), mapping=True
    ),
    "node affinity terms of a PersistentVolume": Field(
        "PersistentVolume",
        _TERMS,
        lambda n: {"matchExpressions": [{"key": f"{n}", "operator": "Exists"}]},
    ),
    "values of a PersistentVolume's node affinity": Field(
        "PersistentVolume",
        (*_TERMS, 0, "matchExpressions", 0, "values"),
        lambda n: f"{n}",
        spec=(
            (
                _TERMS,
                [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In"}]}],
            ),
        ),
    ),
    "labels of a PersistentVolume": Field(
        "PersistentVolume", ("metadata", "labels"), lambda n: (f"{n}", ""), mapping=True
    ),
    "zones of a PersistentVolume": Field(
        "PersistentVolume", ("metadata", "labels", "topology.kubernetes.io/zone")
    ),
    "access modes of a PersistentVolume": Field(
        "PersistentVolume", ("spec", "accessModes"), lambda n: f"{n}"
    ),
    "expressions of a claim's selector": Field(
        "PersistentVolumeClaim",
        ("spec", "selector", "matchExpressions"),
        lambda n: {"key": f"{n}", "operator": "DoesNotExist"},
    ),
    "access modes of a claim": Field(
        "PersistentVolumeClaim", ("spec", "accessModes"), lambda n: f"{n}"
    ),
    "annotations of a claim": Field(
        "PersistentVolumeClaim", ("metadata", "annotations"), lambda n: (f"{n}", ""), mapping=True
    ),
    "allowed topologies of a StorageClass": Field(
        "StorageClass",
        ("allowedTopologies",),
        lambda n: {"matchLabelExpressions": [{"key": f"{n}", "values": ["a"]}]},
    ),
    "values of an allowed topology": Field(
        "StorageClass",
        ("allowedTopologies", 0, "matchLabelExpressions", 0, "values"),
        lambda n: f"{n}",
        spec=(
            (
                ("allowedTopologies",),
                [{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone"}]}],
            ),
        ),
    ),
    "drivers of a CSINode": Field(
        "CSINode",
        ("spec", "drivers"),
        lambda n: {"name": f"{n}", "nodeID": "n0", "allocatable": {"count": 1}},
    ),
    "topology keys of a CSINode": Field(
        "CSINode",
        ("spec", "drivers", 0, "topologyKeys"),
        lambda n: f"{n}",
        spec=((("spec", "drivers"), [{"name": "csi.example.com", "nodeID": "n0"}]),),
    ),
    "expressions of a CSIStorageCapacity": Field(
        "CSIStorageCapacity",
        ("nodeTopology", "matchExpressions"),
        lambda n: {"key": f"{n}", "operator": "DoesNotExist"},
    ),
    "expressions of a PodDisruptionBudget": Field(
        "PodDisruptionBudget",
        ("spec", "selector", "matchExpressions"),
        lambda n: {"key": f"{n}", "operator": "DoesNotExist"},
    ),
    "disrupted pods of a PodDisruptionBudget": Field(
        "PodDisruptionBudget",
        ("status", "disruptedPods"),
        lambda n: (f"{n}", "2026-01-01T00:00:00Z"),
        mapping=True,
    ),
    "labels of a Namespace": Field(
        "Namespace", ("metadata", "labels"), lambda n: (f"{n}", ""), mapping=True
    ),
    "selector of a Service": Field(
        "Service", ("spec", "selector"), lambda n: (f"{n}", ""), mapping=True
    ),
    "expressions of a ReplicaSet": Field(
        "ReplicaSet",
        ("spec", "selector", "matchExpressions"),
        lambda n: {"key": f"{n}", "operator": "DoesNotExist"},
    ),
    "selector of a ReplicationController": Field(
        "ReplicationController", ("spec", "selector"), lambda n: (f"{n}", ""), mapping=True
    ),
    "plugins of a SchedulerProfile": Field(
        "SchedulerProfile", ("spec", "plugins", "filter", "enabled"), lambda n: {"name": f"{n}"}
    ),
    "disabled plugins of a SchedulerProfile": Field(
        "SchedulerProfile", ("spec", "plugins", "score", "disabled"), lambda n: {"name": f"{n}"}
    ),
    "plugin arguments of a SchedulerProfile": Field(
        "SchedulerProfile", ("spec", "pluginConfig"), lambda n: {"name": f"{n}", "args": {}}
    ),
    "default constraints of a SchedulerProfile": Field(
        "SchedulerProfile",
        ("spec", "pluginConfig", 0, "args", "defaultConstraints"),
        lambda n: {
            "maxSkew": 1,
            "topologyKey": f"{n}",
            "whenUnsatisfiable": "ScheduleAnyway",
        },
        spec=(
            (
                ("spec", "pluginConfig"),
                [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}],
            ),
        ),
    ),
    "ignored resources of a SchedulerProfile": Field(
        "SchedulerProfile",
        ("spec", "pluginConfig", 0, "args", "ignoredResources"),
        lambda n: f"e/{n}",
        spec=((("spec", "pluginConfig"), [{"name": "NodeResourcesFit", "args": {}}]),),
    ),
    "extenders of a SchedulerProfile": Field(
        "SchedulerProfile",
        ("spec", "extenders"),
        lambda n: {"urlPrefix": f"http://127.0.0.1:1/{n}", "weight": 1},
    ),
}
