"""The arithmetic operators.

Called by `compiler`. Invariant: operands of different types have no result; what does not fit into
64 bits is an error, never a wrapped number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stellwerk_kube.cel.comparison import contains
from stellwerk_kube.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from stellwerk_kube.cel.values import (
    MIN_INT,
    Duration,
    MapList,
    SetList,
    Timestamp,
    Uint,
    checked_int,
    checked_uint,
)

if TYPE_CHECKING:
    from stellwerk_kube.cel.values import Value


def add(left: Value, right: Value) -> Value:  # noqa: PLR0911  (one way out for each type)
    """`left + right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return checked_int(left + right)
        if kind is Uint:
            return checked_uint(int(left) + int(right))
        if kind in (str, bytes, float):
            return left + right
        if kind is Duration:
            return Duration(left.nanos + right.nanos)
    if isinstance(left, list) and isinstance(right, list):
        return _joined(left, right)
    if kind is Timestamp and other is Duration:
        return Timestamp(left.nanos + right.nanos)
    if kind is Duration and other is Timestamp:
        return Timestamp(left.nanos + right.nanos)
    raise EvaluationError(NO_SUCH_OVERLOAD)


def _joined(left: list[Value], right: list[Value]) -> list[Value]:
    if isinstance(left, SetList):
        return SetList([*left, *(each for each in right if not contains(left, each))])
    if isinstance(left, MapList):
        newer = {left.key(each): each for each in right}
        kept = [newer.pop(left.key(each), each) for each in left]
        return MapList([*kept, *newer.values()], left.keys)
    return [*left, *right]


def subtract(left: Value, right: Value) -> Value:
    """`left - right`."""
    kind, other = type(left), type(right)
    if kind is other:
        if kind is int:
            return checked_int(left - right)
        if kind is Uint:
            return checked_uint(int(left) - int(right))
        if kind is float:
            return left - right
        if kind in (Duration, Timestamp):
            return Duration(left.nanos - right.nanos)
    if kind is Timestamp and other is Duration:
        return Timestamp(left.nanos - right.nanos)
    raise EvaluationError(NO_SUCH_OVERLOAD)


def multiply(left: Value, right: Value) -> Value:
    """`left * right`."""
    kind = type(left)
    if kind is type(right):
        if kind is int:
            return checked_int(left * right)
        if kind is Uint:
            return checked_uint(int(left) * int(right))
        if kind is float:
            return left * right
    raise EvaluationError(NO_SUCH_OVERLOAD)


def divide(left: Value, right: Value) -> Value:
    """`left / right`; integers are cut towards zero."""
    kind = type(left)
    if kind is not type(right) or kind not in (int, Uint, float):
        raise EvaluationError(NO_SUCH_OVERLOAD)
    if kind is float:
        return _float_quotient(left, right)
    if right == 0:
        raise EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    if kind is Uint:
        return Uint(quotient)
    return checked_int(quotient if (left < 0) == (right < 0) else -quotient)


def _float_quotient(left: float, right: float) -> float:
    if right:
        return left / right
    if math.isnan(left) or left == 0:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def modulo(left: Value, right: Value) -> Value:
    """`left % right`, with the sign of the left side."""
    kind = type(left)
    if kind is not type(right) or kind not in (int, Uint):
        raise EvaluationError(NO_SUCH_OVERLOAD)
    if right == 0:
        raise EvaluationError("modulus by zero")
    if kind is Uint:
        return Uint(int(left) % int(right))
    if right == -1 and left == MIN_INT:
        raise EvaluationError("integer overflow")
    rest = abs(left) % abs(right)
    return rest if left >= 0 else -rest


def negate(value: Value) -> Value:
    """`-value`."""
    kind = type(value)
    if kind is int:
        return checked_int(-value)
    if kind is float:
        return -value
    if kind is Duration:
        return Duration(-value.nanos)
    raise EvaluationError(NO_SUCH_OVERLOAD)
