"""ReplicaSets and ReplicationControllers: as many pods as wanted, no more and no fewer.

Invariant: a pod is deleted only when more active pods exist than the workload wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.objects import EMPTY, key_of, parse_timestamp
from stellwerk_cluster.controllers.workload import (
    MAX_CREATED_AT_ONCE,
    WorkloadController,
    by_deletion,
    has_labels,
    is_active,
    merged_conditions,
    ready_count,
    seconds_until_available,
    stamped_conditions,
)

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject


_FAILURE: Final = "ReplicaFailure"
"""The type of condition that this controller writes; those of others are theirs."""
_RECENT_SECONDS: Final = 600.0
"""Age up to which a failed pod counts in the pause before the next one."""
_MAX_BACKOFF_SECONDS: Final = 300.0
"""Longest pause before a failed pod is replaced."""


class ReplicaSetController(WorkloadController):
    """Creates and deletes pods until each ReplicaSet has as many as it wants."""

    plural = "replicasets"

    @override
    def sync(self, workload: JsonObject) -> None:
        pods = self.owned_pods(workload)
        active = [pod for pod in pods if is_active(pod)]
        surplus = len(active) - workload["spec"].get("replicas", 1)
        wait = self._seconds_to_wait(pods)
        if surplus < 0 and wait > 0:
            self.queue.add_after(key_of(workload), wait)
            self._write_counts(workload, active)
            return
        try:
            self._fill(workload, -surplus)
        except StatusError as error:
            failure = _failure("FailedCreate", error.message)
            self._write_counts(workload, self._present(workload), failure)
            raise
        if surplus > 0:
            for pod in by_deletion(active, self.api.now())[:surplus]:
                self.delete_pod(workload, pod)
        self._write_counts(workload, self._present(workload))
        if -surplus > MAX_CREATED_AT_ONCE:
            self.queue.add(key_of(workload))

    def _fill(self, workload: JsonObject, missing: int) -> None:
        for _ in range(min(missing, MAX_CREATED_AT_ONCE)):
            pod = self.pod_from_template(workload, generateName=f"{workload['metadata']['name']}-")
            self.create_pod(workload, pod)

    def _seconds_to_wait(self, pods: list[JsonObject]) -> float:
        """The backoff after pods that failed soon after their creation.

        A node that refuses every pod would otherwise be sent pods without end.
        """
        now = self.api.now()
        ages = [
            (now - parse_timestamp(pod["metadata"]["creationTimestamp"])).total_seconds()
            for pod in pods
            if pod["status"].get("phase") == "Failed"
        ]
        recent = [age for age in ages if age < _RECENT_SECONDS]
        if not recent:
            return 0.0
        return min(2.0 ** min(len(recent) - 1, 16), _MAX_BACKOFF_SECONDS) - min(recent)

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
        before = status.get("conditions") or []
        stamped = stamped_conditions(before, [failure] if failure else [], self.api.now())
        self.write_status(
            workload,
            {
                "replicas": len(active),
                **{name: count for name, count in counts.items() if count},
                **self._terminating(workload),
                "observedGeneration": workload["metadata"].get("generation", 1),
                "conditions": merged_conditions(before, stamped, (_FAILURE,)) or None,
            },
        )

    def _terminating(self, workload: JsonObject) -> JsonObject:
        """The count of pods that are being deleted, told also where there are none."""
        owned = self.index.owned(workload["metadata"]["uid"], "pods")
        terminating = [
            pod
            for pod in owned
            if pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") not in {"Succeeded", "Failed"}
        ]
        return {"terminatingReplicas": len(terminating)}

    def _available(self, workload: JsonObject, active: list[JsonObject]) -> int:
        """The number of pods ready for long enough; the workload waits for the next one."""
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

    @override
    def _terminating(self, workload: JsonObject) -> JsonObject:
        """Nothing: their status has no such count."""
        return EMPTY


def _failure(reason: str, message: str) -> JsonObject:
    return {"type": _FAILURE, "status": "True", "reason": reason, "message": message}
