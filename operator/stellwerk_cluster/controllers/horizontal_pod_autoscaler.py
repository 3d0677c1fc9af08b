"""HorizontalPodAutoscalers: workloads are scaled by what their pods use.

The usage is that of the metrics API, of what hollow pods are said to use; metrics of other kinds
than resources are not measured, and a condition says so. Invariant: nothing is scaled beyond what
an autoscaler allows, and up or down only where the usage is a tenth off its target.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    is_terminating,
    labels_of,
    pick,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.controllers.workload import merged_conditions, stamped_conditions
from stellwerk_cluster.registry.entries import DELETED
from stellwerk_cluster.registry.event_recorder import StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue
from stellwerk_kube.quantity import parse_quantity
from stellwerk_kube.selectors import parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent
    from stellwerk_kube.json_values import JsonObject

_AUTOSCALERS: Final = "horizontalpodautoscalers.autoscaling"
_SYNC_SECONDS: Final = 15.0
"""Time between two looks at the usage of pods (`--horizontal-pod-autoscaler-sync-period`)."""
_TOLERANCE: Final = 0.1
"""Deviation of the usage from what is wanted at which nothing is scaled
(`--horizontal-pod-autoscaler-tolerance`)."""
_SCALE_DOWN_SECONDS: Final = 300.0
"""Time for which the highest number that was wanted holds."""
_MILLIS_PER_UNIT: Final = 1000
_SCALED: Final = {
    "Deployment": ("deployments", "apps"),
    "ReplicaSet": ("replicasets", "apps"),
    "StatefulSet": ("statefulsets", "apps"),
    "ReplicationController": ("replicationcontrollers", ""),
}

_CONDITIONS: Final = ("AbleToScale", "ScalingActive", "ScalingLimited")
"""The types of conditions that this controller writes; those of others are theirs."""


class HorizontalPodAutoscalerController(Worker):
    """Looks at each autoscaler every 15 seconds."""

    def __init__(self, api: Api, index: Index) -> None:
        """Follow the autoscalers in the store of `api`; `index` knows what pods use."""
        self._api = api
        self._used: Callable[[JsonObject], Mapping[str, int]] = index.used
        self._kind = api.kinds.resource("horizontalpodautoscalers", "autoscaling")
        self._events = StoreEventRecorder(api, "horizontal-pod-autoscaler")
        self._wanted: dict[str, list[tuple[float, int]]] = {}
        """uid → (monotonic, replicas) that were wanted not long ago."""
        self.queue = WorkQueue(api.clock)
        autoscalers = api.store.collection(_AUTOSCALERS)
        autoscalers.listeners.append(self._on_change)
        for entry in autoscalers.entries():
            self.queue.add(entry.key)

    def _on_change(self, event: StoreEvent) -> None:
        if event.type == DELETED:
            self._wanted.pop(event.entry.uid, None)
        elif event.previous is None or event.previous.obj["spec"] != event.entry.obj["spec"]:
            self.queue.add(event.entry.key)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Scale what one autoscaler is about, and look again later."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        autoscaler = self._api.find(_AUTOSCALERS, *key)
        if autoscaler is None or is_terminating(autoscaler):
            return
        self.queue.add_after(key, _SYNC_SECONDS)
        found = self._target(autoscaler)
        if found is None:
            text = "the HPA controller was unable to get the target's current scale: "
            text += self._why_no_target(autoscaler["spec"].get("scaleTargetRef") or EMPTY)
            self._write(autoscaler, key, {}, [_condition("AbleToScale", "FailedGetScale", text)])
            return
        kind, workload = found
        self._sync(autoscaler, key, kind, workload)

    def _sync(
        self, autoscaler: JsonObject, key: Key, kind: ResourceKind, workload: JsonObject
    ) -> None:
        spec, present = autoscaler["spec"], int(workload["spec"].get("replicas", 1))
        pods = self._pods(workload)
        wanted = present
        measured: list[JsonObject] = []
        problems: list[str] = []
        proposals: list[int] = []
        for metric in spec.get("metrics") or ():
            proposal = self._proposal(metric, pods, present)
            if isinstance(proposal, str):
                problems.append(proposal)
            else:
                proposals.append(proposal[0])
                measured.append(proposal[1])
        if proposals and present:
            wanted = self._stabilized(autoscaler, present, max(proposals))
        least = int(spec.get("minReplicas") or 1)
        wanted = min(max(wanted, least), int(spec["maxReplicas"])) if present else 0
        conditions = [_condition("AbleToScale", "ReadyForNewScale", "recommended size matches")]
        if problems and not proposals:
            conditions.append(_condition("ScalingActive", "FailedGetResourceMetric", problems[0]))
        else:
            text = "the HPA was able to successfully calculate a replica count"
            conditions.append(_condition("ScalingActive", "ValidMetricFound", text, "True"))
        conditions[0]["status"] = "True"
        status: JsonObject = {"currentReplicas": present, "desiredReplicas": wanted}
        if measured:
            status["currentMetrics"] = measured
        if wanted != present:
            self._api.modify(
                kind,
                (workload["metadata"]["namespace"], workload["metadata"]["name"]),
                lambda obj: with_value(obj, ("spec", "replicas"), wanted),
            )
            where = "above" if wanted > present else "below"
            text = f"New size: {wanted}; reason: resource utilization {where} target"
            self._events.record(autoscaler, "SuccessfulRescale", text)
            status["lastScaleTime"] = timestamp(self._api.now())
        self._write(autoscaler, key, status, conditions)

    def _stabilized(self, autoscaler: JsonObject, present: int, proposed: int) -> int:
        """The highest number that was wanted of late, so that load that swings moves nothing.

        As kube-controller-manager does, what is there at the first look counts as wanted then.
        """
        uid, now = autoscaler["metadata"]["uid"], self._api.clock.monotonic()
        path = ("spec", "behavior", "scaleDown", "stabilizationWindowSeconds")
        given = pick(autoscaler, path)
        seconds = _SCALE_DOWN_SECONDS if given is None else float(given)
        kept = [each for each in self._wanted.get(uid, [(now, present)]) if each[0] > now - seconds]
        self._wanted[uid] = [*kept, (now, proposed)]
        return max(number for _, number in self._wanted[uid])

    # --- what is measured ---------------------------------------------------------------------

    def _proposal(
        self, metric: JsonObject, pods: Sequence[JsonObject], present: int
    ) -> tuple[int, JsonObject] | str:
        """(replicas, what is measured) by one metric, or why it tells nothing."""
        source = metric.get("resource")
        if metric.get("type") != "Resource" or source is None:
            return f"metrics of type {metric.get('type')} are not measured here"
        name, target = source["name"], source["target"]
        if not pods:
            return f"failed to get {name} utilization: no pods are ready"
        used = sum(self._amount(pod, name) for pod in pods)
        current: JsonObject = {"averageValue": _quantity(name, used // len(pods))}
        if target.get("averageUtilization") is not None:
            requested = [_requested(pod, name) for pod in pods]
            if not all(requested):
                return f"failed to get {name} utilization: missing request for {name}"
            utilization = 100 * used // sum(requested)
            current["averageUtilization"] = utilization
            ratio = utilization / int(target["averageUtilization"])
        elif target.get("averageValue") is not None:
            wanted = parse_quantity(str(target["averageValue"]))
            ratio = used / len(pods) / float(wanted * _MILLIS_PER_UNIT if name == "cpu" else wanted)
        else:
            return f"failed to get {name}: no average value is asked for"
        near = abs(ratio - 1) <= _TOLERANCE
        replicas = present if near else math.ceil(ratio * len(pods))
        return replicas, {"type": "Resource", "resource": {"name": name, "current": current}}

    def _amount(self, pod: JsonObject, name: str) -> int:
        return int(self._used(pod).get(name, 0))

    def _target(self, autoscaler: JsonObject) -> tuple[ResourceKind, JsonObject] | None:
        reference = autoscaler["spec"].get("scaleTargetRef") or EMPTY
        names = _SCALED.get(str(reference.get("kind")))
        if names is None:
            return None
        kind = self._api.kinds.resource(*names)
        namespace = autoscaler["metadata"]["namespace"]
        found = self._api.find(kind.storage_name, namespace, str(reference.get("name")))
        return None if found is None else (kind, found)

    def _why_no_target(self, reference: JsonObject) -> str:
        names = _SCALED.get(str(reference.get("kind")))
        if names is None:
            return f'kind "{reference.get("kind")}" is not scaled by this cluster'
        resource = ".".join(filter(None, names))
        return f'{resource} "{reference.get("name")}" not found'

    def _pods(self, workload: JsonObject) -> list[JsonObject]:
        """The ready pods that a workload's selector matches."""
        given = workload["spec"].get("selector") or {}
        selector = parse_label_selector(
            given
            if "matchLabels" in given or "matchExpressions" in given
            else {"matchLabels": given}
        )
        return [
            pod
            for pod in self._api.all("pods", workload["metadata"]["namespace"])
            if selector is not None
            and selector.matches(labels_of(pod))
            and is_ready(pod)
            and not is_finished(pod)
            and not is_terminating(pod)
        ]

    def _write(
        self, autoscaler: JsonObject, key: Key, status: JsonObject, conditions: list[JsonObject]
    ) -> None:
        before = autoscaler.get("status") or EMPTY
        kept = {"currentReplicas": 0, "desiredReplicas": 0, **before, **status}
        if "currentMetrics" not in status:
            kept.pop("currentMetrics", None)
        old = before.get("conditions") or []
        stamped = stamped_conditions(old, conditions, self._api.now())
        whole = {**kept, "conditions": merged_conditions(old, stamped, _CONDITIONS)}
        if whole != before:
            self._api.modify(
                self._kind,
                key,
                lambda obj: with_value(obj, ("status",), whole),
                owned_under="status",
            )


def _condition(type_: str, reason: str, message: str, status: str = "False") -> JsonObject:
    return {"type": type_, "status": status, "reason": reason, "message": message}


def _requested(pod: JsonObject, name: str) -> int:
    """The requests of a pod's containers, cpu in millicores; 0: one has none."""
    total = 0
    for container in pod["spec"]["containers"]:
        given = pick(container, ("resources", "requests", name))
        if given is None:
            return 0
        amount = parse_quantity(str(given))
        total += int(amount * _MILLIS_PER_UNIT if name == "cpu" else amount)
    return total


def _quantity(name: str, amount: int) -> str:
    return f"{amount}m" if name == "cpu" else f"{amount}"
