"""serviceaccounts/token and TokenReview: tokens asked for, and tokens asked about.

Called by the HTTP layer and by reviews. Invariant: a token is issued for a service account that
exists, and for no longer than the object that it is bound to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_request,
    bad_value,
    conflict,
    invalid_as,
    not_found,
)
from stellwerk_cluster.apimachinery.kinds import ResourceKind
from stellwerk_cluster.apimachinery.objects import EMPTY, timestamp
from stellwerk_cluster.apimachinery.users import authenticated
from stellwerk_cluster.identity.service_tokens import ISSUER, TokenError, TokenSpec
from stellwerk_cluster.registry.write_rules import cannot_handle, check_body_namespace
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.identity.authentication import Authenticator
    from stellwerk_cluster.identity.service_tokens import ServiceTokens
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_DEFAULT_SECONDS: Final = 3600
"""Lifetime of a token whose request names none."""
_MIN_SECONDS: Final = 600
"""Shortest lifetime that a request may name."""
_MAX_SECONDS: Final = 1 << 32
"""Longest lifetime that a request may name (`MaxTokenTTL`)."""
_GROUP: Final = "authentication.k8s.io"
_TOKEN_REQUESTS: Final = ResourceKind(_GROUP, "v1", "TokenRequest", "TokenRequest")
_BOUND: Final = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}
_INVALID: Final = "invalid bearer token"


def issue_token(
    api: Api, tokens: ServiceTokens, kind: ResourceKind, key: Key, body: JsonObject
) -> JsonObject:
    """The TokenRequest with its status filled in.

    Raises:
        StatusError: no such service account or bound object (404), a malformed request (400), an
            account or a bound object that is another one (409), the name of another account, or a
            lifetime that is too short or too long (422).
    """
    try:
        request, _unknown = decode("TokenRequest", body)
    except DecodeError as error:
        raise cannot_handle(_TOKEN_REQUESTS, str(error)) from error
    metadata = request.get("metadata") or EMPTY
    check_body_namespace(key[0], metadata)
    api.check_namespace(kind, *key)
    if metadata.get("name", key[1]) != key[1]:
        text = "must match the service account name if specified"
        wrong = bad_value("metadata.name", metadata["name"], text)
        raise invalid_as("TokenRequest", _GROUP, key[1], [wrong])
    account = api.get(kind, *key).obj
    uid = account["metadata"]["uid"]
    if metadata.get("uid", uid) != uid:
        why = (
            f"the UID in the token request ({metadata['uid']}) does not match the UID of the "
            f"service account ({uid})"
        )
        raise conflict(_TOKEN_REQUESTS, key[1], why)
    spec = {**request["spec"]}
    spec["audiences"] = spec.get("audiences") or [ISSUER]
    seconds = spec.get("expirationSeconds")
    seconds = spec["expirationSeconds"] = _DEFAULT_SECONDS if seconds is None else seconds
    errors = _lifetime_errors(seconds)
    if errors:
        raise invalid_as("TokenRequest", _GROUP, "", errors)
    bound = _bound_object(api, account, spec.get("boundObjectRef"))
    token, expires = tokens.issue(TokenSpec(account, spec["audiences"], seconds, bound))
    return {
        "kind": "TokenRequest",
        "apiVersion": f"{_GROUP}/v1",
        "metadata": {
            "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"],
            "uid": uid,
            "creationTimestamp": timestamp(api.now()),
        },
        "spec": spec,
        "status": {"token": token, "expirationTimestamp": timestamp(expires)},
    }


def _bound_object(
    api: Api, account: JsonObject, reference: JsonObject | None
) -> tuple[str, JsonObject] | None:
    if reference is None:
        return None
    kind, name = reference.get("kind") or "", reference.get("name") or ""
    group, _, short = (reference.get("apiVersion") or "").rpartition("/")
    if kind not in _BOUND or group:
        raise bad_request(f"cannot bind token to object of type {group}/{short}, Kind={kind}")
    if not name:
        message = "Name parameter required."
        raise bad_request(message)
    namespace = "" if kind == "Node" else account["metadata"]["namespace"]
    resource = api.kinds.resource(_BOUND[kind])
    found = api.find(resource.storage_name, namespace, name)
    if found is None:
        raise not_found(resource, name)
    account_name = account["metadata"]["name"]
    if kind == "Pod" and found["spec"].get("serviceAccountName", "") != account_name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{account_name}" to pod running with different '
            "serviceaccount name."
        )
    uid = reference.get("uid") or ""
    if uid and uid != found["metadata"]["uid"]:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource, name, why, resource=kind)
    return kind.lower(), found


def _lifetime_errors(seconds: int) -> list[FieldError]:
    if seconds < _MIN_SECONDS:
        text = "may not specify a duration less than 10 minutes"
    elif seconds > _MAX_SECONDS:
        text = "may not specify a duration larger than 2^32 seconds"
    else:
        return []
    return [bad_value("spec.expirationSeconds", seconds, text)]


def review_token(authenticator: Authenticator, spec: JsonObject) -> JsonObject:
    """The status of a TokenReview.

    Raises:
        StatusError: no token is asked about (400).
    """
    token = spec.get("token") or ""
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    audiences = tuple(spec.get("audiences") or (ISSUER,))
    static = authenticator.static_user(token)
    if static is not None:
        if ISSUER not in audiences:
            return {"user": {}, "error": _INVALID}
        return {"authenticated": True, "user": static.info(), "audiences": [ISSUER]}
    try:
        checked = authenticator.tokens.check(token, audiences)
    except TokenError as error:
        why = str(error)
        return {"user": {}, "error": why if why == _INVALID else f"[{_INVALID}, {why}]"}
    return {
        "authenticated": True,
        "user": authenticated(checked.user).info(),
        "audiences": list(checked.audiences),
    }
