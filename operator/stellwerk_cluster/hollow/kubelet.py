"""The hollow kubelet: pods that are bound are admitted, start, end and go, without any container.

One worker plays the kubelets of all nodes. It follows the pods of the store and writes their status
through the API. Invariant: it touches only pods whose node exists and whose machine is heard of,
and a terminating pod is removed no later than its grace period says.
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
    is_terminating,
    key_of,
    meta,
    parse_timestamp,
    pick,
    timestamp,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.hollow import pod_status
from stellwerk_cluster.hollow.lifecycle import (
    END_NOW_ANNOTATION,
    OOM_KILLED,
    Lifecycle,
    Lifecycles,
    Stage,
)
from stellwerk_cluster.hollow.machine import FAILED, machine_of
from stellwerk_cluster.hollow.pod_admission import AdmittedPods, allocatable_of, refusal_of
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import ADDED, DELETED, MODIFIED, StoreEvent
from stellwerk_cluster.registry.event_recorder import NORMAL, WARNING, StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue
from stellwerk_kube.resource_amounts import resource_amounts

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from stellwerk_cluster.hollow.device_descriptions import DeviceDescription
    from stellwerk_cluster.hollow.eviction_thresholds import KubeletConfiguration
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject


RUN_SECONDS_ANNOTATION: Final = "stellwerk.dev/run-seconds"
"""The annotation with the time that a pod's containers run before they end by themselves."""
_FIRST_POD_ADDRESS: Final = IPv4Address("10.64.0.1")
_MAX_POD_ADDRESSES: Final = 1 << 22
"""Addresses of pods, which are used again from the first one on."""
_FIRST_BACKOFF_SECONDS: Final = 10
"""Pause after a container's first failure; it doubles with each further one
(`containerBackOffPeriod`)."""
_MAX_BACKOFF_SECONDS: Final = 300
"""Longest of these pauses (`MaxContainerBackOff`)."""
_LOST: Final = pod_status.End(255, "Unknown")
_TOO_LONG: Final = "Pod was active on the node longer than the specified deadline"


_STARTED: Final = (
    ("Pulled", 'Container image "{image}" already present on machine'),
    ("Created", "Container created"),
    ("Started", "Container started"),
)
_STOPPED: Final = (("Killing", "Stopping container {name}"),)


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """The options of hollow kubelets: how pods start, stop and end, devices, configuration."""

    start_seconds: float = 0.5
    """From binding to the start of a pod's first container, be it an init container. A stage
    (`--stages`) or the annotation `stellwerk.dev/start-seconds` goes before it."""
    stop_seconds: float = 0.5
    """From the deletion of a pod to its removal, unless the grace period is shorter."""
    respect_grace: bool = False
    """Use up the whole grace period, as a container that ignores its signal would."""
    stages: tuple[Stage, ...] = ()
    """Stages of pods' lives, from a file."""
    configuration: KubeletConfiguration | None = None
    """Thresholds of eviction and what is reserved; None: the kubelet's defaults, and all that a
    node has is allocatable.
    """
    devices: tuple[DeviceDescription, ...] = ()
    """Devices that drivers publish on the nodes."""
    tells_of_containers: bool = False
    """Whether there are events of each container that starts or is stopped; they cost memory."""

    def lifecycles(self) -> Lifecycles:
        """The lifecycle of every pod under these options."""
        default = Lifecycle(start_seconds=self.start_seconds, stop_seconds=self.stop_seconds)
        return Lifecycles(default, self.stages)


class HollowKubelet(Worker):
    """Takes bound pods through their phases, on all nodes at once."""

    def __init__(self, api: Api, options: KubeletOptions | None = None) -> None:
        """Follow the pods in the store of `api`."""
        self._api = api
        self._options = options or KubeletOptions()
        self._lifecycles = self._options.lifecycles()
        self._kind = api.kinds.resource("pods")
        self._events = StoreEventRecorder(api, "kubelet")
        self._addresses = 0
        self._admitted: dict[str, AdmittedPods] = {}
        self._steps: dict[str, tuple[str, float]] = {}
        """Pod uid → the step that comes next, and when, monotonic."""
        self._rebooted: set[str] = set()
        """Uids of pods whose containers were lost with their machine."""
        self._deferred: dict[str, dict[Key, None]] = {}
        """Node → pods whose resize waits for room."""
        self.queue = WorkQueue(api.clock)
        pods = api.store.collection("pods")
        pods.listeners.append(self._on_pod)
        api.store.collection("nodes").listeners.append(self._on_node)
        for entry in pods.entries():
            if entry.node_name and entry.obj["status"].get("startTime"):
                self._load(entry.node_name).add(entry.obj)
            self._on_pod(StoreEvent(ADDED, entry, None))

    def _load(self, node_name: str) -> AdmittedPods:
        return self._admitted.setdefault(node_name, AdmittedPods())

    # What happens to pods and nodes.

    def _on_pod(self, event: StoreEvent) -> None:
        if not event.entry.node_name:
            return
        pod = event.entry.obj
        if event.type == DELETED or is_finished(pod):
            self._forget(event.entry.node_name, pod)
            if event.type == DELETED:
                return
        before = event.previous.obj if event.type == MODIFIED and event.previous else None
        if before is None or _concerns_kubelet(before, pod):
            if before is not None and is_terminating(pod) and not is_terminating(before):
                self._tell_of_containers(pod, _STOPPED)
            self._begin_waiting(pod)
            self.queue.add(event.entry.key)

    def _begin_waiting(self, pod: JsonObject) -> None:
        """Time that a pod needs to start or to stop runs from the change that asks for it."""
        lifecycle = self._lifecycles.of(pod)
        if is_terminating(pod):
            self._due(pod, *self._stopping(pod, lifecycle), begins=True)
        elif not pod["status"].get("startTime"):
            self._due(pod, "start", lifecycle.start_seconds, begins=True)

    def _forget(self, node_name: str, pod: JsonObject) -> None:
        uid = meta(pod)["uid"]
        self._steps.pop(uid, None)
        self._rebooted.discard(uid)
        load = self._admitted.get(node_name)
        if load is not None and uid in load:
            load.remove(uid)
            for key in self._deferred.pop(node_name, ()):
                self.queue.add(key)

    def _on_node(self, event: StoreEvent) -> None:
        name = event.entry.key[1]
        if event.type == DELETED:
            self._deferred.pop(name, None)
            return
        was = machine_of(event.previous.obj) if event.previous else ""
        appears = event.type == ADDED
        if not appears and (was == "" or machine_of(event.entry.obj)):
            return
        for entry in self._api.store.collection("pods").on_node(name):
            if was == FAILED and pod_status.is_running(entry.obj):
                self._rebooted.add(entry.uid)
            self.queue.add(entry.key)

    # What a kubelet does about them.

    @override
    def reconcile(self, key: Hashable) -> None:
        """Take one pod one step further."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds store keys only)
        pod_key: Key = key
        pod = self._api.find("pods", *pod_key)
        node = self._api.find("nodes", "", pod["spec"].get("nodeName", "")) if pod else None
        if pod is None or node is None or machine_of(node):
            return
        lifecycle = self._lifecycles.of(pod)
        if pod["status"].get("startTime") and not is_finished(pod):
            pod = self._observe(pod)
        if is_terminating(pod):
            self._stop(pod, lifecycle)
        elif is_finished(pod) or self._overdue(pod):
            return
        elif not pod["status"].get("startTime"):
            self._start(pod, node, lifecycle)
        elif pod["status"].get("phase") == "Pending":
            self._initialize(pod, lifecycle)
        else:
            self._run(pod, node, lifecycle)

    def _due(self, pod: JsonObject, step: str, seconds: float, *, begins: bool = False) -> bool:
        """Whether a step that takes so long is over; the first call for a step begins it."""
        uid, now = meta(pod)["uid"], self._api.clock.monotonic()
        known = self._steps.get(uid)
        if known is None or known[0] != step:
            known = self._steps[uid] = (step, now + seconds)
            if seconds > 0:
                self.queue.add_after(key_of(pod), seconds)
        if now < known[1] or begins:
            return False
        del self._steps[uid]
        return True

    def _write(self, pod: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
        return self._api.modify(self._kind, key_of(pod), change, owned_under="status").obj

    def _observe(self, pod: JsonObject) -> JsonObject:
        """Say which generation of the pod's spec the kubelet has seen."""
        path, generation = ("status", "observedGeneration"), meta(pod).get("generation", 1)
        if pick(pod, path) == generation:
            return pod
        return self._write(pod, lambda obj: with_value(obj, path, generation))

    def _now(self) -> str:
        return timestamp(self._api.now())

    def _overdue(self, pod: JsonObject) -> bool:
        """Fail a pod whose activeDeadlineSeconds are over."""
        limit, start = pod["spec"].get("activeDeadlineSeconds"), pod["status"].get("startTime")
        if limit is None or start is None:
            return False
        end = parse_timestamp(start) + timedelta(seconds=limit)
        left = (end - self._api.now()) / timedelta(seconds=1)
        if left > 0:
            if pod["status"].get("phase") == "Pending" or meta(pod)["uid"] not in self._steps:
                self.queue.add_after(key_of(pod), left)
            return False
        now = self._now()
        self._events.record(pod, "DeadlineExceeded", _TOO_LONG, NORMAL)
        self._write(pod, lambda obj: pod_status.failed(obj, now, "DeadlineExceeded", _TOO_LONG))
        return True

    def _start(self, pod: JsonObject, node: JsonObject, lifecycle: Lifecycle) -> None:
        """Admit a pod and start what comes first."""
        if not self._due(pod, "start", lifecycle.start_seconds):
            return
        now, load = self._now(), self._load(meta(node)["name"])
        refusal = refusal_of(pod, node, load)
        if refusal is not None:
            message = f"Pod was rejected: {refusal.message}"
            self._events.record(pod, *refusal, WARNING)
            self._write(pod, lambda obj: pod_status.failed(obj, now, refusal.reason, message))
            return
        load.add(pod)
        place = pod_status.PodAddresses(_node_address(node), self._next_address())
        if pod_status.initial_containers(pod):
            pod = self._write(pod, lambda obj: pod_status.initializing(obj, place, now, 0))
        else:
            pod = self._start_containers(pod, place, lifecycle)
        self.queue.add(key_of(pod))

    def _start_containers(
        self, pod: JsonObject, place: pod_status.PodAddresses, lifecycle: Lifecycle
    ) -> JsonObject:
        now, ready = self._now(), lifecycle.ready_seconds == 0
        self._tell_of_containers(pod, _STARTED)
        return self._write(pod, lambda obj: pod_status.started(obj, place, now, ready=ready))

    def _tell_of_containers(self, pod: JsonObject, events: Sequence[tuple[str, str]]) -> None:
        """Record events of every container, as `kubectl describe pod` shows them."""
        for container in pod["spec"]["containers"] if self._options.tells_of_containers else ():
            for reason, text in events:
                message = text.format(**{"image": "", **container})
                part = f"spec.containers{{{container['name']}}}"
                self._events.record(pod, reason, message, field_path=part)

    def _initialize(self, pod: JsonObject, lifecycle: Lifecycle) -> None:
        """Let the init container that runs end, and the next one start."""
        done = pod_status.finished_initial(pod)
        statuses = pod["status"].get("initContainerStatuses") or []
        waits = any(_backs_off(each) for each in statuses)
        if waits:
            self._restart_when_due(pod, statuses, lifecycle)
            return
        restarts = pod_status.restarts_of(statuses)
        if not self._due(pod, f"init {done} {restarts}", lifecycle.init_seconds):
            return
        if lifecycle.init_exit_code:
            self._init_failed(pod, statuses, lifecycle.init_exit_code)
            return
        now, place = self._now(), _place_of(pod)
        if done + 1 < len(pod_status.initial_containers(pod)):
            self._write(pod, lambda obj: pod_status.initializing(obj, place, now, done + 1))
        else:
            self._start_containers(pod, place, lifecycle)
        self.queue.add(key_of(pod))

    def _init_failed(self, pod: JsonObject, statuses: list[JsonObject], code: int) -> None:
        now = self._now()
        if pod["spec"].get("restartPolicy") == "Never":
            self._write(pod, lambda obj: pod_status.init_failed(obj, now, code))
            return
        name = next(each["name"] for each in statuses if "running" in each["state"])
        text = _back_off_message(pod, name, _back_off_seconds(pod_status.restarts_of(statuses)))
        self._write(pod, lambda obj: pod_status.init_waiting(obj, now, code, text))
        self._report_back_off(pod, name)
        self.queue.add(key_of(pod))

    def _run(self, pod: JsonObject, node: JsonObject, lifecycle: Lifecycle) -> None:
        """Look after a pod whose containers have been started."""
        statuses = pod["status"].get("containerStatuses") or []
        ends_now = (meta(pod).get("annotations") or EMPTY).get(END_NOW_ANNOTATION)
        if meta(pod)["uid"] in self._rebooted:
            self._rebooted.discard(meta(pod)["uid"])
            self._end(pod, _LOST)
        elif any(_backs_off(each) for each in statuses):
            self._restart_when_due(pod, statuses, lifecycle)
        elif ends_now is not None:
            self._end_as_asked(pod, ends_now)
        elif is_resizing(pod):
            self._resize(pod, node)
        elif not is_ready(pod):
            if self._due(pod, "ready", lifecycle.ready_seconds):
                now = self._now()
                self._write(pod, lambda obj: pod_status.became_ready(obj, now))
                self.queue.add(key_of(pod))
        elif lifecycle.run_seconds is not None:
            left = max(0.0, lifecycle.run_seconds - lifecycle.ready_seconds)
            if self._due(pod, f"run {pod_status.restarts_of(statuses)}", left):
                self._end(pod, _end_of(str(lifecycle.exit_code)))

    def _end_as_asked(self, pod: JsonObject, text: str) -> None:
        path = ("metadata", "annotations", END_NOW_ANNOTATION)
        pod = self._api.modify(self._kind, key_of(pod), lambda obj: with_value(obj, path, None)).obj
        self._end(pod, _end_of(text))

    def _end(self, pod: JsonObject, end: pod_status.End) -> None:
        """The containers have ended: the pod has, too, or they start again after a while."""
        now, policy = self._now(), pod["spec"].get("restartPolicy", "Always")
        statuses = pod["status"].get("containerStatuses") or []
        if policy == "Never" or (policy == "OnFailure" and end.exit_code == 0):
            phase = "Failed" if end.exit_code else "Succeeded"
            self._write(pod, lambda obj: pod_status.ended(obj, now, end, phase))
            return
        restarts = pod_status.restarts_of(statuses)
        pod = self._write(pod, lambda obj: pod_status.ended(obj, now, end, "Running"))
        seconds = _back_off_seconds(restarts)
        if seconds:
            self._write(
                pod,
                lambda obj: pod_status.backing_off(
                    obj, lambda name: _back_off_message(pod, name, seconds)
                ),
            )
            self._report_back_off(pod, statuses[0]["name"])
            self.queue.add(key_of(pod))
        else:
            self._start_containers(pod, _place_of(pod), self._lifecycles.of(pod))
            self.queue.add(key_of(pod))

    def _restart_when_due(
        self, pod: JsonObject, statuses: list[JsonObject], lifecycle: Lifecycle
    ) -> None:
        restarts = pod_status.restarts_of(statuses)
        if not self._due(pod, f"back-off {restarts}", _back_off_seconds(restarts)):
            return
        now, place = self._now(), _place_of(pod)
        if pod["status"].get("phase") == "Pending":
            self._write(pod, lambda obj: pod_status.init_restarted(obj, now))
        else:
            self._start_containers(pod, place, lifecycle)
        self.queue.add(key_of(pod))

    def _report_back_off(self, pod: JsonObject, container: str) -> None:
        text = f"Back-off restarting failed container {container} in pod {_full_name(pod)}"
        self._events.record(pod, "BackOff", text, WARNING)

    def _resize(self, pod: JsonObject, node: JsonObject) -> None:
        """Give a running pod what its spec asks for now, if the node has it."""
        load, now = self._load(meta(node)["name"]), self._now()
        load.remove(meta(pod)["uid"])
        changed = resized(pod, node, load, now)
        if changed is not None:
            pod = self._write(pod, lambda _: changed)
        if is_resizing(pod):
            self._deferred.setdefault(meta(node)["name"], {})[key_of(pod)] = None
        load.add(pod)

    def _stop(self, pod: JsonObject, lifecycle: Lifecycle) -> None:
        """Remove a pod whose containers have had their time to end."""
        if self._due(pod, *self._stopping(pod, lifecycle)):
            if meta(pod).get("finalizers") and not is_finished(pod):
                # The object stays, and says that its containers do not (v1.27).
                now, is_killed = self._now(), self._seconds_left(pod) <= 0
                end = pod_status.KILLED if is_killed else pod_status.STOPPED
                pod = self._write(pod, lambda obj: pod_status.stopped(obj, now, end))
            options = DeleteOptions(grace_period_seconds=0, uid=meta(pod)["uid"])
            delete(self._api, self._kind, key_of(pod), options)

    def _stopping(self, pod: JsonObject, lifecycle: Lifecycle) -> tuple[str, float]:
        """The step in which the containers end, and how long it takes."""
        seconds = self._seconds_left(pod)
        if not self._options.respect_grace:
            pre_stop = _pre_stop_seconds(pod) if pod["status"].get("startTime") else 0.0
            seconds = min(seconds, pre_stop + lifecycle.stop_seconds)
        return f"stop {meta(pod)['deletionTimestamp']}", seconds

    def _seconds_left(self, pod: JsonObject) -> float:
        deadline = parse_timestamp(meta(pod)["deletionTimestamp"])
        return max(0.0, (deadline - self._api.now()) / timedelta(seconds=1))

    def _next_address(self) -> str:
        self._addresses = (self._addresses + 1) % _MAX_POD_ADDRESSES
        return str(_FIRST_POD_ADDRESS + self._addresses)


def _concerns_kubelet(before: JsonObject, pod: JsonObject) -> bool:
    """Whether a change of a pod is one of its binding, deletion, annotations or resources."""
    old, new = meta(before), meta(pod)
    return (
        old.get("deletionTimestamp") != new.get("deletionTimestamp")
        or old.get("generation") != new.get("generation")
        or old.get("annotations") != new.get("annotations")
        or before["spec"].get("nodeName") != pod["spec"].get("nodeName")
    )


def _end_of(text: str) -> pod_status.End:
    """The end that an annotation asks for; of one that names none, 1."""
    if text == OOM_KILLED:
        return pod_status.End(137, OOM_KILLED)
    code = int(text) if text.isdecimal() and len(text) <= len("255") else 1
    return pod_status.End(code, "Error" if code else "Completed")


def _backs_off(status: JsonObject) -> bool:
    return bool(pick(status, ("state", "waiting", "reason")) == "CrashLoopBackOff")


def _back_off_seconds(restarts: int) -> int:
    """At once after the first end, then 10, 20, 40 … 300 s."""
    if restarts == 0:
        return 0
    return min(_MAX_BACKOFF_SECONDS, _FIRST_BACKOFF_SECONDS << min(restarts - 1, 10))


def _full_name(pod: JsonObject) -> str:
    metadata = meta(pod)
    return f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"


def _back_off_message(pod: JsonObject, container: str, seconds: int) -> str:
    minutes, rest = divmod(seconds, 60)
    text = f"{minutes}m{rest}s" if minutes else f"{rest}s"
    return f"back-off {text} restarting failed container={container} pod={_full_name(pod)}"


def _pre_stop_seconds(pod: JsonObject) -> float:
    """The seconds that preStop hooks sleep before the signal to stop; other hooks take no time."""
    path = ("lifecycle", "preStop", "sleep", "seconds")
    return max((float(pick(each, path) or 0) for each in pod["spec"]["containers"]), default=0.0)


def _place_of(pod: JsonObject) -> pod_status.PodAddresses:
    status = pod["status"]
    return pod_status.PodAddresses(status.get("hostIP", ""), status.get("podIP", ""))


def _node_address(node: JsonObject) -> str:
    for address in pick(node, ("status", "addresses")) or ():
        if address.get("type") == "InternalIP":
            return str(address["address"])
    return ""


# --- in-place resize ------------------------------------------------------------------------------


PENDING: Final = "PodResizePending"


def is_resizing(pod: JsonObject) -> bool:
    """Whether a container has been given other resources than the spec says."""
    wanted = {each["name"]: each.get("resources") or EMPTY for each in pod["spec"]["containers"]}
    return any(
        "resources" in each and each["resources"] != wanted.get(each["name"], EMPTY)
        for each in pod["status"].get("containerStatuses") or ()
    )


def resized(pod: JsonObject, node: JsonObject, others: AdmittedPods, now: str) -> JsonObject | None:
    """The pod with what it asks for, or with the condition that says why not; None: no change."""
    asked, allocatable = resource_amounts(pod["spec"]).requests, allocatable_of(node)
    reason = message = ""
    for name in ("cpu", "memory"):
        capacity, used = allocatable.get(name, 0), others.used.get(name, 0)
        if not asked.get(name):
            continue
        if asked[name] > capacity:
            reason = "Infeasible"
            message = (
                f"Node didn't have enough capacity: {name}, requested: {asked[name]}, "
                f"capacity: {capacity}"
            )
            break
        if asked[name] > capacity - used and not reason:
            reason = "Deferred"
            message = (
                f"Node didn't have enough resource: {name}, requested: {asked[name]}, "
                f"used: {used}, capacity: {capacity}"
            )
    return _put_off(pod, reason, message, now) if reason else _given(pod)


def _given(pod: JsonObject) -> JsonObject:
    wanted = {each["name"]: each.get("resources") or EMPTY for each in pod["spec"]["containers"]}
    statuses = []
    for each in pod["status"]["containerStatuses"]:
        resources = wanted.get(each["name"], EMPTY)
        requests = resources.get("requests")
        allocated = {"allocatedResources": requests} if requests else {}
        statuses.append({**each, "resources": resources, **allocated})
    conditions = [each for each in pod["status"]["conditions"] if each["type"] != PENDING]
    status = {
        **pod["status"],
        "conditions": conditions,
        "containerStatuses": statuses,
        "observedGeneration": meta(pod).get("generation", 1),
    }
    return {**pod, "status": status}


def _put_off(pod: JsonObject, reason: str, message: str, now: str) -> JsonObject | None:
    has = {each["type"]: each for each in pod["status"].get("conditions") or ()}
    was = has.get(PENDING) or EMPTY
    if (was.get("reason"), was.get("message")) == (reason, message):
        return None
    condition = {
        "type": PENDING,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": was.get("lastTransitionTime", now),
        "reason": reason,
        "message": message,
        "observedGeneration": meta(pod).get("generation", 1),
    }
    conditions = [*(each for type_, each in has.items() if type_ != PENDING), condition]
    return {**pod, "status": {**pod["status"], "conditions": conditions}}
