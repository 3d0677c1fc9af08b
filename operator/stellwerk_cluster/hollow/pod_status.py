"""The status that a kubelet writes for a pod at each step of its life.

The hollow kubelet calls these with the stored pod and gets the pod with its next status. Invariant:
conditions that are not the kubelet's own are kept, and a container's restarts never become fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from stellwerk_cluster.apimachinery.objects import EMPTY, meta

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_kube.json_values import JsonObject

_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
DISRUPTION_TARGET: Final = "DisruptionTarget"
TERMINATED_BY_KUBELET: Final = "TerminationByKubelet"


class PodAddresses(NamedTuple):
    """The addresses of a pod: its host's and its own."""

    host: str
    address: str


def is_sidecar(container: JsonObject) -> bool:
    """Whether an init container runs on beside the others."""
    return container.get("restartPolicy") == "Always"


def initial_containers(pod: JsonObject) -> list[JsonObject]:
    """The init containers that end before the others start."""
    return [each for each in pod["spec"].get("initContainers") or () if not is_sidecar(each)]


def finished_initial(pod: JsonObject) -> int:
    """The number of them that have succeeded."""
    names = {each["name"] for each in initial_containers(pod)}
    return sum(
        1
        for each in pod["status"].get("initContainerStatuses") or ()
        if each["name"] in names
        and (each["state"].get("terminated") or EMPTY).get("exitCode", 1) == 0
    )


def initializing(pod: JsonObject, place: PodAddresses, now: str, done: int) -> JsonObject:
    """The pod with so many init containers done, and the next one running."""
    current = initial_containers(pod)[done]["name"]
    names = [each["name"] for each in pod["spec"]["initContainers"]]
    before = _by_name(pod, "initContainerStatuses")
    statuses = []
    for position, container in enumerate(pod["spec"]["initContainers"]):
        started = position <= names.index(current)
        ends = position < names.index(current) and not is_sidecar(container)
        was = before.get(container["name"], EMPTY)
        statuses.append(_initial_status(container, was, now, started=started, ended=ends))
    waiting = {"waiting": {"reason": "PodInitializing"}}
    todo = [each["name"] for each in initial_containers(pod)[done:]]
    why = {
        "reason": "ContainersNotInitialized",
        "message": f"containers with incomplete status: [{' '.join(todo)}]",
    }
    unready = {
        "reason": "ContainersNotReady",
        "message": "containers with unready status: "
        f"[{' '.join(each['name'] for each in pod['spec']['containers'])}]",
    }
    reasons = {"Initialized": why, "Ready": unready, "ContainersReady": unready}
    status = {
        **_placed(pod, place, now),
        "phase": "Pending",
        "conditions": _conditions(pod, now, {"PodReadyToStartContainers"}, reasons),
        "initContainerStatuses": statuses,
        "containerStatuses": [
            _container_status(each, waiting, EMPTY, running=False)
            for each in pod["spec"]["containers"]
        ],
    }
    return {**pod, "status": status}


def started(pod: JsonObject, place: PodAddresses, now: str, *, ready: bool) -> JsonObject:
    """The pod with all containers running; those that had ended, once more."""
    before = _by_name(pod, "containerStatuses")
    status = {
        **_placed(pod, place, now),
        "phase": "Running",
        "containerStatuses": [
            _running_status(each, before.get(each["name"], EMPTY), now, ready=ready)
            for each in pod["spec"]["containers"]
        ],
    }
    status["conditions"] = _running_conditions(pod, now, ready=ready)
    initial = _by_name(pod, "initContainerStatuses")
    statuses = [
        _initial_status(
            each, initial.get(each["name"], EMPTY), now, started=True, ended=not is_sidecar(each)
        )
        for each in pod["spec"].get("initContainers") or ()
    ]
    if statuses:
        status["initContainerStatuses"] = statuses
    return {**pod, "status": status}


def became_ready(pod: JsonObject, now: str) -> JsonObject:
    """The running pod, its containers ready."""
    statuses = [{**each, "ready": True} for each in pod["status"]["containerStatuses"]]
    conditions = _running_conditions(pod, now, ready=True)
    status = {**pod["status"], "conditions": conditions, "containerStatuses": statuses}
    return {**pod, "status": status}


class End(NamedTuple):
    """The end of containers: exit code and reason."""

    exit_code: int
    reason: str


KILLED: Final = End(137, "Error")
"""The end of containers that did not stop within their grace period, or were given none."""
STOPPED: Final = End(143, "Error")
"""The end of containers that stop at the signal to do so."""


def ended(pod: JsonObject, now: str, end: End, phase: str) -> JsonObject:
    """The pod with all containers ended; `phase` is Running where they will start again."""
    statuses = [
        _ended_status(each, now, end) for each in pod["status"].get("containerStatuses") or ()
    ]
    finished = phase in {"Succeeded", "Failed"}
    why = (
        {"reason": "PodFailed" if phase == "Failed" else "PodCompleted"}
        if finished
        else {
            "reason": "ContainersNotReady",
            "message": "containers with unready status: "
            f"[{' '.join(each['name'] for each in statuses)}]",
        }
    )
    true = {"Initialized"} if finished else {"PodReadyToStartContainers", "Initialized"}
    status = {
        **pod["status"],
        "phase": phase,
        "conditions": _conditions(pod, now, true, dict.fromkeys(_CONDITIONS, why)),
        "containerStatuses": statuses,
    }
    initial = pod["status"].get("initContainerStatuses") or ()
    if finished and initial:
        # The kubelet stops sidecars after the other containers; hollow ones end without an error.
        last = end if end in (KILLED, STOPPED) else End(0, "Completed")
        status["initContainerStatuses"] = [
            _ended_status(each, now, last) if "running" in each["state"] else each
            for each in initial
        ]
    return {**pod, "status": status}


def stopped(pod: JsonObject, now: str, end: End) -> JsonObject:
    """The pod whose containers have stopped while its object has to stay: it takes no room."""
    if pod["status"].get("containerStatuses"):
        return ended(pod, now, end, "Failed")
    return {**pod, "status": {**pod["status"], "phase": "Failed"}}


def init_failed(pod: JsonObject, now: str, code: int) -> JsonObject:
    """The pod whose init container ended badly and is not tried again."""
    statuses = [
        _ended_status(each, now, End(code, "Error")) if "running" in each["state"] else each
        for each in pod["status"]["initContainerStatuses"]
    ]
    status = {**pod["status"], "phase": "Failed", "initContainerStatuses": statuses}
    return {**pod, "status": status}


def init_waiting(pod: JsonObject, now: str, code: int, message: str) -> JsonObject:
    """The pod whose init container ended badly and waits to be tried again."""
    statuses = [
        _backing_off(_ended_status(each, now, End(code, "Error")), message)
        if "running" in each["state"]
        else each
        for each in pod["status"]["initContainerStatuses"]
    ]
    return {**pod, "status": {**pod["status"], "initContainerStatuses": statuses}}


def init_restarted(pod: JsonObject, now: str) -> JsonObject:
    """The pod whose init container is tried once more."""
    statuses = []
    for each in pod["status"]["initContainerStatuses"]:
        status = each
        if "waiting" in each["state"] and each["state"]["waiting"]["reason"] == "CrashLoopBackOff":
            again = {"running": {"startedAt": now}}
            status = {**each, "state": again, "restartCount": each.get("restartCount", 0) + 1}
        statuses.append(status)
    return {**pod, "status": {**pod["status"], "initContainerStatuses": statuses}}


def backing_off(pod: JsonObject, message: Callable[[str], str]) -> JsonObject:
    """The pod whose ended containers wait for their restart; `message` is made of their names."""
    statuses = [
        _backing_off(each, message(each["name"])) for each in pod["status"]["containerStatuses"]
    ]
    return {**pod, "status": {**pod["status"], "containerStatuses": statuses}}


def failed(pod: JsonObject, now: str, reason: str, message: str) -> JsonObject:
    """The pod that the kubelet fails before or while it runs, its containers killed."""
    status = {"startTime": now, **pod["status"], "phase": "Failed"}
    if pod["status"].get("containerStatuses"):
        status = ended(pod, now, KILLED, "Failed")["status"]
    return {**pod, "status": {**status, "reason": reason, "message": message}}


def disrupted(pod: JsonObject, now: str, message: str) -> JsonObject:
    """The pod with the condition that names the kubelet as what ends it."""
    kept = [
        each for each in pod["status"].get("conditions") or () if each["type"] != DISRUPTION_TARGET
    ]
    condition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": TERMINATED_BY_KUBELET,
        "message": message,
    }
    return {**pod, "status": {**pod["status"], "conditions": [*kept, condition]}}


def is_running(pod: JsonObject) -> bool:
    """Whether containers run."""
    return any("running" in each["state"] for each in pod["status"].get("containerStatuses") or ())


def restarts_of(statuses: list[JsonObject]) -> int:
    """The restarts of the container that was restarted most often."""
    return max((each.get("restartCount", 0) for each in statuses), default=0)


def _placed(pod: JsonObject, place: PodAddresses, now: str) -> dict[str, Any]:
    address = place.host if pod["spec"].get("hostNetwork") else place.address
    return {
        **pod["status"],
        "observedGeneration": meta(pod).get("generation", 1),
        "hostIP": place.host,
        "hostIPs": [{"ip": place.host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": pod["status"].get("startTime") or now,
    }


def _by_name(pod: JsonObject, field: str) -> dict[str, JsonObject]:
    return {each["name"]: each for each in pod["status"].get(field) or ()}


def _running_conditions(pod: JsonObject, now: str, *, ready: bool) -> list[JsonObject]:
    if ready:
        return _conditions(pod, now, set(_CONDITIONS), EMPTY)
    names = " ".join(each["name"] for each in pod["spec"]["containers"])
    why = {
        "reason": "ContainersNotReady",
        "message": f"containers with unready status: [{names}]",
    }
    true = {"PodReadyToStartContainers", "Initialized"}
    return _conditions(pod, now, true, {"Ready": why, "ContainersReady": why})


def _conditions(
    pod: JsonObject, now: str, true: set[str], why: dict[str, JsonObject]
) -> list[JsonObject]:
    """The kubelet's conditions, those in `true` True, before those of others."""
    has = {each["type"]: each for each in pod["status"].get("conditions") or ()}
    own: list[JsonObject] = []
    for type_ in _CONDITIONS:
        status = "True" if type_ in true else "False"
        was = has.get(type_) or EMPTY
        since = was.get("lastTransitionTime") if was.get("status") == status else None
        condition: JsonObject = {
            "type": type_,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": since or now,
        }
        own.append({**condition, **(EMPTY if type_ in true else why.get(type_, EMPTY))})
    return [*own, *(each for type_, each in has.items() if type_ not in _CONDITIONS)]


def _initial_status(
    container: JsonObject, was: JsonObject, now: str, *, started: bool, ended: bool
) -> JsonObject:
    state = was.get("state") or EMPTY
    begun = (state.get("running") or EMPTY).get("startedAt", now)
    if ended and "terminated" not in state:
        end = {"exitCode": 0, "reason": "Completed", "startedAt": begun, "finishedAt": now}
        state = {"terminated": end}
    elif not started:
        state = {"waiting": {"reason": "PodInitializing"}}
    elif not ended and "running" not in state:
        state = {"running": {"startedAt": now}}
    status = _container_status(container, state, was, running=is_sidecar(container) and started)
    if not is_sidecar(container):
        # As the kubelet's prober: one that has succeeded is ready, one that runs has started.
        status["ready"] = (state.get("terminated") or EMPTY).get("exitCode") == 0
        status["started"] = "running" in state
    return status


def _running_status(container: JsonObject, was: JsonObject, now: str, *, ready: bool) -> JsonObject:
    state = was.get("state") or EMPTY
    if "running" in state:
        return was
    status = _container_status(container, {"running": {"startedAt": now}}, was, running=ready)
    status["started"] = True
    if "terminated" in state:
        status["lastState"] = state
        status["restartCount"] += 1
    elif "terminated" in (was.get("lastState") or EMPTY):
        status["restartCount"] += 1
    return status


def _ended_status(status: JsonObject, now: str, end: End) -> JsonObject:
    state = status["state"]
    if "running" not in state:
        return {**status, "ready": False, "started": False}
    terminated = {
        "exitCode": end.exit_code,
        "reason": end.reason,
        "startedAt": state["running"]["startedAt"],
        "finishedAt": now,
        "containerID": status["containerID"],
    }
    return {**status, "state": {"terminated": terminated}, "ready": False, "started": False}


def _backing_off(status: JsonObject, message: str) -> JsonObject:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
    last = status["state"] if "terminated" in status["state"] else status.get("lastState", {})
    return {**status, "state": waiting, "lastState": last}


def _container_status(
    container: JsonObject, state: JsonObject, was: JsonObject, *, running: bool
) -> JsonObject:
    name, image = container["name"], container.get("image", "")
    status = {
        "name": name,
        "image": image,
        "imageID": image,
        "containerID": f"hollow://{name}",
        "ready": running,
        "started": running,
        "restartCount": was.get("restartCount", 0),
        "state": state,
        "lastState": was.get("lastState", {}),
    }
    resources = container.get("resources") or EMPTY
    if resources.get("requests") or resources.get("limits"):
        status["resources"] = was.get("resources", resources)
        if resources.get("requests"):
            status["allocatedResources"] = was.get("allocatedResources", resources["requests"])
    return status
