"""What the API server refuses about where pods may run: tolerations, affinity, spread, selectors.

Called by `pod_validation` and by the rules of other kinds that have a selector or tolerations.
Invariant: one `Cause` for each wrong field, in the wording of the API server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import (
    label_causes,
    label_value_errors,
    qualified_name_errors,
)
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk.models.json_values import JsonObject

_OPERATORS: Final = ("Equal", "Exists", "Lt", "Gt")
_TOLERATION_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SPREAD_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_NODE_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_HIGHEST_WEIGHT: Final = 100
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def toleration_causes(tolerations: Iterable[JsonObject], field: str) -> list[Cause]:
    """What is wrong with a list of tolerations."""
    return [
        cause
        for position, toleration in enumerate(tolerations)
        for cause in _one_toleration_causes(toleration, f"{field}[{position}]")
    ]


def _one_toleration_causes(toleration: JsonObject, field: str) -> Iterator[Cause]:
    key, operator = toleration.get("key", ""), toleration.get("operator", "")
    value, effect = toleration.get("value", ""), toleration.get("effect", "")
    if key:
        for error in qualified_name_errors(key):
            yield bad_value(f"{field}.key", key, error)
    elif operator != "Exists":
        text = (
            'operator must be Exists when `key` is empty, which means "match all values and '
            'all keys"'
        )
        yield bad_value(f"{field}.operator", operator, text)
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield bad_value(f"{field}.effect", effect, text)
    if operator in ("", "Equal"):
        for error in label_value_errors(value):
            yield bad_value(f"{field}.operator", value, error)
    elif operator == "Exists":
        if value:
            yield bad_value(
                f"{field}.operator", value, "value must be empty when `operator` is 'Exists'"
            )
    else:
        # Lt and Gt are listed but not enabled (TaintTolerationComparisonOperators, v1.36).
        yield unsupported(f"{field}.operator", operator, _OPERATORS)
    if effect and effect not in _TOLERATION_EFFECTS:
        yield unsupported(f"{field}.effect", effect, _TOLERATION_EFFECTS)


def spread_causes(constraint: JsonObject, field: str) -> Iterator[Cause]:
    """What is wrong with one topology spread constraint."""
    if constraint.get("maxSkew", 0) <= 0:
        yield bad_value(
            f"{field}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"
        )
    if not constraint.get("topologyKey"):
        yield required(f"{field}.topologyKey", "can not be empty")
    action = constraint.get("whenUnsatisfiable", "")
    if action not in _SPREAD_ACTIONS:
        yield unsupported(f"{field}.whenUnsatisfiable", action, _SPREAD_ACTIONS)
    if constraint.get("minDomains", 1) <= 0:
        yield bad_value(
            f"{field}.minDomains", constraint["minDomains"], "must be greater than zero"
        )
    elif "minDomains" in constraint and action == "ScheduleAnyway":
        text = "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
        yield bad_value(f"{field}.minDomains", constraint["minDomains"], text)
    selector = constraint.get("labelSelector")
    yield from label_selector_causes(selector or EMPTY, f"{field}.labelSelector")
    yield from _label_key_causes(constraint, selector, field, ("matchLabelKeys",))


def _label_key_causes(
    term: JsonObject, selector: JsonObject | None, field: str, names: tuple[str, ...]
) -> Iterator[Cause]:
    """A key of matchLabelKeys may not stand in the selector too."""
    used = set((selector or EMPTY).get("matchLabels") or ())
    used.update(each["key"] for each in (selector or EMPTY).get("matchExpressions") or ())
    for name in names:
        for position, key in enumerate(term.get(name) or ()):
            if selector is None:
                yield forbidden_field(
                    f"{field}.{name}", "must not be specified when labelSelector is not set"
                )
            elif key in used:
                text = f"exists in both {name} and labelSelector"
                yield bad_value(f"{field}[{position}]", key, text)


def label_selector_causes(selector: JsonObject, field: str) -> list[Cause]:
    """What is wrong with a label selector."""
    causes = label_causes(selector.get("matchLabels") or {}, f"{field}.matchLabels")
    for position, expression in enumerate(selector.get("matchExpressions") or ()):
        causes += _expression_causes(
            expression,
            f"{field}.matchExpressions[{position}]",
            ("In", "NotIn", "Exists", "DoesNotExist"),
        )
    return causes


def _expression_causes(
    expression: JsonObject, field: str, operators: tuple[str, ...]
) -> Iterator[Cause]:
    operator, values = expression.get("operator", ""), expression.get("values") or []
    for error in qualified_name_errors(expression.get("key", "")):
        yield bad_value(f"{field}.key", expression.get("key", ""), error)
    if operator in ("In", "NotIn") and operator in operators:
        if not values:
            yield required(
                f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"
            )
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden_field(
                f"{field}.values",
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )
    elif operator in operators:
        if len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield required(f"{field}.values", text)
    else:
        yield bad_value(f"{field}.operator", operator, "not a valid selector operator")


def affinity_causes(affinity: JsonObject, field: str) -> Iterator[Cause]:
    """What is wrong with the affinities of a pod, to nodes and to pods."""
    yield from _node_affinity_causes(affinity.get("nodeAffinity") or EMPTY, f"{field}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(name) or EMPTY
        for position, term in enumerate(part.get(_REQUIRED) or ()):
            yield from _pod_term_causes(term, f"{field}.{name}.{_REQUIRED}[{position}]")
        for position, weighted in enumerate(part.get(_PREFERRED) or ()):
            where = f"{field}.{name}.{_PREFERRED}[{position}]"
            yield from _weight_causes(weighted, where)
            yield from _pod_term_causes(
                weighted.get("podAffinityTerm") or EMPTY, f"{where}.podAffinityTerm"
            )


def _node_affinity_causes(affinity: JsonObject, field: str) -> Iterator[Cause]:
    needed = affinity.get(_REQUIRED)
    if needed is not None:
        terms = needed.get("nodeSelectorTerms") or ()
        if not terms:
            yield required(
                f"{field}.{_REQUIRED}.nodeSelectorTerms",
                "must have at least one node selector term",
            )
        for position, term in enumerate(terms):
            yield from _node_term_causes(term, f"{field}.{_REQUIRED}.nodeSelectorTerms[{position}]")
    for position, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{field}.{_PREFERRED}[{position}]"
        yield from _weight_causes(weighted, where)
        yield from _node_term_causes(weighted.get("preference") or EMPTY, f"{where}.preference")


def _node_term_causes(term: JsonObject, field: str) -> Iterator[Cause]:
    for position, expression in enumerate(term.get("matchExpressions") or ()):
        yield from _expression_causes(
            expression, f"{field}.matchExpressions[{position}]", _NODE_OPERATORS
        )


def _weight_causes(weighted: JsonObject, field: str) -> Iterator[Cause]:
    if not 1 <= weighted.get("weight", 0) <= _HIGHEST_WEIGHT:
        yield bad_value(f"{field}.weight", weighted.get("weight", 0), "must be in the range 1-100")


def _pod_term_causes(term: JsonObject, field: str) -> Iterator[Cause]:
    key, selector = term.get("topologyKey", ""), term.get("labelSelector")
    if not key:
        yield required(f"{field}.topologyKey", "can not be empty")
    for error in qualified_name_errors(key):
        yield bad_value(f"{field}.topologyKey", key, error)
    yield from label_selector_causes(selector or EMPTY, f"{field}.labelSelector")
    yield from label_selector_causes(
        term.get("namespaceSelector") or EMPTY, f"{field}.namespaceSelector"
    )
    yield from _label_key_causes(term, selector, field, ("matchLabelKeys", "mismatchLabelKeys"))
