"""ReplicaSets and ReplicationControllers: as many pods as wanted, no more and no fewer.

Invariant: a pod is deleted only when more active pods exist than the workload wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import key_of
from stellwerk_cluster.controllers.workload import (
    MOST_CREATED_AT_ONCE,
    WorkloadController,
    deletion_rank,
    has_labels,
    is_active,
    ready_count,
)

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject


class ReplicaSetController(WorkloadController):
    """Creates and deletes pods until each ReplicaSet has as many as it wants."""

    plural = "replicasets"

    @override
    def sync(self, workload: JsonObject) -> None:
        active = [pod for pod in self.owned_pods(workload) if is_active(pod)]
        wanted = workload["spec"].get("replicas", 1)
        missing = min(wanted - len(active), MOST_CREATED_AT_ONCE)
        for _ in range(missing):
            pod = self.pod_from_template(workload, generateName=f"{workload['metadata']['name']}-")
            self.create_pod(workload, pod)
        surplus = len(active) - wanted
        if surplus > 0:
            for pod in sorted(active, key=deletion_rank)[:surplus]:
                self.delete_pod(pod)
        if missing > 0 or surplus > 0:
            self.queue.add(key_of(workload))
            return
        self._write_counts(workload, active)

    def _write_counts(self, workload: JsonObject, active: list[JsonObject]) -> None:
        labels = workload["spec"]["template"].get("metadata", {}).get("labels") or {}
        ready = ready_count(active)
        counts = {
            "fullyLabeledReplicas": sum(1 for pod in active if has_labels(pod, labels)),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        self.write_status(
            workload,
            {
                "replicas": len(active),
                **{name: count for name, count in counts.items() if count},
                "observedGeneration": workload["metadata"].get("generation", 1),
            },
        )


class ReplicationControllerController(ReplicaSetController):
    """Does the same for ReplicationControllers, whose selector is a plain map of labels."""

    group = ""
    plural = "replicationcontrollers"
