"""Quantities: values, rounding, saturation, and what is none."""

import pytest

from stellwerk_kube.quantity import (
    SATURATION,
    milli_units,
    parse_quantity,
    resource_amount,
    saturate,
    whole_units,
)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("0", 0),
        ("1", 1000),
        ("100m", 100),
        ("0.1", 100),
        (".5", 500),
        ("2.", 2000),
        ("+3", 3000),
        ("-1", -1000),
        ("1n", 1),
        ("1500u", 2),
        ("1e3", 1_000_000),
        ("1E-2", 10),
        ("1k", 1_000_000),
        ("1Ki", 1_024_000),
        (2, 2000),
        (0.5, 500),
    ],
)
def test_thousandths_rounded_up(text: str | float, millis: int) -> None:
    assert milli_units(text) == millis


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("1Ki", 1 << 10),
        ("1Mi", 1 << 20),
        ("1Gi", 1 << 30),
        ("1Ti", 1 << 40),
        ("1Pi", 1 << 50),
        ("1Ei", 1 << 60),
        ("1k", 10**3),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1.5Gi", 3 << 29),
        ("1m", 1),
        ("1001m", 2),
        ("0.1Ki", 103),
        ("128974848", 128974848),
        ("129e6", 129_000_000),
        ("-1m", 0),
    ],
)
def test_whole_units_rounded_up(text: str, units: int) -> None:
    assert whole_units(text) == units


def test_an_exponent_is_no_suffix() -> None:
    assert whole_units("1E") == 10**18
    assert whole_units("1E1") == 10


@pytest.mark.parametrize("text", ["8Ei", "1e30", "1e999999999", "9223372036854775808"])
def test_what_is_too_large_saturates(text: str) -> None:
    assert whole_units(text) == SATURATION == 1 << 62
    assert whole_units(f"-{text}") == -SATURATION


def test_thousandths_saturate_sooner() -> None:
    assert milli_units("5P") == SATURATION
    assert milli_units("4P") == 4 * 10**18


def test_sums_of_saturated_amounts_are_cut_off() -> None:
    assert saturate(3 * SATURATION) == SATURATION
    assert saturate(-3 * SATURATION) == -SATURATION
    assert saturate(SATURATION - 1) == SATURATION - 1


@pytest.mark.parametrize(
    "text",
    ["", "1Kib", "one", "1 Gi", "1,5", "--1", "1e", "K", "1K", "1mm", "\N{ARABIC-INDIC DIGIT ONE}"],
)
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


def test_cpu_is_counted_in_thousandths_and_all_else_whole() -> None:
    assert resource_amount("cpu", "250m") == 250
    assert resource_amount("memory", "120Mi") == 125829120
    assert resource_amount("example.com/gpu", "2") == 2


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        pytest.param("9" * 100_000, SATURATION, id="more digits than Python reads"),
        pytest.param("-" + "9" * 100_000, -SATURATION, id="negative"),
        pytest.param("0" * 100_000 + "7Ki", 7 * 1024, id="leading zeros"),
        pytest.param("1." + "0" * 100_000, 1, id="nothing behind the point"),
        pytest.param("1." + "0" * 100_000 + "1", 2, id="something behind the point"),
        pytest.param("7e" + "0" * 100_000 + "1", 70, id="exponent"),
        pytest.param("7e-" + "9" * 100_000, 1, id="next to nothing"),
    ],
)
def test_a_quantity_as_long_as_a_book(text: str, amount: int) -> None:
    assert whole_units(text) == amount
