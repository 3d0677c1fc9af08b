"""Acting as another user: the Impersonate-* headers, each part of them a right of its own.

Called for every request that carries one of the headers. Kubernetes 1.36 knows several modes: those
that are constrained need, beside the rights to the user's parts, one to do just this act as such a
user (`impersonate-on:MODE:VERB`); the old one lets do whatever the user may. Invariant: a user that
may not impersonate one part of what is asked for, in any one mode, impersonates nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from stellwerk_cluster.apimachinery.failures import StatusError, bad_request
from stellwerk_cluster.apimachinery.names import subdomain_errors
from stellwerk_cluster.apimachinery.users import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODES,
    UNAUTHENTICATED,
    User,
    account_groups,
    account_of,
)
from stellwerk_cluster.identity.attributes import Attributes, refusal
from stellwerk_cluster.identity.policy import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multidict import CIMultiDictProxy

    from stellwerk_cluster.identity.authorizer import Authorizer

PREFIX: Final = "impersonate-"
_EXTRA: Final = "impersonate-extra-"
_GROUP: Final = "authentication.k8s.io"
_NODE_PREFIX: Final = "system:node:"
_BOUND_NODE: Final = "authentication.kubernetes.io/node-name"
_LEGACY: Final = ""
_MAX_KEPT_REQUESTORS: Final = 1024
"""Requestors of which the mode that worked last is remembered. Above it, all are forgotten."""


class Impersonation:
    """Lets users act as others, as far as an authorizer lets them."""

    def __init__(self, authorizer: Authorizer) -> None:
        """Ask `authorizer` about each part."""
        self._authorizer = authorizer
        self._worked: dict[str, str] = {}
        """By requestor, the mode that worked last: it is tried first, and its refusal shown."""

    def acting(self, user: User, headers: CIMultiDictProxy[str], asked: Attributes) -> User:
        """The user that the headers ask to act as, for the act that is asked for.

        Raises:
            StatusError: the user may not (403), or no user is named (400).
        """
        wanted = _wanted(headers)
        refusals: list[StatusError] = []
        for mode in self._modes(user, wanted):
            try:
                self._check(mode, user, wanted, asked)
            except StatusError as error:
                refusals.append(error)
                continue
            if len(self._worked) >= _MAX_KEPT_REQUESTORS:
                self._worked.clear()
            self._worked[user.name] = mode
            return _completed(mode, wanted)
        raise refusals[0]

    def _modes(self, user: User, wanted: User) -> list[str]:
        """The modes that apply, the one that worked last in front, the old one else behind."""
        node = _node_name(wanted.name)
        bare = not (wanted.uid or wanted.groups or wanted.extra)
        modes = []
        if node and bare:
            own = dict(user.extra).get(_BOUND_NODE) == (node,) and account_of(user.name)
            modes += ["associated-node"] if own else []
            modes.append("arbitrary-node")
        elif account_of(wanted.name):
            modes += ["serviceaccount"] if bare else []
        elif not node:
            modes.append("user-info")
        modes.append(_LEGACY)
        return sorted(modes, key=lambda mode: mode != self._worked.get(user.name))

    def _check(self, mode: str, user: User, wanted: User, asked: Attributes) -> None:
        """Let a user pass that has every right the mode needs.

        Raises:
            StatusError: one is missing (403).
        """
        if mode:
            self._expect(user, replace(asked, verb=f"impersonate-on:{mode}:{asked.verb}"))
        for act, objection in _acts(mode, wanted):
            if objection:
                raise refusal(user.name, act, objection)
            self._expect(user, act)

    def _expect(self, user: User, act: Attributes) -> None:
        decision = self._authorizer.decide(user, act)
        if not decision.allowed:
            raise refusal(user.name, act, decision.reason)


def _acts(mode: str, wanted: User) -> Iterator[tuple[Attributes, str]]:
    """The rights to the parts of a user, and what speaks against a part whatever the rights."""
    verb = f"impersonate:{mode}" if mode else "impersonate"
    home = _GROUP if mode else ""
    yield _name_act(mode, Attributes(verb, home, "v1", "users", name=wanted.name)), ""
    if wanted.uid:
        yield Attributes(verb, _GROUP, "v1", "uids", name=wanted.uid), ""
    for group in wanted.groups:
        why = ""
        if mode and group in ("", MASTERS):
            shown = group or "empty string"
            why = f"impersonating the {shown} group is not allowed"
        yield Attributes(verb, home, "v1", "groups", name=group), why
    for key, values in wanted.extra:
        for value in values:
            yield Attributes(verb, _GROUP, "v1", "userextras", key, value), ""


def _name_act(mode: str, act: Attributes) -> Attributes:
    """The right to the name of a user, as that of a service account or a node if it is one."""
    account, node = account_of(act.name), _node_name(act.name)
    if account is not None:
        return replace(act, resource="serviceaccounts", namespace=account[0], name=account[1])
    if mode and node:
        name = "*" if mode == "associated-node" else node
        return replace(act, resource="nodes", name=name)
    return act


def _wanted(headers: CIMultiDictProxy[str]) -> User:
    extra: dict[str, tuple[str, ...]] = {}
    for header, value in headers.items():
        if header.lower().startswith(_EXTRA):
            key = unquote(header.lower().removeprefix(_EXTRA))
            extra[key] = (*extra.get(key, ()), value)
    wanted = User(
        headers.get("Impersonate-User", ""),
        headers.get("Impersonate-Uid", ""),
        tuple(headers.getall("Impersonate-Group", ())),
        tuple(extra.items()),
    )
    if not wanted.name:
        raise bad_request(f"requested {_dumped(wanted)} without impersonating a user name")
    return wanted


def _completed(mode: str, wanted: User) -> User:
    """The user with the groups that follow from its name."""
    groups = wanted.groups
    account = account_of(wanted.name)
    if account is not None and not groups:
        groups = account_groups(account[0])
    elif mode and _node_name(wanted.name):
        groups = (NODES,)
    implied = UNAUTHENTICATED if wanted.name == ANONYMOUS.name else AUTHENTICATED
    if implied not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, implied)
    return replace(wanted, groups=groups)


def _node_name(user_name: str) -> str:
    """The node whose kubelet a user name stands for; empty if it is none."""
    name = user_name.removeprefix(_NODE_PREFIX)
    return name if name != user_name and not subdomain_errors(name) else ""


def _dumped(wanted: User) -> str:
    """The parts of a user as the API server prints them, with the names of its own fields."""
    groups = f"[]string{_listed(wanted.groups)}" if wanted.groups else "[]string(nil)"
    extra = ", ".join(f"{quoted([key])[1:-1]}:[]string{_listed(of)}" for key, of in wanted.extra)
    shown = f"map[string][]string{{{extra}}}" if extra else "map[string][]string(nil)"
    uid = quoted([wanted.uid])[1:-1]
    return f'&user.DefaultInfo{{Name:"", UID:{uid}, Groups:{groups}, Extra:{shown}}}'


def _listed(texts: tuple[str, ...]) -> str:
    return "{" + ", ".join(quoted([text])[1:-1] for text in texts) + "}"
