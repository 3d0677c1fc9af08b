"""The rules of what makes pods: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs.

Called through their strategies. Invariant: a pod template gets the defaults of a pod, and is
validated as a pod is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.selectors import parse_label_selector
from stellwerk_cluster.admission.placement_validation import label_selector_causes
from stellwerk_cluster.admission.pod_defaults import default_pod_spec
from stellwerk_cluster.admission.pod_validation import pod_spec_causes
from stellwerk_cluster.apimachinery.failures import Cause, bad_value, required
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.admission.strategy import Reader

_HISTORY: Final = 10
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_JOB_UID: Final = "batch.kubernetes.io/controller-uid"


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


def default_job(job: JsonObject) -> None:
    """One completion, six retries."""
    _default_template(job)
    spec = job["spec"]
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


def default_pod_template(template: JsonObject) -> None:
    """The defaults of the pod inside."""
    if template.get("template"):
        default_pod_spec(template["template"]["spec"])


def validate_workload(workload: JsonObject) -> list[Cause]:
    """What is wrong with selector, template and replicas."""
    spec = workload["spec"]
    selector = spec.get("selector")
    causes = [] if selector else [required("spec.selector")]
    causes += label_selector_causes(selector or EMPTY, "spec.selector")
    template = spec.get("template") or EMPTY
    labels = (template.get("metadata") or EMPTY).get("labels") or {}
    parsed = None if causes else parse_label_selector(selector)
    if parsed is None or not parsed.matches(labels):
        text = "`selector` does not match template `labels`"
        causes.append(bad_value("spec.template.metadata.labels", labels, text))
    if spec.get("replicas", 0) < 0:
        causes.append(
            bad_value("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
        )
    return [*causes, *pod_spec_causes(template.get("spec") or EMPTY, "spec.template.spec")]


def validate_workload_update(new: JsonObject, old: JsonObject, subresource: str) -> list[Cause]:
    """As for a new one; the selector stays."""
    if subresource == "status":
        return []
    causes = validate_workload(new)
    if new["spec"].get("selector") != old["spec"].get("selector"):
        causes.append(bad_value("spec.selector", new["spec"].get("selector"), "field is immutable"))
    return causes


def validate_job(job: JsonObject) -> list[Cause]:
    """What is wrong with a job."""
    template = job["spec"]["template"]["spec"]
    return pod_spec_causes(template, "spec.template.spec")


def validate_job_update(new: JsonObject, old: JsonObject, subresource: str) -> list[Cause]:
    """The template of a job stays."""
    if subresource == "status" or new["spec"]["template"] == old["spec"]["template"]:
        return []
    return [bad_value("spec.template", new["spec"]["template"], "field is immutable")]
