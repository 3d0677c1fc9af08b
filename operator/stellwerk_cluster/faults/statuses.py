"""The Status objects of injected answers, as the API words them."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_body(code: int, reason: str | None, message: str) -> JsonObject:
    """A Status; without a reason, with the one that the API gives for this code."""
    is_success = code < HTTPStatus.MULTIPLE_CHOICES
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success" if is_success else "Failure",
    }
    if not is_success:
        status |= {"message": message, "reason": reason or _REASONS.get(code, "Unknown")}
    return {**status, "code": code}
