"""The filters of every request: origin, authentication, impersonation, authorization.

Asked by the HTTP layer about every request, before anything is looked up. Invariant: under
AlwaysAllow a request costs a few look-ups of headers, and no object is made for it.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.identity.attributes import Attributes, refusal, request_attributes
from stellwerk_cluster.identity.authorizer import AlwaysAllow
from stellwerk_cluster.identity.impersonation import PREFIX, Impersonation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aiohttp import web

    from stellwerk_cluster.apimachinery.users import User
    from stellwerk_cluster.identity.authentication import Authenticator
    from stellwerk_cluster.identity.authorizer import Authorizer

_MAX_SEEN_HOSTS: Final = 64
"""Values of Host that are remembered as allowed, so that they are not read again."""
_LOCAL: Final = "localhost"


class AuthFilters:
    """Checks the origin of requests, authenticates, impersonates and authorizes."""

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        """Ask one who a client is, and the other what it may do."""
        self.authenticator = authenticator
        self.authorizer = authorizer
        self._impersonation = Impersonation(authorizer)
        self._hosts: set[str] = set()
        """Values of the Host header that were found to be good."""

    def enter(self, request: web.BaseRequest, parts: Sequence[str]) -> User:
        """The user of a request that may be carried out.

        Raises:
            StatusError: it comes from a web page (403), from an unknown user (401), or asks for
                what its user may not do (403).
        """
        headers = request.headers
        self._check_origin(headers)
        user = self.authenticator.user(headers, _certificate(request))
        impersonates = any(name.lower().startswith(PREFIX) for name in headers)
        if not impersonates and isinstance(self.authorizer, AlwaysAllow):
            return user
        asked = request_attributes(request.method, parts, request.path, request.query)
        if impersonates:
            user = self._impersonation.acting(user, headers, asked)
        self.check(user, asked)
        return user

    def check(self, user: User, asked: Attributes) -> None:
        """Let the user do that.

        Raises:
            StatusError: it may not (403).
        """
        decision = self.authorizer.decide(user, asked)
        if not decision.allowed:
            raise refusal(user.name, asked, decision.reason)

    def _check_origin(self, headers: Mapping[str, str]) -> None:
        """Refuse what a browser sends for a page of another site, or of another name for us."""
        host = headers.get("Host", "")
        if host not in self._hosts:
            if not _is_ours(host):
                raise _foreign("Host", host)
            if len(self._hosts) < _MAX_SEEN_HOSTS:
                self._hosts.add(host)
        origin = headers.get("Origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise _foreign("Origin", origin)


def _certificate(request: web.BaseRequest) -> Mapping[str, Any] | None:
    transport = request.transport
    found: Mapping[str, Any] | None = transport.get_extra_info("peercert") if transport else None
    return found


def _is_ours(host: str) -> bool:
    """Whether a Host is an address or this machine: a name can be made to lead anywhere."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    if name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _foreign(header: str, value: str) -> StatusError:
    text = f"the embedded cluster serves no web pages: {header} {value!r} is not its own"
    return StatusError(403, "Forbidden", text, details={})
