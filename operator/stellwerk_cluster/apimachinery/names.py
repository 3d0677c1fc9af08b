"""The syntax of names, labels, annotations and finalizers, with the API's wording.

Called by validation of every kind; the patterns are those of `stellwerk_kube/names.py`. Invariant:
each function returns what is wrong with one text, nothing if it is right.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, too_long
from stellwerk_kube.names import (
    DNS_1035_LABEL,
    LABEL,
    MAX_LABEL_CHARACTERS,
    MAX_SUBDOMAIN_CHARACTERS,
    NAME_PART,
    SUBDOMAIN,
)

_MAX_ANNOTATIONS_BYTES: Final = 256 << 10
"""Bytes of an object's annotations, keys and values (`TotalAnnotationSizeLimitB`)."""

NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The letters of generated names: no vowels, so that no word comes out."""


@dataclass(frozen=True, slots=True)
class _Syntax:
    """The syntax of a text: its length, its characters, and the API's wording of errors."""

    longest: int
    too_long: str
    pattern: re.Pattern[str]
    malformed: str

    def errors(self, text: str) -> tuple[str, ...]:
        """The errors of a text of this syntax."""
        errors = []
        if len(text) > self.longest:
            errors.append(self.too_long)
        if not self.pattern.fullmatch(text):
            regex = self.pattern.pattern
            errors.append(f"{self.malformed}, regex used for validation is '{regex}')")
        return tuple(errors)


_RFC_1123_LABEL: Final = _Syntax(
    MAX_LABEL_CHARACTERS,
    "must be no more than 63 characters",
    re.compile(LABEL),
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc'",
)
_RFC_1123_SUBDOMAIN: Final = _Syntax(
    MAX_SUBDOMAIN_CHARACTERS,
    "must be no more than 253 characters",
    re.compile(SUBDOMAIN),
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com'",
)
_NAME: Final = _Syntax(
    MAX_LABEL_CHARACTERS,
    "name part must be no more than 63 characters",
    re.compile(NAME_PART),
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc'",
)
_RFC_1035_LABEL: Final = _Syntax(
    MAX_LABEL_CHARACTERS,
    "must be no more than 63 characters",
    re.compile(DNS_1035_LABEL),
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123'",
)
_LABEL_VALUE: Final = _Syntax(
    MAX_LABEL_CHARACTERS,
    "must be no more than 63 bytes",
    re.compile(f"({NAME_PART})?"),
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or "
    "'my_value',  or '12345'",
)


def subdomain_errors(text: str) -> tuple[str, ...]:
    """The errors of a text as a lowercase RFC 1123 subdomain."""
    return _RFC_1123_SUBDOMAIN.errors(text)


def without_trailing_dash(prefix: str) -> str:
    """A prefix of names as one of them, so that the dash at its end is no mistake."""
    return f"{prefix[:-2]}a" if prefix.endswith("-") and prefix != "-" else prefix


@lru_cache(maxsize=1 << 14)
def label_errors(text: str) -> tuple[str, ...]:
    """The errors of a text as a lowercase RFC 1123 label."""
    return _RFC_1123_LABEL.errors(text)


def dns_1035_errors(text: str) -> tuple[str, ...]:
    """The errors of a text as an RFC 1035 label."""
    return _RFC_1035_LABEL.errors(text)


@lru_cache(maxsize=1 << 14)
def qualified_name_errors(text: str) -> tuple[str, ...]:
    """The errors of a text as a qualified name (the key of a label)."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        what = _NAME.malformed.replace("name part", "a valid label key", 1)
        return (
            (
                f"{what}, regex used for validation is '{NAME_PART}') with an optional DNS "
                "subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ),
        )
    errors = []
    if slash:
        if not prefix:
            errors.append("prefix part must be non-empty")
        else:
            errors.extend(f"prefix part {each}" for each in subdomain_errors(prefix))
    if not name:
        errors.append("name part must be non-empty")
    return (*errors, *_NAME.errors(name))


@lru_cache(maxsize=1 << 14)
def label_value_errors(text: str) -> tuple[str, ...]:
    """The errors of a text as the value of a label."""
    return _LABEL_VALUE.errors(text)


def path_segment_errors(name: str) -> tuple[str, ...]:
    """The errors of a text as the name of a role or binding: any one segment of a path is one."""
    if name in (".", ".."):
        return (f"may not be '{name}'",)
    return tuple(f"may not contain '{each}'" for each in "/%" if each in name)


def address_errors(name: str) -> tuple[str, ...]:
    """The errors of a text as the name of an IPAddress: an address in its canonical form."""
    try:
        address = ipaddress.ip_address(name if "%" not in name else "")
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return ("must not be an IPv4-mapped IPv6 address",)
    return () if str(address) == name else (f'must be in canonical form ("{address}")',)


def labels_errors(labels: dict[str, str], field: str) -> list[FieldError]:
    """The wrong keys and values of a set of labels."""
    return [
        error
        for key, value in labels.items()
        for error in (
            *(bad_value(field, key, error) for error in qualified_name_errors(key)),
            *(bad_value(field, value, error) for error in label_value_errors(value)),
        )
    ]


def annotation_errors(annotations: dict[str, str], field: str) -> list[FieldError]:
    """The wrong keys of a set of annotations, and their size together."""
    errors = [
        bad_value(field, key, error)
        for key in annotations
        for error in qualified_name_errors(key.lower())
    ]
    letters = sum(len(key) + len(value) for key, value in annotations.items())
    if letters * 4 > _MAX_ANNOTATIONS_BYTES and _bytes_of(annotations) > _MAX_ANNOTATIONS_BYTES:
        errors.append(too_long(field, _MAX_ANNOTATIONS_BYTES))
    return errors


def _bytes_of(texts: dict[str, str]) -> int:
    return sum(len(key.encode()) + len(value.encode()) for key, value in texts.items())
