"""Identities and rights, asked of the API server: TokenReview and the access reviews.

`serving` guards its port with those about callers; `handlers` and `profiles` ask with `may_itself`
about this process. Invariant: all are questions; none needs the lease.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from stellwerk.framework.services import ClusterClient
from stellwerk_kube.errors import Forbidden, NotFound

SELF_ACCESS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""The path of the question what the caller itself may do. It is a POST that stores nothing."""
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REVIEW_PATHS: Final = frozenset({SELF_ACCESS, _TOKENS, _ACCESS})
"""The paths of all these questions."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as RBAC knows it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = field(default=())


ANONYMOUS: Final = Identity("system:anonymous", ("system:unauthenticated",))


class Reviews:
    """Questions to the API server about others."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client

    async def identify(self, token: str) -> Identity | None:
        """Return whose token it is; None if the server does not know it.

        Raises:
            ApiError: the server gives no answer.
        """
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status = (await self._client.create(_TOKENS, review)).get("status") or {}
        if not status.get("authenticated"):
            return None
        user: dict[str, Any] = status.get("user") or {}
        return Identity(
            name=user.get("username") or "",
            groups=tuple(user.get("groups") or ()),
            uid=user.get("uid") or "",
            extra=tuple((key, tuple(values)) for key, values in (user.get("extra") or {}).items()),
        )

    async def may(self, identity: Identity, verb: str, path: str) -> bool:
        """Return whether a user may use a path of a server that is no object of the API.

        Raises:
            ApiError: the server gives no answer.
        """
        spec = {
            "user": identity.name,
            "groups": list(identity.groups),
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        if identity.uid:
            spec["uid"] = identity.uid
        if identity.extra:
            spec["extra"] = {key: list(values) for key, values in identity.extra}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        return bool(((await self._client.create(_ACCESS, review)).get("status") or {})["allowed"])


async def may_itself(
    client: ClusterClient, verb: str, group: str, version: str, resource: str, subresource: str = ""
) -> bool:
    """Return whether this process may do something with a resource, in all namespaces.

    True if the API server answers no such question (403, 404): the request itself will show it.

    Raises:
        ApiError: the server gives no answer.
    """
    attributes = {"verb": verb, "group": group, "version": version, "resource": resource}
    if subresource:
        attributes["subresource"] = subresource
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        answer = await client.create(SELF_ACCESS, review)
    except (NotFound, Forbidden):
        return True
    return bool((answer.get("status") or {}).get("allowed"))
