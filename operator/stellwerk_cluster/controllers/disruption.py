"""The status of PodDisruptionBudgets: how many pods are healthy, how many must be, how many may go.

Eviction and preemption read what this controller writes. Invariant: a pod that was evicted and is
not deleted yet counts as disrupted, not as healthy.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    controller_of,
    is_terminating,
    labels_of,
    parse_timestamp,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.controllers.workload import absolute, merged_conditions
from stellwerk_cluster.registry.entries import ADDED, StoreEvent
from stellwerk_cluster.registry.eviction import BUDGETS, disruption_allowed
from stellwerk_cluster.work import Worker, WorkQueue
from stellwerk_kube.selectors import parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_FORGET_AFTER: Final = timedelta(minutes=2)


class DisruptionController(Worker):
    """Keeps the counts in the status of every PodDisruptionBudget in step with its pods."""

    def __init__(self, api: Api, index: Index) -> None:
        """Follow budgets and pods."""
        self._api = api
        self._index = index
        self._kind = api.kinds.resource("poddisruptionbudgets", "policy")
        self.queue = WorkQueue(api.clock)
        budgets = api.store.collection(BUDGETS)
        budgets.listeners.append(lambda event: self.queue.add(event.entry.key))
        api.store.collection("pods").listeners.append(self._on_pod)
        for entry in budgets.entries():
            self.queue.add(entry.key)

    def _on_pod(self, event: StoreEvent) -> None:
        if len(self._api.store.collection(BUDGETS)) == 0 or not _matters(event):
            return
        states = [event.entry, *([event.previous] if event.previous else [])]
        for budget in self._api.all(BUDGETS, event.entry.key[0]):
            selector = parse_label_selector(budget["spec"].get("selector"))
            if selector is not None and any(selector.matches(pod.labels) for pod in states):
                self.queue.add((budget["metadata"]["namespace"], budget["metadata"]["name"]))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Write the status of one budget."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        budget = self._api.find(BUDGETS, *key)
        if budget is not None:
            status = self._status(budget)
            self._api.modify(
                self._kind,
                key,
                lambda obj: with_value(obj, ("status",), status),
                owned_under="status",
            )

    def _status(self, budget: JsonObject) -> JsonObject:
        pods = self._matching_pods(budget)
        disrupted = self._still_disrupted(budget, pods)
        expected = self._expected_count(budget, pods)
        desired = _desired_healthy(budget["spec"], expected)
        healthy = sum(
            1
            for pod in pods
            if is_ready(pod)
            and not is_terminating(pod)
            and pod["metadata"]["name"] not in disrupted
        )
        allowed = max(0, healthy - desired) if expected > 0 else 0
        generation = budget["metadata"].get("generation", 1)
        before = (budget.get("status") or EMPTY).get("conditions") or []
        now = timestamp(self._api.now())
        return {
            "observedGeneration": generation,
            **({"disruptedPods": disrupted} if disrupted else {}),
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "expectedPods": expected,
            "conditions": merged_conditions(
                before, [disruption_allowed(before, allowed, generation, now)], ()
            ),
        }

    def _matching_pods(self, budget: JsonObject) -> list[JsonObject]:
        selector = parse_label_selector(budget["spec"].get("selector"))
        if selector is None:
            return []
        entries = self._api.store.collection("pods").entries(budget["metadata"]["namespace"])
        matching = [entry.obj for entry in entries if selector.matches(entry.labels)]
        return [pod for pod in matching if not is_finished(pod)]

    def _still_disrupted(self, budget: JsonObject, pods: list[JsonObject]) -> dict[str, str]:
        """Evicted pods that are neither terminating yet nor forgotten."""
        waiting = {pod["metadata"]["name"] for pod in pods if not is_terminating(pod)}
        now = self._api.now()
        recorded = (budget.get("status") or EMPTY).get("disruptedPods") or {}
        return {
            name: at
            for name, at in recorded.items()
            if name in waiting and now - parse_timestamp(at) < _FORGET_AFTER
        }

    def _expected_count(self, budget: JsonObject, pods: list[JsonObject]) -> int:
        """With a percentage or maxUnavailable: what the workloads want.

        Otherwise the pods there are.
        """
        spec = budget["spec"]
        if "maxUnavailable" not in spec and not isinstance(spec.get("minAvailable"), str):
            return len(pods)
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is None:
                wanted[pod["metadata"]["uid"]] = 1
                continue
            location = self._index.by_uid.get(owner["uid"])
            workload = self._api.find(location.storage_name, *location.key) if location else None
            if workload is not None:
                wanted[owner["uid"]] = (workload.get("spec") or EMPTY).get("replicas", 1)
        return sum(wanted.values())


def _matters(event: StoreEvent) -> bool:
    """Whether a pod's change can change a budget: labels, readiness, end."""
    if event.previous is None or event.type == ADDED:
        return True
    old, new = event.previous.obj, event.entry.obj
    return (
        labels_of(old) != labels_of(new)
        or is_ready(old) != is_ready(new)
        or is_terminating(old) != is_terminating(new)
        or old["status"].get("phase") != new["status"].get("phase")
        or event.type == "DELETED"
    )


def _desired_healthy(spec: JsonObject, expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(0, expected - absolute(spec["maxUnavailable"], expected, round_up=True))
    return absolute(spec.get("minAvailable", 1), expected, round_up=True)
