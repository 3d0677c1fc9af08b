"""The metrics API of hollow nodes and pods: what `kubectl top` shows.

`cluster.EmbeddedCluster` serves it as metrics.k8s.io. Invariant: it shows what node-pressure
eviction counts, of nodes that are heard of and of pods that run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stellwerk_cluster.apimachinery.kinds import ResourceKind
from stellwerk_cluster.apimachinery.objects import labels_of, meta, timestamp
from stellwerk_cluster.hollow import pod_status
from stellwerk_cluster.hollow.lifecycle import usage_at
from stellwerk_cluster.hollow.machine import machine_of
from stellwerk_cluster.hollow.node_usage import usage_of_node

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.hollow.lifecycle import Lifecycles
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_READ: Final = ("get", "list")
_KIND: Final[dict[str, Any]] = {"group": "metrics.k8s.io", "version": "v1beta1", "verbs": _READ}
NODE_METRICS: Final = ResourceKind(
    plural="nodes", kind="NodeMetrics", namespaced=False, singular="nodes", **_KIND
)
POD_METRICS: Final = ResourceKind(plural="pods", kind="PodMetrics", singular="pods", **_KIND)
_WINDOW: Final = "10s"
_KIBI: Final = 1024


class PodMetrics:
    """The usage of the containers of running pods; it is shared out evenly among them."""

    def __init__(self, api: Api, lifecycles: Lifecycles) -> None:
        """Look at the pods in the store of `api`, which live as `lifecycles` say."""
        self._api = api
        self._lifecycles = lifecycles

    def one(self, key: Key) -> JsonObject | None:
        """The metrics of one pod; None: it does not run, or its node is not heard of."""
        pod = self._api.find("pods", *key)
        return self._measured(pod) if pod is not None and self._is_heard_of(pod) else None

    def all(self, namespace: str | None) -> Iterable[JsonObject]:
        """The metrics of the pods of a namespace, or (None) of all."""
        return (
            self._measured(pod)
            for pod in self._api.all("pods", namespace)
            if self._is_heard_of(pod)
        )

    def used(self, pod: JsonObject) -> Mapping[str, int]:
        """The usage of a pod: cpu in millicores, memory in bytes."""
        return usage_at(self._lifecycles.of(pod), self._api.now())

    def _is_heard_of(self, pod: JsonObject) -> bool:
        node = self._api.find("nodes", "", pod["spec"].get("nodeName", ""))
        return node is not None and not machine_of(node) and pod_status.is_running(pod)

    def _measured(self, pod: JsonObject) -> JsonObject:
        names = [each["name"] for each in pod["spec"]["containers"]]
        used, count = self.used(pod), len(names)
        containers = [
            {
                "name": name,
                "usage": _usage(
                    {key: (amount + count - 1 - place) // count for key, amount in used.items()}
                ),
            }
            for place, name in enumerate(names)
        ]
        now = timestamp(self._api.now())
        return _metrics(POD_METRICS, pod, now, {"containers": containers})


class NodeMetrics:
    """The usage of a node: of its system and the pods on it."""

    def __init__(self, api: Api, pods: PodMetrics) -> None:
        """Look at the nodes in the store of `api`, and at what `pods` says of their pods."""
        self._api = api
        self._pods = pods

    def one(self, key: Key) -> JsonObject | None:
        """The metrics of one node; None: it is not heard of."""
        node = self._api.find("nodes", *key)
        return None if node is None or machine_of(node) else self._measured(node)

    def all(self, namespace: str | None) -> Iterable[JsonObject]:  # noqa: ARG002  (nodes have none)
        """The metrics of all nodes that are heard of."""
        return (self._measured(each) for each in self._api.all("nodes") if not machine_of(each))

    def _measured(self, node: JsonObject) -> JsonObject:
        system = usage_of_node(node).system
        used = {name: system.get(name, 0) for name in ("cpu", "memory")}
        for entry in self._api.store.collection("pods").on_node(meta(node)["name"]):
            if pod_status.is_running(entry.obj):
                of_pod = self._pods.used(entry.obj)
                used = {name: amount + of_pod.get(name, 0) for name, amount in used.items()}
        now = timestamp(self._api.now())
        return _metrics(NODE_METRICS, node, now, {"usage": _usage(used)})


def _usage(used: Mapping[str, int]) -> JsonObject:
    """The amounts as the metrics API writes them."""
    return {"cpu": f"{used.get('cpu', 0)}m", "memory": f"{used.get('memory', 0) // _KIBI}Ki"}


def _metrics(kind: ResourceKind, obj: JsonObject, now: str, content: JsonObject) -> JsonObject:
    metadata: JsonObject = {"name": meta(obj)["name"], "creationTimestamp": now}
    if kind.namespaced:
        metadata["namespace"] = meta(obj)["namespace"]
    if labels_of(obj):
        metadata["labels"] = dict(labels_of(obj))
    return {
        "kind": kind.kind,
        "apiVersion": kind.api_version,
        "metadata": metadata,
        "timestamp": now,
        "window": _WINDOW,
        **content,
    }
