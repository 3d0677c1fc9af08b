"""Kubernetes quantities as exact integers: `"100m"` → 100 millicores, `"1Gi"` → 1073741824 bytes.

Every parser of pods, nodes and volumes calls it. CEL reads quantities by itself
(`cel/library/quantities.py`), because expressions compare them exactly and refuse what is out of
range, where the scheduler saturates. Invariant: rounding is always up, as
`Quantity.Value()` and `Quantity.MilliValue()` round, and results saturate at ±2**62, so that one
amount more than a usage column holds (at most 2**61) stays in int64. The canonical text is the one
that the API server stores: `1024Mi` becomes `1Gi`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Final, TypeAlias

Amount: TypeAlias = int | Fraction
"""An exact number; sums of integers cost a hundredth of sums of fractions."""

SATURATION: Final = 1 << 62
"""The largest magnitude of any resource amount, in the resource's unit."""

_PATTERN: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?\d+))?",
    re.ASCII,
)
_LONG: Final = 128
_MULTIPLIER: Final[dict[str, Fraction]] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    **{suffix: Fraction(1000**power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024**power) for power, suffix in enumerate("KMGTPE", start=1)},
}


_BILLION: Final = 10**9
_BILLIONTHS: Final[dict[str, int]] = {
    suffix: int(multiplier * _BILLION) for suffix, multiplier in _MULTIPLIER.items()
}


def saturate(amount: int) -> int:
    """The amount, kept within ±2**62."""
    return max(-SATURATION, min(SATURATION, amount))


def parse_quantity(text: str | float) -> Fraction:
    """The exact value of a quantity; of one that is absurdly long, one that saturates as it does.

    Raises:
        ValueError: the text is no quantity.
    """
    return _parse(_shortened(text))


def billionths(text: str | float) -> Amount:
    """The exact value in billionths: an integer, unless it is finer than that.

    Raises:
        ValueError: the text is no quantity.
    """
    if isinstance(text, str) and len(text) <= _LONG and text.isascii():
        # Nearly all quantities, at a tenth of the cost: an object may hold thirty thousand.
        if text.isdigit():
            return int(text) * _BILLION
        suffix = text[-2:] if text.endswith("i") else text[-1:]
        if suffix in _BILLIONTHS and text[: -len(suffix)].isdigit():
            return int(text[: -len(suffix)]) * _BILLIONTHS[suffix]
    if isinstance(text, int) and not isinstance(text, bool):
        return text * _BILLION
    amount = parse_quantity(text) * _BILLION
    return amount.numerator if amount.denominator == 1 else amount


def whole_units(text: str | float) -> int:
    """The value rounded up to whole units (bytes, counts), saturated."""
    return saturate(-(-billionths(text) // _BILLION))


def milli_units(text: str | float) -> int:
    """The value rounded up to thousandths (millicores for cpu), saturated."""
    return saturate(-(-billionths(text) // (_BILLION // 1000)))


@lru_cache(maxsize=1 << 14)
def _parse(text: str | float) -> Fraction:
    match = _PATTERN.fullmatch(str(text))
    if match is None:
        message = f"{text!r} is not a quantity"
        raise ValueError(message)
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        # An exponent beyond the saturation is clamped: 10**(10**9) would never finish.
        return number * Fraction(10) ** max(-30, min(30, int(match["exponent"])))
    return number * _MULTIPLIER.get(match["suffix"] or "", Fraction(1))


def _shortened(text: str | float) -> str | float:
    """A text that may be kept, and read at once: beyond so many digits none makes a difference."""
    if not isinstance(text, str) or len(text) <= _LONG:
        return text
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:_LONG]!r}… is not a quantity")
    sign = "-" if text.startswith("-") else ""
    whole, _, fraction = match["number"].lstrip("+-").partition(".")
    whole = whole.lstrip("0")[:_LONG]
    # Rounding is up: what is cut off counts as something, unless it is nothing.
    rest = "1" if fraction[_LONG:].strip("0") else ""
    exponent = match["exponent"]
    if exponent is not None:
        clamped = exponent.lstrip("+-").lstrip("0")[:3] or "0"
        return (
            f"{sign}{whole or 0}.{fraction[:_LONG]}{rest}e{'-' * exponent.startswith('-')}{clamped}"
        )
    return f"{sign}{whole or 0}.{fraction[:_LONG]}{rest}{match['suffix'] or ''}"


def resource_amount(resource: str, text: str | float) -> int:
    """A resource's amount as the snapshot counts it: cpu in millicores, all else in whole units."""
    return milli_units(text) if resource == "cpu" else whole_units(text)


_EXPONENT: Final = re.compile(r"[eE][+-]?\d+$")
_DECIMAL: Final = {
    -9: "n",
    -6: "u",
    -3: "m",
    0: "",
    3: "k",
    6: "M",
    9: "G",
    12: "T",
    15: "P",
    18: "E",
}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_MIN_BINARY_SUFFIX: Final = 1024
"""The lowest amount that gets a binary suffix."""


def canonical_quantity(text: str | float) -> str:
    """The canonical form.

    Raises:
        ValueError: the text is no quantity.
    """
    # A text of a megabyte is not kept.
    return _made(text) if isinstance(text, str) and len(text) > _LONG else _known(text)


def _made(text: str | float) -> str:
    return quantity_text(parse_quantity(text), str(text))


_known: Final = lru_cache(maxsize=1 << 14)(_made)


def quantity_text(value: Fraction, like: str = "") -> str:
    """The canonical form of an amount, binary or decimal as another text is."""
    if like.endswith("i"):
        return binary_quantity(value)
    return _decimal(value, exponent_form=_EXPONENT.search(like) is not None)


def binary_quantity(value: Fraction) -> str:
    """The canonical form of an amount that is written in powers of 1024."""
    if abs(value) < _MIN_BINARY_SUFFIX:
        return _decimal(value, exponent_form=False)
    whole, step = -(-value // 1), 0
    while whole % 1024 == 0 and step + 1 < len(_BINARY):
        whole, step = whole // 1024, step + 1
    return f"{whole}{_BINARY[step]}"


def _decimal(value: Fraction, *, exponent_form: bool) -> str:
    billionths = -(-value * 10**9 // 1)
    if billionths == 0:
        return "0"
    exponent = -9
    while billionths % 1000 == 0 and exponent < max(_DECIMAL):
        billionths, exponent = billionths // 1000, exponent + 3
    if exponent_form:
        return f"{billionths}e{exponent}" if exponent else str(billionths)
    return f"{billionths}{_DECIMAL[exponent]}"
