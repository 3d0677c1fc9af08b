"""Pods and pod templates before they are validated: label keys, groups, fields that stay.

Called through the strategies of pods and of what makes pods. Invariant: a second pass changes
nothing; label keys stay beside the selectors made from them; with the gate GenericWorkload off the
group of a pod is dropped as if it had not been sent, except where it is stored already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.feature_gates import GENERIC_WORKLOAD
from stellwerk_cluster.apimachinery.objects import EMPTY, pick
from stellwerk_kube.schema import defaults

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

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


def merge_label_keys(pod: JsonObject, _cluster: Reader) -> None:
    """Give selectors with label keys the values that the new pod has under them."""
    defaults.merge_label_keys(pod)


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
    """Drop the group of the pods of a new object with a template."""
    _drop(owner, None, cluster, _template_of(owner))


def drop_group_of_template(
    new: JsonObject, old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """Drop the group of the pods of a changed object with a template."""
    _drop(new, old, cluster, _template_of(new))


def _template_of(owner: JsonObject) -> tuple[str, ...]:
    return _CRON_JOB if "jobTemplate" in owner["spec"] else _TEMPLATE


def _drop(obj: JsonObject, old: JsonObject | None, cluster: Reader, at: tuple[str, ...]) -> None:
    if cluster.feature(GENERIC_WORKLOAD):
        return
    spec = pick(obj, at)
    if spec and _FIELD in spec and _FIELD not in (pick(old or EMPTY, at) or EMPTY):
        del spec[_FIELD]
