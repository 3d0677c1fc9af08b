"""Quantities against another way of computing them: decimal arithmetic instead of fractions."""

from decimal import ROUND_CEILING, Decimal, localcontext

from hypothesis import given
from hypothesis import strategies as st

from stellwerk_kube.quantity import SATURATION, milli_units, parse_quantity, whole_units

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {f"{suffix}i": 10 * power for power, suffix in enumerate("KMGTPE", start=1)}

integers = st.integers(0, 10**20).map(str)
digits = st.text("0123456789", max_size=12)
numbers = st.one_of(
    integers,
    st.tuples(integers, digits).map(".".join),
    st.text("0123456789", min_size=1, max_size=12).map(lambda text: f".{text}"),
)
signs = st.sampled_from(["", "+", "-"])
suffixes = st.sampled_from([*DECIMAL, *BINARY])
exponents = st.tuples(st.sampled_from("eE"), st.integers(-20, 20)).map(
    lambda each: f"{each[0]}{each[1]}"
)


def value(text: str) -> Decimal:
    """What a quantity is worth, read off its text from the end."""
    for suffix, bits in BINARY.items():
        if text.endswith(suffix):
            return Decimal(text.removesuffix(suffix)) * (1 << bits)
    for suffix, power in DECIMAL.items():
        if suffix and text.endswith(suffix):
            return Decimal(text.removesuffix(suffix)).scaleb(power)
    return Decimal(text)


def rounded_up(amount: Decimal) -> int:
    return int(amount.to_integral_value(ROUND_CEILING))


@given(signs, numbers, st.one_of(suffixes, exponents))
def test_value_and_rounding(sign: str, number: str, suffix: str) -> None:
    text = f"{sign}{number}{suffix}"
    with localcontext() as context:
        context.prec = 200
        expected = value(text)
        assert (
            Decimal(parse_quantity(text).numerator) == expected * parse_quantity(text).denominator
        )
        for units, scale in ((whole_units, 1), (milli_units, 1000)):
            exact = rounded_up(expected * scale)
            assert units(text) == max(-SATURATION, min(SATURATION, exact))


@given(numbers, suffixes, numbers, suffixes)
def test_order_is_kept(one: str, its_suffix: str, other: str, others_suffix: str) -> None:
    first, second = f"{one}{its_suffix}", f"{other}{others_suffix}"
    if parse_quantity(first) <= parse_quantity(second):
        assert whole_units(first) <= whole_units(second)
        assert milli_units(first) <= milli_units(second)


@given(st.text(max_size=8))
def test_a_text_is_a_quantity_or_a_value_error(text: str) -> None:
    try:
        found = parse_quantity(text)
    except ValueError:
        return
    with localcontext() as context:
        context.prec = 200
        assert Decimal(found.numerator) == value(text) * found.denominator
