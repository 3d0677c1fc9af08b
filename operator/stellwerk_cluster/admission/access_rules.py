"""The rules of roles and of bindings to them.

Called through their strategies. Invariant: what a binding refers to does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.checks import subdomain
from stellwerk_cluster.admission.placement_validation import label_selector_causes
from stellwerk_cluster.apimachinery.failures import (
    Cause,
    bad_value,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_GROUP: Final = "rbac.authorization.k8s.io"


def path_segment_errors(name: str) -> list[str]:
    """What keeps a name from being a part of a path, which names of roles only have to be."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in name]


def validate_role(role: JsonObject) -> Iterator[Cause]:
    """What is wrong with a role; one of a namespace has no rules about paths."""
    cluster_wide = "namespace" not in role["metadata"]
    for position, rule in enumerate(role.get("rules") or ()):
        yield from _rule_causes(rule, f"rules[{position}]", cluster_wide=cluster_wide)
    aggregation = role.get("aggregationRule")
    if aggregation is not None:
        selectors = aggregation.get("clusterRoleSelectors") or ()
        field = "aggregationRule.clusterRoleSelectors"
        if not selectors:
            yield required(
                field, "at least one clusterRoleSelector required if aggregationRule is non-nil"
            )
        for position, selector in enumerate(selectors):
            yield from label_selector_causes(selector, f"{field}[{position}]")


def _rule_causes(rule: JsonObject, field: str, *, cluster_wide: bool) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield required(f"{field}.verbs", "verbs must contain at least one value")
    paths = rule.get("nonResourceURLs")
    if paths:
        if not cluster_wide:
            text = "namespaced rules cannot apply to non-resource URLs"
            yield bad_value(f"{field}.nonResourceURLs", paths, text)
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            yield bad_value(f"{field}.nonResourceURLs", paths, text)
        return
    if not rule.get("apiGroups"):
        yield required(f"{field}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{field}.resources", "resource rules must supply at least one resource")


def validate_role_update(new: JsonObject, _old: JsonObject, _subresource: str) -> Iterator[Cause]:
    """As for a new role, twice: the API server looks twice."""
    yield from validate_role(new)
    yield from validate_role(new)


def validate_binding(binding: JsonObject) -> Iterator[Cause]:
    """What is wrong with a binding."""
    reference, of_cluster = binding["roleRef"], "namespace" not in binding["metadata"]
    kinds = ("ClusterRole",) if of_cluster else ("Role", "ClusterRole")
    if reference.get("apiGroup") != _GROUP:
        yield unsupported("roleRef.apiGroup", reference.get("apiGroup", ""), (_GROUP,))
    if reference.get("kind") not in kinds:
        yield unsupported("roleRef.kind", reference.get("kind", ""), kinds)
    name = reference.get("name", "")
    if not name:
        yield required("roleRef.name")
    for error in path_segment_errors(name):
        yield bad_value("roleRef.name", name, error)
    for position, subject in enumerate(binding.get("subjects") or ()):
        yield from _subject_causes(subject, f"subjects[{position}]", of_cluster=of_cluster)


def _subject_causes(subject: JsonObject, field: str, *, of_cluster: bool) -> Iterator[Cause]:
    kind, name, group = (subject.get(key, "") for key in ("kind", "name", "apiGroup"))
    if not name:
        yield required(f"{field}.name")
    if kind == "ServiceAccount":
        if name:
            yield from subdomain(name, f"{field}.name")
        if group:
            yield unsupported(f"{field}.apiGroup", group, ("",))
        if of_cluster and not subject.get("namespace"):
            yield required(f"{field}.namespace")
    elif kind in ("User", "Group"):
        if group != _GROUP:
            yield unsupported(f"{field}.apiGroup", group, (_GROUP,))
    else:
        yield unsupported(f"{field}.kind", kind, ("ServiceAccount", "User", "Group"))


def validate_binding_update(new: JsonObject, old: JsonObject, _subresource: str) -> Iterator[Cause]:
    """What is wrong with a change of a binding."""
    yield from validate_binding(new)
    yield from validate_binding(new)
    if (old["roleRef"] or EMPTY) != new["roleRef"]:
        yield bad_value("roleRef", _shown(new["roleRef"]), "cannot change roleRef")


def _shown(reference: JsonObject) -> JsonObject:
    return {
        "APIGroup": reference.get("apiGroup", ""),
        "Kind": reference.get("kind", ""),
        "Name": reference.get("name", ""),
    }
