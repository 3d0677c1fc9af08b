"""Defaults of what makes pods: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs.

Called through their strategies. Invariant: a pod template gets the defaults of a pod, and the pods
of a Job have the labels by which the Job finds them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_kube.schema.defaults import default_template

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_JOB_UID: Final = "batch.kubernetes.io/controller-uid"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""The annotation that holds how many templates a DaemonSet has had."""
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def default_job(job: JsonObject) -> None:
    """One completion, six retries."""
    spec = job["spec"]
    default_template(job)
    if "parallelism" not in spec and "completions" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("manualSelector", False)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")


def label_job(job: JsonObject, _cluster: Reader) -> None:
    """Give the pods of a job, and the job itself, the labels by which they are found."""
    spec, metadata = job["spec"], job["metadata"]
    if spec["manualSelector"]:
        return
    uid, name = metadata["uid"], metadata.get("name", "")
    labels = {_JOB_UID: uid, _JOB_NAME: name, "controller-uid": uid, "job-name": name}
    template = spec["template"]
    template["metadata"] = {**(template.get("metadata") or {})}
    for holder in (template["metadata"], metadata):
        holder["labels"] = dict(sorted({**(holder.get("labels") or {}), **labels}.items()))
    spec["selector"] = {"matchLabels": {_JOB_UID: uid}}


def default_deployment(deployment: JsonObject) -> None:
    """Rolled over by quarters."""
    default_template(deployment)
    strategy = deployment["spec"]["strategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def default_stateful_set(stateful_set: JsonObject) -> None:
    """Rolled over from the last pod to the first."""
    default_template(stateful_set)
    spec = stateful_set["spec"]
    strategy = spec["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
        claim["status"] = {"phase": "Pending"}
    stateful_set["status"] = {"replicas": 0, "availableReplicas": 0, **stateful_set["status"]}


def default_daemon_set(daemon_set: JsonObject) -> None:
    """Rolled over one node at a time."""
    default_template(daemon_set)
    strategy = daemon_set["spec"]["updateStrategy"]
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    _set_template_generation(daemon_set, max(1, _template_generation(daemon_set)))


def count_template(new: JsonObject, old: JsonObject, subresource: str) -> None:
    """Count the templates that a DaemonSet has had; what a client says of it does not matter.

    kube-controller-manager and `kubectl rollout status` take a pod for up to date by this number.
    """
    changed = not subresource and new["spec"]["template"] != old["spec"]["template"]
    _set_template_generation(new, max(1, _template_generation(old)) + changed)


def _template_generation(daemon_set: JsonObject) -> int:
    given = (daemon_set["metadata"].get("annotations") or EMPTY).get(TEMPLATE_GENERATION, "")
    return int(given) if _INTEGER.fullmatch(given) else 0


def _set_template_generation(daemon_set: JsonObject, number: int) -> None:
    annotations = daemon_set["metadata"].get("annotations") or EMPTY
    daemon_set["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: str(number)}
