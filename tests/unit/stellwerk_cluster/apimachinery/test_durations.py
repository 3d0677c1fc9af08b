from datetime import UTC, datetime, timedelta

import pytest

from stellwerk_cluster.apimachinery.durations import age_text, duration_text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=-5), "<invalid>"),
        (timedelta(seconds=-1), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=2, seconds=1), "2m1s"),
        (timedelta(minutes=10, seconds=59), "10m"),
        (timedelta(hours=3, minutes=5), "3h5m"),
        (timedelta(hours=47, minutes=59), "47h"),
        (timedelta(days=2, hours=3), "2d3h"),
        (timedelta(days=8, hours=3), "8d"),
        (timedelta(days=2 * 365 + 4), "2y4d"),
        (timedelta(days=9 * 365), "9y"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_duration_is_exact_while_short_and_coarse_when_long(
    duration: timedelta, text: str
) -> None:
    assert duration_text(duration) == text


def test_an_age_without_a_beginning_is_unknown() -> None:
    assert age_text(None, datetime(2026, 1, 1, tzinfo=UTC)) == "<unknown>"
