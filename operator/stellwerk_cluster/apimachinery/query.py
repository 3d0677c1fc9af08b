"""The values of query parameters, read as the API server reads them.

Called for the options of lists, watches and deletions, and for the timeout of any request.
Invariant: what is no value is refused in Go's words, whatever it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_VERSION: Final = re.compile(r"[0-9]+", re.ASCII)
_MAX_DIGITS: Final = 20
"""Digits of a number in a query: 64 bits have 20."""
_FALSE: Final = ("false", "0")
_DURATION_PART: Final = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)", re.ASCII)
_UNIT_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,
    "\u03bcs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}


def integer(query: Mapping[str, str], name: str) -> int | None:
    """A whole number of 64 bits; None if the query has none.

    Raises:
        StatusError: it is no such number (400).
    """
    text = query.get(name)
    if not text:
        return None
    if not _INTEGER.fullmatch(text):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > _MAX_DIGITS or not -(1 << 63) <= int(text) < 1 << 63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Whether a parameter is given and says yes: everything does but `false` and `0`."""
    return query.get(name, "false").lower() not in _FALSE


def version_error(text: str) -> str:
    """The error of a resource version; empty if there is none."""
    if not _VERSION.fullmatch(text):
        return f'strconv.ParseUint: parsing "{text}": invalid syntax'
    if len(text) > _MAX_DIGITS or int(text) >= 1 << 64:
        return f'strconv.ParseUint: parsing "{text}": value out of range'
    return ""


def check_timeout(query: Mapping[str, str]) -> None:
    """Refuse a `timeout` that is no duration; one that is does not cut a request short here.

    Raises:
        StatusError: it is none (400).
    """
    text = query.get("timeout", "")
    why = _duration_error(text) if text else ""
    if why:
        raise bad_request(f"invalid timeout specified in the request URL - {why}")


def _duration_error(text: str) -> str:
    """The error of Go's time.ParseDuration; empty if it takes the text."""
    shown = _quoted(text)
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return ""
    invalid = f"time: invalid duration {shown}"
    nanoseconds = 0
    while rest:
        found = _DURATION_PART.match(rest)
        whole, fraction, unit = found.groups() if found else ("", None, "")
        if not (whole or (fraction or ".") != ".") or len(whole) > _MAX_DIGITS:
            return invalid
        if not unit:
            return f"time: missing unit in duration {shown}"
        if unit not in _UNIT_NANOSECONDS:
            return f"time: unknown unit {_quoted(unit)} in duration {shown}"
        nanoseconds += int(whole or "0") * _UNIT_NANOSECONDS[unit]
        rest = rest[len(whole) + len(fraction or "") + len(unit) :]
    return "" if text.strip("+-") and nanoseconds < 1 << 63 else invalid


def _quoted(text: str) -> str:
    """A text as Go's package time quotes it: byte by byte what is no printable ASCII."""
    shown = "".join(
        each if " " <= each < "\x7f" else "".join(f"\\x{byte:02x}" for byte in each.encode())
        for each in text.replace("\\", "\\\\").replace('"', '\\"')
    )
    return f'"{shown}"'
