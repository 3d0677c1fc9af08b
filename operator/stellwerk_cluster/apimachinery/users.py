"""Users and groups: the names that Kubernetes gives a meaning to.

Made by whatever authenticates a request, read by authorizers, reviews and admission. Invariant: a
user is a value; two requests of one client have equal users.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MASTERS: Final = "system:masters"
NODES: Final = "system:nodes"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
_ACCOUNT_PREFIX: Final = "system:serviceaccount:"
_NODE_PREFIX: Final = "system:node:"
_ACCOUNT_PARTS: Final = 2
"""Parts of a service account's name: namespace and name."""


@dataclass(frozen=True, slots=True)
class User:
    """A name with groups, as every authenticator reports it; `extra` is for the curious."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def info(self) -> JsonObject:
        """The UserInfo of reviews."""
        shown: JsonObject = {"username": self.name}
        if self.uid:
            shown["uid"] = self.uid
        if self.groups:
            shown["groups"] = list(self.groups)
        if self.extra:
            shown["extra"] = {key: list(values) for key, values in sorted(self.extra)}
        return shown


ANONYMOUS: Final = User("system:anonymous", groups=(UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """The user, also in the group of all who are authenticated."""
    if AUTHENTICATED in user.groups:
        return user
    return User(user.name, user.uid, (*user.groups, AUTHENTICATED), user.extra)


def account_user_name(namespace: str, name: str) -> str:
    """The user name of a service account."""
    return f"{_ACCOUNT_PREFIX}{namespace}:{name}"


def account_of(user_name: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that a user name stands for, if it is one."""
    if not user_name.startswith(_ACCOUNT_PREFIX):
        return None
    parts = user_name.removeprefix(_ACCOUNT_PREFIX).split(":")
    if len(parts) != _ACCOUNT_PARTS or not all(parts):
        return None
    return parts[0], parts[1]


def account_groups(namespace: str) -> tuple[str, ...]:
    """The groups that the service accounts of a namespace are in."""
    return SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"


def node_of(user: User) -> str:
    """The node whose kubelet the user is; empty for all others."""
    if NODES in user.groups and user.name.startswith(_NODE_PREFIX):
        return user.name.removeprefix(_NODE_PREFIX)
    return ""
