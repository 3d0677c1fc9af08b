"""The hollow kubelet: pods that are bound start, finish and end, without any container.

One worker plays the kubelets of all nodes. It follows the pods of the store and writes their status
through the API. Invariant: it touches only pods whose node exists, and a terminating pod is removed
no later than its grace period says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    controller_of,
    is_terminating,
    parse_timestamp,
    pick,
    timestamp,
)
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import ADDED, DELETED, MODIFIED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.registry.api import Api

RUN_SECONDS_ANNOTATION: Final = "stellwerk.dev/run-seconds"
"""How long the containers of a pod with restartPolicy Never or OnFailure run before they
succeed.
"""
JOB_RUN_SECONDS: Final = 10.0
"""How long the pods of Jobs run without that annotation; other pods run without end."""
EXIT_CODE_ANNOTATION: Final = "stellwerk.dev/exit-code"
_FIRST_POD_ADDRESS: Final = IPv4Address("10.64.0.1")
_ADDRESSES: Final = 1 << 22
_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """How long a pod takes to start, and to stop."""

    start_seconds: float = 0.5
    """From binding to Running."""
    stop_seconds: float = 0.5
    """From the deletion of a pod to its removal, unless the grace period is shorter."""
    respect_grace: bool = False
    """Use up the whole grace period, as a container that ignores its signal would."""


class HollowKubelet(Worker):
    """Takes bound pods through their phases, on all nodes at once."""

    def __init__(self, api: Api, options: KubeletOptions | None = None) -> None:
        """Follow the pods in the store of `api`."""
        self._api = api
        self._options = options or KubeletOptions()
        self._kind = api.kinds.resource("pods")
        self._addresses = 0
        self.queue = WorkQueue(api.clock)
        pods = api.store.collection("pods")
        pods.listeners.append(self._on_pod)
        for entry in pods.entries():
            self._on_pod(StoreEvent(ADDED, entry, None))

    def _on_pod(self, event: StoreEvent) -> None:
        pod = event.entry.obj
        if event.type == DELETED or not pod["spec"].get("nodeName"):
            return
        before = event.previous.obj if event.type == MODIFIED and event.previous else None
        bound_now = before is None or not before["spec"].get("nodeName")
        ends_now = is_terminating(pod) and (before is None or pod["metadata"] != before["metadata"])
        if ends_now:
            self.queue.add_after(event.entry.key, self._seconds_to_stop(pod))
        elif bound_now:
            self.queue.add_after(event.entry.key, self._options.start_seconds)

    def _seconds_to_stop(self, pod: JsonObject) -> float:
        deadline = parse_timestamp(pod["metadata"]["deletionTimestamp"])
        left = max(0.0, (deadline - self._api.now()) / timedelta(seconds=1))
        return left if self._options.respect_grace else min(left, self._options.stop_seconds)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Take one pod one step further."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        pod_key: Key = key
        pod = self._api.find("pods", *pod_key)
        if pod is None or self._api.find("nodes", "", pod["spec"].get("nodeName", "")) is None:
            return
        phase = pod["status"].get("phase")
        if is_terminating(pod):
            delete(
                self._api,
                self._kind,
                pod_key,
                DeleteOptions(grace_period_seconds=0, uid=pod["metadata"]["uid"]),
            )
        elif phase == "Pending":
            self._api.modify(self._kind, pod_key, self._started, owned_under="status")
            seconds = _run_seconds(pod)
            if seconds is not None:
                self.queue.add_after(pod_key, seconds)
        elif phase == "Running" and _run_seconds(pod) is not None:
            self._api.modify(self._kind, pod_key, self._finished, owned_under="status")

    def _started(self, pod: JsonObject) -> JsonObject:
        now = timestamp(self._api.now())
        node = self._api.find("nodes", "", pod["spec"]["nodeName"]) or EMPTY
        host = _node_address(node)
        address = host if pod["spec"].get("hostNetwork") else self._next_address()
        status = {
            **pod["status"],
            "phase": "Running",
            "observedGeneration": pod["metadata"].get("generation", 1),
            "hostIP": host,
            "hostIPs": [{"ip": host}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
            "conditions": _conditions(pod, now, ready=True),
            "containerStatuses": [
                _container_status(each, {"running": {"startedAt": now}}, running=True)
                for each in pod["spec"]["containers"]
            ],
        }
        initial = [
            _container_status(each, _initial_state(each, now), running="restartPolicy" in each)
            for each in pod["spec"].get("initContainers") or ()
        ]
        if initial:
            status["initContainerStatuses"] = initial
        return {**pod, "status": status}

    def _finished(self, pod: JsonObject) -> JsonObject:
        now = timestamp(self._api.now())
        exit_code = int((pod["metadata"].get("annotations") or EMPTY).get(EXIT_CODE_ANNOTATION, 0))
        started = pod["status"].get("startTime", now)
        terminated = {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": started,
            "finishedAt": now,
        }
        status = {
            **pod["status"],
            "phase": "Failed" if exit_code else "Succeeded",
            "conditions": _conditions(pod, now, ready=False),
            "containerStatuses": [
                _container_status(each, {"terminated": terminated}, running=False)
                for each in pod["spec"]["containers"]
            ],
        }
        return {**pod, "status": status}

    def _next_address(self) -> str:
        self._addresses = (self._addresses + 1) % _ADDRESSES
        return str(_FIRST_POD_ADDRESS + self._addresses)


def _run_seconds(pod: JsonObject) -> float | None:
    """How long the containers run; None: without end."""
    if pod["spec"].get("restartPolicy") == "Always":
        return None
    text = (pod["metadata"].get("annotations") or EMPTY).get(RUN_SECONDS_ANNOTATION)
    if text is None:
        of_a_job = (controller_of(pod) or EMPTY).get("kind") == "Job"
        return JOB_RUN_SECONDS if of_a_job else None
    return float(text)


def _node_address(node: JsonObject) -> str:
    for address in pick(node, ("status", "addresses")) or ():
        if address.get("type") == "InternalIP":
            return str(address["address"])
    return ""


def _conditions(pod: JsonObject, now: str, *, ready: bool) -> list[JsonObject]:
    kept = [
        each for each in pod["status"].get("conditions") or () if each["type"] not in _CONDITIONS
    ]
    status = "True" if ready else "False"
    own: list[JsonObject] = []
    for type_ in _CONDITIONS:
        condition: JsonObject = {
            "type": type_,
            "status": "True" if type_ == "Initialized" else status,
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
        if not ready:
            condition["reason"] = "PodCompleted"
        own.append(condition)
    return [*own, *kept]


def _initial_state(container: JsonObject, now: str) -> JsonObject:
    if container.get("restartPolicy") == "Always":
        return {"running": {"startedAt": now}}
    return {
        "terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
    }


def _container_status(container: JsonObject, state: JsonObject, *, running: bool) -> JsonObject:
    name, image = container["name"], container.get("image", "")
    return {
        "name": name,
        "image": image,
        "imageID": image,
        "containerID": f"hollow://{name}",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
