"""What is refused about Deployments, ReplicaSets, StatefulSets, DaemonSets and their like.

Called through their strategies. Invariant: the pods of a template are those that the selector
finds, and the selector does not change.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk.models.selectors import parse_label_selector
from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import annotation_errors, labels_errors
from stellwerk_cluster.apimachinery.objects import EMPTY, JsonValue, labels_of
from stellwerk_cluster.validation.checks import IMMUTABLE, int_or_percent_errors, not_negative
from stellwerk_cluster.validation.placement import label_selector_errors
from stellwerk_cluster.validation.pod_warnings import template_warnings
from stellwerk_cluster.validation.pods import pod_annotation_errors, template_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

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
    """What deserves a word about the pods of a workload."""
    return template_warnings(workload["spec"].get("template") or EMPTY, _TEMPLATE)


def validate_deployment(deployment: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a Deployment."""
    spec = deployment["spec"]
    yield from _count_errors(spec, "replicas")
    yield from _selector_errors(spec, "deployment")
    yield from _template_errors(spec, "ReplicaSet")
    yield from _deployment_strategy_errors(spec.get("strategy") or EMPTY)
    yield from _count_errors(spec, "minReadySeconds", "revisionHistoryLimit")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        yield from not_negative(deadline, "spec.progressDeadlineSeconds")
        if deadline <= spec.get("minReadySeconds", 0):
            text = "must be greater than minReadySeconds"
            yield bad_value("spec.progressDeadlineSeconds", deadline, text)


def validate_replica_set(replica_set: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a ReplicaSet."""
    spec = replica_set["spec"]
    yield from _count_errors(spec, "replicas", "minReadySeconds")
    yield from _selector_errors(spec, "deployment")
    yield from _template_errors(spec, "ReplicaSet")


def validate_replication_controller(controller: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a ReplicationController."""
    spec = controller["spec"]
    yield from _count_errors(spec, "minReadySeconds")
    selector, template = spec.get("selector") or EMPTY, spec.get("template")
    if not selector:
        yield required("spec.selector")
    yield from _count_errors(spec, "replicas")
    if template is None:
        yield required(_TEMPLATE)
        return
    labels = labels_of(template)
    if any(labels.get(key) != value for key, value in selector.items()):
        text = "`selector` does not match template `labels`"
        yield bad_value(f"{_TEMPLATE}.metadata.labels", labels, text)
    yield from template_errors(template, _TEMPLATE)
    yield from _pod_rule_errors(template, "ReplicationController")


def validate_stateful_set(stateful_set: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a StatefulSet."""
    spec = stateful_set["spec"]
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        text = "must be 'OrderedReady' or 'Parallel'"
        yield bad_value("spec.podManagementPolicy", policy, text)
    yield from _update_strategy_errors(spec)
    yield from _retention_errors(spec.get("persistentVolumeClaimRetentionPolicy") or EMPTY)
    yield from _count_errors(spec, "replicas", "minReadySeconds")
    start = (spec.get("ordinals") or EMPTY).get("start", 0)
    yield from not_negative(start, "spec.ordinals.start")
    yield from _selector_errors(spec, "statefulset")
    template = spec.get("template") or EMPTY
    yield from _match_errors(spec, template)
    # The mounts of its pods may be claims that are not volumes yet: the pods are judged later.
    metadata = template.get("metadata") or EMPTY
    annotations = metadata.get("annotations") or EMPTY
    yield from labels_errors(metadata.get("labels") or {}, f"{_TEMPLATE}.labels")
    yield from annotation_errors(annotations, f"{_TEMPLATE}.annotations")
    pod = template.get("spec") or EMPTY
    yield from pod_annotation_errors(annotations, pod, f"{_TEMPLATE}.annotations")
    yield from _pod_rule_errors(template, "StatefulSet")


def _update_strategy_errors(spec: JsonObject) -> Iterator[FieldError]:
    strategy = spec.get("updateStrategy") or EMPTY
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "OnDelete":
        if rolling is not None:
            text = "only allowed for updateStrategy 'RollingUpdate'"
            yield bad_value("spec.updateStrategy.rollingUpdate", rolling, text)
    elif kind == "RollingUpdate":
        partition = (rolling or EMPTY).get("partition", 0)
        yield from not_negative(partition, "spec.updateStrategy.rollingUpdate.partition")
    else:
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield bad_value("spec.updateStrategy", shown, "must be 'RollingUpdate' or 'OnDelete'")


def _retention_errors(policy: JsonObject) -> Iterator[FieldError]:
    for name in ("whenDeleted", "whenScaled"):
        if policy.get(name, "Retain") not in ("Retain", "Delete"):
            field = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            yield unsupported(field, policy[name], ("Retain", "Delete"))


def validate_daemon_set(daemon_set: JsonObject) -> Iterator[FieldError]:
    """What is wrong with a DaemonSet."""
    spec = daemon_set["spec"]
    yield from _selector_errors(spec, "daemonset")
    yield from _template_errors(spec, "DaemonSet")
    yield from _count_errors(spec, "minReadySeconds")
    strategy = spec.get("updateStrategy") or EMPTY
    kind, field = strategy.get("type", ""), "spec.updateStrategy"
    if kind == "RollingUpdate":
        yield from _daemon_rolling_errors(strategy.get("rollingUpdate") or EMPTY)
    elif kind != "OnDelete":
        yield unsupported(f"{field}.type", kind, ("RollingUpdate", "OnDelete"))
    yield from _count_errors(spec, "revisionHistoryLimit")


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


def _deployment_strategy_errors(strategy: JsonObject) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.strategy"
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden_field(f"{field}.rollingUpdate", text)
    elif kind == "RollingUpdate":
        yield from _rolling_errors(rolling or EMPTY, f"{field}.rollingUpdate")
    else:
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield unsupported(field, shown, ("Recreate", "RollingUpdate"))


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


def _count_errors(spec: JsonObject, *names: str) -> Iterator[FieldError]:
    for name in names:
        if spec.get(name) is not None:
            yield from not_negative(spec[name], f"spec.{name}")


def _selector_errors(spec: JsonObject, kind: str) -> Iterator[FieldError]:
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        return
    yield from label_selector_errors(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield bad_value("spec.selector", selector, f"empty selector is invalid for {kind}")


def _match_errors(spec: JsonObject, template: JsonObject) -> Iterator[FieldError]:
    selector, labels = spec.get("selector"), labels_of(template)
    if selector is not None and label_selector_errors(selector, ""):
        yield bad_value("spec.selector", selector, "invalid label selector")
        return
    parsed = parse_label_selector(selector)
    if parsed is None or not parsed.matches(labels):
        text = "`selector` does not match template `labels`"
        yield bad_value(f"{_TEMPLATE}.metadata.labels", labels, text)


def _template_errors(spec: JsonObject, kind: str) -> Iterator[FieldError]:
    template = spec.get("template") or EMPTY
    yield from _match_errors(spec, template)
    yield from template_errors(template, _TEMPLATE)
    yield from _pod_rule_errors(template, kind)


def _pod_rule_errors(template: JsonObject, kind: str) -> Iterator[FieldError]:
    """Pods of a workload are kept running: they do not end by themselves."""
    pod = template.get("spec") or EMPTY
    policy = pod.get("restartPolicy", "")
    if policy != "Always":
        yield unsupported(f"{_TEMPLATE}.spec.restartPolicy", policy, ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        yield forbidden_field(f"{_TEMPLATE}.spec.activeDeadlineSeconds", text)


def selector_change_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """A selector that another object was found by stays."""
    if new["spec"].get("selector") != old["spec"].get("selector"):
        yield bad_value("spec.selector", new["spec"].get("selector"), IMMUTABLE)


def stateful_change_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Of a StatefulSet, what its pods were made with stays."""
    kept, was = (
        {name: value for name, value in each["spec"].items() if name not in _STATEFUL_FREE}
        for each in (new, old)
    )
    if kept != was:
        yield forbidden_field("spec", _STATEFUL_IMMUTABLE)
