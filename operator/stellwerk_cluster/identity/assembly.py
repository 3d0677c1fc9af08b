"""The identity of a cluster put together: who is known, who decides, what is asked before writes.

Built once by `cluster.EmbeddedCluster`. Invariant: the roles of a fresh cluster are there
to be read, and the admin of the kubeconfig is in system:masters.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from stellwerk_cluster.apimachinery.users import ANONYMOUS, MASTERS, User, authenticated
from stellwerk_cluster.identity.authentication import Authenticator
from stellwerk_cluster.identity.authorizer import AlwaysAllow, Authorizer, Masters, Union
from stellwerk_cluster.identity.bootstrap_roles import create_roles
from stellwerk_cluster.identity.claim_status_authorization import ClaimStatusAuthorization
from stellwerk_cluster.identity.escalation import EscalationCheck
from stellwerk_cluster.identity.node_authorizer import NodeAuthorizer, NodeRestriction
from stellwerk_cluster.identity.rbac import Rbac
from stellwerk_cluster.identity.secret_files import SecretFiles
from stellwerk_cluster.identity.service_account_admission import ServiceAccountAdmission
from stellwerk_cluster.identity.service_tokens import ServiceTokens
from stellwerk_cluster.identity.token_file import StaticToken

if TYPE_CHECKING:
    from stellwerk_cluster.registry.api import Api

ADMIN: Final = User("stellwerk-admin", groups=(MASTERS,))
"""The user of the written kubeconfig."""
_TOKEN_BYTES: Final = 32
"""Random bytes of the administrator's token."""
_ADMIN_FILE: Final = "admin-token"

Mode: TypeAlias = Literal["always-allow", "rbac"]


@dataclass(frozen=True, slots=True)
class IdentityOptions:
    """The options of authentication and authorization."""

    authorization: Mode = "always-allow"
    anonymous: bool = True
    """Whether clients without credentials are let in: under RBAC as system:anonymous, and where
    everything is allowed as the admin, since kubectl shows no credentials over plain HTTP.
    """
    tokens: tuple[StaticToken, ...] = ()
    service_accounts: bool = False
    """Whether every pod gets a service account and a token, as the admission plugin
    ServiceAccount has it.
    """
    node_restriction: bool = True
    """Whether the admission plugin NodeRestriction is on where rights are enforced."""


@dataclass(slots=True)
class ClusterAuth:
    """The authenticator and authorizer that the HTTP layer asks."""

    authenticator: Authenticator
    authorizer: Authorizer
    admin_token: str = field(repr=False)


def make_identity(
    api: Api, options: IdentityOptions, kept: SecretFiles | None = None
) -> ClusterAuth:
    """Know the users of the options, and the service accounts of `api`; guard its writes.

    Raises:
        ConfigurationError: a kept secret cannot be used.
    """
    kept = kept or SecretFiles()
    token = _admin_token(kept)
    static = (StaticToken(token, ADMIN), *options.tokens)
    others = ANONYMOUS if options.authorization == "rbac" else authenticated(ADMIN)
    authenticator = Authenticator(
        ServiceTokens(api, kept), static, others if options.anonymous else None, api.now
    )
    authorizer: Authorizer = AlwaysAllow()
    create_roles(api)
    if options.service_accounts:
        api.write_admission.append(ServiceAccountAdmission(api))
    if options.authorization == "rbac":
        rbac = Rbac(api.store)
        authorizer = Union([Masters(), NodeAuthorizer(api), rbac])
        api.write_admission.append(EscalationCheck(authorizer, rbac, api.kinds))
        if options.node_restriction:
            restriction = NodeRestriction()
            api.write_admission.append(restriction)
            api.delete_admission.append(restriction)
        api.write_admission.append(ClaimStatusAuthorization(authorizer))
    return ClusterAuth(authenticator, authorizer, token)


def _admin_token(kept: SecretFiles) -> str:
    token = kept.find_or_make(_ADMIN_FILE, lambda: secrets.token_urlsafe(_TOKEN_BYTES).encode())
    try:
        return token.decode("ascii")
    except UnicodeDecodeError:
        raise kept.damaged(_ADMIN_FILE) from None
