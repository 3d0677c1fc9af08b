"""The rules of ResourceQuotas, and which objects count against one.

Called through their strategy and by `quota_admission`. Invariant: a quota whose status does not say
what it allows yet counts nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.pod_defaults import qos_class
from stellwerk_cluster.admission.resource_names import (
    COUNTED_OBJECTS,
    is_standard_for_quota,
    resource_name,
    resource_quantity,
)
from stellwerk_cluster.apimachinery.failures import Cause, bad_value, required
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stellwerk.models.json_values import JsonObject

QUOTAS: Final = "resourcequotas"
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
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_quota(quota: JsonObject) -> Iterator[Cause]:
    """What is wrong with a quota."""
    spec = quota["spec"]
    for name, amount in (spec.get("hard") or EMPTY).items():
        yield from _amount_causes(name, amount, f"spec.hard[{name}]")
    yield from _scope_causes(spec)
    if spec.get("scopeSelector") is not None:
        yield from _selector_causes(spec)


def _amount_causes(name: str, amount: str, field: str) -> Iterator[Cause]:
    yield from resource_name(name, field)
    if "/" not in name and not is_standard_for_quota(name):
        yield bad_value(field, name, "must be a standard resource for quota")
    yield from resource_quantity(name, amount, field)


def _scope_causes(spec: JsonObject) -> Iterator[Cause]:
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
    if scope in ("Terminating", "NotTerminating", "NotBestEffort", PRIORITY_SCOPE, CROSS_NAMESPACE_SCOPE):
        return name not in COUNTED_OBJECTS - {"pods"} and name != "requests.storage"
    return True


def _selector_causes(spec: JsonObject) -> Iterator[Cause]:
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
        yield from _values_causes(operator, values, field)
    for pair in _OPPOSITES:
        if set(pair) <= used:
            yield bad_value(field, spec.get("scopes"), "conflicting scopes")


def _values_causes(operator: str, values: list[str], field: str) -> Iterator[Cause]:
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


def validate_quota_update(new: JsonObject, old: JsonObject, subresource: str) -> Iterator[Cause]:
    """What is wrong with a change of a quota: its scopes stay."""
    if subresource == "status":
        for part in ("hard", "used"):
            for name, amount in (new["status"].get(part) or EMPTY).items():
                yield from _amount_causes(name, amount, f"status.{part}[{name}]")
        return
    yield from validate_quota(new)
    scopes = new["spec"].get("scopes") or []
    if set(scopes) != set(old["spec"].get("scopes") or ()):
        yield bad_value("spec.scopes", scopes, "field is immutable")


def in_scope(quota: JsonObject, pod: JsonObject) -> bool:
    """Whether a pod is one of those that a quota is about."""
    spec = quota["spec"]
    expressions = [
        *({"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()),
        *((spec.get("scopeSelector") or EMPTY).get("matchExpressions") or ()),
    ]
    return all(_matches(expression, pod["spec"]) for expression in expressions)


def _matches(expression: JsonObject, spec: JsonObject) -> bool:
    scope = expression.get("scopeName", "")
    if scope != PRIORITY_SCOPE:
        return scope in _BY_SCOPE and _BY_SCOPE[scope](spec)
    name, values = spec.get("priorityClassName", ""), expression.get("values") or ()
    by_operator = {
        "Exists": bool(name),
        "DoesNotExist": not name,
        "In": name in values,
        "NotIn": name not in values,
    }
    return by_operator.get(expression.get("operator", ""), False)


def _terms(spec: JsonObject) -> Iterable[JsonObject]:
    for part in ("podAffinity", "podAntiAffinity"):
        rules = (spec.get("affinity") or EMPTY).get(part) or EMPTY
        yield from rules.get(_REQUIRED) or ()
        for weighted in rules.get(_PREFERRED) or ():
            yield weighted.get("podAffinityTerm") or EMPTY


_BY_SCOPE: Final[dict[str, Callable[[JsonObject], bool]]] = {
    "Terminating": lambda spec: spec.get("activeDeadlineSeconds") is not None,
    "NotTerminating": lambda spec: spec.get("activeDeadlineSeconds") is None,
    "BestEffort": lambda spec: qos_class(spec) == "BestEffort",
    "NotBestEffort": lambda spec: qos_class(spec) != "BestEffort",
    CROSS_NAMESPACE_SCOPE: lambda spec: any(
        term.get("namespaces") or term.get("namespaceSelector") is not None for term in _terms(spec)
    ),
}
