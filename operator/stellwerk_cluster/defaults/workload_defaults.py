"""Defaults of what makes pods: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs.

Called through their strategies. Invariant: a pod template gets the defaults of a pod, and the pods
of a Job have the labels by which the Job finds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.defaults.pod_defaults import default_pod_spec

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.strategy import Reader

_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_JOB_UID: Final = "batch.kubernetes.io/controller-uid"


def default_job(job: JsonObject) -> None:
    """One completion, six retries."""
    spec = job["spec"]
    if spec.get("template"):
        default_pod_spec(spec["template"]["spec"])
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


_HISTORY: Final = 10
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def _default_template(workload: JsonObject) -> None:
    template = workload["spec"].get("template")
    if template:
        default_pod_spec(template["spec"])


def default_deployment(deployment: JsonObject) -> None:
    """One replica, rolled over by quarters."""
    _default_template(deployment)
    spec = deployment["spec"]
    spec.setdefault("replicas", 1)
    strategy = spec["strategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    spec.setdefault("progressDeadlineSeconds", 600)


def default_replica_set(replica_set: JsonObject) -> None:
    """One replica."""
    _default_template(replica_set)
    replica_set["spec"].setdefault("replicas", 1)
    replica_set["status"] = {"replicas": 0, **replica_set["status"]}


def default_replication_controller(controller: JsonObject) -> None:
    """One replica, selected by the labels of the template."""
    _default_template(controller)
    spec = controller["spec"]
    spec.setdefault("replicas", 1)
    labels = ((spec.get("template") or EMPTY).get("metadata") or EMPTY).get("labels")
    if labels:
        spec.setdefault("selector", labels)
        controller["metadata"].setdefault("labels", labels)
    controller["status"] = {"replicas": 0, **controller["status"]}


def default_stateful_set(stateful_set: JsonObject) -> None:
    """One replica, in order."""
    _default_template(stateful_set)
    spec = stateful_set["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec["updateStrategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    for claim in spec.get("volumeClaimTemplates") or ():
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
        claim["spec"].setdefault("volumeMode", "Filesystem")
        claim["status"] = {"phase": "Pending"}
    stateful_set["status"] = {"replicas": 0, "availableReplicas": 0, **stateful_set["status"]}


def default_daemon_set(daemon_set: JsonObject) -> None:
    """Rolled over one node at a time."""
    _default_template(daemon_set)
    spec = daemon_set["spec"]
    strategy = spec["updateStrategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    annotations = daemon_set["metadata"].setdefault("annotations", {})
    annotations.setdefault(_TEMPLATE_GENERATION, "1")


def default_pod_template(template: JsonObject) -> None:
    """The defaults of the pod inside."""
    if template.get("template"):
        default_pod_spec(template["template"]["spec"])


def default_cron_job(cron_job: JsonObject) -> None:
    """Jobs may run side by side; three that succeeded and one that failed are kept."""
    spec = cron_job["spec"]
    template = (spec["jobTemplate"].get("spec") or EMPTY).get("template")
    if template:
        default_pod_spec(template["spec"])
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = "Allow"
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
