"""CronJobs: a Job for each time of a schedule.

Invariant: a time makes one Job, whose name tells the minute, however often it is looked at.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from typing_extensions import override

from stellwerk_cluster.apimachinery.cron_schedules import Schedule, parse_schedule
from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    is_terminating,
    key_of,
    meta,
    parse_timestamp,
    timestamp,
)
from stellwerk_cluster.controllers.job import finished_at
from stellwerk_cluster.controllers.workload import WorkloadController
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.event_recorder import WARNING

if TYPE_CHECKING:
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_JOBS: Final = "jobs.batch"
_SCHEDULED: Final = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MAX_MISSED_TIMES: Final = 100
"""Missed times of a schedule that are counted, as in kube-controller-manager."""
_LATEST: Final = timedelta(days=30)
"""The longest sleep until the next time is computed again."""


class CronJobController(WorkloadController):
    """Creates Jobs when their time has come, and forgets old ones."""

    group = "batch"
    plural = "cronjobs"
    children = (_JOBS,)

    def __init__(self, api: Api, index: Index) -> None:
        """Follow CronJobs and their Jobs."""
        super().__init__(api, index)
        self._jobs = api.kinds.resource("jobs", "batch")

    @override
    def claimed(self, workload: JsonObject, child: str) -> list[JsonObject]:
        """The Jobs it made: a CronJob has no selector and adopts nothing."""
        return self.index.owned(workload["metadata"]["uid"], child)

    @override
    def sync(self, workload: JsonObject) -> None:
        jobs = self.claimed(workload, _JOBS)
        status = self._observe(workload, jobs)
        finished = [job for job in jobs if finished_at(job)]
        self._forget(workload, finished, "Complete", "successfulJobsHistoryLimit")
        self._forget(workload, finished, "Failed", "failedJobsHistoryLimit")
        if not workload["spec"].get("suspend"):
            status = self._run_due(workload, status)
        self.write_status(workload, status)

    def _observe(self, workload: JsonObject, jobs: list[JsonObject]) -> JsonObject:
        """The Jobs that are active now, and the time of the last success."""
        status = workload.get("status") or EMPTY
        was_active = {each["uid"] for each in status.get("active") or ()}
        active, succeeded = [], [status.get("lastSuccessfulTime") or ""]
        for job in jobs:
            ended = finished_at(job)
            if ended is None:
                active.append(_reference(job))
                continue
            if job["metadata"]["uid"] in was_active:
                text = f"Saw completed job: {job['metadata']['name']}, condition: {ended[0]}"
                self.report(workload, "SawCompletedJob", text)
            if ended[0] == "Complete":
                succeeded.append(ended[1])
        return {
            "active": active or None,
            "lastScheduleTime": status.get("lastScheduleTime"),
            "lastSuccessfulTime": max(succeeded) or None,
        }

    def _forget(
        self, workload: JsonObject, finished: list[JsonObject], end: str, limit: str
    ) -> None:
        """Delete the oldest Jobs of one end beyond the limit."""
        jobs = [job for job in finished if (finished_at(job) or ("",))[0] == end]
        jobs.sort(key=lambda job: str((job.get("status") or EMPTY).get("startTime")))
        for job in jobs[: max(0, len(jobs) - workload["spec"][limit])]:
            self._delete(workload, job)

    def _delete(self, workload: JsonObject, job: JsonObject) -> None:
        if not is_terminating(job):
            options = DeleteOptions(uid=job["metadata"]["uid"], propagation="Background")
            delete(self.api, self._jobs, key_of(job), options)
            self.report(workload, "SuccessfulDelete", f"Deleted job {job['metadata']['name']}")

    # What is due.

    def _run_due(self, workload: JsonObject, status: JsonObject) -> JsonObject:
        spec, now = workload["spec"], self.api.now()
        zone = ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else UTC
        try:
            schedule = parse_schedule(spec["schedule"], zone)
        except ValueError as error:
            text = f'unparseable schedule: "{spec["schedule"]}" : {error}'
            self.report(workload, "UnparseableSchedule", text, WARNING)
            return status
        due = self._latest_due(workload, status, schedule, now)
        following = schedule.following(now)
        if following is not None:
            wait = min(following - now, _LATEST)
            self.queue.add_after(key_of(workload), wait.total_seconds())
        if due is None:
            return status
        deadline = spec.get("startingDeadlineSeconds")
        if deadline is not None and (now - due).total_seconds() > deadline:
            text = f"Missed scheduled time to start a job: {timestamp(due)}"
            self.report(workload, "MissSchedule", text, WARNING)
            return status
        return self._start(workload, status, due)

    def _latest_due(
        self, workload: JsonObject, status: JsonObject, schedule: Schedule, now: datetime
    ) -> datetime | None:
        """The last time that has come since the last one that was used; None: none has."""
        since = status.get("lastScheduleTime") or workload["metadata"]["creationTimestamp"]
        earliest = parse_timestamp(since)
        deadline = workload["spec"].get("startingDeadlineSeconds")
        if deadline is not None:
            earliest = max(earliest, now - timedelta(seconds=deadline))
        due, missed = None, 0
        following = schedule.following(earliest)
        while following is not None and following <= now:
            due, missed = following, missed + 1
            if missed == _MAX_MISSED_TIMES:
                text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds"
                self.report(workload, "TooManyMissedTimes", f"{text} or check clock skew", WARNING)
                return self._last_before(schedule, due, now)
            following = schedule.following(following)
        return due

    @staticmethod
    def _last_before(schedule: Schedule, due: datetime, now: datetime) -> datetime:
        """The last time up to now, found by halving: there are too many to go through."""
        low, high = due, now
        while high - low > timedelta(seconds=1):
            middle = low + (high - low) / 2
            following = schedule.following(middle)
            if following is not None and following <= now:
                low = following
            else:
                high = middle
        return low

    def _start(self, workload: JsonObject, status: JsonObject, due: datetime) -> JsonObject:
        policy, active = workload["spec"]["concurrencyPolicy"], status.get("active") or []
        if policy == "Forbid" and active:
            text = "Not starting job because prior execution is running and concurrency policy"
            self.report(workload, "JobAlreadyActive", f"{text} is Forbid")
            return status
        if policy == "Replace":
            for job in self.claimed(workload, _JOBS):
                if finished_at(job) is None:
                    self._delete(workload, job)
            active = []
        body = self._job(workload, due)
        namespace = workload["metadata"]["namespace"]
        if self.api.find(_JOBS, namespace, body["metadata"]["name"]) is None:
            job = self.api.create(self._jobs, namespace, body).obj
            self.report(workload, "SuccessfulCreate", f"Created job {job['metadata']['name']}")
            active = [*active, _reference(job)]
        return {**status, "active": active or None, "lastScheduleTime": timestamp(due)}

    def _job(self, workload: JsonObject, due: datetime) -> JsonObject:
        template = workload["spec"]["jobTemplate"]
        inherited = meta(template)
        zone = ZoneInfo(workload["spec"].get("timeZone") or "UTC")
        at = due.astimezone(zone).isoformat().replace("+00:00", "Z")
        return {
            "metadata": {
                "name": f"{workload['metadata']['name']}-{int(due.timestamp()) // 60}",
                "labels": dict(inherited.get("labels") or {}),
                "annotations": {**(inherited.get("annotations") or {}), _SCHEDULED: at},
                "ownerReferences": [self.owner_reference(workload)],
            },
            "spec": dict(template["spec"]),
        }


def _reference(job: JsonObject) -> JsonObject:
    metadata = job["metadata"]
    return {
        "kind": "Job",
        "apiVersion": "batch/v1",
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }
