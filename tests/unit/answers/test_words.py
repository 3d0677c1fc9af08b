"""Shares and latencies in words."""

import pytest

from stellwerk.answers.words import latency, percent


@pytest.mark.parametrize(
    ("part", "total", "said"),
    [(0, 9, "0.0 %"), (1, 9000, "<0.1 %"), (8999, 9000, ">99.9 %"), (9, 9, "100.0 %"), (0, 0, "")],
)
def test_a_part_is_never_written_as_nothing_or_all(part: int, total: int, said: str) -> None:
    assert percent(part, total) == said


@pytest.mark.parametrize(("seconds", "said"), [(0.006, "6 ms"), (9.9, "9,900 ms"), (600, "600 s")])
def test_a_latency_has_a_unit(seconds: float, said: str) -> None:
    assert latency(seconds) == said
