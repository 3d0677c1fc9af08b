"""Pods and pod templates before they are validated: defaults, label keys, groups, fields that stay.

Called through the strategies of pods and of what makes pods. Invariant: a second pass changes
nothing; label keys stay beside the selectors made from them; with the gate GenericWorkload off the
group of a pod is dropped as if it had not been sent, except where it is stored already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.feature_gates import GENERIC_WORKLOAD
from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of, pick
from stellwerk_cluster.apimachinery.pods import pod_amounts, qos_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_OPERATORS: Final = {"matchLabelKeys": "In", "mismatchLabelKeys": "NotIn"}
_KEPT: Final = (
    "priority",
    "preemptionPolicy",
    "nodeName",
    "serviceAccountName",
    "overhead",
    "priorityClassName",
)
_RESIZED: Final = ("resources", "resizePolicy")
_FIELD: Final = "schedulingGroup"
_POD: Final = ("spec",)
_TEMPLATE: Final = ("spec", "template", "spec")
_CRON_JOB: Final = ("spec", "jobTemplate", "spec", "template", "spec")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS: Final = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_POD_LEVEL: Final = ("cpu", "memory")


def merge_label_keys(pod: JsonObject, _cluster: Reader) -> None:
    """Give selectors with label keys the values that the pod itself has under them."""
    labels = labels_of(pod)
    for holder in _holders(pod["spec"]):
        selector = holder.get("labelSelector")
        added = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for name, operator in _OPERATORS.items()
            for key in holder.get(name) or ()
            if key in labels
        ]
        if selector is not None and added:
            expressions = [*(selector.get("matchExpressions") or ()), *added]
            holder["labelSelector"] = {**selector, "matchExpressions": expressions}


def _holders(spec: JsonObject) -> Iterator[JsonObject]:
    """All terms and constraints of a pod that may have label keys."""
    yield from spec.get("topologySpreadConstraints") or ()
    affinity = spec.get("affinity") or EMPTY
    for part in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(part) or EMPTY
        yield from rules.get(_REQUIRED) or ()
        for weighted in rules.get(_PREFERRED) or ():
            yield weighted.get("podAffinityTerm") or {}


def prepare_pod_update(new: JsonObject, old: JsonObject, subresource: str) -> None:
    """Put back the fields that an update may not change; the QoS class stays as it was decided."""
    spec, was = new["spec"], old["spec"]
    if subresource == "status":
        new["status"]["qosClass"] = old["status"].get("qosClass", "BestEffort")
    elif subresource == "ephemeralcontainers":
        changed = spec.get("ephemeralContainers")
        new["spec"] = {**was, **({"ephemeralContainers": changed} if changed else {})}
        if not changed:
            new["spec"].pop("ephemeralContainers", None)
        new["metadata"] = dict(old["metadata"])
    elif subresource == "resize":
        new["spec"] = _with_new_resources(spec, was)
        new["metadata"] = dict(old["metadata"])
    else:
        for name in _KEPT:
            if name in was and name not in spec:
                spec[name] = was[name]
        if "ephemeralContainers" in was:
            spec["ephemeralContainers"] = was["ephemeralContainers"]
        else:
            spec.pop("ephemeralContainers", None)


def _with_new_resources(spec: JsonObject, was: JsonObject) -> JsonObject:
    """The stored specification with the resources of the new one, where containers agree."""
    resized = dict(was)
    for group in ("containers", "initContainers"):
        given = {each.get("name"): each for each in spec.get(group) or ()}
        if group in was:
            resized[group] = [
                _resized(each, given.get(each.get("name"), each)) for each in was[group]
            ]
    if spec.get("resources") is not None:
        resized["resources"] = spec["resources"]
    return resized


def _resized(container: JsonObject, given: JsonObject) -> JsonObject:
    kept = {name: value for name, value in container.items() if name not in _RESIZED}
    return {**kept, **{name: given[name] for name in _RESIZED if name in given}}


def drop_group_of_pod(pod: JsonObject, old: JsonObject | None, cluster: Reader) -> None:
    """Drop the group of a pod where there are no groups."""
    _drop(pod, old, cluster, _POD)


def drop_group_of_new_template(owner: JsonObject, cluster: Reader, _kind: ResourceKind) -> None:
    """The same for the pods of a new object with a template."""
    _drop(owner, None, cluster, _template_of(owner))


def drop_group_of_template(
    new: JsonObject, old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """The same for the pods of a changed object with a template."""
    _drop(new, old, cluster, _template_of(new))


def _template_of(owner: JsonObject) -> tuple[str, ...]:
    return _CRON_JOB if "jobTemplate" in owner["spec"] else _TEMPLATE


def _drop(obj: JsonObject, old: JsonObject | None, cluster: Reader, at: tuple[str, ...]) -> None:
    if cluster.feature(GENERIC_WORKLOAD):
        return
    spec = pick(obj, at)
    if spec and _FIELD in spec and _FIELD not in (pick(old or EMPTY, at) or EMPTY):
        del spec[_FIELD]


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
