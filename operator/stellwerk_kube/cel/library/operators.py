"""The operators, as functions with signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel import arithmetic, cost
from stellwerk_kube.cel.comparison import equal, order
from stellwerk_kube.cel.errors import NO_SUCH_OVERLOAD, EvaluationError
from stellwerk_kube.cel.lookup import contained, index, optional_index
from stellwerk_kube.cel.signatures import Library

if TYPE_CHECKING:
    from stellwerk_kube.cel.values import Value

OPERATORS: Final = Library()

_NUMBERS: Final = ("int", "uint", "double")
_SAME: Final = tuple(f"({name}, {name}) -> {name}" for name in _NUMBERS)
_ORDERED: Final = (
    *(f"({left}, {right}) -> bool" for left in _NUMBERS for right in _NUMBERS),
    *(f"({name}, {name}) -> bool" for name in ("bool", "string", "bytes", "timestamp", "duration")),
)

OPERATORS.function(
    "_+_",
    *_SAME,
    "(string, string) -> string",
    "(bytes, bytes) -> bytes",
    "(list(A), list(A)) -> list(A)",
    "(duration, duration) -> duration",
    "(timestamp, duration) -> timestamp",
    "(duration, timestamp) -> timestamp",
    cost=cost.addition,
)(arithmetic.add)
OPERATORS.function(
    "_-_",
    *_SAME,
    "(duration, duration) -> duration",
    "(timestamp, duration) -> timestamp",
    "(timestamp, timestamp) -> duration",
)(arithmetic.subtract)
OPERATORS.function("_*_", *_SAME)(arithmetic.multiply)
OPERATORS.function("_/_", *_SAME)(arithmetic.divide)
OPERATORS.function("_%_", "(int, int) -> int", "(uint, uint) -> uint")(arithmetic.modulo)
OPERATORS.function("-_", "(int) -> int", "(double) -> double")(arithmetic.negate)
OPERATORS.function("_==_", "(A, A) -> bool", cost=cost.comparison)(equal)
OPERATORS.function("@in", "(A, list(A)) -> bool", "(A, map(A, B)) -> bool", cost=cost.containment)(
    contained
)
OPERATORS.function(
    "_[_]",
    "(list(A), int) -> A",
    "(map(A, B), A) -> B",
    "(optional_type(list(A)), int) -> optional_type(A)",
    "(optional_type(map(A, B)), A) -> optional_type(B)",
    cost=cost.keyed,
)(index)
OPERATORS.function(
    "_[?_]",
    "(list(A), int) -> optional_type(A)",
    "(map(A, B), A) -> optional_type(B)",
    "(optional_type(list(A)), int) -> optional_type(A)",
    "(optional_type(map(A, B)), A) -> optional_type(B)",
    cost=cost.keyed,
)(optional_index)


@OPERATORS.function("_!=_", "(A, A) -> bool", cost=cost.comparison)
def _differs(left: Value, right: Value) -> bool:
    return not equal(left, right)


@OPERATORS.function("_<_", *_ORDERED, cost=cost.comparison)
def _less(left: Value, right: Value) -> bool:
    return order(left, right) < 0


@OPERATORS.function("_<=_", *_ORDERED, cost=cost.comparison)
def _at_most(left: Value, right: Value) -> bool:
    return order(left, right) <= 0


@OPERATORS.function("_>_", *_ORDERED, cost=cost.comparison)
def _greater(left: Value, right: Value) -> bool:
    return order(left, right) > 0


@OPERATORS.function("_>=_", *_ORDERED, cost=cost.comparison)
def _at_least(left: Value, right: Value) -> bool:
    return order(left, right) >= 0


@OPERATORS.function("!_", "(bool) -> bool")
def _not(value: Value) -> bool:
    if type(value) is not bool:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    return not value
