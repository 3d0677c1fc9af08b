"""ReplicaSets and ReplicationControllers: as many pods as wanted, no more and no fewer.

Invariant: a pod is deleted only when more active pods exist than the workload wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.objects import EMPTY, key_of
from stellwerk_cluster.controllers.workload import (
    MOST_CREATED_AT_ONCE,
    WorkloadController,
    deletion_rank,
    has_labels,
    is_active,
    ready_count,
    seconds_until_available,
    stamped_conditions,
)

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject


class ReplicaSetController(WorkloadController):
    """Creates and deletes pods until each ReplicaSet has as many as it wants."""

    plural = "replicasets"

    @override
    def sync(self, workload: JsonObject) -> None:
        pods = self.owned_pods(workload)
        active = [pod for pod in pods if is_active(pod)]
        surplus = len(active) - workload["spec"].get("replicas", 1)
        try:
            self._fill(workload, -surplus)
        except StatusError as error:
            failure = _failure("FailedCreate", error.message)
            self._write_counts(workload, self._present(workload), failure)
            raise
        if surplus > 0:
            for pod in sorted(active, key=deletion_rank)[:surplus]:
                self.delete_pod(workload, pod)
        self._write_counts(workload, self._present(workload))
        if -surplus > MOST_CREATED_AT_ONCE:
            self.queue.add(key_of(workload))

    def _fill(self, workload: JsonObject, missing: int) -> None:
        for _ in range(min(missing, MOST_CREATED_AT_ONCE)):
            pod = self.pod_from_template(workload, generateName=f"{workload['metadata']['name']}-")
            self.create_pod(workload, pod)

    def _present(self, workload: JsonObject) -> list[JsonObject]:
        """The pods of the workload as they are now, those that ended aside."""
        owned = self.index.owned(workload["metadata"]["uid"], "pods")
        return [pod for pod in owned if is_active(pod)]

    def _write_counts(
        self, workload: JsonObject, active: list[JsonObject], failure: JsonObject | None = None
    ) -> None:
        spec, status = workload["spec"], workload.get("status") or EMPTY
        labels = spec["template"].get("metadata", {}).get("labels") or {}
        counts = {
            "fullyLabeledReplicas": sum(1 for pod in active if has_labels(pod, labels)),
            "readyReplicas": ready_count(active),
            "availableReplicas": self._available(workload, active),
        }
        kept = [each for each in status.get("conditions") or () if each["type"] != "ReplicaFailure"]
        conditions = [*kept, *([failure] if failure else [])]
        stamped = stamped_conditions(status.get("conditions") or [], conditions, self.api.now())
        self.write_status(
            workload,
            {
                "replicas": len(active),
                **{name: count for name, count in counts.items() if count},
                "observedGeneration": workload["metadata"].get("generation", 1),
                "conditions": stamped or None,
            },
        )

    def _available(self, workload: JsonObject, active: list[JsonObject]) -> int:
        """How many pods have been ready long enough; the workload waits for the next one."""
        min_ready_seconds = workload["spec"].get("minReadySeconds", 0)
        now = self.api.now()
        waits = [seconds_until_available(pod, min_ready_seconds, now) for pod in active]
        longer = [wait for wait in waits if wait]
        if longer:
            self.queue.add_after(key_of(workload), min(longer))
        return sum(1 for wait in waits if wait == 0)


class ReplicationControllerController(ReplicaSetController):
    """Does the same for ReplicationControllers, whose selector is a plain map of labels."""

    group = ""
    plural = "replicationcontrollers"


def _failure(reason: str, message: str) -> JsonObject:
    return {"type": "ReplicaFailure", "status": "True", "reason": reason, "message": message}
