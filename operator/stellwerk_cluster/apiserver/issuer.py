"""Who issues the tokens of service accounts, and the keys that they are checked by.

Asked by `documents`, under the paths of OpenID Connect. Invariant: a token that is good here is
good by these keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from aiohttp import web

from stellwerk_cluster.apiserver.answers import Answer, json_answer
from stellwerk_cluster.identity.service_tokens import ALGORITHM, ISSUER

if TYPE_CHECKING:
    from stellwerk_cluster.identity.service_tokens import ServiceTokens

_CONFIGURATION_PATH: Final = "/.well-known/openid-configuration"
_KEYS_PATH: Final = "/openid/v1/jwks"
_KEYS_TYPE: Final = "application/jwk-set+json"
_HOUR: Final = "public, max-age=3600"


def issuer_paths(tokens: ServiceTokens | None) -> tuple[str, ...]:
    """The paths of the issuer; none without tokens."""
    return () if tokens is None else (_CONFIGURATION_PATH, _KEYS_PATH)


def issuer_answer(
    request: web.BaseRequest, parts: list[str], address: str, tokens: ServiceTokens | None
) -> Answer | None:
    """The document under a path of the issuer; None for another path, or without tokens."""
    if tokens is None:
        return None
    path = "/" + "/".join(parts)
    if path == _CONFIGURATION_PATH:
        return _configuration(request, address)
    return _key_set(tokens) if path == _KEYS_PATH else None


def _configuration(request: web.BaseRequest, address: str) -> Answer:
    """What a client has to know to check tokens."""
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
