"""What the controllers of workloads share: their queue, ownership, pods from templates, events.

Base class of ReplicaSets, Deployments, StatefulSets, DaemonSets and Jobs. Invariant: a controller
creates only objects that name the workload as their controller, and deletes no others.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import orjson
from typing_extensions import override

from stellwerk_cluster.apimachinery.names import NAME_ALPHABET
from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    controller_of,
    is_terminating,
    key_of,
    labels_of,
    micro_timestamp,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import ADDED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api

REVISION_LABEL: Final = "controller-revision-hash"
_HASH_LENGTH: Final = 10
MOST_CREATED_AT_ONCE: Final = 200
"""Pods created in one go, so that a large workload does not keep the event loop from other work."""


class WorkloadController(Worker):
    """Follows one kind of workload and its children; a subclass says in `sync` what to write."""

    group = "apps"
    plural = ""
    children: tuple[str, ...] = ("pods",)
    """Resources whose changes concern the workload that controls them."""

    def __init__(self, api: Api, index: Index) -> None:
        """Follow the workloads and their children in the store of `api`."""
        self.api = api
        self.index = index
        self.queue = WorkQueue(api.clock)
        self.kind = api.kinds.resource(self.plural, self.group)
        self.pods = api.kinds.resource("pods")
        collection = api.store.collection(self.kind.storage_name)
        collection.listeners.append(self._on_workload)
        for child in self.children:
            api.store.collection(child).listeners.append(self._on_child)
        for entry in collection.entries():
            self._on_workload(StoreEvent(ADDED, entry, None))

    def _on_workload(self, event: StoreEvent) -> None:
        self.queue.add(event.entry.key)

    def _on_child(self, event: StoreEvent) -> None:
        owner = controller_of(event.entry.obj)
        if owner is not None and owner["kind"] == self.kind.kind:
            self.queue.add((event.entry.key[0], owner["name"]))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Bring one workload closer to what it should be."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        workload = self.api.find(self.kind.storage_name, *key)
        if workload is not None and not is_terminating(workload):
            self.sync(workload)

    def sync(self, workload: JsonObject) -> None:
        """Create and delete what is missing and too much, and write the status."""
        raise NotImplementedError

    # What subclasses use.

    def owned_pods(self, workload: JsonObject) -> list[JsonObject]:
        """The pods that the workload controls."""
        return self.index.owned(workload["metadata"]["uid"], "pods")

    def owner_reference(self, workload: JsonObject) -> JsonObject:
        """The reference by which a child names the workload as its controller."""
        return {
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "name": workload["metadata"]["name"],
            "uid": workload["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }

    def pod_from_template(
        self, workload: JsonObject, *, labels: JsonObject | None = None, **names: str
    ) -> JsonObject:
        """A pod of the workload with more `labels`; `names` is its name or generateName."""
        template = workload["spec"]["template"]
        inherited = template.get("metadata") or EMPTY
        own_labels = {**(inherited.get("labels") or {}), **(labels or {})}
        return {
            "metadata": {
                **names,
                "labels": own_labels,
                "annotations": dict(inherited.get("annotations") or {}),
                "ownerReferences": [self.owner_reference(workload)],
            },
            "spec": dict(template["spec"]),
        }

    def create_pod(self, workload: JsonObject, pod: JsonObject) -> None:
        """Create a pod in the namespace of the workload."""
        self.api.create(self.pods, workload["metadata"]["namespace"], pod)

    def delete_pod(self, pod: JsonObject) -> None:
        """Delete a pod, with its grace period."""
        delete(self.api, self.pods, key_of(pod), DeleteOptions(uid=pod["metadata"]["uid"]))

    def write_status(self, workload: JsonObject, status: JsonObject) -> None:
        """Replace the status of the workload, keeping its conditions unless new ones are given."""
        kept = {
            name: (workload.get("status") or EMPTY).get(name)
            for name in ("conditions", "collisionCount")
        }
        merged = {**{name: value for name, value in kept.items() if value is not None}, **status}
        key: Key = key_of(workload)
        self.api.modify(
            self.kind,
            key,
            lambda obj: with_value(obj, ("status",), merged),
            owned_under="status",
        )

    def report(self, workload: JsonObject, reason: str, message: str) -> None:
        """Write an event about the workload."""
        metadata = workload["metadata"]
        now = self.api.now()
        stamp = timestamp(now)
        event = {
            "metadata": {
                "name": f"{metadata['name']}.{now.timestamp():.6f}.{self.api.store.revision}"
            },
            "involvedObject": {
                "kind": self.kind.kind,
                "apiVersion": self.kind.api_version,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "reason": reason,
            "message": message,
            "type": "Normal",
            "source": {"component": f"{self.kind.kind.lower()}-controller"},
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
            "eventTime": micro_timestamp(now),
            "action": reason,
            "reportingComponent": f"{self.kind.kind.lower()}-controller",
            "reportingInstance": "embedded",
        }
        self.api.create(self.api.kinds.resource("events"), metadata["namespace"], event)


def is_active(pod: JsonObject) -> bool:
    """Whether a pod counts: neither finished nor terminating."""
    return not is_terminating(pod) and not is_finished(pod)


def deletion_rank(pod: JsonObject) -> tuple[bool, bool, bool, str]:
    """Sorts pods so that those to be deleted first come first.

    Unbound, pending, not ready, youngest.
    """
    created: str = pod["metadata"]["creationTimestamp"]
    inverted = "".join(chr(0x10FFFF - ord(letter)) for letter in created)
    return (
        bool(pod["spec"].get("nodeName")),
        pod["status"].get("phase") == "Running",
        is_ready(pod),
        inverted,
    )


def ready_count(pods: list[JsonObject]) -> int:
    """How many of the pods are ready."""
    return sum(1 for pod in pods if is_ready(pod))


def template_hash(template: JsonObject) -> str:
    """A short name for the content of a template, the same for equal templates."""
    digest = hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).digest()
    return "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in digest[:_HASH_LENGTH])


def absolute(value: int | str, total: int, *, round_up: bool) -> int:
    """A count, or a percentage of the total as a count."""
    if isinstance(value, int):
        return value
    share = int(value.rstrip("%")) * total
    return -(-share // 100) if round_up else share // 100


def has_labels(obj: JsonObject, wanted: JsonObject) -> bool:
    """Whether the object carries all these labels."""
    labels = labels_of(obj)
    return all(labels.get(key) == value for key, value in wanted.items())
