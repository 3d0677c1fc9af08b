"""The workloads of the measuring rod (scheduler_perf's nodes and pods), for benchmarks in process.

Same shapes as the drain benchmark uses against an API server: 4 CPU, 32Gi and 110 pods a node,
three zones, 100m CPU and 500Mi a pod.
"""

import random
from typing import Any, Final

JsonObject = dict[str, Any]

KINDS: Final = ("basic", "spread", "prefspread", "anti", "aff", "prefanti", "zipf", "unique")
ZIPF_SPECS: Final = 300
_ZONE: Final = "topology.kubernetes.io/zone"
_HOSTNAME: Final = "kubernetes.io/hostname"


def make_node(index: int) -> JsonObject:
    """Node number `index`."""
    name = f"node-{index:05d}"
    labels = {_HOSTNAME: name, _ZONE: f"zone{index % 3 + 1}", "topology.kubernetes.io/region": "r1"}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": {},
        "status": {"allocatable": {"pods": "110", "cpu": "4", "memory": "32Gi"}},
    }


def make_pod(kind: str, index: int, node_name: str | None = None) -> JsonObject:
    """Pod number `index` of a workload; `node_name` binds it."""
    requests = {"cpu": "100m", "memory": "500Mi"}
    labels = {"type": kind}
    if kind in {"zipf", "unique"}:
        template = index if kind == "unique" else _zipf(index)
        labels |= {"app": f"app-{template}", "tier": f"tier-{template % 7}"}
        requests = {"cpu": f"{50 + template % 97}m", "memory": f"{200 + template % 193}Mi"}
    spec: JsonObject = {
        "schedulerName": "stellwerk",
        "priority": 0,
        "containers": [
            {
                "name": "pause",
                "image": "registry.k8s.io/pause:3.10.1",
                "ports": [{"containerPort": 80}],
                "resources": {"requests": requests, "limits": requests},
            }
        ],
        **_constraint(kind, labels),
    }
    if node_name is not None:
        spec["nodeName"] = node_name
    name = f"{'init' if node_name else kind}-{index:06d}"
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels},
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def _zipf(index: int) -> int:
    return min(ZIPF_SPECS - 1, int(random.Random(index).paretovariate(0.6)) - 1)


def _constraint(kind: str, labels: dict[str, str]) -> JsonObject:
    """What makes a kind: an affinity or a spread constraint among pods of one color."""
    if kind not in {"anti", "aff", "spread", "prefspread", "prefanti"}:
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
