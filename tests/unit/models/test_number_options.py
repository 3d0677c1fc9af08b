"""Numbers of options: what a range takes, and how a refusal names it."""

import argparse

import pytest

from stellwerk.models.number_options import (
    DurationSeconds,
    NumberOption,
    PortNumber,
    PositiveNumber,
    Size,
    WholeNumber,
)


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        pytest.param(WholeNumber(-3, 3), "-3", -3, id="the least"),
        pytest.param(WholeNumber(-3, 3), "3", 3, id="the most"),
        pytest.param(PositiveNumber(10), "1e-3", 0.001, id="a small number"),
        pytest.param(PositiveNumber(100, percent=True), "20%", 0.2, id="a percentage"),
        pytest.param(DurationSeconds(), "1m30s", 90.0, id="a duration"),
        pytest.param(DurationSeconds(), "87600h", 315_360_000.0, id="the longest duration"),
        pytest.param(DurationSeconds(or_zero=True), "0", 0.0, id="no duration"),
        pytest.param(Size(), "64Ki", 65_536, id="the smallest size"),
        pytest.param(Size(), "1Ei", 1 << 60, id="the largest size"),
        pytest.param(PortNumber(), "0", 0, id="a free port"),
        pytest.param(PortNumber(), "65535", 65535, id="the last port"),
    ],
)
def test_numbers_of_the_range_are_taken(kind: NumberOption, text: str, number: float) -> None:
    assert kind(text) == number


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        pytest.param(
            WholeNumber(1, 9), "10", "'10' is not a whole number from 1 to 9", id="too many"
        ),
        pytest.param(
            WholeNumber(1, 9), "1.0", "'1.0' is not a whole number from 1 to 9", id="a fraction"
        ),
        pytest.param(
            WholeNumber(1, 9), "1_0", "'1_0' is not a whole number from 1 to 9", id="Python's way"
        ),
        pytest.param(
            WholeNumber(1, 9), "\u0661", "is not a whole number from 1 to 9", id="other digits"
        ),
        pytest.param(
            PositiveNumber(10, "1.3"),
            "nan",
            "'nan' is not a number above 0 and up to 10, such as 1.3",
            id="no number",
        ),
        pytest.param(
            DurationSeconds(),
            "87600h1s",
            "'87600h1s' is not a duration like 90s or 5m, longer than 0 and up to 87600h",
            id="too long",
        ),
        pytest.param(
            Size(), "63Ki", "'63Ki' is not a size like 256Mi, from 64Ki to 1Ei", id="too small"
        ),
        pytest.param(PortNumber(), "65536", "'65536' is not a port from 0 to 65535", id="no port"),
    ],
)
def test_a_refusal_names_the_range(kind: NumberOption, text: str, message: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        kind(text)
    assert message in str(refused.value)


def test_a_long_number_is_shown_in_part() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"^'9{40}…' is not a whole number"):
        WholeNumber(0, 9)("9" * 5000)
