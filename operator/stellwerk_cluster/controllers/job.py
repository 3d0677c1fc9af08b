"""Jobs: pods until enough have succeeded, or too many have failed.

Invariant: a job that is complete or failed starts no more pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

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

_ENDS: Final = {
    "Complete": ("CompletionsReached", "Reached expected number of succeeded pods"),
    "Failed": ("BackoffLimitExceeded", "Job has reached the specified backoff limit"),
}
"""Reason and message of the conditions that end a job."""


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
        ended = ""
        if succeeded >= completions:
            ended = "Complete"
        elif failed > spec["backoffLimit"]:
            ended = "Failed"
        if ended or spec.get("suspend"):
            for pod in active:
                self.delete_pod(workload, pod)
            active = []
        else:
            active = self._start_missing(workload, active, completions - succeeded)
        counts = {
            "active": len(active),
            "ready": ready_count(active),
            "succeeded": succeeded,
            "failed": failed,
        }
        self.write_status(
            workload,
            {
                **{name: count for name, count in counts.items() if count or name == "ready"},
                "startTime": status.get("startTime", now),
                **({"conditions": [_ended(ended, now)]} if ended else {}),
                **({"completionTime": now} if ended == "Complete" else {}),
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


def _ended(type_: str, now: str) -> JsonObject:
    reason, message = _ENDS[type_]
    return {
        "type": type_,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }
