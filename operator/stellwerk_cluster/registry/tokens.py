"""serviceaccounts/token: tokens that a client may hold, and that open nothing.

Called by the HTTP layer. Invariant: a token is made for a service account that exists, and is not
kept: the embedded cluster asks its clients for none.
"""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import Cause, bad_value, invalid_as
from stellwerk_cluster.apimachinery.objects import timestamp
from stellwerk_cluster.apimachinery.schema import DecodeError, decode
from stellwerk_cluster.registry.write_rules import cannot_handle

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api

_AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"
_DEFAULT_SECONDS: Final = 3600
_SHORTEST_SECONDS: Final = 600
_LONGEST_SECONDS: Final = 1 << 32


def issue_token(api: Api, kind: ResourceKind, key: Key, body: JsonObject) -> JsonObject:
    """The TokenRequest with its status filled in.

    Raises:
        StatusError: no such service account (404), a malformed request (400), or a lifetime that
            is too short or too long (422).
    """
    account = api.get(kind, *key).obj
    try:
        request, _unknown = decode("TokenRequest", body)
    except DecodeError as error:
        raise cannot_handle(kind, str(error)) from error
    spec = {**request["spec"]}
    spec["audiences"] = spec.get("audiences") or [_AUDIENCE]
    seconds = spec.get("expirationSeconds")
    seconds = spec["expirationSeconds"] = _DEFAULT_SECONDS if seconds is None else seconds
    causes = _lifetime_causes(seconds)
    if causes:
        raise invalid_as("TokenRequest", "authentication.k8s.io", key[1], causes)
    now = api.now()
    return {
        "kind": "TokenRequest",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {
            "name": account["metadata"]["name"],
            "namespace": account["metadata"]["namespace"],
            "creationTimestamp": timestamp(now),
        },
        "spec": spec,
        "status": {
            "token": f"embedded-{uuid.uuid4().hex}",
            "expirationTimestamp": timestamp(now + timedelta(seconds=seconds)),
        },
    }


def _lifetime_causes(seconds: int) -> list[Cause]:
    if seconds < _SHORTEST_SECONDS:
        text = "may not specify a duration less than 10 minutes"
    elif seconds > _LONGEST_SECONDS:
        text = "may not specify a duration larger than 2^32 seconds"
    else:
        return []
    return [bad_value("spec.expirationSeconds", seconds, text)]
