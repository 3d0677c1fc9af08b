"""The rules of ResourceQuotas and LimitRanges: resources, scopes, and amounts in their order.

Called through their strategies. Invariant: the scopes of a quota do not change; minimum, default
request, default and maximum of a range ascend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
)
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.names import qualified_name_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.checks import qualified_name
from stellwerk_cluster.validation.resources import (
    COUNTED_OBJECTS,
    container_resource_name,
    is_overcommitted,
    is_standard_for_quota,
    resource_name,
    resource_quantity,
)
from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

PRIORITY_SCOPE: Final = "PriorityClass"
VOLUME_CLASS_SCOPE: Final = "VolumeAttributesClass"
CROSS_NAMESPACE_SCOPE: Final = "CrossNamespacePodAffinity"
_SCOPES: Final = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    PRIORITY_SCOPE,
    CROSS_NAMESPACE_SCOPE,
    VOLUME_CLASS_SCOPE,
)
_EXISTS_ONLY: Final = (
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    CROSS_NAMESPACE_SCOPE,
)
_OPPOSITES: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
_TYPES: Final = ("Pod", "Container", "PersistentVolumeClaim")
_PARTS: Final = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def validate_quota(quota: JsonObject) -> Iterator[FieldError]:
    """Errors of a quota."""
    spec = quota["spec"]
    for name, amount in (spec.get("hard") or EMPTY).items():
        yield from _amount_errors(name, amount, f"spec.hard[{name}]")
    yield from _scope_errors(spec)
    if spec.get("scopeSelector") is not None:
        yield from _selector_errors(spec)


def _amount_errors(name: str, amount: str, field: str) -> Iterator[FieldError]:
    yield from resource_name(name, field)
    if "/" not in name and not is_standard_for_quota(name):
        yield bad_value(field, name, "must be a standard resource for quota")
    yield from resource_quantity(name, amount, field)


def _scope_errors(spec: JsonObject) -> Iterator[FieldError]:
    scopes, field = spec.get("scopes") or (), "spec.scopes"
    for scope in scopes:
        if scope not in _SCOPES:
            yield bad_value(field, scopes, "unsupported scope")
        for name in sorted(spec.get("hard") or ()):
            if is_standard_for_quota(name) and not _scope_fits(scope, name):
                yield bad_value(field, scopes, "unsupported scope applied to resource")
    for pair in _OPPOSITES:
        if set(pair) <= set(scopes):
            yield bad_value(field, scopes, "conflicting scopes")


def _scope_fits(scope: str, name: str) -> bool:
    if scope == "BestEffort":
        return name == "pods"
    if scope in (
        "Terminating",
        "NotTerminating",
        "NotBestEffort",
        PRIORITY_SCOPE,
        CROSS_NAMESPACE_SCOPE,
    ):
        return name not in COUNTED_OBJECTS - {"pods"} and name != "requests.storage"
    return True


def _selector_errors(spec: JsonObject) -> Iterator[FieldError]:
    field, used = "spec.scopeSelector.matchExpressions", set()
    selector = spec["scopeSelector"]
    for expression in selector.get("matchExpressions") or ():
        scope, operator = expression.get("scopeName", ""), expression.get("operator", "")
        values = expression.get("values") or []
        used.add(scope)
        if scope not in _SCOPES:
            yield bad_value(f"{field}.scopeName", scope, "unsupported scope")
        for name in sorted(spec.get("hard") or ()):
            if is_standard_for_quota(name) and not _scope_fits(scope, name):
                shown = internal_form("ScopeSelector", selector)
                yield bad_value(field, shown, "unsupported scope applied to resource")
        if scope in _EXISTS_ONLY and operator != "Exists":
            text = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
                "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            yield bad_value(f"{field}.operator", operator, text)
        yield from _values_errors(operator, values, field)
    for pair in _OPPOSITES:
        if set(pair) <= used:
            yield bad_value(field, spec.get("scopes"), "conflicting scopes")


def _values_errors(operator: str, values: list[str], field: str) -> Iterator[FieldError]:
    if operator in ("In", "NotIn"):
        if not values:
            text = (
                "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            )
            yield required(f"{field}.values", text)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = (
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            )
            yield bad_value(f"{field}.values", values, text)
    else:
        yield bad_value(f"{field}.operator", operator, "not a valid selector operator")


def validate_quota_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a change of a quota: its scopes stay."""
    if subresource == "status":
        for part in ("hard", "used"):
            for name, amount in (new["status"].get(part) or EMPTY).items():
                yield from _amount_errors(name, amount, f"status.{part}[{name}]")
        return
    yield from validate_quota(new)
    scopes = new["spec"].get("scopes") or []
    if set(scopes) != set(old["spec"].get("scopes") or ()):
        yield bad_value("spec.scopes", scopes, "field is immutable")


def validate_limit_range(limit_range: JsonObject) -> Iterator[FieldError]:
    """Errors of a LimitRange."""
    seen = set()
    for position, limit in enumerate(limit_range["spec"].get("limits") or ()):
        field, kind = f"spec.limits[{position}]", limit.get("type", "")
        if qualified_name_errors(kind):
            yield from qualified_name(kind, f"{field}.type")
        elif "/" not in kind and kind not in _TYPES:
            text = "must be a standard limit type or fully qualified"
            yield bad_value(f"{field}.type", kind, text)
        if kind in seen:
            yield duplicate(f"{field}.type", kind)
        seen.add(kind)
        yield from _part_errors(limit, field, kind)
        for name in sorted({name for part in _PARTS for name in limit.get(part) or ()}):
            yield from _order_errors(limit, field, name)


def _part_errors(limit: JsonObject, field: str, kind: str) -> Iterator[FieldError]:
    check = container_resource_name if kind in ("Pod", "Container") else resource_name
    for part in _PARTS:
        amounts = limit.get(part) or EMPTY
        if kind == "Pod" and part in ("default", "defaultRequest"):
            if amounts:
                yield forbidden_field(
                    f"{field}.{part}", "may not be specified when `type` is 'Pod'"
                )
            continue
        for name in amounts:
            yield from check(name, f"{field}.{part}[{name}]")
    bounded = "storage" in {*(limit.get("min") or ()), *(limit.get("max") or ())}
    if kind == "PersistentVolumeClaim" and not bounded:
        text = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{field}.limits", text)


def _order_errors(limit: JsonObject, field: str, name: str) -> Iterator[FieldError]:
    """Amounts of one resource that are in the wrong order."""
    texts = {part: (limit.get(part) or EMPTY).get(name) for part in _PARTS}
    values = {part: parse_quantity(text) for part, text in texts.items() if text is not None}
    for low, high, shown_at, part, words in (
        ("min", "max", "min", "min", ("min", "max")),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest", ("min", "default request")),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest", ("default request", "max")),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "defaultRequest",
            ("default request", "default limit"),
        ),
        ("min", "default", "default", "min", ("min", "default")),
        ("default", "max", "default", "max", ("default", "max")),
    ):
        if low in values and high in values and values[low] > values[high]:
            text = f"{words[0]} value {texts[low]} is greater than {words[1]} value {texts[high]}"
            yield bad_value(f"{field}.{shown_at}[{name}]", texts[part], text)
    ratio = values.get("maxLimitRequestRatio")
    if ratio is not None:
        where, shown = f"{field}.maxLimitRequestRatio[{name}]", texts["maxLimitRequestRatio"]
        if ratio < 1:
            yield bad_value(where, shown, f"ratio {shown} is less than 1")
        if values.get("min") and "max" in values and ratio > values["max"] / values["min"]:
            largest = float(values["max"] / values["min"])
            text = f"ratio {shown} is greater than max/min = {largest:f}"
            yield bad_value(where, shown, text)
    differ = values.get("default") != values.get("defaultRequest")
    if {"default", "defaultRequest"} <= values.keys() and differ and not is_overcommitted(name):
        text = (
            f"default value {texts['default']} must equal to defaultRequest value "
            f"{texts['defaultRequest']} in {name}"
        )
        yield bad_value(f"{field}.defaultRequest[{name}]", texts["defaultRequest"], text)
