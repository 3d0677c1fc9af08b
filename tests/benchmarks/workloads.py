"""The nodes and pods of `stellwerk_simulation.workloads` as a scheduler sees them, in process."""

from typing import Final

from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import node_name, on_node, posted_node, posted_pod

NAMESPACE_PODS: Final = 10_000
"""So many pods are in each namespace."""
_OWNED: Final = 10
"""Pods of one owner."""


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
