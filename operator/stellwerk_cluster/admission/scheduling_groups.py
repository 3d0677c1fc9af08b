"""The field of a pod that names its PodGroup: whether there is such a field, and its rules.

Called for pods and for templates of pods. Invariant: with the gate GenericWorkload off the field
is dropped as if it had not been sent, except where it is stored already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.checks import subdomain
from stellwerk_cluster.apimachinery.failures import Cause, bad_value
from stellwerk_cluster.apimachinery.feature_gates import GENERIC_WORKLOAD
from stellwerk_cluster.apimachinery.objects import EMPTY, pick

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

_FIELD: Final = "schedulingGroup"
_POD: Final = ("spec",)
_TEMPLATE: Final = ("spec", "template", "spec")
_CRON_JOB: Final = ("spec", "jobTemplate", "spec", "template", "spec")


def scheduling_group_causes(spec: JsonObject, field: str) -> Iterator[Cause]:
    """What is wrong with the group of a pod; that there is such a group is not asked."""
    group = spec.get("schedulingGroup")
    if group is None:
        return
    name = group.get("podGroupName")
    if name is None:
        text = "must specify one of: `podGroupName`"
        yield bad_value(f"{field}.schedulingGroup.podGroupName", None, text)
    else:
        yield from subdomain(name, f"{field}.schedulingGroup.podGroupName")


def group_of(pod: JsonObject) -> str:
    """The name of the pod's group in its namespace; empty without one."""
    name: str = (pod["spec"].get("schedulingGroup") or EMPTY).get("podGroupName", "")
    return name


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
