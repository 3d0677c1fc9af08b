"""Nodes, pods and small clusters for tests, in the API's shape.

`make_node` and `make_pod` return JSON objects as a watch delivers them; `make_cache` parses them as
the event handlers would.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node


def make_node(
    name: str,
    *,
    cpu: str = "4",
    memory: str = "32Gi",
    pods: str = "110",
    allocatable: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    unschedulable: bool = False,
    images: Iterable[Mapping[str, Any]] = (),
    zone: str | None = None,
) -> JsonObject:
    """A v1.Node with a hostname label."""
    all_labels = {"kubernetes.io/hostname": name, **(labels or {})}
    if zone is not None:
        all_labels["topology.kubernetes.io/zone"] = zone
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "labels": all_labels},
        "spec": {"taints": list(taints), "unschedulable": unschedulable},
        "status": {
            "allocatable": {"cpu": cpu, "memory": memory, "pods": pods, **(allocatable or {})},
            "images": list(images),
        },
    }


def make_pod(
    name: str,
    *,
    namespace: str = "default",
    cpu: str | None = None,
    memory: str | None = None,
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    node_name: str | None = None,
    nominated_node_name: str | None = None,
    priority: int | None = None,
    uid: str | None = None,
    scheduler_name: str = "default-scheduler",
    **spec: Any,
) -> JsonObject:
    """A v1.Pod with one container; further keywords are fields of the spec, in the API's names."""
    wanted = dict(requests or {})
    if cpu is not None:
        wanted["cpu"] = cpu
    if memory is not None:
        wanted["memory"] = memory
    container = {
        "name": "main",
        "image": "registry.example/app:1",
        "resources": {"requests": wanted},
    }
    # The API wants a limit for what is not overcommitted: extended resources.
    extended = {name: amount for name, amount in wanted.items() if "/" in name}
    if extended:
        container["resources"] = {"limits": extended, "requests": wanted}
    pod: JsonObject = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{namespace}-{name}",
            "labels": dict(labels or {}),
        },
        "spec": {"schedulerName": scheduler_name, "containers": [container], **spec},
        "status": {"phase": "Pending"},
    }
    if node_name is not None:
        pod["spec"]["nodeName"] = node_name
    if priority is not None:
        pod["spec"]["priority"] = priority
    if nominated_node_name is not None:
        pod["status"]["nominatedNodeName"] = nominated_node_name
    return pod


def owned(pod: JsonObject, name: str = "web", kind: str = "ReplicaSet") -> JsonObject:
    """The pod as a controller makes it."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name, "controller": True}
    return {**pod, "metadata": {**pod["metadata"], "ownerReferences": [owner]}}


def pod_info(name: str, **fields: Any) -> PodInfo:
    """`make_pod`, parsed."""
    return parse_pod(make_pod(name, **fields))


def make_cache(nodes: Iterable[JsonObject] = (), pods: Iterable[JsonObject] = ()) -> Cache:
    """A cache with these nodes and bound pods, its snapshot written."""
    cache = Cache()
    for node in nodes:
        cache.set_node(parse_node(node))
    for pod in pods:
        cache.set_pod(parse_pod(pod))
    cache.update_snapshot()
    return cache


def make_large_cache(nodes: int, pods: int) -> Cache:
    """A cache of nodes in three zones and bound pods of 300 specs, one in ten with affinity."""
    cache = make_cache(make_node(f"n{index}", zone=f"z{index % 3}") for index in range(nodes))
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    anti = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    kinds = [
        pod_info(
            "p",
            cpu="100m",
            labels={"app": f"app-{kind}"},
            **({"affinity": {"podAntiAffinity": anti}} if kind % 10 == 0 else {}),
        )
        for kind in range(300)
    ]
    for index in range(pods):
        pod = kinds[index % 300].with_node(f"n{index % nodes}")
        pod.uid = pod.name = f"p{index}"
        cache.set_pod(pod)
    cache.update_snapshot()
    return cache
