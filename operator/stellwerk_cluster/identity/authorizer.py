"""Whether a user may do something: the answer, and who gives one.

`auth_filters`, reviews and the checks behind writes ask an `Authorizer`. Invariant: an authorizer
only answers; it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from typing_extensions import override

from stellwerk_cluster.apimachinery.users import MASTERS
from stellwerk_cluster.identity.policy import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.identity.attributes import Attributes
    from stellwerk_cluster.identity.policy import PolicyRule


@dataclass(frozen=True, slots=True)
class AuthorizerDecision:
    """Whether an act is allowed, and by what; or what went wrong while rules were looked up."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class HeldRules:
    """The rules that a user holds in a namespace, as far as they could be looked up."""

    rules: tuple[PolicyRule, ...]
    errors: tuple[str, ...] = ()
    complete: bool = True


ALLOWED: Final = AuthorizerDecision(allowed=True)
NO_OPINION: Final = AuthorizerDecision(allowed=False)


class Authorizer(Protocol):
    """Decides about one act at a time, and lists what a user may do."""

    def decide(self, user: User, asked: Attributes) -> AuthorizerDecision:
        """Whether the user may do that."""
        ...

    def held(self, user: User, namespace: str) -> HeldRules:
        """The rules that hold for the user in a namespace, and outside of all."""
        ...


class AlwaysAllow(Authorizer):
    """Lets every user do everything."""

    @override
    def decide(self, user: User, asked: Attributes) -> AuthorizerDecision:
        """Yes."""
        return ALLOWED

    @override
    def held(self, user: User, namespace: str) -> HeldRules:
        """Everything."""
        return HeldRules(EVERYTHING)


class Masters(Authorizer):
    """Lets the group system:masters do everything, before any rule is looked at."""

    @override
    def decide(self, user: User, asked: Attributes) -> AuthorizerDecision:
        """Yes to a member of the group; no opinion about others."""
        return ALLOWED if MASTERS in user.groups else NO_OPINION

    @override
    def held(self, user: User, namespace: str) -> HeldRules:
        """Nothing that is a rule."""
        return HeldRules(())


class Union(Authorizer):
    """Asks one authorizer after the other, until one allows."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        """Ask them in this order."""
        self._authorizers = tuple(authorizers)

    @override
    def decide(self, user: User, asked: Attributes) -> AuthorizerDecision:
        """The first yes; otherwise no, with the reasons of all."""
        reasons = []
        for authorizer in self._authorizers:
            decision = authorizer.decide(user, asked)
            if decision.allowed:
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return AuthorizerDecision(allowed=False, reason="\n".join(reasons))

    @override
    def held(self, user: User, namespace: str) -> HeldRules:
        """The rules of all."""
        found = [each.held(user, namespace) for each in self._authorizers]
        return HeldRules(
            tuple(rule for held in found for rule in held.rules),
            tuple(error for held in found for error in held.errors),
            all(held.complete for held in found),
        )
