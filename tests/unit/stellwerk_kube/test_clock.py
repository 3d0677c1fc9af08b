from datetime import UTC, datetime, timedelta, timezone

import pytest

from stellwerk_kube.clock import (
    SystemClock,
    VirtualClock,
    parse_moment,
    rfc3339_microseconds,
    rfc3339_milliseconds,
    rfc3339_seconds,
)


def test_virtual_clock_moves_both_times_by_hand() -> None:
    clock = VirtualClock(datetime(2026, 3, 1, tzinfo=UTC))
    clock.advance(2.5)
    assert clock.monotonic() == 2.5
    assert clock.now() == datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=2.5)


def test_virtual_clock_tells_the_time_in_utc() -> None:
    berlin = timezone(timedelta(hours=1))
    assert VirtualClock(datetime(2026, 3, 1, 1, tzinfo=berlin)).now().isoformat() == (
        "2026-03-01T00:00:00+00:00"
    )


def test_virtual_clock_refuses_to_go_back() -> None:
    with pytest.raises(ValueError, match="backwards"):
        VirtualClock().advance(-1)


def test_virtual_clock_refuses_a_naive_start() -> None:
    with pytest.raises(ValueError, match="aware"):
        VirtualClock(datetime(2026, 3, 1))  # noqa: DTZ001 - the mistake under test


def test_system_clock_is_aware_and_runs_forward() -> None:
    clock = SystemClock()
    before = clock.monotonic()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() >= before


@pytest.mark.parametrize(
    "text",
    [
        *("9999-99-99", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-01"),
        *("2026-01-01T00:00:00", "", "now", "2" * 1_000_000, None, 5, ["2026-01-01T00:00:00Z"]),
    ],
)
def test_what_is_no_moment_of_utc_is_no_time(text: object) -> None:
    with pytest.raises(ValueError, match=r"time|isoformat|month"):
        parse_moment(text)


def test_a_moment_is_read_into_utc() -> None:
    moment = parse_moment("2026-01-01T02:00:00.25+02:00")
    assert moment == datetime(2026, 1, 1, microsecond=250_000, tzinfo=UTC)
    assert moment.tzinfo is UTC


def test_times_are_written_in_utc_in_three_precisions() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 6789, timezone(timedelta(hours=1)))
    assert rfc3339_seconds(moment) == "2026-01-02T02:04:05Z"
    assert rfc3339_milliseconds(moment) == "2026-01-02T02:04:05.006Z"
    assert rfc3339_microseconds(moment) == "2026-01-02T02:04:05.006789Z"
    assert rfc3339_microseconds(moment.replace(microsecond=0)) == "2026-01-02T02:04:05.000000Z"
