"""Equality and order of values.

Called by `compiler` and the library. Invariant: numbers compare by what they are worth, whatever
their types; values of different types are otherwise unequal and have no order.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from stellwerk_kube.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from stellwerk_kube.cel.values import Duration, MapList, OpaqueValue, SetList, Timestamp, Uint

if TYPE_CHECKING:
    from stellwerk_kube.cel.values import Value

_NUMBERS = (int, float, Uint)
_ORDERED = (str, bytes, bool, Timestamp, Duration)


def equal(left: Value, right: Value) -> bool:  # noqa: PLR0911  (one way out for each type)
    """Whether two values are equal.

    Raises:
        EvaluationError: a type of Kubernetes' meets another type.
    """
    kind, other = type(left), type(right)
    if kind is other and kind in _PLAIN:
        return bool(left == right)
    if kind in _NUMBERS and other in _NUMBERS:
        # cel-go compares an integer with a double as doubles.
        return float(left) == float(right) if float in (kind, other) else bool(left == right)
    if isinstance(left, OpaqueValue) or isinstance(right, OpaqueValue):
        return _opaque_equal(left, right)
    if isinstance(left, list) and isinstance(right, list):
        return _lists_equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(
            (found := lookup_key(right, key)) is not None and equal(value, right[found[0]])
            for key, value in left.items()
        )
    if kind is other:
        present = getattr(left, "present", None)
        if present is not None:
            return present == right.present and (not present or equal(left.value, right.value))
        return bool(left == right)
    return False


_PLAIN = frozenset({str, bool, int, Uint, bytes, type(None)})


def _opaque_equal(left: Value, right: Value) -> bool:
    if type(left) is type(right):
        return bool(left == right)
    if isinstance(left, OpaqueValue):
        raise EvaluationError(NO_SUCH_OVERLOAD)
    return False


def _lists_equal(left: list[Value], right: list[Value]) -> bool:
    if len(left) != len(right):
        return False
    if isinstance(left, SetList):
        return all(contains(right, each) for each in left)
    if isinstance(left, MapList):
        mine = {left.key(each): each for each in left}
        return all(left.key(each) in mine and equal(mine[left.key(each)], each) for each in right)
    return all(equal(mine, other) for mine, other in zip(left, right, strict=True))


def contains(values: list[Value], element: Value) -> bool:
    """Whether a list has an element."""
    return any(equal(element, each) for each in values)


def lookup_key(mapping: dict[Value, Value], key: Value) -> tuple[Value] | None:
    """The key as the map has it, or None: 1, 1u and 1.0 are the same key, true is another."""
    kind = type(key)
    if kind is str:
        return (key,) if key in mapping else None
    if kind not in (bool, int, float, Uint):
        return None
    if key not in mapping:
        return None
    if key not in (0, 1):
        return (key,)
    # Python takes True for 1, and False for 0.
    for each in mapping:
        if each == key and (type(each) is bool) == (kind is bool) and type(each) is not str:
            return (each,)
    return None


def order(left: Value, right: Value) -> int:
    """-1, 0 or 1, as the left value is less, equal or greater.

    Raises:
        EvaluationError: the values have no order.
    """
    kind, other = type(left), type(right)
    if kind in _NUMBERS and other in _NUMBERS:
        if (kind is float and math.isnan(left)) or (other is float and math.isnan(right)):
            raise EvaluationError("NaN values cannot be ordered")
        if float in (kind, other):
            left, right = float(left), float(right)
    elif kind is not other or kind not in _ORDERED:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    # cel-go compares the bytes of UTF-8; code points have the same order.
    return int(left > right) - int(left < right)
