"""Jobs: pods until enough have succeeded, or too many have failed.

Invariant: a job that is complete or failed starts no more pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import EMPTY, timestamp
from stellwerk_cluster.controllers.workload import (
    MOST_CREATED_AT_ONCE,
    WorkloadController,
    is_active,
    ready_count,
)

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject


class JobController(WorkloadController):
    """Starts the pods of Jobs and writes their conditions when enough have ended."""

    group = "batch"
    plural = "jobs"

    @override
    def sync(self, workload: JsonObject) -> None:
        spec, status = workload["spec"], workload.get("status") or EMPTY
        if status.get("completionTime") or _has(status, "Failed"):
            return
        pods = self.owned_pods(workload)
        active = [pod for pod in pods if is_active(pod)]
        succeeded = sum(1 for pod in pods if pod["status"].get("phase") == "Succeeded")
        failed = sum(1 for pod in pods if pod["status"].get("phase") == "Failed")
        completions = spec.get("completions") or 1
        now = timestamp(self.api.now())
        conditions: list[JsonObject] = []
        if succeeded >= completions:
            conditions = [
                _ended(
                    "Complete",
                    "CompletionsReached",
                    "Reached expected number of succeeded pods",
                    now,
                )
            ]
        elif failed > spec["backoffLimit"]:
            text = "Job has reached the specified backoff limit"
            conditions = [_ended("Failed", "BackoffLimitExceeded", text, now)]
        if conditions or spec.get("suspend"):
            for pod in active:
                self.delete_pod(pod)
            active = []
        else:
            active = self._start_missing(workload, active, completions - succeeded)
        counts = {
            "active": len(active),
            "ready": ready_count(active),
            "succeeded": succeeded,
            "failed": failed,
        }
        done = {"completionTime": now} if _is_complete(conditions) else {}
        self.write_status(
            workload,
            {
                **{name: count for name, count in counts.items() if count or name == "ready"},
                "startTime": status.get("startTime", now),
                **({"conditions": conditions} if conditions else {}),
                **done,
            },
        )

    def _start_missing(
        self, workload: JsonObject, active: list[JsonObject], still_needed: int
    ) -> list[JsonObject]:
        missing = min(workload["spec"]["parallelism"], still_needed) - len(active)
        for _ in range(min(missing, MOST_CREATED_AT_ONCE)):
            name = workload["metadata"]["name"]
            self.create_pod(workload, self.pod_from_template(workload, generateName=f"{name}-"))
        return [pod for pod in self.owned_pods(workload) if is_active(pod)]


def _has(status: JsonObject, type_: str) -> bool:
    return any(each["type"] == type_ for each in status.get("conditions") or ())


def _is_complete(conditions: list[JsonObject]) -> bool:
    return any(each["type"] == "Complete" for each in conditions)


def _ended(type_: str, reason: str, message: str, now: str) -> JsonObject:
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }
