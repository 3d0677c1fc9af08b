"""Role-based access control: roles and bindings of the store, indexed by subject.

The index follows the four collections as they change. Invariant: a decision costs the rules that
the user's own bindings lead to, whatever else is stored; the same question asked again before a
role or binding changes costs one look-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.users import account_user_name
from stellwerk_cluster.identity.authorizer import Authorizer, AuthorizerDecision, HeldRules
from stellwerk_cluster.identity.policy import rule_of
from stellwerk_cluster.registry.entries import DELETED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.identity.attributes import Attributes
    from stellwerk_cluster.identity.policy import PolicyRule
    from stellwerk_cluster.registry.entries import StoreEvent
    from stellwerk_cluster.registry.store import Store
    from stellwerk_kube.json_values import JsonObject

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
_ROLES: Final = ("roles", "clusterroles")
_BINDINGS: Final = ("rolebindings", "clusterrolebindings")
_MAX_KEPT_DECISIONS: Final = 10_000
"""Decisions that are kept; beyond, all are forgotten."""


@dataclass(frozen=True, slots=True)
class RoleReference:
    """The role that a binding names; without a namespace, a ClusterRole."""

    namespace: str
    name: str

    @property
    def kind(self) -> str:
        """Role or ClusterRole."""
        return "Role" if self.namespace else "ClusterRole"

    @property
    def missing(self) -> str:
        """The error of a role that does not exist."""
        return f'{self.kind.lower()}.{RBAC_GROUP} "{self.name}" not found'


@dataclass(frozen=True, slots=True)
class Grant:
    """One role for one subject, in a namespace or (empty) everywhere."""

    namespace: str
    binding: str
    subject: str
    """The subject as reasons name it: `User "alice"`."""
    role: RoleReference

    @property
    def reason(self) -> str:
        """The reason of what it allows."""
        where = f"/{self.namespace}" if self.namespace else ""
        kind = "RoleBinding" if self.namespace else "ClusterRoleBinding"
        return (
            f'RBAC: allowed by {kind} "{self.binding}{where}" of {self.role.kind} '
            f'"{self.role.name}" to {self.subject}'
        )


class Rbac(Authorizer):
    """Decides by the roles that are bound to a user and to the groups that it is in."""

    def __init__(self, store: Store) -> None:
        """Follow the roles and bindings of the store."""
        self._rules: dict[Key, tuple[PolicyRule, ...]] = {}
        self._grants: dict[tuple[str, str, str], dict[Key, Grant]] = {}
        """By namespace, kind of subject (User, Group) and its name; then by binding."""
        self._decided: dict[tuple[User, Attributes], AuthorizerDecision] = {}
        for plurals, follow in ((_ROLES, self._on_role), (_BINDINGS, self._on_binding)):
            for plural in plurals:
                collection = store.collection(f"{plural}.{RBAC_GROUP}")
                collection.listeners.append(follow)
                for entry in collection.entries(None):
                    self._add_role(entry.key, entry.obj) if plurals is _ROLES else self._bind(
                        entry.key, entry.obj
                    )

    @override
    def decide(self, user: User, asked: Attributes) -> AuthorizerDecision:
        """Whether a rule allows the act; otherwise which roles could not be found."""
        question = (user, asked)
        known = self._decided.get(question)
        if known is None:
            if len(self._decided) >= _MAX_KEPT_DECISIONS:
                self._decided.clear()
            known = self._decided[question] = self._decide(user, asked)
        return known

    def _decide(self, user: User, asked: Attributes) -> AuthorizerDecision:
        missing: dict[str, None] = {}
        for grant in self._grants_of(user, asked.namespace):
            rules = self.rules_of(grant.role)
            if rules is None:
                missing[grant.role.missing] = None
            elif any(rule.allows(asked) for rule in rules):
                return AuthorizerDecision(allowed=True, reason=grant.reason)
        return AuthorizerDecision(
            allowed=False, reason=f"RBAC: {_joined(missing)}" if missing else ""
        )

    @override
    def held(self, user: User, namespace: str) -> HeldRules:
        """The rules of all roles that are bound to the user here or everywhere."""
        found: list[PolicyRule] = []
        missing: dict[str, None] = {}
        for grant in self._grants_of(user, namespace):
            rules = self.rules_of(grant.role)
            if rules is None:
                missing[grant.role.missing] = None
            else:
                found.extend(rules)
        return HeldRules(tuple(found), tuple(missing))

    def rules_of(self, role: RoleReference) -> tuple[PolicyRule, ...] | None:
        """The rules of a role; None if there is no such role."""
        return self._rules.get((role.namespace, role.name))

    def _grants_of(self, user: User, namespace: str) -> Iterator[Grant]:
        """The bindings of the cluster, then of the namespace; of each, the newest first.

        The API server keeps to no order; rules of different bindings only add up.
        """
        subjects = [("User", user.name), *(("Group", group) for group in user.groups)]
        for scope in ("", namespace) if namespace else ("",):
            for kind, name in subjects:
                yield from reversed(self._grants.get((scope, kind, name), {}).values())

    # Following the store.

    def _on_role(self, event: StoreEvent) -> None:
        self._decided.clear()
        if event.type == DELETED:
            self._rules.pop(event.entry.key, None)
        else:
            self._add_role(event.entry.key, event.entry.obj)

    def _add_role(self, key: Key, role: JsonObject) -> None:
        self._rules[key] = tuple(rule_of(each) for each in role.get("rules") or ())

    def _on_binding(self, event: StoreEvent) -> None:
        self._decided.clear()
        if event.previous is not None:
            self._unbind(event.entry.key, event.previous.obj)
        if event.type != DELETED:
            self._bind(event.entry.key, event.entry.obj)

    def _bind(self, key: Key, binding: JsonObject) -> None:
        for grant, subject in _grants_in(key, binding):
            self._grants.setdefault(subject, {}).setdefault(key, grant)

    def _unbind(self, key: Key, binding: JsonObject) -> None:
        for _grant, subject in _grants_in(key, binding):
            grants = self._grants.get(subject, {})
            grants.pop(key, None)
            if not grants:
                self._grants.pop(subject, None)


def reference_in(namespace: str, binding: JsonObject) -> RoleReference:
    """The role that a binding in a namespace (empty: of the whole cluster) refers to."""
    reference = binding["roleRef"]
    return RoleReference(namespace if reference["kind"] == "Role" else "", reference["name"])


def _grants_in(key: Key, binding: JsonObject) -> Iterator[tuple[Grant, tuple[str, str, str]]]:
    namespace, name = key
    grant = partial(Grant, namespace, name, role=reference_in(namespace, binding))
    for subject in binding.get("subjects") or ():
        kind, subject_name = subject.get("kind", ""), subject.get("name", "")
        if kind == "ServiceAccount":
            home = subject.get("namespace") or namespace
            shown = f'ServiceAccount "{subject_name}/{home}"'
            user_name = account_user_name(home, subject_name)
            yield grant(subject=shown), (namespace, "User", user_name)
        else:
            yield grant(subject=f'{kind} "{subject_name}"'), (namespace, kind, subject_name)


def _joined(errors: dict[str, None]) -> str:
    texts = list(errors)
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
