"""The workloads that schedulers are measured with: scheduler_perf's nodes and pods.

`stellwerk bench` creates them in a cluster, the project's own benchmarks in one or in process: 4
CPU, 32Gi and 110 pods a node, three zones, 100m CPU and 500Mi a pod. Invariant: an object depends
on its workload and its number alone, so that two schedulers are given the same.
"""

import random  # noqa: TID251  (seeded by the number of a pod: the same pods in every run)
from typing import Final

from stellwerk_kube.json_values import JsonObject

CONSTRAINED: Final = ("spread", "prefspread", "anti", "aff", "prefanti")
KINDS: Final = ("basic", *CONSTRAINED, "zipf", "unique")
"""Workloads measured as decisions; `preempt` and `low` need an API server around them."""
ZIPF_SPECS: Final = 300
"""Different specs of the workload `zipf`: the templates of a large cluster."""
LOW_PODS_PER_NODE: Final = 4
"""Low pods that fill a node, for `preempt`."""
ONE_A_NODE: Final = frozenset({"anti", "preempt"})
"""A node takes one pod of these and no more."""
SCHEDULER_NAME: Final = "stellwerk"
_ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"
_CAPACITY: Final = {"pods": "110", "cpu": "4", "memory": "32Gi"}
_CPU: Final = {"preempt": "3", "low": "900m"}
"""One that preempts needs more than what the low pods leave."""
HIGH_PRIORITY: Final[JsonObject] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "bench-high"},
    "value": 10,
}


def node_name(index: int, prefix: str = "node") -> str:
    """The name of node number `index`."""
    return f"{prefix}-{index:05d}"


def posted_node(index: int, prefix: str = "node") -> JsonObject:
    """Node number `index` as it is created."""
    name = node_name(index, prefix)
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


def _zipf(index: int) -> int:
    return min(ZIPF_SPECS - 1, int(random.Random(index).paretovariate(0.6)) - 1)


def _constraint(kind: str, labels: dict[str, str]) -> JsonObject:
    """The term that makes a kind: an affinity or a spread constraint among pods of one color."""
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
