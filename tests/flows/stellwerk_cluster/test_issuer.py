"""What the cluster publishes about its tokens is enough to check one."""

import urllib.request

import jwt
import orjson
import pytest

from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.identity.service_tokens import TokenSpec
from stellwerk_kube.json_values import JsonObject
from tests.support.served_cluster import served


def read(url: str) -> JsonObject:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310
        document: JsonObject = orjson.loads(answer.read())
    return document


def test_a_token_is_checked_by_the_published_key() -> None:
    with served(EmbeddedCluster(0)) as cluster:
        account = {"metadata": {"name": "robot"}}
        kind = cluster.api.kinds.resource("serviceaccounts")
        made = cluster.api.create(kind, "default", account).obj
        tokens = cluster.identity.authenticator.tokens
        token = tokens.issue(TokenSpec(made, ("vault",), 3600))[0]
        listed = read(cluster.url)["paths"]
        configuration = read(f"{cluster.url}/.well-known/openid-configuration")
        (key,) = jwt.PyJWKSet.from_dict(read(configuration["jwks_uri"])).keys
    assert {"/.well-known/openid-configuration", "/openid/v1/jwks"} <= set(listed)
    algorithms = configuration["id_token_signing_alg_values_supported"]
    issuer = configuration["issuer"]
    claims = jwt.decode(token, key.key, algorithms, audience="vault", issuer=issuer)
    assert claims["sub"] == "system:serviceaccount:default:robot"
    assert jwt.get_unverified_header(token)["kid"] == key.key_id
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, key.key, algorithms, audience="other", issuer=issuer)
