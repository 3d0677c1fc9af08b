"""The decoders of single values: texts, numbers, amounts, times, bytes.

Called by `schema` when it makes the decoders of a type. Invariant: a decoded value is in the form
in which the API server writes it, and None stands for a value that counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypeAlias

from stellwerk.models.canonical_quantity import canonical_quantity
from stellwerk_cluster.apimachinery.go_times import check_time
from stellwerk_cluster.apimachinery.mismatches import DecodeError, MismatchError
from stellwerk_cluster.apimachinery.objects import JsonValue, parse_timestamp
from stellwerk_cluster.apimachinery.quantities import SYNTAX

Scalar: TypeAlias = Callable[[JsonValue, str], JsonValue]
"""(value, path) → canonical value."""

_WHOLE_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICROSECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
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
        return value

    return decode


def _quantity(_go_type: str) -> Scalar:
    return _decode_quantity


def _decode_quantity(value: JsonValue, _path: str) -> JsonValue:
    if type(value) in (str, int, float) and value != "":
        try:
            return canonical_quantity(value.strip() if type(value) is str else value)
        except ValueError:
            pass
    message = f"quantities must match the regular expression '{SYNTAX}'"
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
    return _parsed_time(value).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(_go_type: str) -> Scalar:
    return _decode_micro_time


def _decode_micro_time(value: JsonValue, path: str) -> JsonValue:
    if type(value) is not str:
        raise MismatchError(value, path, "string", "text")
    found = _parsed_time(value, with_fraction=True)
    return value if _MICROSECONDS.fullmatch(value) else found.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parsed_time(text: str, *, with_fraction: bool = False) -> datetime:
    check_time(text, with_fraction=with_fraction)
    try:
        return parse_timestamp(text).astimezone(UTC)
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
}
