"""The syntax of load profiles, and usage at an hour of the day."""

from datetime import UTC, datetime

import pytest

from stellwerk_kube.declared_usage import LoadStep, at_load, parse_load, parse_usage


def test_steps_are_sorted() -> None:
    assert parse_load("20:30=30%,08:00=100%") == (LoadStep(480, 100), LoadStep(1230, 30))
    assert parse_load(" ") == ()


@pytest.mark.parametrize("text", ["8=100%", "08:00=100", "24:00=1%", "08:00=1%,08:00=2%"])
def test_what_is_no_load_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"step|time|literal"):
        parse_load(text)


def test_a_load_is_of_what_can_be_given_back() -> None:
    usage = parse_usage("cpu=2,memory=1Ki,logs=7,disk=much")
    assert usage == {"cpu": 2000, "memory": 1024, "logs": 7}
    night = datetime(2026, 1, 1, 3, tzinfo=UTC)
    assert at_load(usage, "08:00=100%,20:00=25%", night) == {"cpu": 500, "memory": 256, "logs": 7}
    assert at_load(usage, "", night) == usage
