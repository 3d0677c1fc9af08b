"""The escalation check of roles and bindings: no user gives away rights that it does not hold.

Asked by `registry.api`. The verb `escalate` on a role, and `bind` on the role of a binding, let
pass; so does the group system:masters. Invariant: under AlwaysAllow every user passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import forbidden, not_found
from stellwerk_cluster.apimachinery.users import MASTERS
from stellwerk_cluster.identity.attributes import Attributes
from stellwerk_cluster.identity.policy import EVERYTHING, missing_rights, quoted, rule_of
from stellwerk_cluster.identity.rbac import RBAC_GROUP, Rbac, reference_in
from stellwerk_cluster.registry.user_admission import WriteAdmission

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.identity.authorizer import Authorizer
    from stellwerk_cluster.identity.policy import PolicyRule
    from stellwerk_kube.json_values import JsonObject

_ROLES: Final = ("Role", "ClusterRole")
_BINDINGS: Final = ("RoleBinding", "ClusterRoleBinding")
_COLLECTED: Final = ("ownerReferences", "finalizers", "resourceVersion", "managedFields")
"""Fields that the garbage collector may change of an object without the rights that it gives."""


class EscalationCheck(WriteAdmission):
    """Refuses roles and bindings that give more than their writer has."""

    def __init__(self, authorizer: Authorizer, rbac: Rbac, kinds: KindTable) -> None:
        """Ask `authorizer` what a user may do, and `rbac` what a user and a role hold."""
        self._authorizer = authorizer
        self._rbac = rbac
        self._kinds = kinds

    @override
    def admit(
        self, kind: ResourceKind, obj: JsonObject, old: JsonObject | None, user: User | None
    ) -> None:
        """Compare what the object gives with what the user holds."""
        if user is None or kind.group != RBAC_GROUP or MASTERS in user.groups:
            return
        if old is not None and _same_but_collected(obj, old):
            return
        if kind.kind in _ROLES:
            self._check_role(kind, obj, old, user)
        elif kind.kind in _BINDINGS:
            self._check_binding(kind, obj, user)

    def _check_role(
        self, kind: ResourceKind, role: JsonObject, old: JsonObject | None, user: User
    ) -> None:
        metadata = role["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        act = Attributes("escalate", RBAC_GROUP, kind.version, kind.plural, "", name, namespace)
        if self._authorizer.decide(user, act).allowed:
            return
        held = self._rbac.held(user, namespace)
        asked = [rule_of(each) for each in role.get("rules") or ()]
        _check(kind, name, user, held.rules, asked, held.errors)
        if (role.get("aggregationRule") or (old or {}).get("aggregationRule")) and missing_rights(
            held.rules, EVERYTHING
        ):
            text = "must have cluster-admin privileges to use an aggregationRule"
            raise forbidden(kind, name, text)

    def _check_binding(self, kind: ResourceKind, binding: JsonObject, user: User) -> None:
        metadata = binding["metadata"]
        namespace, name = metadata.get("namespace", ""), metadata.get("name", "")
        reference = reference_in(namespace, binding)
        plural = "roles" if reference.namespace else "clusterroles"
        role_kind = self._kinds.resource(plural, RBAC_GROUP)
        act = Attributes(
            "bind", RBAC_GROUP, kind.version, plural, "", reference.name, reference.namespace
        )
        if self._authorizer.decide(user, act).allowed:
            return
        rules = self._rbac.rules_of(reference)
        if rules is None:
            raise not_found(role_kind, reference.name)
        held = self._rbac.held(user, namespace)
        _check(kind, name, user, held.rules, rules, held.errors)


def _check(
    kind: ResourceKind,
    name: str,
    user: User,
    held: tuple[PolicyRule, ...],
    asked: Iterable[PolicyRule],
    errors: tuple[str, ...],
) -> None:
    missing = missing_rights(held, asked)
    if not missing:
        return
    lines = "\n".join(sorted({rule.text() for rule in missing}))
    text = (
        f'user "{user.name}" (groups={quoted(user.groups)}) is attempting to grant RBAC '
        f"permissions not currently held:\n{lines}"
    )
    if errors:
        text += f"; resolution errors: [{' '.join(errors)}]"
    raise forbidden(kind, name, text)


def _same_but_collected(obj: JsonObject, old: JsonObject) -> bool:
    return _without_collected(obj) == _without_collected(old)


def _without_collected(obj: JsonObject) -> JsonObject:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _COLLECTED}
    return {**obj, "metadata": metadata}
