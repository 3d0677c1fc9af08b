"""Jobs: pods until enough have succeeded, or too many have failed.

Each pod carries a finalizer until the status has counted it. Invariant: a job that is to end starts
no more pods, and a pod is counted once, however it is deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    Key,
    controller_of,
    is_terminating,
    key_of,
    meta,
    timestamp,
    with_value,
)
from stellwerk_cluster.controllers.job_groups import JobGroups
from stellwerk_cluster.controllers.job_outcome import (
    INDEX_FAILURES,
    INDEX_KEY,
    TRACKING,
    FinishedCondition,
    Tally,
    failure_action,
    has_ended,
    index_failures,
    index_of,
    indexes_text,
    tally_of,
    verdict_of,
)
from stellwerk_cluster.controllers.workload import (
    MAX_CREATED_AT_ONCE,
    WorkloadController,
    by_deletion,
    is_active,
    merged_conditions,
    ready_count,
    stamped_conditions,
)
from stellwerk_cluster.registry.event_recorder import NORMAL, WARNING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import Entry, StoreEvent
    from stellwerk_kube.json_values import JsonObject

_FIRST_BACKOFF_SECONDS: Final = 10.0
"""Pause after a Job's first failed pod; it doubles with each further one
(`DefaultJobPodFailureBackOff`)."""
_MAX_BACKOFF_SECONDS: Final = 600.0
"""Longest of these pauses (`MaxJobPodFailureBackOff`)."""
_OWN_CONTROLLER: Final = "kubernetes.io/job-controller"
_ENDS: Final = ("Complete", "Failed")
_CONDITIONS: Final = ("Suspended", "SuccessCriteriaMet", "FailureTarget", *_ENDS)
"""The types of conditions that this controller writes; those of others are theirs."""


@dataclass(frozen=True, slots=True)
class _Stray:
    """A pod with the finalizer of a job that is no more."""

    key: Key


class JobController(WorkloadController):
    """Starts the pods of Jobs, counts how they end, and ends the Jobs."""

    group = "batch"
    plural = "jobs"

    def __init__(self, api: Api, index: Index) -> None:
        """Follow Jobs and their pods."""
        self._failures: dict[str, tuple[int, float]] = {}
        """Job uid → failures since its last success, and the time of the last one, monotonic."""
        self._groups = JobGroups(
            api,
            lambda job, name: self.report(
                job, "WorkloadCreated", f"Created Workload {name} for Job {job['metadata']['name']}"
            ),
        )
        super().__init__(api, index)
        for entry in api.store.collection("pods").entries():
            self._let_go_of_stray(entry)

    @override
    def _on_workload(self, event: StoreEvent) -> None:
        super()._on_workload(event)
        if event.type == "DELETED":
            uid = event.entry.uid
            self._failures.pop(uid, None)
            for location in self.index.dependents(uid):
                self.queue.add(_Stray(location.key))

    @override
    def _on_child(self, child: str, event: StoreEvent) -> None:
        super()._on_child(child, event)
        self._let_go_of_stray(event.entry)

    def _let_go_of_stray(self, entry: Entry) -> None:
        owner = controller_of(entry.obj)
        if _is_tracked(entry.obj) and (owner is None or owner["uid"] not in self.index.by_uid):
            self.queue.add(_Stray(entry.key))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Bring a job forward, or let go of a pod whose job is gone or going."""
        if isinstance(key, _Stray):
            pod = self.api.find("pods", *key.key)
            owner = controller_of(pod or EMPTY)
            if pod is not None and (owner is None or owner["uid"] not in self.index.by_uid):
                self._untrack(pod)
            return
        assert isinstance(key, tuple)  # noqa: S101  (besides, this queue holds store keys only)
        job = self.api.find(self.kind.storage_name, *key)
        if job is not None and is_terminating(job):
            for pod in self.owned_pods(job):
                if is_terminating(pod):
                    self._untrack(pod)
        super().reconcile(key)

    @override
    def sync(self, workload: JsonObject) -> None:
        spec, status = workload["spec"], workload.get("status") or EMPTY
        if spec.get("managedBy", _OWN_CONTROLLER) != _OWN_CONTROLLER:
            return
        pods = self.owned_pods(workload)
        if any(_has(status, end) for end in _ENDS):
            self._stop(workload, pods)
            return
        if not spec.get("suspend") and "startTime" not in status:
            status = self._begin(workload, status)
            workload = {**workload, "status": status}
        counted = status.get("uncountedTerminatedPods") or EMPTY
        before = {*(counted.get("succeeded") or ()), *(counted.get("failed") or ())}
        ended = [pod for pod in pods if _is_tracked(pod) and has_ended(workload, pod)]
        newly_ended = [pod for pod in ended if pod["metadata"]["uid"] not in before]
        tally = tally_of(workload, newly_ended)
        self._note_failures(workload, newly_ended)
        verdict = _pending_verdict(status) or verdict_of(workload, tally, pods, self.api.now())
        if newly_ended:
            self._write(workload, tally, verdict, uncounted=ended)
        for pod in ended:
            self._untrack(pod)
        self._act(workload, tally, verdict)
        self._write(workload, tally, verdict)

    # What ends.

    def _begin(self, workload: JsonObject, status: JsonObject) -> JsonObject:
        began = {**status, "startTime": timestamp(self.api.now())}
        deadline = workload["spec"].get("activeDeadlineSeconds")
        if deadline is not None:
            self.queue.add_after(key_of(workload), deadline)
        self.write_status(workload, began)
        return began

    def _note_failures(self, workload: JsonObject, newly_ended: list[JsonObject]) -> None:
        uid, now = workload["metadata"]["uid"], self.api.clock.monotonic()
        for pod in newly_ended:
            if pod["status"].get("phase") == "Succeeded":
                self._failures.pop(uid, None)
            elif failure_action(workload, pod)[0] != "Ignore":
                self._failures[uid] = (self._failures.get(uid, (0, now))[0] + 1, now)

    def _track(self, active: list[JsonObject]) -> None:
        """Put the finalizer on pods that were adopted."""
        for pod in active:
            if not _is_tracked(pod):
                finalizers = [*(meta(pod).get("finalizers") or ()), TRACKING]
                change = partial(with_value, path=("metadata", "finalizers"), value=finalizers)
                self.api.modify(self.pods, key_of(pod), change, owned_under="")

    def _untrack(self, pod: JsonObject) -> None:
        """Take the finalizer off a pod; one that only waited for this is gone then."""
        if _is_tracked(pod):
            left = [each for each in meta(pod)["finalizers"] if each != TRACKING]
            path = ("metadata", "finalizers")
            change = partial(with_value, path=path, value=left or None)
            self.api.modify(self.pods, key_of(pod), change, owned_under="")

    def _stop(self, workload: JsonObject, pods: list[JsonObject]) -> None:
        """End pods of which nothing is to be counted any more."""
        for pod in pods:
            self._untrack(pod)
            if is_active(pod):
                self.delete_pod(workload, pod)

    # What begins.

    def _act(self, workload: JsonObject, tally: Tally, verdict: FinishedCondition | None) -> None:
        """Start what is missing and stop what is too much."""
        pods = self.index.owned(workload["metadata"]["uid"], "pods")
        active = [pod for pod in pods if is_active(pod)]
        spec = workload["spec"]
        if verdict is not None or spec.get("suspend"):
            self._stop(workload, active)
            return
        self._track(active)
        completions, parallelism = spec.get("completions"), spec["parallelism"]
        wanted = parallelism
        if completions is not None:
            wanted = min(parallelism, completions - tally.succeeded - len(tally.failed_indexes))
        elif tally.succeeded:
            wanted = min(parallelism, len(active))
        surplus = len(active) - wanted
        if surplus > 0:
            self._stop(workload, by_deletion(active, self.api.now())[:surplus])
        held = [pod for pod in pods if not is_active(pod) and not has_ended(workload, pod)]
        self._start(workload, tally, [*active, *held], wanted - len(active) - len(held))

    def _start(
        self, workload: JsonObject, tally: Tally, present: list[JsonObject], missing: int
    ) -> None:
        if missing <= 0:
            return
        wait = self._backoff_seconds(workload)
        if wait > 0:
            self.queue.add_after(key_of(workload), wait)
            return
        if missing > MAX_CREATED_AT_ONCE:
            self.queue.add(key_of(workload))
        is_new = not present and not tally.succeeded and not tally.failed
        group = self._groups.group_of(workload, self.owner_reference(workload), is_new=is_new)
        if workload["spec"].get("completionMode") == "Indexed":
            used = {*tally.completed, *tally.failed_indexes, *map(index_of, present)}
            free = (each for each in range(workload["spec"]["completions"]) if each not in used)
            for index, _ in zip(free, range(min(missing, MAX_CREATED_AT_ONCE)), strict=False):
                self._create(workload, index, group)
        else:
            for _ in range(min(missing, MAX_CREATED_AT_ONCE)):
                self._create(workload, None, group)

    def _backoff_seconds(self, workload: JsonObject) -> float:
        """The backoff after the last pod that failed: ten seconds, then ever longer."""
        failures, last = self._failures.get(workload["metadata"]["uid"], (0, 0.0))
        if not failures or workload["spec"].get("backoffLimitPerIndex") is not None:
            return 0.0
        delay = min(_FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 16), _MAX_BACKOFF_SECONDS)
        return last + delay - self.api.clock.monotonic()

    def _create(self, workload: JsonObject, index: int | None, group: str) -> None:
        name = workload["metadata"]["name"]
        if index is None:
            pod = self.pod_from_template(workload, generateName=f"{name}-")
        else:
            labels = {INDEX_KEY: str(index)}
            pod = self.pod_from_template(workload, generateName=f"{name}-{index}-", labels=labels)
            pod["metadata"]["annotations"] |= {**labels, **self._index_failures(workload, index)}
            _tell_index(pod, f"{name}-{index}")
        pod["metadata"]["finalizers"] = [TRACKING]
        if group:
            pod["spec"] = {**pod["spec"], "schedulingGroup": {"podGroupName": group}}
        self.create_pod(workload, pod)

    def _index_failures(self, workload: JsonObject, index: int) -> dict[str, str]:
        if workload["spec"].get("backoffLimitPerIndex") is None:
            return {}
        pods = self.index.owned(workload["metadata"]["uid"], "pods")
        before = [1 + index_failures(pod) for pod in pods if index_of(pod) == index]
        return {INDEX_FAILURES: str(max(before, default=0))}

    # What is said.

    def _write(
        self,
        workload: JsonObject,
        tally: Tally,
        verdict: FinishedCondition | None,
        uncounted: list[JsonObject] | None = None,
    ) -> None:
        spec, status = workload["spec"], workload.get("status") or EMPTY
        pods = self.index.owned(workload["metadata"]["uid"], "pods")
        active = [pod for pod in pods if is_active(pod)]
        terminating = [pod for pod in pods if is_terminating(pod) and not has_ended(workload, pod)]
        counts = {"active": len(active), "succeeded": tally.succeeded, "failed": tally.failed}
        indexes = {
            "completedIndexes": indexes_text(tally.completed),
            "failedIndexes": indexes_text(tally.failed_indexes),
        }
        conditions = self._conditions(workload, verdict, ended=not active and not terminating)
        complete = any(each["type"] == "Complete" for each in conditions)
        started = None if spec.get("suspend") else status.get("startTime")
        self.write_status(
            workload,
            {
                **{name: count for name, count in counts.items() if count},
                **{name: text for name, text in indexes.items() if text},
                "ready": ready_count(active),
                "terminating": len(terminating),
                "uncountedTerminatedPods": _by_phase(uncounted or []),
                "startTime": started,
                "completionTime": timestamp(self.api.now()) if complete else None,
                "conditions": conditions or None,
            },
        )
        if uncounted is not None:
            return  # what follows is written and told once more, when nothing is left to count
        if any(each["type"] in _ENDS for each in conditions) and verdict is not None:
            reason = verdict.reason if verdict.failed else "Completed"
            text = verdict.message if verdict.failed else "Job completed"
            self.report(workload, reason, text, WARNING if verdict.failed else NORMAL)

    def _conditions(
        self, workload: JsonObject, verdict: FinishedCondition | None, *, ended: bool
    ) -> list[JsonObject]:
        """The conditions: the verdict first, and the end once no pod is left running."""
        now, status = self.api.now(), workload.get("status") or EMPTY
        before: list[JsonObject] = status.get("conditions") or []
        wanted = self._suspension(workload, before)
        if verdict is not None:
            words = {"status": "True", "reason": verdict.reason, "message": verdict.message}
            target = "FailureTarget" if verdict.failed else "SuccessCriteriaMet"
            final = "Failed" if verdict.failed else "Complete"
            wanted += [{"type": target, **words}]
            wanted += [{"type": final, **words}] if ended else []
        stamped = [
            {**each, "lastProbeTime": each["lastTransitionTime"]}
            for each in stamped_conditions(before, wanted, now)
        ]
        return merged_conditions(before, stamped, _CONDITIONS)

    def _suspension(self, workload: JsonObject, before: list[JsonObject]) -> list[JsonObject]:
        suspended = bool(workload["spec"].get("suspend"))
        was = next((each for each in before if each["type"] == "Suspended"), None)
        if was is None and not suspended:
            return []
        word = "suspended" if suspended else "resumed"
        if was is None or (was["status"] == "True") != suspended:
            self.report(workload, word.capitalize(), f"Job {word}")
        return [
            {
                "type": "Suspended",
                "status": str(suspended),
                "reason": f"Job{word.capitalize()}",
                "message": f"Job {word}",
            }
        ]


def finished_at(job: JsonObject) -> tuple[str, str] | None:
    """(Complete or Failed, since when) of a job that has ended.

    The time is empty where another client wrote the condition without one.
    """
    for condition in (job.get("status") or EMPTY).get("conditions") or ():
        if condition["type"] in _ENDS and condition["status"] == "True":
            return condition["type"], condition.get("lastTransitionTime") or ""
    return None


def _is_tracked(pod: JsonObject) -> bool:
    return TRACKING in (meta(pod).get("finalizers") or ())


def _has(status: JsonObject, type_: str) -> bool:
    return any(each["type"] == type_ for each in status.get("conditions") or ())


def _pending_verdict(status: JsonObject) -> FinishedCondition | None:
    """The verdict that was reached earlier and waits for the last pods to end."""
    for condition in status.get("conditions") or ():
        if condition["type"] in ("FailureTarget", "SuccessCriteriaMet"):
            failed = condition["type"] == "FailureTarget"
            words = condition.get("reason", ""), condition.get("message", "")
            return FinishedCondition(failed, *words)
    return None


def _by_phase(pods: list[JsonObject]) -> JsonObject:
    found: JsonObject = {}
    for pod in pods:
        phase = "succeeded" if pod["status"].get("phase") == "Succeeded" else "failed"
        found.setdefault(phase, []).append(pod["metadata"]["uid"])
    return found


def _tell_index(pod: JsonObject, hostname: str) -> None:
    """The containers of a pod of an indexed job find their index in their environment."""
    pod["spec"].setdefault("hostname", hostname)
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX_KEY}']"}}
    variable = {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}
    for kind in ("initContainers", "containers"):
        if pod["spec"].get(kind):
            pod["spec"][kind] = [
                {**each, "env": [*(each.get("env") or ()), variable]} for each in pod["spec"][kind]
            ]
