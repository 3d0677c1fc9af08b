"""The rules of Deployments, StatefulSets, DaemonSets and their like that no word of a table says.

Called by their lines in the tables. Invariant: the pods of a template are those that the selector
finds, and the selector does not change.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import annotation_errors, labels_errors
from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of
from stellwerk_cluster.validation.checks import int_or_percent_errors, not_negative
from stellwerk_cluster.validation.placement import label_selector_errors
from stellwerk_cluster.validation.pod_warnings import template_warnings
from stellwerk_cluster.validation.pods import pod_annotation_errors, template_errors
from stellwerk_kube.selectors import parse_label_selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject, JsonValue

_TEMPLATE: Final = "spec.template"
_STATEFUL_FREE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)
_STATEFUL_IMMUTABLE: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
    "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and "
    "'minReadySeconds' are forbidden"
)


def workload_warnings(workload: JsonObject, _old: JsonObject | None) -> Iterator[str]:
    """Warnings about the pods of a workload."""
    return template_warnings(workload["spec"].get("template") or EMPTY, _TEMPLATE)


def selector(value: JsonObject, field: str, _spec: JsonObject, kind: str) -> Iterator[FieldError]:
    """The selector of a workload finds some pods and not all."""
    yield from label_selector_errors(value, field)
    if not value.get("matchLabels") and not value.get("matchExpressions"):
        yield bad_value(field, value, f"empty selector is invalid for {kind}")


def template(value: JsonObject, field: str, spec: JsonObject, kind: str) -> Iterator[FieldError]:
    """Pods that the selector finds, and that go on running."""
    yield from _match_errors(spec, value)
    yield from template_errors(value, field)
    yield from _pod_rule_errors(value, kind)


def controller_template(value: JsonObject, field: str, spec: JsonObject) -> Iterator[FieldError]:
    """Validate the template of a ReplicationController, whose selector is a map of labels."""
    wanted, labels = spec.get("selector") or EMPTY, labels_of(value)
    if any(labels.get(key) != each for key, each in wanted.items()):
        text = "`selector` does not match template `labels`"
        yield bad_value(f"{field}.metadata.labels", labels, text)
    yield from template_errors(value, field)
    yield from _pod_rule_errors(value, "ReplicationController")


def stateful_template(value: JsonObject, field: str, spec: JsonObject) -> Iterator[FieldError]:
    """Validate the template of a StatefulSet, whose pods are judged when they are made.

    Their mounts may be claims that are not volumes yet.
    """
    yield from _match_errors(spec, value)
    metadata = value.get("metadata") or EMPTY
    annotations = metadata.get("annotations") or EMPTY
    yield from labels_errors(metadata.get("labels") or {}, f"{field}.labels")
    yield from annotation_errors(annotations, f"{field}.annotations")
    pod = value.get("spec") or EMPTY
    yield from pod_annotation_errors(annotations, pod, f"{field}.annotations")
    yield from _pod_rule_errors(value, "StatefulSet")


def longer_than_min_ready(value: int, field: str, spec: JsonObject) -> Iterator[FieldError]:
    """A deadline by which pods can be ready for long enough."""
    if value <= spec.get("minReadySeconds", 0):
        yield bad_value(field, value, "must be greater than minReadySeconds")


def pod_management_policy(value: str, field: str, _spec: JsonObject) -> Iterator[FieldError]:
    """A known policy by which a StatefulSet makes its pods."""
    if value not in ("OrderedReady", "Parallel"):
        yield bad_value(field, value, "must be 'OrderedReady' or 'Parallel'")


def stateful_update_strategy(
    value: JsonObject, field: str, _spec: JsonObject
) -> Iterator[FieldError]:
    """A known strategy by which a StatefulSet replaces its pods."""
    kind, rolling = value.get("type", ""), value.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            yield bad_value(f"{field}.rollingUpdate", rolling, text)
    elif kind == "RollingUpdate":
        partition = (rolling or EMPTY).get("partition", 0)
        yield from not_negative(partition, f"{field}.rollingUpdate.partition")
    else:
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield bad_value(field, shown, "must be 'RollingUpdate' or 'OnDelete'")


def daemon_update_strategy(
    value: JsonObject, field: str, _spec: JsonObject
) -> Iterator[FieldError]:
    """A known strategy by which a DaemonSet replaces its pods."""
    kind = value.get("type", "")
    if kind == "RollingUpdate":
        yield from _daemon_rolling_errors(value.get("rollingUpdate") or EMPTY)
    elif kind != "OnDelete":
        yield unsupported(f"{field}.type", kind, ("RollingUpdate", "OnDelete"))


def deployment_strategy(value: JsonObject, field: str, _spec: JsonObject) -> Iterator[FieldError]:
    """A known strategy by which a Deployment replaces its pods."""
    kind, rolling = value.get("type", ""), value.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden_field(f"{field}.rollingUpdate", text)
    elif kind == "RollingUpdate":
        yield from _rolling_errors(rolling or EMPTY, f"{field}.rollingUpdate")
    else:
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield unsupported(field, shown, ("Recreate", "RollingUpdate"))


def _daemon_rolling_errors(rolling: JsonObject) -> Iterator[FieldError]:
    field = "spec.updateStrategy.rollingUpdate"
    gone, more = rolling.get("maxUnavailable", 1), rolling.get("maxSurge", 0)
    for name, value in (("maxUnavailable", gone), ("maxSurge", more)):
        yield from int_or_percent_errors(value, f"{field}.{name}")
        yield from _percent_errors(value, f"{field}.{name}")
    if _number(gone) == 0 and _number(more) == 0:
        text = "cannot be 0 when maxSurge is 0"
        yield bad_value(f"{field}.maxUnavailable", gone, text)
    elif _number(gone) and _number(more):
        text = "may not be set when maxUnavailable is non-zero"
        yield bad_value(f"{field}.maxSurge", more, text)


def _rolling_errors(rolling: JsonObject, field: str) -> Iterator[FieldError]:
    gone, more = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    yield from int_or_percent_errors(gone, f"{field}.maxUnavailable")
    yield from int_or_percent_errors(more, f"{field}.maxSurge")
    if _number(gone) == 0 and _number(more) == 0:
        text = "may not be 0 when `maxSurge` is 0"
        yield bad_value(f"{field}.maxUnavailable", gone, text)
    yield from _percent_errors(gone, f"{field}.maxUnavailable")


def _number(value: JsonValue) -> int | None:
    """The number in a count or percentage."""
    if isinstance(value, str):
        found = re.fullmatch("([0-9]{1,9})%", value)
        return int(found[1]) if found else None
    number: int = value
    return number


def _percent_errors(value: JsonValue, field: str) -> Iterator[FieldError]:
    if isinstance(value, str) and (_number(value) or 0) > 100:  # noqa: PLR2004  (per cent)
        yield bad_value(field, value, "must not be greater than 100%")


def _match_errors(spec: JsonObject, pods: JsonObject) -> Iterator[FieldError]:
    wanted, labels = spec.get("selector"), labels_of(pods)
    if wanted is not None and label_selector_errors(wanted, ""):
        yield bad_value("spec.selector", wanted, "invalid label selector")
        return
    parsed = parse_label_selector(wanted)
    if parsed is None or not parsed.matches(labels):
        text = "`selector` does not match template `labels`"
        yield bad_value(f"{_TEMPLATE}.metadata.labels", labels, text)


def _pod_rule_errors(pods: JsonObject, kind: str) -> Iterator[FieldError]:
    """Pods of a workload are kept running: they do not end by themselves."""
    pod = pods.get("spec") or EMPTY
    policy = pod.get("restartPolicy", "")
    if policy != "Always":
        yield unsupported(f"{_TEMPLATE}.spec.restartPolicy", policy, ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        yield forbidden_field(f"{_TEMPLATE}.spec.activeDeadlineSeconds", text)


def stateful_change_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Errors of a changed StatefulSet: the fields stay that its pods were made with."""
    kept, was = (
        {name: value for name, value in each["spec"].items() if name not in _STATEFUL_FREE}
        for each in (new, old)
    )
    if kept != was:
        yield forbidden_field("spec", _STATEFUL_IMMUTABLE)
