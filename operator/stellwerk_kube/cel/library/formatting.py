"""`"…".format([…])` of cel-go's strings extension."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.library.conversions import string_of
from stellwerk_kube.cel.values import Duration, Timestamp, TypeValue, Uint, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_kube.cel.values import Value

_CLAUSE: Final = re.compile(r"%(?:%|(?:\.([0-9]*))?(.?))", re.DOTALL)
_DEFAULT_DECIMALS: Final = 6
"""Decimals of a number whose clause names none, as in Go."""
_MAX_DECIMALS: Final = 1000
"""Decimals that a clause may ask for: cel-go's `maxPrecision`."""
_MAX_RESULT_CHARACTERS: Final = 1 << 20
"""Characters of a result. Each clause may show a value of the object, so that a short format could
fill the memory."""


def formatted(template: str, arguments: list[Value]) -> str:
    """The template with its clauses filled in.

    Raises:
        EvaluationError: a clause is unknown, has no argument, or one of the wrong type.
    """
    position = 0
    size = len(template)

    def fill(clause: re.Match[str]) -> str:
        nonlocal position, size
        if clause[0] == "%%":
            return "%"
        letter = clause[2]
        if not letter:
            raise EvaluationError("unexpected end of string")
        form = _FORMS.get(letter)
        if form is None:
            text = f'could not parse formatting clause: unrecognized formatting clause "{letter}"'
            raise EvaluationError(text)
        if position >= len(arguments):
            raise EvaluationError(f"index {position} out of range")
        precision = int(clause[1]) if clause[1] else _DEFAULT_DECIMALS
        if precision > _MAX_DECIMALS:
            text = f"precision {precision} exceeds maximum allowed precision {_MAX_DECIMALS}"
            raise EvaluationError(text)
        shown = form(arguments[position], precision)
        position += 1
        size += len(shown)
        if size > _MAX_RESULT_CHARACTERS:
            raise EvaluationError("error during formatting: result too long")
        return shown

    return _CLAUSE.sub(fill, template)


def _mismatch(rule: str, value: Value) -> EvaluationError:
    return EvaluationError(f"error during formatting: {rule}, was given {type_name(value)}")


def _string(value: Value, _precision: int = 0) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (list, dict)):
        return _literal(value)
    if isinstance(value, (str, bool, int, float, Timestamp, Duration, TypeValue)):
        return string_of(value)
    rule = (
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, "
        "types, durations, and timestamps"
    )
    raise _mismatch(rule, value)


def _literal(value: Value) -> str:  # noqa: PLR0911  (one way out for each type)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bytes):
        return f"b{json.dumps(value.decode('utf-8', 'replace'), ensure_ascii=False)}"
    if isinstance(value, float):
        return (
            _fixed(value, _DEFAULT_DECIMALS)
            if math.isfinite(value)
            else json.dumps(string_of(value))
        )
    if isinstance(value, Timestamp):
        return f'timestamp("{value}")'
    if isinstance(value, Duration):
        return f'duration("{value}")'
    if isinstance(value, TypeValue):
        return f"type({value})"
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, dict):
        entries = sorted(f"{_literal(key)}:{_literal(each)}" for key, each in value.items())
        return f"{{{', '.join(entries)}}}"
    return _string(value)


def _decimal(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _mismatch("decimal clause can only be used on integers", value)
    return str(int(value))


def _special(value: Value) -> str | None:
    if value in ("NaN", "Infinity", "-Infinity"):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    return None


def _fixed(value: Value, precision: int) -> str:
    special = _special(value)
    if special is None and not isinstance(value, float):
        raise _mismatch("fixed-point clause can only be used on doubles", value)
    return special or f"{value:.{precision}f}"


def _scientific(value: Value, precision: int) -> str:
    special = _special(value)
    if special is None and not isinstance(value, float):
        raise _mismatch("scientific clause can only be used on doubles", value)
    if special:
        return special
    mantissa, _, exponent = f"{value:.{precision}e}".partition("e")
    return f"{mantissa}\u202f×\u202f10{exponent.lstrip('+').translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS: Final = str.maketrans("+-0123456789", "⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _binary(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint, bool):
        raise _mismatch("only integers and bools can be formatted as binary", value)
    return f"{int(value):b}"


def _octal(value: Value, _precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _mismatch("octal clause can only be used on integers", value)
    return f"{int(value):o}"


def _hexadecimal(value: Value, _precision: int) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").hex()
    if isinstance(value, bytes):
        return value.hex()
    if type(value) not in (int, Uint):
        raise _mismatch("only integers, byte buffers, and strings can be formatted as hex", value)
    return f"{int(value):x}"


def _upper_hexadecimal(value: Value, precision: int) -> str:
    return _hexadecimal(value, precision).upper()


_FORMS: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": _string,
    "d": _decimal,
    "f": _fixed,
    "e": _scientific,
    "b": _binary,
    "o": _octal,
    "x": _hexadecimal,
    "X": _upper_hexadecimal,
}
