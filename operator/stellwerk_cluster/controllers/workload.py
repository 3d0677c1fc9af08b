"""The base of the workload controllers: queue, ownership, pods from templates, deletion order.

Base class of ReplicaSets, Deployments, StatefulSets, DaemonSets and Jobs. Invariant: a controller
creates only objects that name the workload as their controller, and deletes no others. Of too many
pods, those go first that kube-controller-manager's ActivePodsWithRanks (v1.36) puts first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson
from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.names import NAME_ALPHABET
from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    controller_of,
    is_terminating,
    key_of,
    labels_of,
    parse_timestamp,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.controllers.controller_ref_manager import ControllerRefManager
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.registry.event_recorder import NORMAL, WARNING, StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue
from stellwerk_kube.deletion_cost import deletion_cost

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable
    from datetime import datetime

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

REVISION_LABEL: Final = "controller-revision-hash"
_HASH_CHARACTERS: Final = 10
"""Characters of the hash of a pod template in names and labels."""
MAX_CREATED_AT_ONCE: Final = 200
"""Pods created in one go, so that a large workload does not keep the event loop from other work."""
_MAX_CHILDREN_WITHOUT_PAUSE: Final = 100
"""Children of a workload that is looked at after each change, without a pause."""
_PAUSE_SECONDS_PER_CHILD: Final = 0.001
"""Pause for each child between two looks at a workload with many."""
_MAX_PAUSE_SECONDS: Final = 5.0
"""Longest of these pauses."""


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
        self._writes_status = False
        self.kind = api.kinds.resource(self.plural, self.group)
        self.pods = api.kinds.resource("pods")
        self.events = StoreEventRecorder(api, f"{self.kind.kind.lower()}-controller")
        self.adoptions = {
            child: ControllerRefManager(api, index, self.kind, _kind_stored_as(api, child))
            for child in self.children
        }
        collection = api.store.collection(self.kind.storage_name)
        collection.listeners.append(self._on_workload)
        for child in self.children:
            api.store.collection(child).listeners.append(partial(self._on_child, child))
        for entry in collection.entries():
            self._on_workload(StoreEvent(ADDED, entry, None))

    def _on_workload(self, event: StoreEvent) -> None:
        if self._writes_status and event.type != DELETED:
            # The controller's own status is no reason to sync: work that fails would never wait.
            # A status that another client writes is one, and sync corrects it.
            return
        for adoption in self.adoptions.values():
            adoption.scan(event.entry.key)
        self.queue.add(event.entry.key)

    def _on_child(self, child: str, event: StoreEvent) -> None:
        for obj in (event.entry.obj, event.previous.obj if event.previous else EMPTY):
            owner = controller_of(obj)
            if owner is not None and owner["kind"] == self.kind.kind:
                self._child_changed((event.entry.key[0], owner["name"]), owner["uid"])
        for key in self.adoptions[child].candidates(event):
            self.queue.add(key)

    def _child_changed(self, key: Key, uid: str) -> None:
        """Look at a workload: at once, or where it has many children, at most every so often.

        A look goes through all of them: one for each change of each would take their square.
        """
        children = self.index.count(uid)
        if children <= _MAX_CHILDREN_WITHOUT_PAUSE:
            self.queue.add(key)
        else:
            self.queue.add_within(key, min(children * _PAUSE_SECONDS_PER_CHILD, _MAX_PAUSE_SECONDS))

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

    def claimed(self, workload: JsonObject, child: str) -> list[JsonObject]:
        """The children that the workload controls, after adoption and release."""
        return self.adoptions[child].claim(workload, self.owner_reference(workload))

    def owned_pods(self, workload: JsonObject) -> list[JsonObject]:
        """The pods that the workload controls, after adoption and release."""
        return self.claimed(workload, "pods")

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

    def create_pod(self, workload: JsonObject, pod: JsonObject) -> JsonObject:
        """Create a pod in the namespace of the workload, and say so in an event.

        Raises:
            StatusError: it is refused, by a quota for example; the event says why.
        """
        try:
            created = self.api.create(self.pods, workload["metadata"]["namespace"], pod).obj
        except StatusError as error:
            self.report(workload, "FailedCreate", f"Error creating: {error.message}", WARNING)
            raise
        name = created["metadata"]["name"]
        self.report(workload, "SuccessfulCreate", f"Created pod: {name}")
        return created

    def delete_pod(self, workload: JsonObject, pod: JsonObject) -> None:
        """Delete a pod of the workload, with its grace period, and say so in an event."""
        delete(self.api, self.pods, key_of(pod), DeleteOptions(uid=pod["metadata"]["uid"]))
        self.report(workload, "SuccessfulDelete", f"Deleted pod: {pod['metadata']['name']}")

    def write_status(self, workload: JsonObject, status: JsonObject) -> None:
        """Replace the status of the workload, keeping its conditions unless new ones are given.

        A value of None leaves the field out.
        """
        kept = {
            name: (workload.get("status") or EMPTY).get(name)
            for name in ("conditions", "collisionCount")
        }
        merged = {name: value for name, value in {**kept, **status}.items() if value is not None}
        key: Key = key_of(workload)
        self._writes_status = True
        try:
            self.api.modify(
                self.kind,
                key,
                lambda obj: with_value(obj, ("status",), merged),
                owned_under="status",
            )
        finally:
            self._writes_status = False

    def report(self, workload: JsonObject, reason: str, message: str, type_: str = NORMAL) -> None:
        """Write an event about the workload."""
        self.events.record(workload, reason, message, type_)


def is_active(pod: JsonObject) -> bool:
    """Whether a pod counts: neither finished nor terminating."""
    return not is_terminating(pod) and not is_finished(pod)


def ready_count(pods: list[JsonObject]) -> int:
    """The number of ready pods."""
    return sum(1 for pod in pods if is_ready(pod))


def seconds_until_available(pod: JsonObject, min_ready_seconds: int, now: datetime) -> float | None:
    """0 if a pod counts as available, the seconds until it will; None: it is not ready."""
    for condition in pod["status"].get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            if not min_ready_seconds or is_terminating(pod):
                return 0.0
            since = condition.get("lastTransitionTime")
            if not since:
                return None  # another client wrote the condition: since when is not known
            passed = (now - parse_timestamp(since)).total_seconds()
            return max(0.0, min_ready_seconds - passed)
    return None


def stamped_conditions(
    before: list[JsonObject], wanted: list[JsonObject], now: datetime
) -> list[JsonObject]:
    """The conditions with the time of their last transition; those that stayed keep theirs."""
    old = {each["type"]: each for each in before}
    stamped = []
    for condition in wanted:
        same = old.get(condition["type"], EMPTY)
        stays = same.get("status") == condition["status"]
        # Another client may have written the condition, without a time.
        at = same.get("lastTransitionTime") if stays else None
        stamped.append({**condition, "lastTransitionTime": at or timestamp(now)})
    return stamped


def merged_conditions(
    before: list[JsonObject], wanted: list[JsonObject], own: Collection[str]
) -> list[JsonObject]:
    """The wanted conditions among those of others, each type at the place that it has.

    `own` names the types that the controller writes: such a condition goes if it is not wanted.
    """
    new = {each["type"]: each for each in wanted}
    kept = [
        new.pop(each["type"], each)
        for each in before
        if each["type"] in new or each["type"] not in own
    ]
    return [*kept, *new.values()]


def _kind_stored_as(api: Api, storage_name: str) -> ResourceKind:
    plural, _, group = storage_name.partition(".")
    return api.kinds.resource(plural, group)


def template_hash(template: JsonObject) -> str:
    """A short name for the content of a template, the same for equal templates."""
    digest = hashlib.sha256(orjson.dumps(template, option=orjson.OPT_SORT_KEYS)).digest()
    return "".join(NAME_ALPHABET[byte % len(NAME_ALPHABET)] for byte in digest[:_HASH_CHARACTERS])


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


def by_deletion(pods: Iterable[JsonObject], now: datetime) -> list[JsonObject]:
    """Pods in the order in which a workload that has too many gives them up.

    Unbound, pending and pods that are not ready first; then those of a lower deletion cost, on
    nodes with more of them, ready for less time, restarted more often, and the youngest. Times
    are compared by their magnitude (powers of two of seconds), as `LogarithmicScaleDown` does.
    """
    all_of_them = list(pods)
    on_node = Counter(pod["spec"].get("nodeName", "") for pod in all_of_them)

    def rank(pod: JsonObject) -> tuple[bool | int | str, ...]:
        ready = [
            each.get("lastTransitionTime")
            for each in pod["status"].get("conditions") or ()
            if each["type"] == "Ready" and each["status"] == "True"
        ]
        statuses = pod["status"].get("containerStatuses") or ()
        return (
            bool(pod["spec"].get("nodeName")),
            pod["status"].get("phase") == "Running",
            bool(ready),
            deletion_cost(pod["metadata"].get("annotations")),
            -on_node[pod["spec"].get("nodeName", "")],
            _magnitude(ready[0], now) if ready and ready[0] else 0,
            -max((each.get("restartCount", 0) for each in statuses), default=0),
            _magnitude(pod["metadata"]["creationTimestamp"], now),
            pod["metadata"]["uid"],
        )

    return sorted(all_of_them, key=rank)


def _magnitude(stamp: str, now: datetime) -> int:
    """The time that has passed, as a power of two of seconds."""
    return int((now - parse_timestamp(stamp)).total_seconds()).bit_length()
