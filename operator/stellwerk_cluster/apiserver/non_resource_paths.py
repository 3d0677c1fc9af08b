"""Non-resource paths: discovery, OpenAPI, the version, the probes, the issuer of tokens.

Asked by the HTTP layer. Invariant: these answers follow from the table of kinds, the address and
the key of service accounts alone, and from no object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from stellwerk_cluster.apimachinery.failures import (
    ACCEPTED_BODIES,
    StatusError,
    method_not_allowed,
    no_such_resource,
)
from stellwerk_cluster.apimachinery.releases import version_document
from stellwerk_cluster.apiserver.discovery import AGGREGATED, Discovery
from stellwerk_cluster.apiserver.rendering import check_acceptable
from stellwerk_cluster.apiserver.responses import Answer, NoPageError, json_answer, tagged_answer
from stellwerk_cluster.identity.service_tokens import ALGORITHM, ISSUER

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import KindTable
    from stellwerk_cluster.apiserver.openapi import OpenApi
    from stellwerk_cluster.identity.service_tokens import ServiceTokens

_CONFIGURATION_PATH: Final = "/.well-known/openid-configuration"
_KEYS_PATH: Final = "/openid/v1/jwks"
_KEYS_TYPE: Final = "application/jwk-set+json"
_HOUR: Final = "public, max-age=3600"
_HEALTH: Final = ("healthz", "livez", "readyz")


class NonResourcePaths:
    """Answers requests for documents about the API itself."""

    def __init__(self, kinds: KindTable, openapi: OpenApi) -> None:
        """Describe `kinds`."""
        self.tokens: ServiceTokens | None = None
        """The tokens whose keys are published; None: no tokens are issued."""
        self._release = kinds.release
        self._discovery = Discovery(kinds)
        self._openapi = openapi
        self.address = ""
        """host:port, as discovery reports it; known once the port is open."""

    def answer(self, request: web.BaseRequest, parts: list[str]) -> Answer:
        """Answer a request whose path has these parts.

        Raises:
            NoPageError: the path names nothing at all.
            StatusError: nothing is served under the path (404), not in the form asked for (406), or
                not by that method (405).
        """
        if _is_beside_router(parts) and request.path not in ("/", "/apis/", "/" + "/".join(parts)):
            raise NoPageError
        if parts[:1] == ["version"] and parts[1:]:
            raise no_such_resource()
        if request.method != "GET" and self._is_routed(parts):
            raise method_not_allowed()
        return self._document(request, parts)

    def _document(  # noqa: PLR0911  (one line for each path)
        self, request: web.BaseRequest, parts: list[str]
    ) -> Answer:
        accept = request.headers.get("Accept", "")
        match parts:
            case []:
                return json_answer({"paths": self._discovery.paths(issuer_paths(self.tokens))})
            case ["version"]:
                check_acceptable(accept, json_only=True)
                return json_answer(version_document(self._release))
            case [probe, *checks] if probe in _HEALTH and len(checks) <= 1:
                return self._health(probe, checks, request)
            case ["openapi", *rest]:
                return self._openapi.answer(request, rest)
            case ["api" | "apis" as root]:
                return self._discovery_root(request, root)
            case ["api", version]:
                return self._resources("", version, accept)
            case ["apis", group]:
                document = self._discovery.group(group)
                if document is None:
                    raise NoPageError
                check_acceptable(accept, by_router=False)
                return json_answer(document)
            case ["apis", group, version]:
                return self._resources(group, version, accept)
            case _:
                return issuer_answer(request, parts, self.address, self.tokens)

    def _is_routed(self, parts: list[str]) -> bool:
        """Whether kube-apiserver's router has the path, which knows methods."""
        match parts:
            case ["version"] | ["api"]:
                return True
            case ["api", version]:
                return self._discovery.resources("", version) is not None
            case ["apis", group, version]:
                return self._discovery.resources(group, version) is not None
            case _:
                return "/" + "/".join(parts) in issuer_paths(self.tokens)

    def _resources(self, group: str, version: str, accept: str) -> Answer:
        document = self._discovery.resources(group, version)
        if document is not None:
            check_acceptable(accept)
            return json_answer(document)
        if self._discovery.group(group) is None and group:
            raise NoPageError
        raise no_such_resource()

    def _discovery_root(self, request: web.BaseRequest, root: str) -> Answer:
        accept = request.headers.get("Accept", "")
        if not _wants_aggregated(accept):
            check_acceptable(accept, by_router=root == "api")
            return json_answer(
                self._discovery.versions(self.address)
                if root == "api"
                else self._discovery.groups()
            )
        document = orjson.dumps(self._discovery.aggregated(core=root == "api"))
        return tagged_answer(request, document, AGGREGATED, {"Vary": "Accept"})

    @staticmethod
    def _health(probe: str, checks: list[str], request: web.BaseRequest) -> Answer:
        known = (
            ("ping", "etcd", "log")
            if probe != "readyz"
            else ("ping", "etcd", "log", "informer-sync")
        )
        if checks and checks[0] not in known:
            raise NoPageError
        if "verbose" in request.query and not checks:
            lines = "".join(f"[+]{check} ok\n" for check in known)
            return web.Response(text=f"{lines}{probe} check passed\n")
        return web.Response(text="ok")


def _is_beside_router(parts: list[str]) -> bool:
    """Whether kube-apiserver serves the path without its router, which overlooks slashes."""
    return parts in ([], ["apis"]) or parts[0] in (*_HEALTH, "openapi")


def _wants_aggregated(accept: str) -> bool:
    """Whether the first acceptable clause asks for everything in one document.

    Clients up to 1.29 ask for a version that is gone (v2beta1), and for plain JSON otherwise.

    Raises:
        StatusError: no clause is acceptable (406).
    """
    if not accept:
        return False
    for clause in accept.split(","):
        _media_type, *parameters = (part.strip() for part in clause.split(";"))
        if "as=APIGroupDiscoveryList" not in parameters:
            return False
        if "v=v2" in parameters:
            return True
    message = f"only the following media types are accepted: {ACCEPTED_BODIES}"
    raise StatusError(406, "NotAcceptable", message)


def issuer_paths(tokens: ServiceTokens | None) -> tuple[str, ...]:
    """The paths of the issuer; none without tokens."""
    return () if tokens is None else (_CONFIGURATION_PATH, _KEYS_PATH)


def issuer_answer(
    request: web.BaseRequest, parts: list[str], address: str, tokens: ServiceTokens | None
) -> Answer:
    """The document under a path of the issuer.

    Raises:
        NoPageError: another path, or there are no tokens.
    """
    path = "/" + "/".join(parts)
    if tokens is not None and path == _CONFIGURATION_PATH:
        return _configuration(request, address)
    if tokens is not None and path == _KEYS_PATH:
        return _key_set(tokens)
    raise NoPageError


def _configuration(request: web.BaseRequest, address: str) -> Answer:
    """The OpenID configuration: what a client needs to check tokens."""
    answer = json_answer(
        {
            "issuer": ISSUER,
            "jwks_uri": f"{request.scheme}://{address}{_KEYS_PATH}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }
    )
    answer.headers["Cache-Control"] = _HOUR
    return answer


def _key_set(tokens: ServiceTokens) -> Answer:
    """The public key, as a set of one."""
    headers = {"Content-Type": _KEYS_TYPE, "Cache-Control": _HOUR}
    return web.Response(body=orjson.dumps({"keys": [tokens.public_key()]}), headers=headers)
