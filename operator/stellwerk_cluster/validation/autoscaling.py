"""The rules of HorizontalPodAutoscalers: bounds, target, metrics, behaviour.

Called for writes of autoscalers. Invariant: the order of the errors is
that of the API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk_kube.json_values import JsonObject

_SOURCES: Final = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
"""Types of metrics, and the fields that they fill."""
_CHECKED: Final = ("object", "external", "pods", "resource", "containerResource")
_POLICY_TYPES: Final = ("Percent", "Pods")
_SELECTIONS: Final = ("Disabled", "Max", "Min")
_MAX_WINDOW_SECONDS: Final = 3600
"""Longest stabilization window (`MaxStabilizationWindowSeconds`)."""
_MAX_PERIOD_SECONDS: Final = 1800
"""Longest period of a scaling policy (`MaxPeriodSeconds`)."""
_NOT_IN_PATHS: Final = (".", "..")
_NOT_IN_NAMES: Final = ("/", "%")


def validate_autoscaler(autoscaler: JsonObject) -> Iterator[FieldError]:
    """Errors of a HorizontalPodAutoscaler."""
    spec = autoscaler["spec"]
    least, most = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if least is not None and least < 1:
        text = "must be greater than or equal to 1"
        yield bad_value("spec.minReplicas", least, text)
    if most < 1:
        yield bad_value("spec.maxReplicas", most, "must be greater than 0")
    if least is not None and most < least:
        text = "must be greater than or equal to `minReplicas`"
        yield bad_value("spec.maxReplicas", most, text)
    yield from _reference_errors(spec.get("scaleTargetRef") or EMPTY, "spec.scaleTargetRef")
    for position, metric in enumerate(spec.get("metrics") or ()):
        yield from _metric_errors(metric, f"spec.metrics[{position}]")
    behavior = spec.get("behavior") or EMPTY
    for name in ("scaleUp", "scaleDown"):
        if behavior.get(name) is not None:
            yield from _scaling_errors(behavior[name], f"spec.behavior.{name}")


def _reference_errors(reference: JsonObject, field: str) -> Iterator[FieldError]:
    for name in ("kind", "name"):
        if not reference.get(name):
            yield required(f"{field}.{name}")
        else:
            yield from _path_errors(reference[name], f"{field}.{name}")


def _path_errors(name: str, field: str) -> Iterator[FieldError]:
    """Errors of a name as a part of a path."""
    if name in _NOT_IN_PATHS:
        yield bad_value(field, name, f"may not be '{name}'")
        return
    for part in _NOT_IN_NAMES:
        if part in name:
            yield bad_value(field, name, f"may not contain '{part}'")


def _metric_errors(metric: JsonObject, field: str) -> Iterator[FieldError]:
    sort = metric.get("type") or ""
    if not sort:
        yield required(f"{field}.type", "must specify a metric source type")
    if sort not in _SOURCES:
        yield unsupported(f"{field}.type", sort, tuple(_SOURCES))
    present = [name for name in _CHECKED if metric.get(name) is not None]
    if present:
        yield from _ERRORS[present[0]](metric[present[0]], f"{field}.{present[0]}")
    expected = _SOURCES.get(sort, "")
    if expected and expected not in present:
        text = "must populate information for the given metric source"
        yield required(f"{field}.{expected}", text)
    for name in present if len(present) > 1 else ():
        if name != expected:
            yield forbidden_field(f"{field}.{name}", "must populate the given metric source only")


def _object_errors(source: JsonObject, field: str) -> Iterator[FieldError]:
    yield from _reference_errors(source["describedObject"], f"{field}.describedObject")
    yield from _identifier_errors(source["metric"], f"{field}.metric")
    target = source["target"]
    yield from _target_errors(target, f"{field}.target")
    if target.get("value") is None and target.get("averageValue") is None:
        text = "must set either a target value or averageValue"
        yield required(f"{field}.target.averageValue", text)


def _external_errors(source: JsonObject, field: str) -> Iterator[FieldError]:
    yield from _identifier_errors(source["metric"], f"{field}.metric")
    target = source["target"]
    yield from _target_errors(target, f"{field}.target")
    amount, average = target.get("value"), target.get("averageValue")
    if amount is None and average is None:
        text = "must set either a target value for metric or a per-pod target"
        yield required(f"{field}.target.averageValue", text)
    if amount is not None and average is not None:
        text = "may not set both a target value for metric and a per-pod target"
        yield forbidden_field(f"{field}.target.value", text)


def _pods_errors(source: JsonObject, field: str) -> Iterator[FieldError]:
    yield from _identifier_errors(source["metric"], f"{field}.metric")
    target = source["target"]
    yield from _target_errors(target, f"{field}.target")
    average = target.get("averageValue")
    if average is None or parse_quantity(average) <= 0:
        yield required(
            f"{field}.target.averageValue", "must specify a positive target averageValue"
        )


def _resource_errors(source: JsonObject, field: str) -> Iterator[FieldError]:
    if not source.get("name"):
        yield required(f"{field}.name", "must specify a resource name")
    yield from _resource_target_errors(source["target"], f"{field}.target")


def _container_errors(source: JsonObject, field: str) -> Iterator[FieldError]:
    if not source.get("name"):
        yield required(f"{field}.name", "must specify a resource name")
    if not source.get("container"):
        yield required(f"{field}.container", "must specify a container")
    yield from _resource_target_errors(source["target"], f"{field}.target")


_ERRORS: Final[dict[str, Callable[[JsonObject, str], Iterator[FieldError]]]] = {
    "object": _object_errors,
    "external": _external_errors,
    "pods": _pods_errors,
    "resource": _resource_errors,
    "containerResource": _container_errors,
}


def _resource_target_errors(target: JsonObject, field: str) -> Iterator[FieldError]:
    yield from _target_errors(target, field)
    share, amount = target.get("averageUtilization"), target.get("averageValue")
    if share is None and amount is None:
        text = "must set either a target raw value or a target utilization"
        yield required(f"{field}.averageUtilization", text)
    if share is not None and amount is not None:
        text = "may not set both a target raw value and a target utilization"
        yield forbidden_field(f"{field}.averageValue", text)


def _identifier_errors(metric: JsonObject, field: str) -> Iterator[FieldError]:
    if not metric.get("name"):
        yield required(f"{field}.name", "must specify a metric name")
    else:
        yield from _path_errors(metric["name"], f"{field}.name")


def _target_errors(target: JsonObject, field: str) -> Iterator[FieldError]:
    sort = target.get("type") or ""
    if not sort:
        yield required(f"{field}.type", "must specify a metric target type")
    if sort not in ("Utilization", "Value", "AverageValue"):
        text = "must be either Utilization, Value, or AverageValue"
        yield bad_value(f"{field}.type", sort, text)
    for name in ("value", "averageValue"):
        if target.get(name) is not None and parse_quantity(target[name]) <= 0:
            yield bad_value(f"{field}.{name}", target[name], "must be positive")
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        yield bad_value(f"{field}.averageUtilization", share, "must be greater than 0")


def _scaling_errors(rules: JsonObject, field: str) -> Iterator[FieldError]:
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        text = "must be greater than or equal to zero"
        yield bad_value(f"{field}.stabilizationWindowSeconds", window, text)
    if window is not None and window > _MAX_WINDOW_SECONDS:
        text = f"must be less than or equal to {_MAX_WINDOW_SECONDS}"
        yield bad_value(f"{field}.stabilizationWindowSeconds", window, text)
    chosen = rules.get("selectPolicy")
    if chosen is not None and chosen not in _SELECTIONS:
        yield unsupported(f"{field}.selectPolicy", chosen, _SELECTIONS)
    policies = rules.get("policies") or ()
    if not policies:
        yield required(f"{field}.policies", "must specify at least one Policy")
    for position, policy in enumerate(policies):
        yield from _policy_errors(policy, f"{field}.policies[{position}]")


def _policy_errors(policy: JsonObject, field: str) -> Iterator[FieldError]:
    if policy.get("type") not in _POLICY_TYPES:
        yield unsupported(f"{field}.type", policy.get("type") or "", _POLICY_TYPES)
    for name in ("value", "periodSeconds"):
        if policy.get(name, 0) <= 0:
            yield bad_value(f"{field}.{name}", policy.get(name, 0), "must be greater than zero")
    period = policy.get("periodSeconds", 0)
    if period > _MAX_PERIOD_SECONDS:
        text = f"must be less than or equal to {_MAX_PERIOD_SECONDS}"
        yield bad_value(f"{field}.periodSeconds", period, text)
