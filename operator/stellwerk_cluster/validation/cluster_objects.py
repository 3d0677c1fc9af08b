"""The rules of small kinds: Namespace, Lease, PodDisruptionBudget.

Called through their strategies. Invariant: the phase of a namespace agrees with its deletion.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, unsupported
from stellwerk_cluster.apimachinery.internal_form import internal_form
from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating
from stellwerk_cluster.validation.checks import int_or_percent_errors, qualified_name
from stellwerk_cluster.validation.placement import label_selector_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

NAMESPACE_FINALIZER: Final = "kubernetes"
_STANDARD_FINALIZERS: Final = (NAMESPACE_FINALIZER, "orphan", "foregroundDeletion")
_EVICTION_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")


def validate_namespace(namespace: JsonObject) -> Iterator[FieldError]:
    """Errors of a namespace: finalizers of its specification."""
    for name in namespace["spec"].get("finalizers") or ():
        field = "spec.finalizers"
        yield from qualified_name(name, field)
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield bad_value(field, name, text)


def validate_namespace_update(
    new: JsonObject, _old: JsonObject, subresource: str
) -> Iterator[FieldError]:
    """Errors of a change: the phase says whether the namespace is going."""
    if subresource != "status":
        yield from validate_namespace(new)
        return
    phase = new["status"].get("phase", "")
    going = is_terminating(new)
    if phase != ("Terminating" if going else "Active"):
        text = (
            "may only be 'Terminating' if `deletionTimestamp` is not empty"
            if going
            else "may only be 'Active' if `deletionTimestamp` is empty"
        )
        yield bad_value("status.Phase", phase, text)


def positive(value: int, field: str, _owner: JsonObject) -> Iterator[FieldError]:
    """A number of at least 1."""
    if value <= 0:
        yield bad_value(field, value, "must be greater than 0")


def validate_budget(budget: JsonObject) -> list[FieldError]:
    """Errors of a PodDisruptionBudget."""
    spec = budget["spec"]
    errors = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        shown = internal_form("PodDisruptionBudgetSpec", spec)
        errors.append(
            bad_value("spec", shown, "minAvailable and maxUnavailable cannot be both set")
        )
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            errors += int_or_percent_errors(spec[name], f"spec.{name}")
            percent = re.fullmatch("([0-9]{1,9})%", str(spec[name]))
            if percent and int(percent[1]) > 100:  # noqa: PLR2004  (per cent)
                text = "must not be greater than 100%"
                errors.append(bad_value(f"spec.{name}", spec[name], text))
    errors += label_selector_errors(spec.get("selector") or EMPTY, "spec.selector")
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _EVICTION_POLICIES:
        errors.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, _EVICTION_POLICIES))
    return errors
