"""Named formats: `format.dns1123Label().validate(text)`.

The patterns of names are those of `stellwerk_kube/names.py`; the words of errors are the API
server's. Invariant: a check returns what is wrong with one text, nothing if it is right.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, ClassVar, Final

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.library.moments import parse_timestamp
from stellwerk_kube.cel.library.network import parse_url
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.values import NONE, OpaqueValue, Optional
from stellwerk_kube.names import (
    DNS_1035_LABEL,
    LABEL,
    MAX_LABEL_CHARACTERS,
    MAX_SUBDOMAIN_CHARACTERS,
    NAME_PART,
    SUBDOMAIN,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS: Final = Library()

_VALUE: Final = f"({NAME_PART})?"
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")

_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    f"for validation is '{LABEL}')"
)
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    f"for validation is '{SUBDOMAIN}')"
)
_LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    f"regex used for validation is '{DNS_1035_LABEL}')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    f"'12345', regex used for validation is '{_VALUE}')"
)
_NAME_TEXT: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    f"validation is '{NAME_PART}')"
)


@dataclass(frozen=True, slots=True)
class NamedFormat(OpaqueValue):
    """A format that texts can have."""

    type_name: ClassVar[str] = "kubernetes.NamedFormat"

    name: str
    pattern_size: int
    """Length of a pattern that costs as much as a check of this format."""
    errors: Callable[[str], list[str]]


def _matching(
    pattern: str, length: int, text: str, *, prefix: bool = False
) -> Callable[[str], list[str]]:
    form = re.compile(pattern)

    def errors(value: str) -> list[str]:
        found = [f"must be no more than {length} bytes"] if len(value.encode()) > length else []
        # A prefix may end in a dash, to which something is added.
        checked = value[:-1] + "a" if prefix and len(value) > 1 and value.endswith("-") else value
        return found if form.fullmatch(checked[: length + 1]) else [*found, text]

    return errors


_NAME_ERRORS: Final = _matching(NAME_PART, MAX_LABEL_CHARACTERS, _NAME_TEXT)
_SUBDOMAIN_ERRORS: Final = _matching(SUBDOMAIN, MAX_SUBDOMAIN_CHARACTERS, _SUBDOMAIN_TEXT)


def _qualified_name(value: str) -> list[str]:
    prefix, slash, name = value.rpartition("/")
    if "/" in prefix:
        shown = f"a qualified name {_NAME_TEXT} with an optional DNS subdomain prefix and '/' "
        return [f"{shown}(e.g. 'example.com/MyName')"]
    found = []
    if slash and not prefix:
        found.append("prefix part must be non-empty")
    elif slash:
        found += [f"prefix part {each}" for each in _SUBDOMAIN_ERRORS(prefix)]
    if not name:
        return [*found, "name part must be non-empty", f"name part {_NAME_TEXT}"]
    return [*found, *(f"name part {each}" for each in _NAME_ERRORS(name))]


def _uri(value: str) -> list[str]:
    try:
        parse_url(value)
    except EvaluationError as error:
        return [str(error).removeprefix("URL parse error during conversion from string: ")]
    return []


def _uuid(value: str) -> list[str]:
    return [] if _UUID.fullmatch(value) else ["does not match the UUID format"]


def _byte(value: str) -> list[str]:
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return ["invalid base64"]
    return []


def _date(value: str) -> list[str]:
    try:
        valid = bool(_DATE.fullmatch(value) and date.fromisoformat(value))
    except ValueError:
        valid = False
    return [] if valid else ["invalid date"]


def _datetime(value: str) -> list[str]:
    try:
        valid = parse_timestamp(value) is not None
    except EvaluationError:
        valid = False
    return [] if valid else ["invalid datetime"]


_NAMED: Final[dict[str, NamedFormat]] = {
    each.name: each
    for each in (
        NamedFormat("dns1123Label", 30, _matching(LABEL, MAX_LABEL_CHARACTERS, _LABEL_TEXT)),
        NamedFormat("dns1123Subdomain", 60, _SUBDOMAIN_ERRORS),
        NamedFormat(
            "dns1035Label", 30, _matching(DNS_1035_LABEL, MAX_LABEL_CHARACTERS, _LABEL_1035_TEXT)
        ),
        NamedFormat("qualifiedName", 60, _qualified_name),
        NamedFormat(
            "dns1123LabelPrefix",
            30,
            _matching(LABEL, MAX_LABEL_CHARACTERS, _LABEL_TEXT, prefix=True),
        ),
        NamedFormat(
            "dns1123SubdomainPrefix",
            60,
            _matching(SUBDOMAIN, MAX_SUBDOMAIN_CHARACTERS, _SUBDOMAIN_TEXT, prefix=True),
        ),
        NamedFormat(
            "dns1035LabelPrefix",
            30,
            _matching(DNS_1035_LABEL, MAX_LABEL_CHARACTERS, _LABEL_1035_TEXT, prefix=True),
        ),
        NamedFormat("labelValue", 40, _matching(_VALUE, MAX_LABEL_CHARACTERS, _VALUE_TEXT)),
        NamedFormat("uri", 2000, _uri),
        NamedFormat("uuid", 80, _uuid),
        NamedFormat("byte", 80, _byte),
        NamedFormat("date", 80, _date),
        NamedFormat("datetime", 80, _datetime),
    )
}


@FORMATS.function("format.named", "(string) -> optional_type(kubernetes.NamedFormat)")
def _named(name: str) -> Optional:
    return Optional(_NAMED[name]) if name in _NAMED else NONE


def _declare(named: NamedFormat) -> None:
    FORMATS.function(f"format.{named.name}", "() -> kubernetes.NamedFormat")(lambda: named)


for _each in _NAMED.values():
    _declare(_each)


def _validation_cost(named: NamedFormat, text: str) -> int:
    return cost.matching(text, "x" * named.pattern_size)


@FORMATS.function(
    "validate",
    ".(kubernetes.NamedFormat, string) -> optional_type(list(string))",
    cost=_validation_cost,
)
def _validate(named: NamedFormat, text: str) -> Optional:
    errors = named.errors(text)
    return Optional(errors) if errors else NONE
