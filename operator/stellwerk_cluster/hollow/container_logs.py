"""The container logs of hollow pods, as `kubectl logs` shows them: made from the pod's status.

The API server asks for it. Invariant: every line is made of what the pod's object says; nothing is
remembered elsewhere, so that logs outlive a restart of the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from stellwerk_cluster.apimachinery.failures import bad_request
from stellwerk_cluster.apimachinery.objects import EMPTY, meta, pick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

_BY: Final = {
    "PreemptionByScheduler": "preempted by the scheduler",
    "DeletionByTaintManager": "evicted by the taint manager",
    "EvictionByEvictionAPI": "evicted by a request to the eviction API",
    "DeletionByPodGC": "deleted by the pod garbage collector",
    "TerminationByKubelet": "killed by the kubelet",
}
"""Reason of the condition DisruptionTarget → what has ended the pod."""

_KILLED_BY: Final = {
    "OOMKilled": ", killed by the kernel because memory ran out",
    "Unknown": ", lost with its machine",
}
"""Reason of a container's end → by what, where no condition of the pod says so."""


_Moment: TypeAlias = "tuple[str | None, str]"
"""The time of a line and its text; a status that another client wrote may lack the time."""


class LogLine(NamedTuple):
    """One thing that happened, and when."""

    at: str
    text: str


def pod_log(pod: JsonObject, container: str, previous: bool) -> list[LogLine]:  # noqa: FBT001
    """The story of one container of a pod, in order of time; of the run before it alone if asked.

    Raises:
        StatusError: the pod has no such container, or several and none is named, or there was no
            run before (400).
    """
    name = _container(pod, container)
    created: str = meta(pod)["creationTimestamp"]
    if not previous:
        lines = [LogLine(at or created, text) for at, text in _lines(pod, name)]
        return sorted(lines, key=lambda line: line.at)
    ended = [line for each in _statuses(pod, name) for line in _ended(each, "lastState")]
    if not ended:
        named = f'container "{name}" in pod "{meta(pod)["name"]}"'
        raise bad_request(f"previous terminated {named} not found")
    return [LogLine(at or created, text) for at, text in ended]


def _container(pod: JsonObject, name: str) -> str:
    spec = pod["spec"]
    names = [each["name"] for each in spec["containers"]]
    initial = [each["name"] for each in spec.get("initContainers") or ()]
    pod_name = meta(pod)["name"]
    if name and name not in (*names, *initial):
        raise bad_request(f"container {name} is not valid for pod {pod_name}")
    if not name and len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {pod_name}, "
            f"choose one of: [{' '.join(names)}]"
        )
    return name or str(names[0])


def _lines(pod: JsonObject, container: str) -> Iterator[_Moment]:
    status, spec = pod.get("status") or EMPTY, pod["spec"]
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    node = spec.get("nodeName", "")
    scheduled = conditions.get("PodScheduled", EMPTY)
    at = scheduled.get("lastTransitionTime")
    if node:
        yield at, f"scheduled to {node}"
    elif scheduled.get("message"):
        yield at, f"not scheduled: {scheduled['message']}"
    if status.get("startTime"):
        yield status["startTime"], f"started by the kubelet of {node}"
    yield from _of_container(pod, container)
    target = conditions.get("DisruptionTarget")
    if target is not None:
        by = _BY.get(target.get("reason", ""), target.get("reason", "disrupted"))
        yield target.get("lastTransitionTime"), f"{by}: {target.get('message', '')}".rstrip(": ")
    if status.get("reason"):
        at = (conditions.get("Ready") or EMPTY).get("lastTransitionTime")
        text = f"{status['reason']}: {status.get('message', '')}".strip()
        yield at or status.get("startTime"), text
    if meta(pod).get("deletionTimestamp"):
        seconds = meta(pod).get("deletionGracePeriodSeconds", 0)
        at = meta(pod)["deletionTimestamp"]
        yield at, f"deleted with a grace period of {seconds} s, which ends here"


def _statuses(pod: JsonObject, name: str) -> Iterator[JsonObject]:
    status = pod.get("status") or EMPTY
    for field in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(field) or ():
            if each.get("name") == name:
                yield each


def _ended(status: JsonObject, field: str) -> Iterator[_Moment]:
    """A run of a container that has ended."""
    end = pick(status, (field, "terminated"))
    if not isinstance(end, dict):
        return
    run = status.get("restartCount", 0)
    if field == "lastState" and not pick(status, ("state", "waiting")):
        run -= 1
    yield end.get("startedAt"), _start(status, run)
    reason, code = end.get("reason", ""), end.get("exitCode", 0)
    text = ": ".join(filter(None, (f"container {status['name']} ended", reason)))
    yield end.get("finishedAt"), f"{text}, exit code {code}{_KILLED_BY.get(reason, '')}"


def _start(status: JsonObject, run: int) -> str:
    """The time at which a run started, as long as the status has it."""
    text = f"image {status.get('image', '')} is present, container {status['name']} started"
    return f"{text}, restart {run}" if run else text


def _of_container(pod: JsonObject, name: str) -> Iterator[_Moment]:
    for each in _statuses(pod, name):
        yield from _ended(each, "lastState")
        yield from _ended(each, "state")
        running, waiting = (pick(each, ("state", key)) for key in ("running", "waiting"))
        if running:
            yield running.get("startedAt"), _start(each, each.get("restartCount", 0))
        elif waiting and waiting.get("message"):
            last = pick(each, ("lastState", "terminated")) or EMPTY
            at = last.get("finishedAt") or (pod.get("status") or EMPTY).get("startTime")
            yield at, f"{waiting.get('reason', '')}: {waiting['message']}"
