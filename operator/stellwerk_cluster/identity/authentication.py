"""From the credentials of a request to a user.

Called for every request. A bearer token is that of a static user or of a service account; a client
certificate, on a TLS connection, names a user and its groups; without either, a client is the user
that the cluster has for such clients, if it has one. Invariant: a credential that is shown and is
not good is an error and never falls back to another one.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.users import User, authenticated
from stellwerk_cluster.identity.service_tokens import TokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from stellwerk_cluster.identity.service_tokens import ServiceTokens
    from stellwerk_cluster.identity.token_file import StaticToken


class Authenticator:
    """Knows all tokens of a cluster."""

    def __init__(
        self,
        tokens: ServiceTokens,
        static: Iterable[StaticToken],
        without_credentials: User | None,
        now: Callable[[], datetime],
    ) -> None:
        """Accept static tokens and those of service accounts; the user of the rest may be None."""
        self.tokens = tokens
        self._now = now
        self._without_credentials = without_credentials
        self._static = {each.token: authenticated(each.user) for each in static}

    def user(self, headers: Mapping[str, str], certificate: Mapping[str, Any] | None) -> User:
        """The user of a request with these headers, on a connection with that certificate.

        Raises:
            StatusError: the token is not good, or none is shown and that is refused (401).
        """
        shown = headers.get("Authorization")
        if shown is not None:
            scheme, _, token = shown.strip().partition(" ")
            token = token.strip()
            if scheme.lower() == "bearer" and token:
                return self._bearer(token)
        if certificate:
            return self._certified(certificate)
        if self._without_credentials is None:
            raise unauthorized()
        return self._without_credentials

    def static_user(self, token: str) -> User | None:
        """The user of a static token."""
        return self._static.get(token)

    def _bearer(self, token: str) -> User:
        user = self._static.get(token)
        if user is not None:
            return user
        try:
            return authenticated(self.tokens.check(token).user)
        except TokenError as error:
            raise unauthorized() from error

    def _certified(self, certificate: Mapping[str, Any]) -> User:
        """The user that a certificate names: its common name, in the groups of its organizations.

        TLS has verified it in the handshake; an open connection may outlive it.
        """
        until = ssl.cert_time_to_seconds(certificate["notAfter"])
        if until < self._now().timestamp():
            raise unauthorized()
        names = [pair for relative in certificate.get("subject", ()) for pair in relative]
        common = [value for key, value in names if key == "commonName"]
        groups = [value for key, value in names if key == "organizationName"]
        if not common:
            raise unauthorized()
        return authenticated(User(common[0], groups=tuple(groups)))


def unauthorized() -> StatusError:
    """The answer to credentials that are not good; it does not say why."""
    return StatusError(401, "Unauthorized", "Unauthorized")
