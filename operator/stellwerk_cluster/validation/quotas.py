"""The rules of ResourceQuotas: resources, scopes, and scopes that go together.

Called through their strategy. Invariant: the scopes of a quota do not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.resource_names import (
    COUNTED_OBJECTS,
    is_standard_for_quota,
    resource_name,
    resource_quantity,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

PRIORITY_SCOPE: Final = "PriorityClass"
CROSS_NAMESPACE_SCOPE: Final = "CrossNamespacePodAffinity"
_SCOPES: Final = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    PRIORITY_SCOPE,
    CROSS_NAMESPACE_SCOPE,
    "VolumeAttributesClass",
)
_EXISTS_ONLY: Final = (
    "BestEffort",
    "NotBestEffort",
    "Terminating",
    "NotTerminating",
    CROSS_NAMESPACE_SCOPE,
)
_OPPOSITES: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))


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
