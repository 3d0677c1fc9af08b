"""Every way to refuse a request: `StatusError` and one constructor for each reason.

Raised by all rooms of the embedded cluster, written out once by the HTTP layer. Invariant: the
`Status` object a client reads is built here and nowhere else, so that the wording of one kind of
failure is the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_kube.json_values import JsonObject, JsonValue

ACCEPTED_BODIES: Final = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


_MAX_CAUSES: Final = 1000
"""Errors of an object that an answer lists: an object of a megabyte may have any number."""
_ESCAPES: Final = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
    '"': r"\"",
}


class StatusError(Exception):
    """Ends a request; holds what the `Status` object of the answer will say."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
        metadata: JsonObject | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        """Keep what the `Status` object will say; `details` None leaves the member out."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}
        self.retry_after_seconds = retry_after_seconds

    def body(self) -> JsonObject:
        """The `Status` object."""
        status: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        return {**status, "code": self.code}


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field of an object, why, and in which words."""

    field: str
    reason: str
    message: str


def _shown(value: JsonValue) -> str:
    """The value as messages quote it: strings in quotes, numbers bare, the rest as JSON."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return go_quoted(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (dict, list)):
        return orjson.dumps(value).decode()
    return str(value)


def go_quoted(text: str) -> str:
    """A text in quotes as Go's %q prints it: what cannot be printed is escaped."""
    if text.isprintable() and "\\" not in text and '"' not in text:
        return f'"{text}"'
    return '"' + "".join(_escaped(letter) for letter in text) + '"'


def _escaped(letter: str) -> str:
    known = _ESCAPES.get(letter)
    if known is not None or letter.isprintable():
        return known or letter
    code = ord(letter)
    if code < 0x80:  # noqa: PLR2004  (ASCII)
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004  (two bytes)


def required(field: str, detail: str = "") -> FieldError:
    """A field that must be there is missing."""
    return FieldError(
        field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value"
    )


def bad_value(field: str, value: JsonValue, detail: str) -> FieldError:
    """A field has a value it may not have."""
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}")


def unsupported(field: str, value: JsonValue, supported: Sequence[str]) -> FieldError:
    """A field has none of the values of its enumeration."""
    listed = ", ".join(f'"{each}"' for each in supported)
    return FieldError(
        field,
        "FieldValueNotSupported",
        f"Unsupported value: {_shown(value)}: supported values: {listed}",
    )


def forbidden_field(field: str, detail: str) -> FieldError:
    """A field may not be set or changed here."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def not_there(field: str, value: JsonValue, detail: str = "") -> FieldError:
    """A reference names something that the object does not have."""
    suffix = f": {detail}" if detail else ""
    return FieldError(field, "FieldValueNotFound", f"Not found: {_shown(value)}{suffix}")


def duplicate(field: str, value: JsonValue, detail: str = "") -> FieldError:
    """A list has the same key twice."""
    suffix = f": {detail}" if detail else ""
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {_shown(value)}{suffix}")


def too_long(field: str, limit: int) -> FieldError:
    """A text is longer than allowed."""
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def not_found(kind: ResourceKind, name: str) -> StatusError:
    """The object does not exist."""
    return StatusError(
        404,
        "NotFound",
        f'{kind.qualified_resource} "{name}" not found',
        details=_details(kind, name),
    )


def already_exists(kind: ResourceKind, name: str, *, terminating: bool = False) -> StatusError:
    """An object of that name exists, though it may be about to go."""
    going = "object is being deleted: " if terminating else ""
    return StatusError(
        409,
        "AlreadyExists",
        f'{going}{kind.qualified_resource} "{name}" already exists',
        details=_details(kind, name),
    )


def conflict(kind: ResourceKind, name: str, why: str, *, resource: str = "") -> StatusError:
    """The object is not in the state the request is about."""
    shown = f"{resource}.{kind.group}" if resource and kind.group else resource
    details = _details(kind, name)
    if resource:
        details["kind"] = resource
    return StatusError(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {shown or kind.qualified_resource} "{name}": {why}',
        details=details,
    )


def modified_meanwhile(kind: ResourceKind, name: str) -> StatusError:
    """The resourceVersion of the request is not the current one."""
    return conflict(
        kind,
        name,
        (
            "the object has been modified; please apply your changes to the latest version and "
            "try again"
        ),
    )


def forbidden(kind: ResourceKind, name: str, why: str) -> StatusError:
    """Admission refuses the object."""
    return StatusError(
        403,
        "Forbidden",
        f'{kind.qualified_resource} "{name}" is forbidden: {why}',
        details=_details(kind, name),
    )


def first_errors(*parts: Iterable[FieldError]) -> list[FieldError]:
    """The errors of several checks, as many as an answer holds; the checks end with the last."""
    return list(islice(chain.from_iterable(parts), _MAX_CAUSES))


def invalid(kind: ResourceKind, name: str, errors: Iterable[FieldError]) -> StatusError:
    """The object breaks the rules of its kind."""
    # What has two views is validated in its stored form, which has no group.
    return invalid_as(kind.kind, "" if kind.storage else kind.group, name, errors)


def invalid_as(kind: str, group: str, name: str, errors: Iterable[FieldError]) -> StatusError:
    """Like `invalid`, for things that are no resources (options of a request, a patch)."""
    # A body of 3 MiB has room for a million mistakes, and their texts for gigabytes.
    listed = list(islice(errors, _MAX_CAUSES))
    # The API drops a repeated error from the text and keeps it among the causes.
    texts = list(dict.fromkeys(f"{error.field}: {error.message}" for error in listed))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified = f"{kind}.{group}" if group else kind
    details: JsonObject = {
        **({"name": name} if name else {}),
        **({"group": group} if group else {}),
        **({"kind": kind} if kind else {}),
        "causes": [
            {"reason": error.reason, "message": error.message, "field": error.field}
            for error in listed
        ],
    }
    return StatusError(422, "Invalid", f'{qualified} "{name}" is invalid: {text}', details=details)


def bad_request(message: str) -> StatusError:
    """The request makes no sense."""
    return StatusError(400, "BadRequest", message)


def internal(message: str) -> StatusError:
    """The answer with code 500 and no reason."""
    return StatusError(500, "", message)


def no_such_resource() -> StatusError:
    """The path names nothing that is served."""
    return StatusError(
        404, "NotFound", "the server could not find the requested resource", details={}
    )


def method_not_allowed() -> StatusError:
    """The path is served, but not with this method."""
    return StatusError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        details={},
    )


def too_large_body(limit_bytes: int) -> StatusError:
    """The body of a request is larger than any object may be."""
    message = f"Request entity too large: limit is {limit_bytes}"
    return StatusError(413, "RequestEntityTooLarge", message, details={})


def too_many_parts(limit: int) -> StatusError:
    """The body of a request holds more keys and values than the embedded API handles at once."""
    message = f"Request entity too large: it holds more than {limit} keys and values"
    return StatusError(413, "RequestEntityTooLarge", message, details={})


def unsupported_body() -> StatusError:
    """The body of a create or update has a media type that is not read here."""
    return StatusError(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        + ACCEPTED_BODIES,
    )


def unsupported_patch(kind: ResourceKind) -> StatusError:
    """The body of a patch has a media type that is not read here; custom kinds name theirs."""
    if kind.custom:
        return StatusError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, "
            "application/apply-patch+yaml",
        )
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def patch_rejected(
    message: str = "the server rejected our request due to an error in our request",
) -> StatusError:
    """A patch that cannot be applied."""
    return StatusError(422, "Invalid", message, details={})


def too_many_operations(most: int, given: int) -> StatusError:
    """A JSON patch that is longer than a patch may be."""
    message = (
        f"Request entity too large: The allowed maximum operations in a JSON patch is {most}, "
        f"got {given}"
    )
    return StatusError(413, "RequestEntityTooLarge", message)


def no_process(kind: ResourceKind, name: str, missing: str) -> StatusError:
    """The request needs a process of the object, where nodes are hollow."""
    message = (
        "nodes of the embedded cluster are hollow and run no processes: "
        f"{kind.singular_name} {name} has no {missing}"
    )
    return StatusError(405, "MethodNotAllowed", message, details={})


def too_large_revision(asked: int, current: int) -> StatusError:
    """A read at a version that does not exist yet."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {asked}, current: {current}",
        details={
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
        retry_after_seconds=1,
    )


def expired(message: str, *, metadata: JsonObject | None = None) -> StatusError:
    """A version or a continue token that is older than what is kept."""
    return StatusError(410, "Expired", message, metadata=metadata)


def _details(kind: ResourceKind, name: str) -> JsonObject:
    return {
        "name": name,
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.plural,
    }
