"""Rules of roles and bindings: what a rule may say, and which subjects a binding names.

Called through their strategies. Invariant: a stored binding never changes its role.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required, unsupported
from stellwerk_cluster.apimachinery.names import path_segment_errors, subdomain_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject

_GROUP: Final = "rbac.authorization.k8s.io"
_ROLE_KINDS: Final = ("ClusterRole", "Role")
_SUBJECT_KINDS: Final = ("ServiceAccount", "User", "Group")
_REFERENCE: Final = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
"""The fields of a reference as messages show them."""


def validate_role(role: JsonObject) -> list[FieldError]:
    """Errors of the rules of a Role."""
    return list(_rule_errors(role, namespaced=True))


def validate_cluster_role(role: JsonObject) -> list[FieldError]:
    """Errors of the rules of a ClusterRole, and with the choice of what it sums up."""
    errors = list(_rule_errors(role, namespaced=False))
    aggregation = role.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errors.append(required("aggregationRule.clusterRoleSelectors", text))
    return errors


def validate_role_update(role: JsonObject, _old: JsonObject, _subresource: str) -> list[FieldError]:
    """Validate a changed role, as a new one."""
    return validate_role(role)


def validate_cluster_role_update(
    role: JsonObject, _old: JsonObject, _subresource: str
) -> list[FieldError]:
    """Validate a changed cluster role, as a new one."""
    return validate_cluster_role(role)


def validate_role_binding(binding: JsonObject) -> list[FieldError]:
    """Errors of a RoleBinding."""
    return list(_binding_errors(binding, _ROLE_KINDS))


def validate_cluster_role_binding(binding: JsonObject) -> list[FieldError]:
    """Errors of a ClusterRoleBinding."""
    return list(_binding_errors(binding, _ROLE_KINDS[:1]))


def validate_role_binding_update(
    binding: JsonObject, old: JsonObject, _subresource: str
) -> list[FieldError]:
    """Validate a changed binding, as a new one; its role stays."""
    return [*validate_role_binding(binding), *_changed_role(binding, old)]


def validate_cluster_role_binding_update(
    binding: JsonObject, old: JsonObject, _subresource: str
) -> list[FieldError]:
    """Validate a changed cluster binding, as a new one; its role stays."""
    return [*validate_cluster_role_binding(binding), *_changed_role(binding, old)]


def _changed_role(binding: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    if binding["roleRef"] != old["roleRef"]:
        reference = binding["roleRef"]
        shown = {name: reference.get(key, "") for name, key in _REFERENCE.items()}
        yield bad_value("roleRef", shown, "cannot change roleRef")


def _rule_errors(role: JsonObject, *, namespaced: bool) -> Iterator[FieldError]:
    for number, rule in enumerate(role.get("rules") or ()):
        field = f"rules[{number}]"
        if not rule.get("verbs"):
            yield required(f"{field}.verbs", "verbs must contain at least one value")
        urls = rule.get("nonResourceURLs")
        if urls:
            yield from _url_errors(f"{field}.nonResourceURLs", rule, urls, namespaced=namespaced)
            continue
        if not rule.get("apiGroups"):
            text = "resource rules must supply at least one api group"
            yield required(f"{field}.apiGroups", text)
        if not rule.get("resources"):
            text = "resource rules must supply at least one resource"
            yield required(f"{field}.resources", text)


def _url_errors(
    field: str, rule: JsonObject, urls: list[str], *, namespaced: bool
) -> Iterator[FieldError]:
    if namespaced:
        yield bad_value(field, urls, "namespaced rules cannot apply to non-resource URLs")
    if any(rule.get(key) for key in ("apiGroups", "resources", "resourceNames")):
        text = "rules cannot apply to both regular resources and non-resource URLs"
        yield bad_value(field, urls, text)


def _binding_errors(binding: JsonObject, role_kinds: tuple[str, ...]) -> Iterator[FieldError]:
    reference = binding["roleRef"]
    if reference.get("apiGroup") != _GROUP:
        yield unsupported("roleRef.apiGroup", reference.get("apiGroup") or "", (_GROUP,))
    if reference.get("kind") not in role_kinds:
        yield unsupported("roleRef.kind", reference.get("kind") or "", role_kinds)
    if not reference.get("name"):
        yield required("roleRef.name")
    else:
        for error in path_segment_errors(reference["name"]):
            yield bad_value("roleRef.name", reference["name"], error)
    everywhere = role_kinds == _ROLE_KINDS[:1]
    for number, subject in enumerate(binding.get("subjects") or ()):
        yield from _subject_errors(f"subjects[{number}]", subject, everywhere=everywhere)


def _subject_errors(field: str, subject: JsonObject, *, everywhere: bool) -> Iterator[FieldError]:
    name, kind, group = (subject.get(key) or "" for key in ("name", "kind", "apiGroup"))
    if not name:
        yield required(f"{field}.name")
    if kind not in _SUBJECT_KINDS:
        yield unsupported(f"{field}.kind", kind, _SUBJECT_KINDS)
    elif kind != "ServiceAccount":
        if group != _GROUP:
            yield unsupported(f"{field}.apiGroup", group, (_GROUP,))
    else:
        for error in subdomain_errors(name) if name else ():
            yield bad_value(f"{field}.name", name, error)
        if group:
            yield unsupported(f"{field}.apiGroup", group, ("",))
        if everywhere and not subject.get("namespace"):
            yield required(f"{field}.namespace")
