"""Conversions between CEL's own types, and `type`, `dyn` and `size`."""

from __future__ import annotations

import math
import re
from typing import Final, NoReturn

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.library.moments import parse_duration, parse_timestamp
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    NANOS_PER_SECOND,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    checked_int,
    checked_uint,
    type_name,
)

CONVERSIONS: Final = Library()

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_UNSIGNED: Final = re.compile(r"[0-9]+")
_FLOAT: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_MAX_NUMBER_CHARACTERS: Final = 400
"""Characters of a text that is read as a number: the largest double has 309 digits, and what Python
takes to read one grows with the square of them."""
_MAX_PLAIN_EXPONENT: Final = 21
"""From this power of ten on, Go writes a double with an exponent."""
_MIN_PLAIN_EXPONENT: Final = -4
"""Below this power of ten, Go writes a double with an exponent."""


def _refuse(value: Value, wanted: str) -> NoReturn:
    text = f"type conversion error from '{type_name(value)}' to '{wanted}'"
    raise EvaluationError(text)


@CONVERSIONS.function("dyn", "(A) -> dyn")
def _dyn(value: Value) -> Value:
    return value


@CONVERSIONS.function("type", "(A) -> type(A)")
def _type(value: Value) -> TypeValue:
    return TypeValue(type_name(value))


_SIZED: Final = ("string", "bytes", "list(A)", "map(A, B)")


@CONVERSIONS.function("size", *(f"{dot}({each}) -> int" for dot in ("", ".") for each in _SIZED))
def _size(value: Value) -> int:
    return len(value)


@CONVERSIONS.function(
    "int", *(f"({each}) -> int" for each in ("int", "uint", "double", "string", "timestamp"))
)
def _int(value: Value) -> int:
    if isinstance(value, str):
        if len(value) > _MAX_NUMBER_CHARACTERS or not _INTEGER.fullmatch(value):
            _refuse(value, "int")
        number = int(value)
        return number if MIN_INT <= number <= MAX_INT else _refuse(value, "int")
    if isinstance(value, Timestamp):
        return value.nanos // NANOS_PER_SECOND
    if isinstance(value, float):
        # The borders themselves are not exact as doubles.
        if not math.isfinite(value) or not MIN_INT < value < MAX_INT:
            raise EvaluationError("integer overflow")
        return int(value)
    return checked_int(int(value))


@CONVERSIONS.function("int", "(duration) -> int")
def _int_of_duration(value: Duration) -> int:
    return value.nanos


@CONVERSIONS.function(
    "uint", *(f"({each}) -> uint" for each in ("uint", "int", "double", "string"))
)
def _uint(value: Value) -> Uint:
    if isinstance(value, str):
        if len(value) > _MAX_NUMBER_CHARACTERS or not _UNSIGNED.fullmatch(value):
            _refuse(value, "uint")
        return Uint(int(value)) if int(value) <= MAX_UINT else _refuse(value, "uint")
    if isinstance(value, float) and (not math.isfinite(value) or value >= MAX_UINT):
        raise EvaluationError("unsigned integer overflow")
    return checked_uint(int(value) if value >= 0 else -1)


@CONVERSIONS.function(
    "double", *(f"({each}) -> double" for each in ("double", "int", "uint", "string"))
)
def _double(value: Value) -> float:
    if isinstance(value, str):
        if len(value) > _MAX_NUMBER_CHARACTERS or not _FLOAT.fullmatch(value):
            _refuse(value, "double")
        number = float(value)
        if math.isinf(number) and "inf" not in value.lower():
            _refuse(value, "double")
        return number
    return float(value)


@CONVERSIONS.function("bool", "(bool) -> bool", "(string) -> bool")
def _bool(value: Value) -> bool:
    if isinstance(value, str):
        return _BOOLEANS[value] if value in _BOOLEANS else _refuse(value, "bool")
    return bool(value)


@CONVERSIONS.function("bytes", "(bytes) -> bytes", "(string) -> bytes", cost=cost.traversal)
def _bytes(value: Value) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value)


@CONVERSIONS.function(
    "string",
    *(
        f"({each}) -> string"
        for each in ("string", "bool", "int", "uint", "double", "timestamp", "duration")
    ),
)
def string_of(value: Value) -> str:
    """A value of CEL's own scalar types as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return go_float(value)
    return str(value)


@CONVERSIONS.function("string", "(bytes) -> string", cost=cost.traversal)
def _string_of_bytes(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def go_float(value: float) -> str:
    """A double as Go's %g writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = _decimal(value)
    power = len(digits) - 1 + exponent
    if _MIN_PLAIN_EXPONENT <= power < _MAX_PLAIN_EXPONENT:
        fixed = f"{abs(value):.{max(0, -exponent)}f}"
        return sign + fixed
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{'-' if power < 0 else '+'}{abs(power):02d}"


def _decimal(value: float) -> tuple[str, str, int]:
    """Sign, shortest digits and the exponent of the last digit."""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    digits = (whole + fraction).lstrip("0") or "0"
    shown = digits.rstrip("0") or "0"
    last = int(exponent or 0) - len(fraction) + len(digits) - len(shown)
    return ("-" if math.copysign(1, value) < 0 else ""), shown, last if shown != "0" else 0


@CONVERSIONS.function("duration", "(duration) -> duration", "(string) -> duration")
def _duration(value: Value) -> Duration:
    if isinstance(value, Duration):
        return value
    parsed = parse_duration(value)
    return parsed if parsed is not None else _refuse(value, "google.protobuf.Duration")


@CONVERSIONS.function("duration", "(int) -> duration")
def _duration_of_int(value: int) -> Duration:
    return Duration(value)


@CONVERSIONS.function("timestamp", "(timestamp) -> timestamp", "(string) -> timestamp")
def _timestamp(value: Value) -> Timestamp:
    if isinstance(value, Timestamp):
        return value
    parsed = parse_timestamp(value)
    return parsed if parsed is not None else _refuse(value, "google.protobuf.Timestamp")


@CONVERSIONS.function("timestamp", "(int) -> timestamp")
def _timestamp_of_int(value: int) -> Timestamp:
    return Timestamp(value * NANOS_PER_SECOND)
