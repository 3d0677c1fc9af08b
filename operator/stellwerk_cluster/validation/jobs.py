"""The rules of Jobs and CronJobs that no word of a table says.

Called by their lines in the tables. Invariant: the pods of a job are those that its selector finds,
and come to an end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zoneinfo import available_timezones

from stellwerk_cluster.apimachinery.cron_schedules import parse_schedule
from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required, unsupported
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of
from stellwerk_cluster.validation.checks import IMMUTABLE, immutable
from stellwerk_cluster.validation.placement import label_selector_errors
from stellwerk_cluster.validation.pod_warnings import template_warnings
from stellwerk_cluster.validation.pods import template_errors
from stellwerk_kube.selectors import parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

_MODES: Final = ("NonIndexed", "Indexed")
_MAX_INDEXED_PODS: Final = 100_000
"""Pods of an indexed Job at once (`maxParallelismForIndexedJob`)."""
_REPLACEMENTS: Final = ("Failed", "TerminatingOrFailed")
_MAX_CRON_NAME_CHARACTERS: Final = 52
"""Characters of a CronJob's name, so that its Jobs can add 11."""
_SUSPENDED: Final = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of a job's pods that may change while it never ran, besides node affinity."""


def job_selector(job: JsonObject) -> Iterator[FieldError]:
    """The selector of a Job finds its pods."""
    spec = job["spec"]
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        return
    wrong = label_selector_errors(selector, "spec.selector")
    yield from wrong
    parsed = None if wrong else parse_label_selector(selector)
    labels = labels_of(spec.get("template") or EMPTY)
    if parsed is not None and not parsed.matches(labels):
        text = "`selector` does not match template `labels`"
        yield bad_value("spec.template.metadata.labels", labels, text)


def template(value: JsonObject, field: str, spec: JsonObject) -> Iterator[FieldError]:
    """Pods that come to an end, and the mode in which they are counted."""
    yield from _mode_errors(spec, field.rpartition(".")[0])
    yield from template_errors(value, field)
    restart = (value.get("spec") or EMPTY).get("restartPolicy", "")
    where = f"{field}.spec.restartPolicy"
    if restart in ("", "Always"):
        yield required(where, 'valid values: "OnFailure", "Never"')
    elif restart not in ("OnFailure", "Never"):
        yield unsupported(where, restart, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and restart != "Never":
        text = 'only "Never" is supported when podFailurePolicy is specified'
        yield bad_value(where, restart, text)


def _mode_errors(spec: JsonObject, field: str) -> Iterator[FieldError]:
    mode = spec.get("completionMode")
    if mode is not None and mode not in _MODES:
        yield unsupported(f"{field}.completionMode", mode, _MODES)
    indexed = mode == "Indexed"
    if indexed:
        if spec.get("completions") is None:
            yield required(f"{field}.completions", "when completion mode is Indexed")
        if spec.get("parallelism", 0) > _MAX_INDEXED_PODS:
            text = (
                f"must be less than or equal to {_MAX_INDEXED_PODS} when completion mode is Indexed"
            )
            yield bad_value(f"{field}.parallelism", spec["parallelism"], text)
    elif spec.get("backoffLimitPerIndex") is not None:
        text = "requires indexed completion mode"
        yield bad_value(f"{field}.backoffLimitPerIndex", spec["backoffLimitPerIndex"], text)
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        text = "when maxFailedIndexes is specified"
        yield required(f"{field}.backoffLimitPerIndex", text)
    policy = spec.get("podReplacementPolicy")
    if policy is not None and policy not in _REPLACEMENTS:
        yield unsupported(f"{field}.podReplacementPolicy", policy, _REPLACEMENTS)


def job_changes(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Errors of a change: a job goes on running and counting the same."""
    spec, was = new["spec"], old["spec"]
    for name in ("selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex"):
        yield from immutable(spec.get(name), was.get(name), f"spec.{name}")
    completions, had = spec.get("completions"), was.get("completions")
    elastic = spec.get("completionMode") == "Indexed" and completions == spec.get("parallelism")
    if completions != had and not elastic:
        yield bad_value("spec.completions", completions, IMMUTABLE)
    template = _with_free_fields(spec, old)
    if template != was.get("template"):
        shown = internal_form("PodTemplateSpec", spec.get("template"))
        yield bad_value("spec.template", shown, IMMUTABLE)


def _with_free_fields(spec: JsonObject, old: JsonObject) -> JsonObject:
    """The template, with the old values where a job that is suspended may change it."""
    template: JsonObject = spec.get("template") or EMPTY
    was = old["spec"].get("template") or EMPTY
    suspended = old["spec"].get("suspend") and not (old.get("status") or EMPTY).get("startTime")
    if not suspended:
        return template
    pod, pod_was = dict(template.get("spec") or EMPTY), was.get("spec") or EMPTY
    for name in _SUSPENDED:
        pod.pop(name, None)
        pod |= {name: pod_was[name]} if name in pod_was else {}
    affinity = {k: v for k, v in (pod.pop("affinity", None) or {}).items() if k != "nodeAffinity"}
    affinity_was = pod_was.get("affinity") or EMPTY
    affinity |= (
        {"nodeAffinity": affinity_was["nodeAffinity"]} if "nodeAffinity" in affinity_was else {}
    )
    pod |= {"affinity": affinity} if affinity or "affinity" in pod_was else {}
    kept = {**template, "spec": pod}
    if "metadata" in was:
        kept["metadata"] = was["metadata"]
    return kept


def job_warnings(job: JsonObject, _old: JsonObject | None) -> Iterator[str]:
    """Warnings about the pods of a job."""
    return template_warnings(job["spec"].get("template") or EMPTY, "spec.template")


def cron_job_name(metadata: JsonObject, field: str, _owner: JsonObject) -> Iterator[FieldError]:
    """A name to which the time of a Job can be added."""
    name = metadata.get("name", "")
    if len(name) > _MAX_CRON_NAME_CHARACTERS:
        text = f"must be no more than {_MAX_CRON_NAME_CHARACTERS} characters"
        yield bad_value(f"{field}.name", name, text)


def schedule(value: str, field: str, _spec: JsonObject) -> Iterator[FieldError]:
    """The times of a CronJob."""
    if "TZ" in value:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield bad_value(field, value, text)
        return
    try:
        parse_schedule(value)
    except ValueError as error:
        yield bad_value(field, value, str(error))


def time_zone(value: str, field: str, _spec: JsonObject) -> Iterator[FieldError]:
    """The zone of a schedule."""
    if not value:
        yield bad_value(field, value, "timeZone must be nil or non-empty string")
    elif value.lower() == "local":
        text = (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
        yield bad_value(field, value, text)
    elif value not in available_timezones():
        yield bad_value(field, value, f"unknown time zone {value}")


def runs_all_at_once(spec: JsonObject) -> bool:
    """Whether the pods of a Job are a gang: each has an index of its own, and all run together."""
    return (
        spec.get("completionMode") == "Indexed"
        and (spec.get("parallelism") or 0) > 1
        and spec.get("completions") == spec.get("parallelism")
        and (spec["template"].get("spec") or EMPTY).get("schedulingGroup") is None
    )
