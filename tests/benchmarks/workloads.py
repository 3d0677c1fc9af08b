"""The workloads of the measuring rod (scheduler_perf's nodes and pods), for every benchmark here.

4 CPU, 32Gi and 110 pods a node, three zones, 100m CPU and 500Mi a pod. `posted_*` make what a user
creates at an API server, `make_*` what a scheduler then sees, for benchmarks in process.
"""

import random
from typing import Final

from stellwerk.models.json_values import JsonObject

CONSTRAINED: Final = ("spread", "prefspread", "anti", "aff", "prefanti")
KINDS: Final = ("basic", *CONSTRAINED, "zipf", "unique")
"""What is measured as decisions; `preempt` and `low` need an API server around them."""
ZIPF_SPECS: Final = 300
SCHEDULER_NAME: Final = "stellwerk"
_ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"
_CAPACITY: Final = {"pods": "110", "cpu": "4", "memory": "32Gi"}
_CPU: Final = {"preempt": "3", "low": "900m"}
"""Four low pods fill a node; one that preempts needs more than what they leave."""
NAMESPACE_PODS: Final = 10_000
"""So many pods are in each namespace."""
_OWNED: Final = 10
"""Pods of one owner."""
HIGH_PRIORITY: Final[JsonObject] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "bench-high"},
    "value": 10,
}


def node_name(index: int) -> str:
    """The name of node number `index`."""
    return f"node-{index:05d}"


def posted_node(index: int) -> JsonObject:
    """Node number `index` as it is created."""
    name = node_name(index)
    labels = {_HOSTNAME: name, _ZONE: f"zone{index % 3 + 1}", "topology.kubernetes.io/region": "r1"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": dict(_CAPACITY),
            "allocatable": dict(_CAPACITY),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def posted_pod(
    kind: str, index: int, *, scheduler_name: str = SCHEDULER_NAME, prefix: str = "pod"
) -> JsonObject:
    """Pod number `index` of a workload as it is created, named `prefix` and that number."""
    requests = {"cpu": _CPU.get(kind, "100m"), "memory": "500Mi"}
    labels = {"type": kind}
    if kind in {"zipf", "unique"}:
        template = index if kind == "unique" else _zipf(index)
        labels |= {"app": f"app-{template}", "tier": f"tier-{template % 7}"}
        requests = {"cpu": f"{50 + template % 97}m", "memory": f"{200 + template % 193}Mi"}
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10.1",
        "ports": [{"containerPort": 80}],
        "resources": {"requests": requests, "limits": requests},
    }
    spec: JsonObject = {
        "schedulerName": scheduler_name,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        **_constraint(kind, labels),
    }
    if kind == "preempt":
        spec["priorityClassName"] = HIGH_PRIORITY["metadata"]["name"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{prefix}-{index:06d}", "namespace": "default", "labels": labels},
        "spec": spec,
    }


def on_node(pod: JsonObject, name: str) -> JsonObject:
    """The pod, bound to a node from its creation on."""
    pod["spec"]["nodeName"] = name
    return pod


def make_node(index: int) -> JsonObject:
    """Node number `index` as a scheduler sees it."""
    node = posted_node(index)
    node["metadata"]["uid"] = f"uid-{node_name(index)}"
    node["spec"] = {}
    return node


def make_pod(kind: str, index: int, bound_to: str | None = None) -> JsonObject:
    """Pod number `index` of a workload as a scheduler sees it; `bound_to` names its node."""
    pod = posted_pod(kind, index, prefix="init" if bound_to else kind)
    if bound_to is not None:
        on_node(pod, bound_to)
    metadata = pod["metadata"]
    metadata["uid"] = f"uid-{metadata['name']}"
    metadata["resourceVersion"] = str(index + 1)
    pod["spec"]["priority"] = 0
    pod["status"] = {"phase": "Pending"}
    return pod


def namespace(index: int) -> str:
    """The namespace of bound pod number `index`."""
    return f"team-{index // NAMESPACE_PODS:03}"


def listed_node(index: int) -> JsonObject:
    """Node number `index` as a list has it."""
    node = posted_node(index)
    node["metadata"] |= {
        "uid": f"0e6c2a2e-0001-4000-8000-{index:012d}",
        "resourceVersion": str(1000 + index),
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    node["status"]["images"] = [
        {"names": [f"registry.example/team/web-{number}:1.2.3"], "sizeBytes": 10_000_000 + number}
        for number in range(4)
    ]
    return node


def listed_pod(index: int, nodes: int, kind: str = "basic") -> JsonObject:
    """Bound pod number `index` as a list has it: it runs, and a ReplicaSet owns it."""
    pod = posted_pod(kind, index, prefix="init")
    owner = index // _OWNED
    pod["metadata"] |= {
        "namespace": namespace(index),
        "uid": f"0e6c2a2e-0002-4000-8000-{index:012d}",
        "resourceVersion": str(1_000_000 + index),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"web-{owner}",
                "uid": f"0e6c2a2e-0003-4000-8000-{owner:012d}",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    pod["spec"] |= {"nodeName": node_name(index % nodes), "priority": 0}
    pod["status"] = {
        "phase": "Running",
        "qosClass": "Guaranteed",
        "startTime": f"2026-01-01T{index // 3600 % 24:02}:{index // 60 % 60:02}:{index % 60:02}Z",
        "conditions": [
            {"type": type_, "status": "True"}
            for type_ in ("PodReadyToStartContainers", "Initialized", "Ready", "PodScheduled")
        ],
    }
    return pod


def _zipf(index: int) -> int:
    return min(ZIPF_SPECS - 1, int(random.Random(index).paretovariate(0.6)) - 1)


def _constraint(kind: str, labels: dict[str, str]) -> JsonObject:
    """What makes a kind: an affinity or a spread constraint among pods of one color."""
    if kind not in CONSTRAINED:
        return {}
    labels["color"] = "blue" if kind == "aff" else "green"
    selector = {"matchLabels": {"color": labels["color"]}}
    by_host = {"labelSelector": selector, "topologyKey": _HOSTNAME}
    by_zone = {"labelSelector": selector, "topologyKey": _ZONE}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    match kind:
        case "anti":
            return {"affinity": {"podAntiAffinity": {required: [by_host]}}}
        case "aff":
            return {"affinity": {"podAffinity": {required: [by_zone]}}}
        case "prefanti":
            terms = [{"weight": 1, "podAffinityTerm": by_host}]
            preferred = "preferredDuringSchedulingIgnoredDuringExecution"
            return {"affinity": {"podAntiAffinity": {preferred: terms}}}
        case _:
            when = "DoNotSchedule" if kind == "spread" else "ScheduleAnyway"
            constraint = {"maxSkew": 5, "whenUnsatisfiable": when, **by_zone}
            return {"topologySpreadConstraints": [constraint]}
