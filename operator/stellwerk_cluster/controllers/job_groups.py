"""The group of a Job whose pods run all at once, and the Workload that it belongs to.

Asked by the Job controller where the gate WorkloadWithJob is on. Invariant: a Job has one Workload
and one group, made before its first pod; a Job that began without them goes on without them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.feature_gates import JOBS
from stellwerk_cluster.apimachinery.objects import EMPTY, controller_of
from stellwerk_cluster.validation.jobs import runs_all_at_once
from stellwerk_cluster.validation.scheduling import POD_GROUPS, WORKLOADS
from stellwerk_kube.schema.types import types

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_GROUP: Final = "scheduling.k8s.io"
_MAX_NAME_CHARACTERS: Final = 253
_LONGEST_PREFIX: Final = 63 - len("-pgt-0")
_HASH_DIGITS: Final = 10
"""Digits of the hash at the end of a name, so that cut names differ."""


class JobGroups:
    """Finds or makes the group that the pods of a Job belong to."""

    def __init__(self, api: Api, made: Callable[[JsonObject, str], None]) -> None:
        """Write with `api`; `made` hears of each new Workload: (job, its name)."""
        self._api = api
        self._made = made
        self._enabled = api.feature(JOBS)

    def group_of(self, job: JsonObject, owner: JsonObject, *, is_new: bool) -> str:
        """The name of the group of a Job's pods; empty: they belong to none.

        Args:
            job: whose pods are to be started.
            owner: a reference to it as a controller.
            is_new: whether it has not had a pod yet.

        Raises:
            StatusError: the Workload or the group is refused.
        """
        if not self._enabled or not runs_all_at_once(job["spec"]):
            return ""
        name = job["metadata"]["name"]
        workloads = self._referring(WORKLOADS, job, lambda each: _job_of(each) == name)
        if not workloads and is_new:
            workloads = [self._new_workload(job, owner)]
        workload = _only(workloads, job)
        if workload is None or len(workload["spec"]["podGroupTemplates"]) != 1:
            return ""
        wanted = workload["metadata"]["name"]
        groups = self._referring(POD_GROUPS, job, lambda each: _workload_of(each) == wanted)
        group = _only(groups or [self._new_group(job, owner, workload)], job)
        return "" if group is None else str(group["metadata"]["name"])

    def _referring(
        self, storage_name: str, job: JsonObject, refers: Callable[[JsonObject], bool]
    ) -> list[JsonObject]:
        objects = self._api.all(storage_name, job["metadata"]["namespace"])
        return [each for each in objects if refers(each)]

    def _new_workload(self, job: JsonObject, owner: JsonObject) -> JsonObject:
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        template = {
            "name": f"{name[:_LONGEST_PREFIX]}-pgt-0",
            "schedulingPolicy": {"gang": {"minCount": job["spec"]["parallelism"]}},
        }
        body = {
            "metadata": {
                "name": _named(job["metadata"]["uid"], name),
                "ownerReferences": [owner],
            },
            "spec": {
                "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": name},
                "podGroupTemplates": [template],
            },
        }
        workload = self._api.create(self._api.kinds.resource("workloads", _GROUP), namespace, body)
        self._made(job, workload.obj["metadata"]["name"])
        return workload.obj

    def _new_group(self, job: JsonObject, owner: JsonObject, workload: JsonObject) -> JsonObject:
        (template,) = workload["spec"]["podGroupTemplates"]
        metadata = workload["metadata"]
        workload_name, template_name = metadata["name"], template["name"]
        of_workload = {
            # Served to clients, where the stored version may not be.
            "apiVersion": self._api.kinds.resource("workloads", _GROUP).api_version,
            "kind": workload["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        body = {
            "metadata": {
                "name": _named("", metadata["name"], template["name"]),
                "ownerReferences": [owner, of_workload],
            },
            "spec": {"schedulingPolicy": template["schedulingPolicy"]},
        }
        kind = self._api.kinds.resource("podgroups", _GROUP)
        if "workloadRef" in types()[types()[kind.type_name]["spec"].element]:
            body["spec"]["workloadRef"] = {
                "workloadName": workload_name,
                "templateName": template_name,
            }
        else:
            reference = {"workloadName": workload_name, "podGroupTemplateName": template_name}
            body["spec"]["podGroupTemplateRef"] = {"workload": reference}
        return self._api.create(kind, job["metadata"]["namespace"], body).obj


def _only(found: list[JsonObject], job: JsonObject) -> JsonObject | None:
    """The object, if there is one alone and the Job controls it."""
    if len(found) != 1:
        return None
    owner = controller_of(found[0])
    is_own = owner is not None and owner["uid"] == job["metadata"]["uid"]
    return found[0] if is_own else None


def _job_of(workload: JsonObject) -> str:
    reference = workload["spec"].get("controllerRef") or EMPTY
    is_job = (reference.get("apiGroup"), reference.get("kind")) == ("batch", "Job")
    return reference["name"] if is_job else ""


def _workload_of(group: JsonObject) -> str:
    spec = group["spec"]
    reference = (spec.get("podGroupTemplateRef") or EMPTY).get("workload") or EMPTY
    reference = reference or spec.get("workloadRef") or EMPTY
    return str(reference.get("workloadName", ""))


def _named(uid: str, *parts: str) -> str:
    """The parts and a hash of them; long parts are cut to equal lengths."""
    digest = hashlib.sha256("/".join((uid, *parts)).encode()).hexdigest()[:_HASH_DIGITS]
    longest = (_MAX_NAME_CHARACTERS - _HASH_DIGITS) // len(parts) - 1
    return "-".join((*(part[:longest].rstrip("-.") for part in parts), digest))
