"""Timestamps and durations: parsing, and their parts in a time zone.

The grammar of both is CEL's own: whole nanoseconds, with Go's overflow, and None for what is none.
`stellwerk_kube/names.py` reads the durations of settings as seconds, and `stellwerk_kube/clock.py`
the times of objects as datetimes, which end at microseconds. Invariant: results are in the ranges
that CEL has for them.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.values import MAX_INT, NANOS_PER_SECOND, Duration, Timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_kube.cel.values import Value

MOMENTS: Final = Library()

_UNIT_NANOS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NANOS_PER_SECOND,
    "m": 60 * NANOS_PER_SECOND,
    "h": 3600 * NANOS_PER_SECOND,
}
_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_DURATION: Final = re.compile(
    rf"([+-]?)((?:{_PART.pattern.replace('(', '(?:').replace('(?:?:', '(?:')})+)"
)
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:\d\d)"
)
_MAX_MOMENT_CHARACTERS: Final = 256
"""Characters of a text that is read as a time or a duration, whose fractions may have any number of
digits."""
_MINUTES_PER_HOUR: Final = 60
_HOURS_PER_DAY: Final = 24


def parse_duration(text: str) -> Duration | None:
    """The duration that a text such as `1h30m` says, or None."""
    if len(text) > _MAX_MOMENT_CHARACTERS:
        return None
    if text in ("0", "+0", "-0"):
        return Duration(0)
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    nanos = 0
    for whole, fraction, unit in _PART.findall(found[2]):
        if not whole and not fraction:
            return None
        nanos += int(whole or 0) * _UNIT_NANOS[unit]
        if fraction:
            nanos += int(fraction) * _UNIT_NANOS[unit] // 10 ** len(fraction)
    if nanos > MAX_INT:
        return None
    return Duration(-nanos if found[1] == "-" else nanos)


def parse_timestamp(text: str) -> Timestamp | None:
    """The moment that a text in RFC 3339 says, or None."""
    found = _TIMESTAMP.fullmatch(text) if len(text) <= _MAX_MOMENT_CHARACTERS else None
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(found[group]) for group in range(1, 7))
    try:
        moment = datetime(max(year, 1), month, day, hour, minute, second, tzinfo=timezone.utc)  # noqa: UP017
    except ValueError:
        return None
    if not year:
        raise EvaluationError("timestamp overflow")
    seconds = int((moment - datetime(1970, 1, 1, tzinfo=timezone.utc)) / timedelta(seconds=1))  # noqa: UP017
    if found[8] != "Z":
        hours, minutes = int(found[8][1:3]), int(found[8][4:])
        if minutes >= _MINUTES_PER_HOUR or hours >= _HOURS_PER_DAY:
            return None
        offset = hours * 3600 + minutes * 60
        seconds += offset if found[8][0] == "-" else -offset
    fraction = (found[7] or "")[:9].ljust(9, "0")
    return Timestamp(seconds * NANOS_PER_SECOND + int(fraction))


def _zone(name: str) -> tzinfo:
    if ":" in name:
        hours, _, minutes = name.partition(":")
        try:
            hour, minute = int(hours), int(minutes)
        except ValueError:
            text = f'strconv.Atoi: parsing "{hours}": invalid syntax'
            raise EvaluationError(text) from None
        if not 0 <= minute < _MINUTES_PER_HOUR:
            raise EvaluationError(f"timezone offset minutes out of range [0, 59]: {name}")
        total = hour * 60 - minute if name.startswith("-") else hour * 60 + minute
        if abs(total) >= 24 * 60:
            raise EvaluationError(f"timezone offset out of range: {name}")
        return timezone(timedelta(minutes=total))
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {name}") from None


def _moment(value: Timestamp, zone: str) -> datetime:
    try:
        return value.moment().astimezone(_zone(zone))
    except OverflowError:
        raise EvaluationError("timestamp overflow") from None


_PARTS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda moment: moment.year,
    "getMonth": lambda moment: moment.month - 1,
    "getDayOfYear": lambda moment: moment.timetuple().tm_yday - 1,
    "getDate": lambda moment: moment.day,
    "getDayOfMonth": lambda moment: moment.day - 1,
    "getDayOfWeek": lambda moment: moment.isoweekday() % 7,
    "getHours": lambda moment: moment.hour,
    "getMinutes": lambda moment: moment.minute,
    "getSeconds": lambda moment: moment.second,
}


def _declare(name: str, part: Callable[[datetime], int]) -> None:
    def of_timestamp(value: Timestamp, zone: str = "UTC") -> Value:
        return part(_moment(value, zone))

    MOMENTS.function(name, ".(timestamp) -> int", ".(timestamp, string) -> int")(of_timestamp)


for _name, _part in _PARTS.items():
    _declare(_name, _part)


@MOMENTS.function("getMilliseconds", ".(timestamp) -> int", ".(timestamp, string) -> int")
def _milliseconds(value: Timestamp, zone: str = "UTC") -> int:
    _zone(zone)
    return value.nanos % NANOS_PER_SECOND // 1_000_000


def _whole(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


@MOMENTS.function("getHours", ".(duration) -> int")
def _hours(value: Duration) -> int:
    return _whole(value.nanos, 3600 * NANOS_PER_SECOND)


@MOMENTS.function("getMinutes", ".(duration) -> int")
def _minutes(value: Duration) -> int:
    return _whole(value.nanos, 60 * NANOS_PER_SECOND)


@MOMENTS.function("getSeconds", ".(duration) -> int")
def _seconds(value: Duration) -> int:
    return _whole(value.nanos, NANOS_PER_SECOND)


@MOMENTS.function("getMilliseconds", ".(duration) -> int")
def _duration_milliseconds(value: Duration) -> int:
    return _whole(value.nanos, 1_000_000)
