"""The values of query parameters, read as the API server reads them.

Called for the options of lists, watches and deletions. Invariant: what is no value is refused in
Go's words, whatever it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_VERSION: Final = re.compile(r"[0-9]+", re.ASCII)
_MOST_DIGITS: Final = 20
_FALSE: Final = ("false", "0")


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
    if len(text) > _MOST_DIGITS or not -(1 << 63) <= int(text) < 1 << 63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Whether a parameter is given and says yes: everything does but `false` and `0`."""
    return query.get(name, "false").lower() not in _FALSE


def version_error(text: str) -> str:
    """The error of a resource version; empty if there is none."""
    if not _VERSION.fullmatch(text):
        return f'strconv.ParseUint: parsing "{text}": invalid syntax'
    if len(text) > _MOST_DIGITS or int(text) >= 1 << 64:
        return f'strconv.ParseUint: parsing "{text}": value out of range'
    return ""
