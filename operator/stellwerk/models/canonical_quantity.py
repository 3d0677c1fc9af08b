"""The canonical text of a quantity as the API server stores it: `1024Mi` becomes `1Gi`.

Called by what writes quantities: the embedded cluster's schemas and allocations of devices.
Invariant: the canonical text names the same amount, rounded up to a billionth at most.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from stellwerk.models.quantity import parse_quantity

if TYPE_CHECKING:
    from fractions import Fraction

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
_LARGEST_BINARY_STEP: Final = 1024


_LONG: Final = 128


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
    if abs(value) < _LARGEST_BINARY_STEP:
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
