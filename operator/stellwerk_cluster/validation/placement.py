"""The rules of places for pods: tolerations, affinity, spread, selectors.

Called by `pod_validation` and by the rules of other kinds that have a selector or tolerations.
Invariant: one `FieldError` for each wrong field, in the wording of the API server.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import (
    label_errors,
    label_value_errors,
    labels_errors,
    qualified_name_errors,
    subdomain_errors,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_kube.admission import NODE_POLICIES, SPREAD_ACTIONS
from stellwerk_kube.taints import TAINT_EFFECTS, TOLERATION_OPERATORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject

_MAX_WEIGHT: Final = 100
"""Weight of a preferred term."""
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def toleration_errors(tolerations: Iterable[JsonObject], field: str) -> list[FieldError]:
    """Errors of a list of tolerations."""
    return [
        error
        for position, toleration in enumerate(tolerations)
        for error in _one_toleration_errors(toleration, f"{field}[{position}]")
    ]


def _one_toleration_errors(toleration: JsonObject, field: str) -> Iterator[FieldError]:
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
        errors = label_value_errors(value)
        if errors:
            yield bad_value(f"{field}.operator", value, ";".join(errors))
    elif operator == "Exists":
        if value:
            yield bad_value(
                f"{field}.operator", value, "value must be empty when `operator` is 'Exists'"
            )
    else:
        # Lt and Gt are listed but not enabled (TaintTolerationComparisonOperators, v1.36).
        yield unsupported(f"{field}.operator", operator, TOLERATION_OPERATORS)
    if effect and effect not in TAINT_EFFECTS:
        yield unsupported(f"{field}.effect", effect, TAINT_EFFECTS)


def spread_constraint_errors(constraints: Sequence[JsonObject], field: str) -> Iterator[FieldError]:
    """Errors of the topology spread constraints of a pod."""
    pairs = [
        (each.get("topologyKey", ""), each.get("whenUnsatisfiable", "")) for each in constraints
    ]
    later = Counter(pairs)
    for position, constraint in enumerate(constraints):
        where, pair = f"{field}[{position}]", pairs[position]
        later[pair] -= 1
        yield from _spread_errors(constraint, where)
        if later[pair]:
            name = f"{where}.{{topologyKey, whenUnsatisfiable}}"
            yield duplicate(name, f"{{{pair[0]}, {pair[1]}}}")


def _spread_errors(constraint: JsonObject, field: str) -> Iterator[FieldError]:
    skew, domains = constraint.get("maxSkew", 0), constraint.get("minDomains")
    if skew <= 0:
        yield bad_value(f"{field}.maxSkew", skew, "must be greater than zero")
    if not constraint.get("topologyKey"):
        yield required(f"{field}.topologyKey", "can not be empty")
    action = constraint.get("whenUnsatisfiable", "")
    if action not in SPREAD_ACTIONS:
        yield unsupported(f"{field}.whenUnsatisfiable", action, SPREAD_ACTIONS)
    if domains is not None:
        if domains <= 0:
            yield bad_value(f"{field}.minDomains", domains, "must be greater than zero")
        if action != "DoNotSchedule":
            text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            yield bad_value(f"{field}.minDomains", domains, text)
    for key in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if constraint.get(key) is not None and constraint[key] not in NODE_POLICIES:
            yield unsupported(f"{field}.{key}", constraint[key], NODE_POLICIES)
    selector = constraint.get("labelSelector")
    yield from _label_key_errors(constraint, selector, field)
    yield from label_selector_errors(selector or EMPTY, f"{field}.labelSelector")


def _label_key_errors(
    term: JsonObject, selector: JsonObject | None, field: str
) -> Iterator[FieldError]:
    """Keys that the pod's own labels fill in: they stand nowhere else in the selector.

    What they stand for is in the selector already (`merged_label_keys`), so that a key that is
    there twice was also given.
    """
    matched, mismatched = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for name, keys in (("matchLabelKeys", matched), ("mismatchLabelKeys", mismatched)):
        if keys and selector is None:
            text = "must not be specified when labelSelector is not set"
            yield forbidden_field(f"{field}.{name}", text)
            continue
        for position, key in enumerate(keys):
            for error in qualified_name_errors(key):
                yield bad_value(f"{field}.{name}[{position}]", key, error)
    positions = {key: position for position, key in enumerate(matched)}
    used = set((selector or EMPTY).get("matchLabels") or ())
    for expression in (selector or EMPTY).get("matchExpressions") or ():
        key = expression.get("key", "")
        if key in positions and key in used:
            text = "exists in both matchLabelKeys and labelSelector"
            yield bad_value(f"{field}[{positions[key]}]", key, text)
        used.add(key)
    for position, key in enumerate(mismatched):
        if key in positions:
            text = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield bad_value(f"{field}.mismatchLabelKeys[{position}]", key, text)


def label_selector_errors(selector: JsonObject, field: str) -> list[FieldError]:
    """Errors of a label selector."""
    errors = labels_errors(selector.get("matchLabels") or {}, f"{field}.matchLabels")
    for position, expression in enumerate(selector.get("matchExpressions") or ()):
        errors += _selector_expression_errors(expression, f"{field}.matchExpressions[{position}]")
    return errors


def _selector_expression_errors(expression: JsonObject, field: str) -> Iterator[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            yield required(f"{field}.values", text)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{field}.values", text)
    else:
        yield bad_value(f"{field}.operator", operator, "not a valid selector operator")
    yield from _label_name_errors(expression.get("key", ""), f"{field}.key")
    yield from _label_value_errors(values, f"{field}.values")


def _label_name_errors(key: str, field: str) -> Iterator[FieldError]:
    for error in qualified_name_errors(key):
        yield bad_value(field, key, error)


def _label_value_errors(values: Iterable[str], field: str) -> Iterator[FieldError]:
    for position, value in enumerate(values):
        for error in label_value_errors(value):
            yield bad_value(f"{field}[{position}]", value, error)


def affinity_errors(affinity: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of node affinity, pod affinity and pod anti-affinity."""
    if affinity.get("nodeAffinity") is not None:
        yield from _node_affinity_errors(affinity["nodeAffinity"], f"{field}.nodeAffinity")
    for part in ("podAffinity", "podAntiAffinity"):
        rules, place = affinity.get(part) or EMPTY, f"{field}.{part}"
        for position, term in enumerate(rules.get(_REQUIRED) or ()):
            yield from _pod_term_errors(term, f"{place}.{_REQUIRED}[{position}]")
        for position, weighted in enumerate(rules.get(_PREFERRED) or ()):
            where = f"{place}.{_PREFERRED}[{position}]"
            yield from _weight_errors(weighted, where)
            term = weighted.get("podAffinityTerm") or EMPTY
            yield from _pod_term_errors(term, f"{where}.podAffinityTerm")


def _node_affinity_errors(affinity: JsonObject, field: str) -> Iterator[FieldError]:
    needed = affinity.get(_REQUIRED)
    if needed is not None:
        yield from node_selector_errors(needed, f"{field}.{_REQUIRED}")
    for position, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{field}.{_PREFERRED}[{position}]"
        yield from _weight_errors(weighted, where)
        preference = weighted.get("preference") or EMPTY
        yield from _node_term_errors(preference, f"{where}.preference", any_value=True)


def node_selector_errors(selector: JsonObject, field: str) -> Iterator[FieldError]:
    """Errors of a node selector: of a pod, or of a volume."""
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        text = "must have at least one node selector term"
        yield required(f"{field}.nodeSelectorTerms", text)
    for position, term in enumerate(terms):
        yield from _node_term_errors(term, f"{field}.nodeSelectorTerms[{position}]")


def _node_term_errors(
    term: JsonObject, field: str, *, any_value: bool = False
) -> Iterator[FieldError]:
    """`any_value`: values that no label can have are allowed, as in preferences."""
    for position, expression in enumerate(term.get("matchExpressions") or ()):
        where = f"{field}.matchExpressions[{position}]"
        yield from _node_expression_errors(expression, where)
        if not any_value:
            yield from _label_value_errors(expression.get("values") or (), f"{where}.values")
    for position, expression in enumerate(term.get("matchFields") or ()):
        yield from _node_field_errors(expression, f"{field}.matchFields[{position}]")


def _node_expression_errors(expression: JsonObject, field: str) -> Iterator[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            text = "must be specified when `operator` is 'In' or 'NotIn'"
            yield required(f"{field}.values", text)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{field}.values", text)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield required(f"{field}.values", text)
    else:
        yield bad_value(f"{field}.operator", operator, "not a valid selector operator")
    yield from _label_name_errors(expression.get("key", ""), f"{field}.key")


def _node_field_errors(expression: JsonObject, field: str) -> Iterator[FieldError]:
    operator, values = expression.get("operator", ""), expression.get("values") or ()
    if operator not in ("In", "NotIn"):
        yield bad_value(f"{field}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        text = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{field}.values", text)
    key = expression.get("key", "")
    if key != "metadata.name":
        yield bad_value(f"{field}.key", key, "not a valid field selector key")
        return
    for position, value in enumerate(values):
        for error in subdomain_errors(value):
            yield bad_value(f"{field}.values[{position}]", value, error)


def _weight_errors(weighted: JsonObject, field: str) -> Iterator[FieldError]:
    if not 1 <= weighted.get("weight", 0) <= _MAX_WEIGHT:
        yield bad_value(f"{field}.weight", weighted.get("weight", 0), "must be in the range 1-100")


def _pod_term_errors(term: JsonObject, field: str) -> Iterator[FieldError]:
    key, selector = term.get("topologyKey", ""), term.get("labelSelector")
    yield from label_selector_errors(selector or EMPTY, f"{field}.labelSelector")
    namespaces = term.get("namespaceSelector") or EMPTY
    yield from label_selector_errors(namespaces, f"{field}.namespaceSelector")
    for name in term.get("namespaces") or ():
        for error in label_errors(name):
            yield bad_value(f"{field}.namespace", name, error)
    yield from _label_key_errors(term, selector, field)
    if not key:
        yield required(f"{field}.topologyKey", "can not be empty")
    yield from _label_name_errors(key, f"{field}.topologyKey")
