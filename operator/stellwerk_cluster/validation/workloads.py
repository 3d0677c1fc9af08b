"""What is refused about Deployments, ReplicaSets, StatefulSets, DaemonSets and their like.

Called through their strategies. Invariant: the pods of a template are those that the selector
finds, and the selector does not change.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk.models.selectors import parse_label_selector
from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import annotation_causes, label_causes
from stellwerk_cluster.apimachinery.objects import EMPTY, JsonValue, labels_of
from stellwerk_cluster.validation.checks import IMMUTABLE, int_or_percent_causes, not_negative
from stellwerk_cluster.validation.placement import label_selector_causes
from stellwerk_cluster.validation.pod_warnings import template_warnings
from stellwerk_cluster.validation.pods import pod_annotation_causes, template_causes

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


def validate_deployment(deployment: JsonObject) -> Iterator[Cause]:
    """What is wrong with a Deployment."""
    spec = deployment["spec"]
    yield from _count_causes(spec, "replicas")
    yield from _selector_causes(spec, "deployment")
    yield from _template_causes(spec, "ReplicaSet")
    yield from _deployment_strategy_causes(spec.get("strategy") or EMPTY)
    yield from _count_causes(spec, "minReadySeconds", "revisionHistoryLimit")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        yield from not_negative(deadline, "spec.progressDeadlineSeconds")
        if deadline <= spec.get("minReadySeconds", 0):
            text = "must be greater than minReadySeconds"
            yield bad_value("spec.progressDeadlineSeconds", deadline, text)


def validate_replica_set(replica_set: JsonObject) -> Iterator[Cause]:
    """What is wrong with a ReplicaSet."""
    spec = replica_set["spec"]
    yield from _count_causes(spec, "replicas", "minReadySeconds")
    yield from _selector_causes(spec, "deployment")
    yield from _template_causes(spec, "ReplicaSet")


def validate_replication_controller(controller: JsonObject) -> Iterator[Cause]:
    """What is wrong with a ReplicationController."""
    spec = controller["spec"]
    yield from _count_causes(spec, "minReadySeconds")
    selector, template = spec.get("selector") or EMPTY, spec.get("template")
    if not selector:
        yield required("spec.selector")
    yield from _count_causes(spec, "replicas")
    if template is None:
        yield required(_TEMPLATE)
        return
    labels = labels_of(template)
    if any(labels.get(key) != value for key, value in selector.items()):
        text = "`selector` does not match template `labels`"
        yield bad_value(f"{_TEMPLATE}.metadata.labels", labels, text)
    yield from template_causes(template, _TEMPLATE)
    yield from _pod_rule_causes(template, "ReplicationController")


def validate_stateful_set(stateful_set: JsonObject) -> Iterator[Cause]:
    """What is wrong with a StatefulSet."""
    spec = stateful_set["spec"]
    policy = spec.get("podManagementPolicy", "")
    if policy not in ("OrderedReady", "Parallel"):
        text = "must be 'OrderedReady' or 'Parallel'"
        yield bad_value("spec.podManagementPolicy", policy, text)
    yield from _update_strategy_causes(spec)
    yield from _retention_causes(spec.get("persistentVolumeClaimRetentionPolicy") or EMPTY)
    yield from _count_causes(spec, "replicas", "minReadySeconds")
    start = (spec.get("ordinals") or EMPTY).get("start", 0)
    yield from not_negative(start, "spec.ordinals.start")
    yield from _selector_causes(spec, "statefulset")
    template = spec.get("template") or EMPTY
    yield from _match_causes(spec, template)
    # The mounts of its pods may be claims that are not volumes yet: the pods are judged later.
    metadata = template.get("metadata") or EMPTY
    annotations = metadata.get("annotations") or EMPTY
    yield from label_causes(metadata.get("labels") or {}, f"{_TEMPLATE}.labels")
    yield from annotation_causes(annotations, f"{_TEMPLATE}.annotations")
    pod = template.get("spec") or EMPTY
    yield from pod_annotation_causes(annotations, pod, f"{_TEMPLATE}.annotations")
    yield from _pod_rule_causes(template, "StatefulSet")


def _update_strategy_causes(spec: JsonObject) -> Iterator[Cause]:
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


def _retention_causes(policy: JsonObject) -> Iterator[Cause]:
    for name in ("whenDeleted", "whenScaled"):
        if policy.get(name, "Retain") not in ("Retain", "Delete"):
            field = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            yield unsupported(field, policy[name], ("Retain", "Delete"))


def validate_daemon_set(daemon_set: JsonObject) -> Iterator[Cause]:
    """What is wrong with a DaemonSet."""
    spec = daemon_set["spec"]
    yield from _selector_causes(spec, "daemonset")
    yield from _template_causes(spec, "DaemonSet")
    yield from _count_causes(spec, "minReadySeconds")
    strategy = spec.get("updateStrategy") or EMPTY
    kind, field = strategy.get("type", ""), "spec.updateStrategy"
    if kind == "RollingUpdate":
        yield from _daemon_rolling_causes(strategy.get("rollingUpdate") or EMPTY)
    elif kind != "OnDelete":
        yield unsupported(f"{field}.type", kind, ("RollingUpdate", "OnDelete"))
    yield from _count_causes(spec, "revisionHistoryLimit")


def _daemon_rolling_causes(rolling: JsonObject) -> Iterator[Cause]:
    field = "spec.updateStrategy.rollingUpdate"
    gone, more = rolling.get("maxUnavailable", 1), rolling.get("maxSurge", 0)
    for name, value in (("maxUnavailable", gone), ("maxSurge", more)):
        yield from int_or_percent_causes(value, f"{field}.{name}")
        yield from _percent_causes(value, f"{field}.{name}")
    if _number(gone) == 0 and _number(more) == 0:
        text = "cannot be 0 when maxSurge is 0"
        yield bad_value(f"{field}.maxUnavailable", gone, text)
    elif _number(gone) and _number(more):
        text = "may not be set when maxUnavailable is non-zero"
        yield bad_value(f"{field}.maxSurge", more, text)


def _deployment_strategy_causes(strategy: JsonObject) -> Iterator[Cause]:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    field = "spec.strategy"
    if kind == "Recreate":
        if rolling is not None:
            text = "may not be specified when strategy `type` is 'Recreate'"
            yield forbidden_field(f"{field}.rollingUpdate", text)
    elif kind == "RollingUpdate":
        yield from _rolling_causes(rolling or EMPTY, f"{field}.rollingUpdate")
    else:
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield unsupported(field, shown, ("Recreate", "RollingUpdate"))


def _rolling_causes(rolling: JsonObject, field: str) -> Iterator[Cause]:
    gone, more = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    yield from int_or_percent_causes(gone, f"{field}.maxUnavailable")
    yield from int_or_percent_causes(more, f"{field}.maxSurge")
    if _number(gone) == 0 and _number(more) == 0:
        text = "may not be 0 when `maxSurge` is 0"
        yield bad_value(f"{field}.maxUnavailable", gone, text)
    yield from _percent_causes(gone, f"{field}.maxUnavailable")


def _number(value: JsonValue) -> int | None:
    """The number in a count or percentage."""
    if isinstance(value, str):
        found = re.fullmatch("([0-9]{1,9})%", value)
        return int(found[1]) if found else None
    number: int = value
    return number


def _percent_causes(value: JsonValue, field: str) -> Iterator[Cause]:
    if isinstance(value, str) and (_number(value) or 0) > 100:  # noqa: PLR2004  (per cent)
        yield bad_value(field, value, "must not be greater than 100%")


def _count_causes(spec: JsonObject, *names: str) -> Iterator[Cause]:
    for name in names:
        if spec.get(name) is not None:
            yield from not_negative(spec[name], f"spec.{name}")


def _selector_causes(spec: JsonObject, kind: str) -> Iterator[Cause]:
    selector = spec.get("selector")
    if selector is None:
        yield required("spec.selector")
        return
    yield from label_selector_causes(selector, "spec.selector")
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield bad_value("spec.selector", selector, f"empty selector is invalid for {kind}")


def _match_causes(spec: JsonObject, template: JsonObject) -> Iterator[Cause]:
    selector, labels = spec.get("selector"), labels_of(template)
    if selector is not None and label_selector_causes(selector, ""):
        yield bad_value("spec.selector", selector, "invalid label selector")
        return
    parsed = parse_label_selector(selector)
    if parsed is None or not parsed.matches(labels):
        text = "`selector` does not match template `labels`"
        yield bad_value(f"{_TEMPLATE}.metadata.labels", labels, text)


def _template_causes(spec: JsonObject, kind: str) -> Iterator[Cause]:
    template = spec.get("template") or EMPTY
    yield from _match_causes(spec, template)
    yield from template_causes(template, _TEMPLATE)
    yield from _pod_rule_causes(template, kind)


def _pod_rule_causes(template: JsonObject, kind: str) -> Iterator[Cause]:
    """Pods of a workload are kept running: they do not end by themselves."""
    pod = template.get("spec") or EMPTY
    policy = pod.get("restartPolicy", "")
    if policy != "Always":
        yield unsupported(f"{_TEMPLATE}.spec.restartPolicy", policy, ("Always",))
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {kind} is not Supported"
        yield forbidden_field(f"{_TEMPLATE}.spec.activeDeadlineSeconds", text)


def selector_change_causes(new: JsonObject, old: JsonObject) -> Iterator[Cause]:
    """A selector that another object was found by stays."""
    if new["spec"].get("selector") != old["spec"].get("selector"):
        yield bad_value("spec.selector", new["spec"].get("selector"), IMMUTABLE)


def stateful_change_causes(new: JsonObject, old: JsonObject) -> Iterator[Cause]:
    """Of a StatefulSet, what its pods were made with stays."""
    kept, was = (
        {name: value for name, value in each["spec"].items() if name not in _STATEFUL_FREE}
        for each in (new, old)
    )
    if kept != was:
        yield forbidden_field("spec", _STATEFUL_IMMUTABLE)
