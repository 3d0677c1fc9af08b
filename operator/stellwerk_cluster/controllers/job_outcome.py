"""The outcome of a Job from its pods: ended or not, by which rule, and which indexes.

Used by `job`; pure functions of a Job and its pods. Invariant: a pod is counted by its first
verdict alone, as long as it carries the tracking finalizer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    is_terminating,
    key_of,
    labels_of,
    meta,
    parse_timestamp,
)
from stellwerk_cluster.apimachinery.pods import is_finished

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from stellwerk_kube.json_values import JsonObject

INDEX_KEY: Final = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"
TRACKING: Final = "batch.kubernetes.io/job-tracking"
IGNORE: Final = "Ignore"
FAIL_JOB: Final = "FailJob"
FAIL_INDEX: Final = "FailIndex"


@dataclass(frozen=True, slots=True)
class FinishedCondition:
    """The end of a Job, with the words of its condition."""

    failed: bool
    reason: str
    message: str


@dataclass(slots=True)
class Tally:
    """The counts of a Job so far."""

    succeeded: int = 0
    failed: int = 0
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    verdict: FinishedCondition | None = None


def has_ended(job: JsonObject, pod: JsonObject) -> bool:
    """Whether a pod counts as succeeded or failed: a terminating one may count before its end."""
    if is_finished(pod) or not is_terminating(pod):
        return is_finished(pod)
    spec = job["spec"]
    waits = spec.get("podReplacementPolicy") == "Failed" or spec.get("podFailurePolicy")
    return not waits or meta(pod).get("deletionGracePeriodSeconds") == 0


def index_of(pod: JsonObject) -> int | None:
    """The completion index of a pod, if it has one."""
    text = labels_of(pod).get(INDEX_KEY) or (meta(pod).get("annotations") or EMPTY).get(INDEX_KEY)
    return int(text) if text and text.isdigit() else None


def index_failures(pod: JsonObject) -> int:
    """The failures of its index when the pod was made."""
    text = (meta(pod).get("annotations") or EMPTY).get(INDEX_FAILURES, "0")
    return int(text) if text.isdigit() else 0


def tally_of(job: JsonObject, newly_ended: Iterable[JsonObject]) -> Tally:
    """The counts of the Job's status with the pods that ended since."""
    spec, status = job["spec"], job.get("status") or EMPTY
    tally = Tally(
        status.get("succeeded", 0),
        status.get("failed", 0),
        parse_indexes(status.get("completedIndexes", "")),
        parse_indexes(status.get("failedIndexes", "")),
    )
    for pod in newly_ended:
        index = index_of(pod)
        if pod["status"].get("phase") == "Succeeded":
            if spec.get("completionMode") != "Indexed":
                tally.succeeded += 1
            elif index is not None and index < spec["completions"]:
                tally.completed.add(index)
        else:
            _count_failure(job, pod, index, tally)
    if spec.get("completionMode") == "Indexed":
        tally.completed = {each for each in tally.completed if each < spec["completions"]}
        tally.succeeded = len(tally.completed)
    return tally


def _count_failure(job: JsonObject, pod: JsonObject, index: int | None, tally: Tally) -> None:
    action, message = failure_action(job, pod)
    if action == IGNORE:
        return
    tally.failed += 1
    if action == FAIL_JOB and tally.verdict is None:
        tally.verdict = FinishedCondition(failed=True, reason="PodFailurePolicy", message=message)
    limit = job["spec"].get("backoffLimitPerIndex")
    spent = limit is not None and (action == FAIL_INDEX or index_failures(pod) >= limit)
    if index is not None and spent:
        tally.failed_indexes.add(index)


def failure_action(job: JsonObject, pod: JsonObject) -> tuple[str, str]:
    """(action, message) of the first rule of podFailurePolicy that a failed pod matches."""
    policy = job["spec"].get("podFailurePolicy") or EMPTY
    for number, rule in enumerate(policy.get("rules") or ()):
        found = _matching_exit_code(rule.get("onExitCodes"), pod) or _matching_condition(
            rule.get("onPodConditions") or (), pod
        )
        if found:
            return rule["action"], f"{found} matching {rule['action']} rule at index {number}"
    return "Count", ""


def _matching_exit_code(rule: JsonObject | None, pod: JsonObject) -> str:
    if rule is None:
        return ""
    statuses = [
        *(pod["status"].get("initContainerStatuses") or ()),
        *(pod["status"].get("containerStatuses") or ()),
    ]
    for container in statuses:
        code = ((container.get("state") or EMPTY).get("terminated") or EMPTY).get("exitCode", 0)
        wanted = rule.get("containerName")
        if code == 0 or (wanted and wanted != container["name"]):
            continue
        if (code in rule["values"]) == (rule["operator"] == "In"):
            pod_name = "/".join(key_of(pod))
            return f"Container {container['name']} for pod {pod_name} failed with exit code {code}"
    return ""


def _matching_condition(patterns: Iterable[JsonObject], pod: JsonObject) -> str:
    has = {each["type"]: each["status"] for each in pod["status"].get("conditions") or ()}
    for pattern in patterns:
        if has.get(pattern["type"]) == pattern.get("status", "True"):
            return f"Pod {'/'.join(key_of(pod))} has condition {pattern['type']}"
    return ""


def verdict_of(
    job: JsonObject, tally: Tally, pods: list[JsonObject], now: datetime
) -> FinishedCondition | None:
    """Whether the Job is to end now, and how; None: it goes on."""
    if tally.verdict is not None:
        return tally.verdict
    return next(_verdicts(job, tally, pods, now), None)


def _verdicts(
    job: JsonObject, tally: Tally, pods: list[JsonObject], now: datetime
) -> Iterator[FinishedCondition]:
    spec = job["spec"]
    limit, restarts = spec["backoffLimit"], _restarts(job, pods)
    if tally.failed > limit or (restarts and restarts >= limit):
        text = "Job has reached the specified backoff limit"
        yield FinishedCondition(failed=True, reason="BackoffLimitExceeded", message=text)
    if _is_late(job, now):
        text = "Job was active longer than specified deadline"
        yield FinishedCondition(failed=True, reason="DeadlineExceeded", message=text)
    most_failed = spec.get("maxFailedIndexes")
    if most_failed is not None and len(tally.failed_indexes) > most_failed:
        text = "Job has exceeded the specified maximal number of failed indexes"
        yield FinishedCondition(failed=True, reason="MaxFailedIndexesExceeded", message=text)
    completions, failed = spec.get("completions"), len(tally.failed_indexes)
    if completions is not None and failed and tally.succeeded + failed >= completions:
        yield FinishedCondition(
            failed=True, reason="FailedIndexes", message="Job has failed indexes"
        )
    rule = _met_rule(spec.get("successPolicy") or EMPTY, tally.completed)
    if rule is not None:
        text = f"Matched rules at index {rule}"
        yield FinishedCondition(failed=False, reason="SuccessPolicy", message=text)
    if completions is None:
        active = any(not has_ended(job, pod) for pod in pods)
        if tally.succeeded and not active:
            yield _completed()
    elif tally.succeeded >= completions:
        yield _completed()


def _met_rule(policy: JsonObject, completed: set[int]) -> int | None:
    """The first rule of a successPolicy that the completed indexes meet."""
    for number, rule in enumerate(policy.get("rules") or ()):
        named, count = rule.get("succeededIndexes"), rule.get("succeededCount")
        wanted = completed if named is None else parse_indexes(named)
        enough = len(wanted) if count is None else count
        if len(wanted & completed) >= enough:
            return number
    return None


def _is_late(job: JsonObject, now: datetime) -> bool:
    """Whether the Job has been active longer than it may; suspended ones are not active."""
    spec, started = job["spec"], (job.get("status") or EMPTY).get("startTime")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is None or not started or spec.get("suspend"):
        return False
    return now - parse_timestamp(started) >= timedelta(seconds=deadline)


def _completed() -> FinishedCondition:
    text = "Reached expected number of succeeded pods"
    return FinishedCondition(failed=False, reason="CompletionsReached", message=text)


def _restarts(job: JsonObject, pods: list[JsonObject]) -> int:
    """The restarts of containers that are restarted in place."""
    if job["spec"]["template"]["spec"].get("restartPolicy") != "OnFailure":
        return 0
    return sum(
        container.get("restartCount", 0)
        for pod in pods
        for container in pod["status"].get("containerStatuses") or ()
    )


def parse_indexes(text: str) -> set[int]:
    """The indexes that a text like `0,2-4` names."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def indexes_text(indexes: Iterable[int]) -> str:
    """Indexes as a status shows them: runs of three and more as `2-4`."""
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][-1] == index - 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(_run_text(run) for run in parts)


def _run_text(run: list[int]) -> str:
    first, last = run[0], run[-1]
    if first == last:
        return str(first)
    return f"{first},{last}" if last == first + 1 else f"{first}-{last}"
