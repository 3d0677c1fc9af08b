"""The field of a pod that names its PodGroup: whether there is such a field, and its rules.

Called for pods and for templates of pods. Invariant: with the gate GenericWorkload off the field
is dropped as if it had not been sent, except where it is stored already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.admission.checks import subdomain
from stellwerk_cluster.apimachinery.failures import Cause, bad_value
from stellwerk_cluster.apimachinery.feature_gates import GENERIC_WORKLOAD
from stellwerk_cluster.apimachinery.objects import EMPTY, pick

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

_FIELD = "schedulingGroup"
_POD = ("spec",)
_TEMPLATE = ("spec", "template", "spec")
_CRON_JOB = ("spec", "jobTemplate", "spec", "template", "spec")


def scheduling_group_causes(spec: JsonObject, field: str) -> Iterator[Cause]:
    """What is wrong with the group of a pod; that there is such a group is not asked."""
    group = spec.get(_FIELD)
    if group is None:
        return
    name = group.get("podGroupName")
    if name is None:
        text = "must specify one of: `podGroupName`"
        yield bad_value(f"{field}.{_FIELD}.podGroupName", None, text)
    else:
        yield from subdomain(name, f"{field}.{_FIELD}.podGroupName")


def group_of(pod: JsonObject) -> str:
    """The name of the pod's group in its namespace; empty without one."""
    name: str = (pod["spec"].get(_FIELD) or EMPTY).get("podGroupName", "")
    return name


def drop_group_of_pod(pod: JsonObject, old: JsonObject | None, cluster: Reader) -> None:
    """Drop the group of a pod where there are no groups."""
    _drop(pod, old, cluster, _POD)


def _drop(obj: JsonObject, old: JsonObject | None, cluster: Reader, at: tuple[str, ...]) -> None:
    if cluster.feature(GENERIC_WORKLOAD):
        return
    spec = pick(obj, at)
    if spec and _FIELD in spec and _FIELD not in (pick(old or EMPTY, at) or EMPTY):
        del spec[_FIELD]


def _of_create(
    at: tuple[str, ...],
) -> Callable[[JsonObject, Reader, ResourceKind], None]:
    return lambda obj, cluster, _kind: _drop(obj, None, cluster, at)


def _of_update(
    at: tuple[str, ...],
) -> Callable[[JsonObject, JsonObject, Reader, ResourceKind], None]:
    return lambda new, old, cluster, _kind: _drop(new, old, cluster, at)


TEMPLATE_CREATED, TEMPLATE_UPDATED = _of_create(_TEMPLATE), _of_update(_TEMPLATE)
"""For the kinds with a template of pods."""
CRON_JOB_CREATED, CRON_JOB_UPDATED = _of_create(_CRON_JOB), _of_update(_CRON_JOB)
