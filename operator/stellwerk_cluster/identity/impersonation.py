"""Acting as another user: the Impersonate-* headers, each of them a right of its own.

Called for every request that carries one of the headers. Invariant: a user that may not impersonate
one part of what is asked for impersonates nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from stellwerk_cluster.apimachinery.failures import internal
from stellwerk_cluster.apimachinery.users import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    User,
    account_groups,
    account_of,
)
from stellwerk_cluster.identity.attributes import Attributes, refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multidict import CIMultiDictProxy

    from stellwerk_cluster.identity.authorizer import Authorizer

PREFIX: Final = "impersonate-"
_EXTRA: Final = "impersonate-extra-"
_GROUP: Final = "authentication.k8s.io"


def impersonated(user: User, headers: CIMultiDictProxy[str], authorizer: Authorizer) -> User:
    """The user that the headers ask to act as.

    Raises:
        StatusError: the user may not impersonate one part of it (403), or no user is named (500).
    """
    name = headers.get("Impersonate-User", "")
    groups = tuple(headers.getall("Impersonate-Group", ()))
    uid = headers.get("Impersonate-Uid", "")
    extra = _extra(headers)
    if not name:
        asked = [*groups, *([uid] if uid else []), *extra]
        raise internal(
            f"Internal Server Error: requested {_shown(asked)} without impersonating a user name"
        )
    for act in _acts(name, groups, uid, extra):
        decision = authorizer.decide(user, act)
        if not decision.allowed:
            raise refusal(user.name, act, decision.reason)
    return User(
        name, uid, _with_implied(name, groups), tuple((key, tuple(of)) for key, of in extra.items())
    )


def _extra(headers: CIMultiDictProxy[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA):
            found.setdefault(unquote(header.lower().removeprefix(_EXTRA)), []).append(value)
    return found


def _acts(
    name: str, groups: tuple[str, ...], uid: str, extra: dict[str, list[str]]
) -> Iterator[Attributes]:
    account = account_of(name)
    if account is None:
        yield Attributes("impersonate", version="v1", resource="users", name=name)
    else:
        namespace, account_name = account
        yield Attributes(
            "impersonate",
            version="v1",
            resource="serviceaccounts",
            name=account_name,
            namespace=namespace,
        )
    for group in groups:
        yield Attributes("impersonate", version="v1", resource="groups", name=group)
    for key, values in extra.items():
        for value in values:
            yield Attributes("impersonate", _GROUP, "v1", "userextras", key, value)
    if uid:
        yield Attributes("impersonate", _GROUP, "v1", "uids", name=uid)


def _with_implied(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups asked for, and those that every such user is in."""
    account = account_of(name)
    if account is not None and not groups:
        groups = account_groups(account[0])
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, UNAUTHENTICATED if name == ANONYMOUS.name else AUTHENTICATED)


def _shown(asked: list[str]) -> str:
    return f"[{' '.join(asked)}]"
