"""Kubernetes' quantities as values of expressions.

The grammar is CEL's own, beside `stellwerk_kube/quantity.py`: an expression needs the amount exact
to a billionth, and an error for what has no quantity. The scheduler's parser rounds up to units,
saturates, and takes numbers of JSON. Invariant: a quantity is at most the highest int64.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Final

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.values import MAX_INT, MIN_INT, OpaqueValue

QUANTITIES: Final = Library()

_FORM: Final = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?[0-9]+)?"
)
_SUFFIXES: Final = {
    **{
        suffix: Fraction(1024) ** power
        for power, suffix in enumerate(("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    },
    **{
        suffix: Fraction(1000) ** power
        for suffix, power in (
            ("n", -3),
            ("u", -2),
            ("m", -1),
            ("k", 1),
            ("M", 2),
            ("G", 3),
            ("T", 4),
            ("P", 5),
            ("E", 6),
        )
    },
}
_SYNTAX: Final = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_NANOS_PER_UNIT: Final = 10**9
_MAX_QUANTITY_CHARACTERS: Final = 128
"""Characters of a quantity: each number that Kubernetes can store has a shorter text."""
_MAX_EXPONENT: Final = 64
"""Exponent of ten of a quantity. 10**64 is far beyond any amount, and cheap to compute."""


@dataclass(frozen=True, slots=True, order=True)
class Quantity(OpaqueValue):
    """An amount, exact to a billionth; equal whatever its unit."""

    type_name: ClassVar[str] = "kubernetes.Quantity"

    amount: Fraction


def parse_quantity(text: str) -> Quantity | None:
    """The quantity that a text says, or None; finer than a billionth is rounded up."""
    found = _FORM.fullmatch(text) if len(text) <= _MAX_QUANTITY_CHARACTERS else None
    if found is None:
        return None
    sign, number, suffix = found[1], found[2], found[3] or ""
    if suffix[:1] in ("e", "E") and len(suffix) > 1 and suffix[1] != "i":
        exponent = int(suffix[1:])
        if abs(exponent) > _MAX_EXPONENT:
            return None
        factor = Fraction(10) ** exponent
    else:
        factor = _SUFFIXES[suffix]
    amount = Fraction(number) * factor
    amount = min(Fraction(-(-amount * _NANOS_PER_UNIT // 1), _NANOS_PER_UNIT), Fraction(MAX_INT))
    return Quantity(-amount if sign == "-" else amount)


@QUANTITIES.function("isQuantity", "(string) -> bool", cost=cost.traversal)
def _is_quantity(text: str) -> bool:
    return parse_quantity(text) is not None


@QUANTITIES.function("quantity", "(string) -> kubernetes.Quantity", cost=cost.traversal)
def _quantity(text: str) -> Quantity:
    parsed = parse_quantity(text)
    if parsed is None:
        raise EvaluationError(f"quantities must match the regular expression '{_SYNTAX}'")
    return parsed


@QUANTITIES.function("sign", "(kubernetes.Quantity) -> int")
def _sign(value: Quantity) -> int:
    return (value.amount > 0) - (value.amount < 0)


@QUANTITIES.function("isGreaterThan", ".(kubernetes.Quantity, kubernetes.Quantity) -> bool")
def _is_greater(left: Quantity, right: Quantity) -> bool:
    return left.amount > right.amount


@QUANTITIES.function("isLessThan", ".(kubernetes.Quantity, kubernetes.Quantity) -> bool")
def _is_less(left: Quantity, right: Quantity) -> bool:
    return left.amount < right.amount


@QUANTITIES.function("compareTo", ".(kubernetes.Quantity, kubernetes.Quantity) -> int")
def _compare(left: Quantity, right: Quantity) -> int:
    return (left.amount > right.amount) - (left.amount < right.amount)


@QUANTITIES.function("asApproximateFloat", ".(kubernetes.Quantity) -> double")
def _as_float(value: Quantity) -> float:
    return float(value.amount)


@QUANTITIES.function("isInteger", ".(kubernetes.Quantity) -> bool")
def _is_integer(value: Quantity) -> bool:
    return value.amount.denominator == 1 and MIN_INT <= value.amount <= MAX_INT


@QUANTITIES.function("asInteger", ".(kubernetes.Quantity) -> int")
def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise EvaluationError("cannot convert value to integer")
    return int(value.amount)


@QUANTITIES.function("add", ".(kubernetes.Quantity, kubernetes.Quantity) -> kubernetes.Quantity")
def _add(left: Quantity, right: Quantity) -> Quantity:
    return Quantity(left.amount + right.amount)


@QUANTITIES.function("add", ".(kubernetes.Quantity, int) -> kubernetes.Quantity")
def _add_int(left: Quantity, right: int) -> Quantity:
    return Quantity(left.amount + right)


@QUANTITIES.function("sub", ".(kubernetes.Quantity, kubernetes.Quantity) -> kubernetes.Quantity")
def _sub(left: Quantity, right: Quantity) -> Quantity:
    return Quantity(left.amount - right.amount)


@QUANTITIES.function("sub", ".(kubernetes.Quantity, int) -> kubernetes.Quantity")
def _sub_int(left: Quantity, right: int) -> Quantity:
    return Quantity(left.amount - right)
