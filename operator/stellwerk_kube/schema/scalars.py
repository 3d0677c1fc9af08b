"""The decoders of single values: texts, numbers, amounts, times, bytes.

Called by `schema` when it makes the decoders of a type. Invariant: a decoded value is in the form
in which the API server writes it, and None stands for a value that counts as absent; of a text that
is no time, the refusal names the first part of the layout that the text does not have.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeAlias

from stellwerk_kube.clock import rfc3339_microseconds, rfc3339_seconds
from stellwerk_kube.json_values import JsonValue
from stellwerk_kube.quantity import canonical_quantity
from stellwerk_kube.schema.mismatches import DecodeError, MismatchError

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
_QUANTITY_SYNTAX: Final = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
"""The expression that the API quotes when it refuses a quantity."""
Scalar: TypeAlias = Callable[[JsonValue, str], JsonValue]
"""(value, path) → canonical value."""
_WHOLE_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICROSECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_MAX_WHOLE: Final = 2.0**63
"""Floats below it are written as whole numbers, as Go does it with those that fit in an int64."""
_BITS: Final = {"int32": 31, "int64": 63}
_BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?", re.ASCII
)
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/]")
_QUANTUM: Final = 4


def scalar(type_name: str, go_type: str, *, keeps_zero: bool) -> Scalar:
    """The decoder of a type of the tables that is no struct, list or map."""
    decode = _MAKERS[type_name](go_type)
    if keeps_zero or type_name not in ("string", "int", "bool"):
        return decode
    return lambda value, path: decode(value, path) or None


def _string(go_type: str) -> Scalar:
    def decode(value: JsonValue, path: str) -> JsonValue:
        if type(value) is not str:
            raise MismatchError(value, path, go_type, "string")
        return value

    return decode


def _integer(go_type: str) -> Scalar:
    limit = 1 << _BITS.get(go_type, 31)

    def decode(value: JsonValue, path: str) -> JsonValue:
        if type(value) is not int or not -limit <= value < limit:
            raise MismatchError(value, path, go_type, "int")
        return value

    return decode


def _boolean(go_type: str) -> Scalar:
    def decode(value: JsonValue, path: str) -> JsonValue:
        if type(value) is not bool:
            raise MismatchError(value, path, go_type, "bool")
        return value

    return decode


def _number(go_type: str) -> Scalar:
    def decode(value: JsonValue, path: str) -> JsonValue:
        if type(value) not in (int, float):
            raise MismatchError(value, path, go_type, "float")
        return whole_number(value)

    return decode


def whole_number(value: float) -> int | float:
    """A number as Go writes it: without a fraction if it has none."""
    is_whole = isinstance(value, int) or (value.is_integer() and abs(value) < _MAX_WHOLE)
    return int(value) if is_whole else value


def _quantity(_go_type: str) -> Scalar:
    return _decode_quantity


def _decode_quantity(value: JsonValue, _path: str) -> JsonValue:
    if type(value) in (str, int, float) and value != "":
        try:
            return canonical_quantity(value.strip() if type(value) is str else value)
        except ValueError:
            pass
    message = f"quantities must match the regular expression '{_QUANTITY_SYNTAX}'"
    raise DecodeError(message)


def _int_or_string(_go_type: str) -> Scalar:
    limit = 1 << 31

    def decode(value: JsonValue, path: str) -> JsonValue:
        if type(value) is str or (type(value) is int and -limit <= value < limit):
            return value
        raise MismatchError(value, path, "int32", "text")

    return decode


def _time(_go_type: str) -> Scalar:
    return _decode_time


def _decode_time(value: JsonValue, path: str) -> JsonValue:
    if type(value) is not str:
        raise MismatchError(value, path, "string", "text")
    if _WHOLE_SECONDS.fullmatch(value):
        _parsed_time(value)
        return value
    return rfc3339_seconds(_parsed_time(value))


def _micro_time(_go_type: str) -> Scalar:
    return _decode_micro_time


def _decode_micro_time(value: JsonValue, path: str) -> JsonValue:
    if type(value) is not str:
        raise MismatchError(value, path, "string", "text")
    found = _parsed_time(value, with_fraction=True)
    if _MICROSECONDS.fullmatch(value):
        return value
    return rfc3339_microseconds(found)


def _parsed_time(text: str, *, with_fraction: bool = False) -> datetime:
    _check_time(text, with_fraction=with_fraction)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # a year that the calendar here does not have
        message = f'parsing time "{text}": year out of range'
        raise DecodeError(message) from None


def _bytes(go_type: str) -> Scalar:
    def decode(value: JsonValue, path: str) -> JsonValue:
        if type(value) is not str:
            raise MismatchError(value, path, go_type, "slice")
        _check_base64(value)
        return value

    return decode


def _check_base64(text: str) -> None:
    """Refuse what is no padded base64, with the place where Go's reader stops."""
    if not _BASE64.fullmatch(text.replace("\n", "").replace("\r", "")):
        message = f"illegal base64 data at input byte {_first_wrong(text)}"
        raise DecodeError(message)


def _first_wrong(text: str) -> int:
    wrong = _NOT_BASE64.search(text)
    if wrong is None:
        return len(text) - len(text) % _QUANTUM
    return len(text[: wrong.start()].encode())


def _anything(_go_type: str) -> Scalar:
    return lambda value, _path: value


_MAKERS: Final[dict[str, Callable[[str], Scalar]]] = {
    "string": _string,
    "int": _integer,
    "float": _number,
    "bool": _boolean,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Time": _time,
    "MicroTime": _micro_time,
    "bytes": _bytes,
    "any": _anything,
    "JSON": _anything,
}


def _check_time(text: str, *, with_fraction: bool) -> None:
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
