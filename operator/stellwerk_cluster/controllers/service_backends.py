"""The pods behind a Service, and the ports they are reached at.

Used by `endpoints`; pure functions of Services and pods. Invariant: a pod without an address, or
one that has finished, is behind no Service.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, labels_of
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject


@dataclass(frozen=True, slots=True)
class Backend:
    """A pod behind a Service."""

    pod: JsonObject
    address: str
    serving: bool
    """The pod is ready, be it terminating or not."""
    terminating: bool


def backend_of(pod: JsonObject) -> Backend | None:
    """The pod as a backend; None: it cannot be one."""
    address = pod["status"].get("podIP")
    if not address or is_finished(pod):
        return None
    return Backend(pod, address, is_ready(pod), is_terminating(pod))


def chooses(service: JsonObject, labels: dict[str, str]) -> bool:
    """Whether the selector of a Service chooses pods with these labels."""
    selector = service["spec"].get("selector")
    if not selector or service["spec"].get("type") == "ExternalName":
        return False
    return all(labels.get(key) == value for key, value in selector.items())


def ports_of(service: JsonObject, pod: JsonObject) -> list[JsonObject]:
    """The ports of a Service at a pod; named ones that the pod does not have are left out."""
    found = []
    for port in service["spec"].get("ports") or ():
        number = _number(port, pod)
        if number:
            named = {"name": port["name"]} if port.get("name") else {}
            protocol = port.get("appProtocol")
            app = {"appProtocol": protocol} if protocol else {}
            found.append({**named, "port": number, "protocol": port["protocol"], **app})
    return found


def _number(port: JsonObject, pod: JsonObject) -> int:
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target or int(port["port"])
    for container in pod["spec"]["containers"]:
        for each in container.get("ports") or ():
            if each.get("name") == target and each.get("protocol", "TCP") == port["protocol"]:
                return int(each["containerPort"])
    return 0


def facts_of(pod: JsonObject) -> tuple[object, ...]:
    """What of a pod its Services see: when none of this changes, they need not look."""
    status = pod["status"]
    return (
        labels_of(pod),
        status.get("podIP"),
        is_ready(pod),
        is_terminating(pod),
        is_finished(pod),
        pod["spec"].get("nodeName"),
    )


def target_of(pod: JsonObject) -> JsonObject:
    """How an endpoint names its pod."""
    metadata = pod["metadata"]
    return {
        "kind": "Pod",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
    }


def hostname_of(service: JsonObject, pod: JsonObject) -> JsonObject:
    """The host name of a pod whose subdomain is the Service."""
    spec = pod.get("spec") or EMPTY
    same = spec.get("subdomain") == service["metadata"]["name"]
    return {"hostname": spec["hostname"]} if same and spec.get("hostname") else {}
