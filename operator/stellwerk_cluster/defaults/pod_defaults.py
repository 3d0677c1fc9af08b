"""Defaults of pods and of pod templates, as the API server stores them.

Called for pods, and by `workloads` for the templates inside Deployments and others. Invariant: a
second pass changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.pods import pod_amounts, qos_class

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk.models.json_values import JsonObject

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS: Final = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_POD_LEVEL: Final = ("cpu", "memory")


def default_pod(pod: JsonObject) -> None:
    """Fill in the defaults of a pod, its status included."""
    pod["spec"] = spec = pod.get("spec") or {}
    default_pod_spec(spec)
    for container in containers_of(spec):
        _default_requests(container)
    if (spec.get("resources") or EMPTY).get("limits"):
        _default_pod_requests(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        _default_host_ports(spec)
    status = pod["status"] = pod.get("status") or {}
    status.setdefault("phase", "Pending")
    status.setdefault("qosClass", qos_class(spec))


def default_pod_spec(spec: JsonObject) -> None:
    """Fill in what templates get too, and no table can say."""
    for container in containers_of(spec):
        if "imagePullPolicy" not in container:
            container["imagePullPolicy"] = pull_policy(container.get("image", ""))
        for name in _PROBES:
            if name in container:
                _default_probe(container[name])
    for volume in spec.get("volumes") or ():
        if not volume.keys() - {"name"}:
            volume["emptyDir"] = {}
    if spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]


def containers_of(spec: JsonObject) -> Iterable[JsonObject]:
    """All containers of a pod, the initial ones first."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()
    yield from spec.get("ephemeralContainers") or ()


def pull_policy(image: str) -> str:
    """Always for an image without a tag or with the tag latest, unless it is named by digest."""
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _default_probe(probe: JsonObject) -> None:
    for name, value in _PROBE_DEFAULTS.items():
        if not probe.get(name):
            probe[name] = value


def _default_requests(holder: JsonObject) -> None:
    """A resource with a limit and no request requests its limit."""
    resources = holder.get("resources") or EMPTY
    limits = resources.get("limits")
    if not limits:
        return
    requests = {**limits, **(resources.get("requests") or {})}
    holder["resources"] = {**resources, "requests": dict(sorted(requests.items()))}


def _default_pod_requests(spec: JsonObject) -> None:
    """A pod with limits of its own requests what its containers do, or else its limits."""
    resources = spec["resources"]
    limits, requests = resources["limits"], resources.get("requests") or {}
    own = {
        name: amount
        for name, amount in pod_amounts(spec, "requests", whole_pod=False).items()
        if name in _POD_LEVEL
    }
    known = {
        name: amount
        for name, amount in limits.items()
        if name in _POD_LEVEL or name.startswith("hugepages-")
    }
    filled = {**known, **own, **requests}
    spec["resources"] = {**resources, "requests": dict(sorted(filled.items()))}


def _default_host_ports(spec: JsonObject) -> None:
    for container in containers_of(spec):
        for port in container.get("ports") or ():
            port.setdefault("hostPort", port.get("containerPort", 0))
