"""Tokens that continue a list: from which version of the collection, and after which object.

Called for lists. A token has the form of the API server's own, so that a client that looks into one
finds what it expects. Invariant: whatever a client sends as one is a token or a 400.
"""

from __future__ import annotations

import base64
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import StatusError, bad_request
from stellwerk_cluster.apimachinery.json_text import JsonError, read_json

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.objects import JsonValue, Key

_FORMAT: Final = "meta.k8s.io/v1"
_INCONSISTENT: Final = -1
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9_\r\n-]")
_BREAKS: Final = re.compile(r"[\r\n]")
_QUANTUM: Final = 4
_FIELDS: Final = {"v": "string", "rv": "int64", "start": "string"}
_NAMES: Final = {str: "string", bool: "bool", list: "array", dict: "object"}
_AFTER: Final = "\0"
"""Ends the key of the last object shown, which makes it the first key that may come next."""


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """The place at which a list goes on."""

    revision: int
    """The version of the first page; below 0: the present one, whatever was shown before."""
    after: Key

    @property
    def of_present(self) -> bool:
        """Whether the rest is shown as it is now."""
        return self.revision < 0

    @property
    def of_present_instead(self) -> ContinueToken:
        """The token that goes on at the same object, in the present."""
        return ContinueToken(_INCONSISTENT, self.after)


def write_token(token: ContinueToken, namespace: str | None) -> str:
    """The token as a client gets it; `namespace` is the one that the list is of."""
    path = token.after[1] if namespace or not token.after[0] else "/".join(token.after)
    start = f"{'' if token.of_present else '/'}{path}{_AFTER}"
    payload = orjson.dumps({"v": _FORMAT, "rv": token.revision, "start": start})
    return base64.urlsafe_b64encode(payload).decode().rstrip("=")


def read_token(text: str, namespace: str | None) -> ContinueToken:
    """The token that a client sends for a list of the namespace.

    Raises:
        StatusError: it is no token (400).
    """
    fields = _fields(_payload(text))
    if fields["v"] != _FORMAT:
        raise _bad_token(f"server does not recognize this encoded version {fields['v']}")
    if fields["rv"] == 0:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {_FORMAT})")
    start = fields["start"]
    if not start:
        raise _bad_token(f"encoded start key empty (version {_FORMAT})")
    path = start if start.startswith("/") else f"/{start}"
    # A key that leads out of the collection would list others; two slashes are one to Python only.
    if path.startswith("//") or posixpath.normpath(path) != path:
        raise _bad_token(start)
    of_path, _, name = path[1:].removesuffix(_AFTER).rpartition("/")
    return ContinueToken(fields["rv"], (namespace or of_path, name))


def _payload(text: str) -> bytes:
    wrong = _NOT_BASE64.search(text)
    if wrong is not None:
        place = len(text[: wrong.start()].encode())
        raise _bad_token(f"illegal base64 data at input byte {place}")
    encoded = _BREAKS.sub("", text)
    if len(encoded) % _QUANTUM == 1:
        raise _bad_token(f"illegal base64 data at input byte {len(encoded) - 1}")
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % _QUANTUM))


def _fields(payload: bytes) -> JsonValue:
    try:
        content = read_json(payload)
    except JsonError as error:
        raise _bad_token(str(error)) from None
    fields: JsonValue = {"v": "", "rv": 0, "start": ""}
    if content is None:
        return fields
    if not isinstance(content, dict):
        found = _NAMES.get(type(content), "number")
        raise _bad_token(
            f"json: cannot unmarshal {found} into Go value of type storage.continueToken"
        )
    for name, value in content.items():
        field = name.lower()  # Go finds fields without regard to case
        if field not in _FIELDS or value is None:
            continue
        if not _fits(value, _FIELDS[field]):
            raise _bad_token(
                f"json: cannot unmarshal {_found(value, _FIELDS[field])} into Go struct field "
                f"continueToken.{field} of type {_FIELDS[field]}"
            )
        fields[field] = value
    return fields


def _fits(value: JsonValue, type_name: str) -> bool:
    if type_name == "string":
        return isinstance(value, str)
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _found(value: JsonValue, type_name: str) -> str:
    if type_name == "int64" and type(value) in (int, float):
        return f"number {orjson.dumps(value).decode()}"
    return _NAMES.get(type(value), "number")


def _bad_token(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")
