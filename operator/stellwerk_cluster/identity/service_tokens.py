"""Tokens of service accounts: signed by the cluster, checked against what they are bound to.

Issued for TokenRequests, checked at every use. Invariant: a token opens nothing once it has
expired, or once its service account, or the object that it is bound to, is gone.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.users import User, account_groups, account_user_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    from stellwerk_cluster.identity.secret_files import SecretFiles
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

ISSUER: Final = "https://kubernetes.default.svc"
"""The issuer of tokens, and the audience of those that are for the API."""
ALGORITHM: Final = "ES256"
"""The algorithm that signs tokens."""
_PRIVATE: Final = "kubernetes.io"
_EXTRA: Final = "authentication.kubernetes.io"
_KEY_FILE: Final = "service-account-key.pem"
_COORDINATE_BYTES: Final = 32
"""Bytes of a coordinate of a point on the curve P-256."""
_MAX_KEPT_TOKENS: Final = 10_000
"""Tokens whose verified contents are kept. Above it, all are forgotten."""
_MAX_TOKEN_CHARACTERS: Final = 8_192
"""Characters of a token that is looked at; ours have about 1,000."""
BOUND_STORAGE: Final = {"pod": "pods", "secret": "secrets", "node": "nodes"}
"""Kinds that a token can be bound to, by the name of its claim."""


class TokenError(Exception):
    """A token that opens nothing; says why."""


@dataclass(frozen=True, slots=True)
class TokenSpec:
    """The subject, audiences and time of a token to be issued."""

    account: JsonObject
    audiences: Sequence[str]
    seconds: int
    bound: tuple[str, JsonObject] | None = None
    """The name of the claim and the object, where the token ends with one."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The user of a valid token, and for which of the audiences asked about it is good."""

    user: User
    audiences: tuple[str, ...]


class ServiceTokens:
    """Signs tokens with a key of its own, made when the first one is asked for."""

    def __init__(self, api: Api, kept: SecretFiles) -> None:
        """Check against the service accounts, pods, secrets and nodes of `api`.

        Raises:
            ConfigurationError: the key of an earlier process cannot be used.
        """
        self._api = api
        self._kept = kept
        self._key = self._kept_key()
        self._verified: dict[str, JsonObject] = {}
        """Claims of tokens whose signature was checked; the rest is checked every time."""

    def issue(self, asked: TokenSpec) -> tuple[str, datetime]:
        """A new token, and until when it is good."""
        import jwt  # noqa: PLC0415  (50 ms that a cluster without tokens does not spend)

        now = int(self._api.now().timestamp())
        metadata = asked.account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        private: JsonObject = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": metadata["uid"]},
        }
        if asked.bound is not None:
            claim, bound = asked.bound
            private[claim] = _identity(bound)
            node = self._node_of(claim, bound)
            if node is not None:
                private["node"] = _identity(node)
        claims = {
            "aud": list(asked.audiences),
            "exp": now + asked.seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": str(uuid.uuid4()),
            _PRIVATE: private,
            "nbf": now,
            "sub": account_user_name(namespace, name),
        }
        expires = self._api.now().fromtimestamp(now + asked.seconds, self._api.now().tzinfo)
        headers = {"kid": self.public_key()["kid"]}
        return jwt.encode(claims, self._signing_key(), ALGORITHM, headers), expires

    def check(self, token: str, audiences: Sequence[str] = (ISSUER,)) -> VerifiedToken:
        """The user of a token.

        Raises:
            TokenError: it is none of this cluster's, or no longer good.
        """
        claims = self._claims(token)
        now = self._api.now().timestamp()
        if now >= claims["exp"]:
            raise TokenError("service account token has expired")
        if now < claims["nbf"]:
            raise TokenError("service account token is not valid yet")
        good_for = tuple(each for each in audiences if each in claims["aud"])
        if not good_for:
            raise TokenError(
                f"token audiences {_go_list(claims['aud'])} is invalid for the target audiences "
                f"{_go_list(audiences)}"
            )
        return VerifiedToken(self._user(claims), good_for)

    def public_key(self) -> JsonObject:
        """The key that tokens are checked by, as a JSON Web Key."""
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  (as above)

        public = self._signing_key().public_key()
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        der = public.public_bytes(serialization.Encoding.DER, form)
        numbers = public.public_numbers()
        return {
            "use": "sig",
            "kty": "EC",
            "kid": _base64(hashlib.sha256(der).digest()),
            "crv": "P-256",
            "alg": ALGORITHM,
            "x": _base64(numbers.x.to_bytes(_COORDINATE_BYTES, "big")),
            "y": _base64(numbers.y.to_bytes(_COORDINATE_BYTES, "big")),
        }

    def is_one(self, token: str) -> bool:
        """Whether the token has the form of those that are issued here."""
        return token.count(".") == 2 and len(token) <= _MAX_TOKEN_CHARACTERS  # noqa: PLR2004  (three parts)

    def _claims(self, token: str) -> JsonObject:
        known = self._verified.get(token)
        if known is not None:
            return known
        if self._key is None or not self.is_one(token):
            raise TokenError("invalid bearer token")
        import jwt  # noqa: PLC0415  (as above)

        try:
            claims: JsonObject = jwt.decode(
                token,
                self._key.public_key(),
                algorithms=[ALGORITHM],
                issuer=ISSUER,
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                },
            )
        except jwt.InvalidTokenError as error:
            raise TokenError("invalid bearer token") from error
        if len(self._verified) >= _MAX_KEPT_TOKENS:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def _user(self, claims: JsonObject) -> User:
        private = claims[_PRIVATE]
        namespace, account = private["namespace"], private["serviceaccount"]
        self._expect("serviceaccounts", namespace, account, "service account")
        extra = [(f"{_EXTRA}/credential-id", (f"JTI={claims['jti']}",))]
        for claim, storage in BOUND_STORAGE.items():
            if claim not in private:
                continue
            home = "" if claim == "node" else namespace
            if claim != "node" or "pod" not in private:
                self._expect(storage, home, private[claim], claim)
            if claim != "secret":
                extra.append((f"{_EXTRA}/{claim}-name", (private[claim]["name"],)))
                extra.append((f"{_EXTRA}/{claim}-uid", (private[claim]["uid"],)))
        name = account["name"]
        return User(
            account_user_name(namespace, name),
            account["uid"],
            account_groups(namespace),
            tuple(extra),
        )

    def _expect(self, storage: str, namespace: str, named: JsonObject, what: str) -> None:
        found = self._api.find(storage, namespace, named["name"])
        if found is None or found["metadata"]["uid"] != named["uid"]:
            raise TokenError(f"{what} {namespace}/{named['name']} has been deleted")

    def _node_of(self, claim: str, bound: JsonObject) -> JsonObject | None:
        node_name = (bound.get("spec") or {}).get("nodeName", "") if claim == "pod" else ""
        return self._api.find("nodes", "", node_name) if node_name else None

    def _kept_key(self) -> EllipticCurvePrivateKey | None:
        content = self._kept.find(_KEY_FILE)
        if content is None:
            return None
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  (as above)
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415  (as above)

        try:
            key = serialization.load_pem_private_key(content, None)
        except (ValueError, TypeError):
            raise self._kept.damaged(_KEY_FILE) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise self._kept.damaged(_KEY_FILE)
        return key

    def _signing_key(self) -> EllipticCurvePrivateKey:
        if self._key is None:
            from cryptography.hazmat.primitives import serialization  # noqa: PLC0415  (as above)
            from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415  (as above)

            self._key = ec.generate_private_key(ec.SECP256R1())
            content = self._key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            self._kept.keep(_KEY_FILE, content)
        return self._key


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _identity(obj: JsonObject) -> JsonObject:
    return {"name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"]}


def _go_list(texts: Sequence[str]) -> str:
    quoted = " ".join(f'"{text}"' for text in texts)
    return f"[{quoted}]"
