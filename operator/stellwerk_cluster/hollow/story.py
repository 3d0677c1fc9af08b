"""What `kubectl logs` shows of a hollow pod: its story, as its status tells it.

The API server asks for it. Invariant: every line is made of what the pod's object says; nothing is
remembered elsewhere, so that the story outlives a restart of the cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_cluster.apimachinery.failures import bad_request
from stellwerk_cluster.apimachinery.objects import EMPTY, meta, pick

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stellwerk.models.json_values import JsonObject

_BY: Final = {
    "PreemptionByScheduler": "preempted by the scheduler",
    "DeletionByTaintManager": "evicted by the taint manager",
    "EvictionByEvictionAPI": "evicted by a request to the eviction API",
    "DeletionByPodGC": "deleted by the pod garbage collector",
    "TerminationByKubelet": "killed by the kubelet",
}
"""Reason of the condition DisruptionTarget → what has ended the pod."""


class Line(NamedTuple):
    """One thing that happened, and when."""

    at: str
    text: str


def pod_log(pod: JsonObject, query: Mapping[str, str]) -> str:
    """The story of one container of a pod, as the options of the request want it.

    Raises:
        StatusError: the pod has no such container, or several and none is named (400).
    """
    container = _container(pod, query.get("container", ""))
    lines = sorted(_lines(pod, container), key=lambda line: line.at)
    tail = query.get("tailLines", "")
    if tail.isdecimal():
        lines = lines[-int(tail) :] if int(tail) else []
    stamped = query.get("timestamps") == "true"
    return "".join(f"{line.at} {line.text}\n" if stamped else f"{line.text}\n" for line in lines)


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


def _lines(pod: JsonObject, container: str) -> Iterator[Line]:
    status, spec = pod.get("status") or EMPTY, pod["spec"]
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    node = spec.get("nodeName", "")
    scheduled = conditions.get("PodScheduled", EMPTY)
    if node:
        at = scheduled.get("lastTransitionTime") or meta(pod)["creationTimestamp"]
        yield Line(at, f"scheduled to {node}")
    elif scheduled.get("message"):
        yield Line(scheduled["lastTransitionTime"], f"not scheduled: {scheduled['message']}")
    if status.get("startTime"):
        yield Line(status["startTime"], f"taken up by the kubelet of {node}")
    yield from _of_container(pod, container)
    target = conditions.get("DisruptionTarget")
    if target is not None:
        by = _BY.get(target.get("reason", ""), target.get("reason", "disrupted"))
        yield Line(target["lastTransitionTime"], f"{by}: {target.get('message', '')}".rstrip(": "))
    if status.get("reason"):
        at = (conditions.get("Ready") or EMPTY).get("lastTransitionTime") or status["startTime"]
        yield Line(at, f"{status['reason']}: {status.get('message', '')}".strip())
    if meta(pod).get("deletionTimestamp"):
        seconds = meta(pod).get("deletionGracePeriodSeconds", 0)
        at = meta(pod)["deletionTimestamp"]
        yield Line(at, f"deleted with a grace period of {seconds} s, which ends here")


def _of_container(pod: JsonObject, name: str) -> Iterator[Line]:
    status = pod.get("status") or EMPTY
    found = [
        each
        for field in ("initContainerStatuses", "containerStatuses")
        for each in status.get(field) or ()
        if each["name"] == name
    ]
    for each in found:
        ends = [pick(each, ("lastState", "terminated")), pick(each, ("state", "terminated"))]
        for end in ends:
            if end:
                yield Line(end["startedAt"], f"container {name} started from {each['image']}")
                text = f"container {name} ended: {end['reason']}, exit code {end['exitCode']}"
                yield Line(end["finishedAt"], text)
        running, waiting = (pick(each, ("state", key)) for key in ("running", "waiting"))
        if running:
            text = f"image {each['image']} is present, container {name} started"
            restarts = each.get("restartCount", 0)
            yield Line(running["startedAt"], f"{text}, restart {restarts}" if restarts else text)
        elif waiting and waiting.get("message"):
            last = ends[0] or EMPTY
            at = last.get("finishedAt") or status.get("startTime", "")
            yield Line(at, f"{waiting['reason']}: {waiting['message']}")
