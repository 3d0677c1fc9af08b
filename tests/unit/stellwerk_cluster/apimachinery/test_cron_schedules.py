"""When schedules come due, and which texts are none."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from stellwerk_cluster.apimachinery.cron_schedules import parse_schedule

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)  # a Thursday


def following(text: str, after: datetime = NEW_YEAR, zone: str = "UTC") -> str | None:
    found = parse_schedule(text, ZoneInfo(zone)).following(after)
    return None if found is None else found.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "2026-01-01 00:01"),
        ("*/15 * * * *", "2026-01-01 00:15"),
        ("5/20 * * * *", "2026-01-01 00:05"),
        ("0 9-17/4 * * *", "2026-01-01 09:00"),
        ("30 4 1,15 * *", "2026-01-01 04:30"),
        ("0 0 * * mon", "2026-01-05 00:00"),
        ("0 0 13 * FRI", "2026-01-02 00:00"),
        ("0 0 13 * *", "2026-01-13 00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("0 0 30 2 *", None),
        ("@hourly", "2026-01-01 01:00"),
        ("@weekly", "2026-01-04 00:00"),
        ("@every 1h30m", "2026-01-01 01:30"),
    ],
)
def test_the_next_time(text: str, expected: str | None) -> None:
    assert following(text) == expected


def test_a_time_of_another_zone() -> None:
    assert following("0 9 * * *", zone="Asia/Seoul") == "2026-01-02 00:00"


def test_a_time_that_the_clock_change_leaves_out_is_skipped() -> None:
    eve = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert following("30 2 * * *", eve, "Europe/Berlin") == "2026-03-30 00:30"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7x",
        "5-1 * * * *",
        "*/0 * * * *",
        "@often",
        "@every 0s",
        "@every never",
        "1e3 * * * *",
    ],
)
def test_what_is_no_schedule(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_schedule(text)
