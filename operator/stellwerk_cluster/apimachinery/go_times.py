"""What Go says of a text that is no time.

Called when a time in a body is decoded. Invariant: the part of the layout that is named is the
first one that the text does not have.
"""

from __future__ import annotations

import re
from calendar import monthrange
from typing import Final

from stellwerk_cluster.apimachinery.mismatches import DecodeError

_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
_ZONE: Final = re.compile(r"Z|[+-]\d\d:\d\d")
_FRACTION: Final = re.compile(r"[.,]\d+")
_MICROS: Final = ".000000"
_PARTS: Final = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
)
_RANGES: Final = {
    "2006": ("year", 0, 9999),
    "01": ("month", 1, 12),
    "02": ("day", 0, 99),
    "15": ("hour", 0, 23),
    "04": ("minute", 0, 59),
    "05": ("second", 0, 59),
}
"""By part: what it is called, its smallest and its largest number; a day's depends on its month."""


def check_time(text: str, *, with_fraction: bool) -> None:
    """Take a time of RFC 3339, with six digits of a second or with any number of them.

    Raises:
        DecodeError: it is none.
    """
    layout = _MICRO_LAYOUT if with_fraction else _LAYOUT
    numbers: dict[str, int] = {}
    rest = text
    for part, pattern in _PARTS:
        found = re.match(pattern, rest, re.ASCII)
        if found is None:
            raise _cannot_parse(text, layout, rest, part)
        rest = rest[found.end() :]
        if part in _RANGES:
            numbers[part] = int(found[0])
            unit, smallest, largest = _RANGES[part]
            if not smallest <= numbers[part] <= largest:
                raise _out_of_range(text, unit)
    rest = _after_fraction(text, layout, rest, with_fraction=with_fraction)
    zone = _ZONE.match(rest)
    if zone is None:
        raise _cannot_parse(text, layout, rest, "Z07:00")
    if rest[zone.end() :]:
        message = f"{_head(text)}: extra text: {_quoted(rest[zone.end() :])}"
        raise DecodeError(message)
    if not 1 <= numbers["02"] <= monthrange(max(numbers["2006"], 1), numbers["01"])[1]:
        raise _out_of_range(text, "day")


def _after_fraction(text: str, layout: str, rest: str, *, with_fraction: bool) -> str:
    fraction = _FRACTION.match(rest)
    if not with_fraction:
        return rest[fraction.end() :] if fraction is not None else rest
    if fraction is None or len(fraction[0]) < len(_MICROS):
        raise _cannot_parse(text, layout, rest, _MICROS)
    return rest[len(_MICROS) :]


def _out_of_range(text: str, unit: str) -> DecodeError:
    return DecodeError(f"{_head(text)}: {unit} out of range")


def _head(text: str) -> str:
    return f"parsing time {_quoted(text)}"


def _cannot_parse(text: str, layout: str, rest: str, part: str) -> DecodeError:
    return DecodeError(f'{_head(text)} as "{layout}": cannot parse {_quoted(rest)} as "{part}"')


def _quoted(text: str) -> str:
    shown = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{shown}"'
