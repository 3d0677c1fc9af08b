"""The schedules of CronJobs: five fields, the names that begin with @, and `@every`.

Read by admission, which refuses what it cannot parse, and by the controller. Invariant: times are
whole minutes of the schedule's time zone; one that a clock change leaves out is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final, Protocol

from typing_extensions import override

_NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EVERY: Final = "@every "
_MONTHS: Final = (
    *("jan", "feb", "mar", "apr", "may", "jun"),
    *("jul", "aug", "sep", "oct", "nov", "dec"),
)
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final[tuple[tuple[int, int, dict[str, int]], ...]] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    (0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_PART: Final = re.compile(r"(\*|\?|\w{1,9})(?:-(\w{1,9}))?(?:/(\d{1,9}))?")
_DURATION: Final = re.compile(r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9})s)?")
_MAX_SEARCHED_DAYS: Final = 366 * 5
"""Days that are searched for the next date. One that does not come within five years never comes
(30 February)."""


class Schedule(Protocol):
    """The times of a cron expression."""

    def following(self, moment: datetime) -> datetime | None:
        """The first time after a moment; None: never."""
        ...


@dataclass(frozen=True, slots=True)
class _Interval(Schedule):
    """`@every`: so long after the moment."""

    period: timedelta

    @override
    def following(self, moment: datetime) -> datetime | None:
        return moment.replace(microsecond=0) + self.period


@dataclass(frozen=True, slots=True)
class _Fields(Schedule):
    """Five fields: the values that each of them allows."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Both day fields are restricted: a day that one of them allows will do."""
    zone: tzinfo

    @override
    def following(self, moment: datetime) -> datetime | None:
        local = moment.astimezone(self.zone)
        day = local.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
        for _ in range(_MAX_SEARCHED_DAYS):
            if self._allows(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        at = day.replace(hour=hour, minute=minute, tzinfo=self.zone)
                        instant = at.astimezone(UTC)
                        exists = instant.astimezone(self.zone).hour == hour
                        if exists and instant > moment:
                            return instant
            day += timedelta(days=1)
        return None

    def _allows(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        of_month = day.day in self.days
        of_week = day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week


def parse_schedule(text: str, zone: tzinfo = UTC) -> Schedule:
    """The schedule that a text names, in a time zone.

    Raises:
        ValueError: the text names none; the message says why.
    """
    if text.startswith(_EVERY):
        return _Interval(timedelta(seconds=_seconds(text.removeprefix(_EVERY))))
    if text.startswith("@"):
        if text not in _NAMED:
            raise ValueError(f"unrecognized descriptor: {text}")
        text = _NAMED[text]
    parts = text.split()
    if len(parts) != len(_FIELDS):
        shown = " ".join(parts)
        raise ValueError(f"expected exactly {len(_FIELDS)} fields, found {len(parts)}: [{shown}]")
    minutes, hours, days, months, weekdays = (
        _values(part, *field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    restricted = [not any(part.startswith(mark) for mark in "*?") for part in (parts[2], parts[4])]
    return _Fields(
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(weekdays),
        all(restricted),
        zone,
    )


def _seconds(text: str) -> int:
    match = _DURATION.fullmatch(text)
    hours, minutes, seconds = (int(part or 0) for part in (match.groups() if match else "000"))
    total = 3600 * hours + 60 * minutes + seconds
    if not 1 <= total < 1 << 31:
        raise ValueError(f"failed to parse duration {_EVERY}{text}")
    return total


def _values(text: str, lowest: int, highest: int, names: dict[str, int]) -> set[int]:
    found: set[int] = set()
    for part in text.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"failed to parse int from {part}")
        first, last, step = match.groups()
        if first in ("*", "?"):
            start, end = lowest, highest
        else:
            start = _number(first, names)
            end = _number(last, names) if last else (highest if step else start)
        width = int(step or 1)
        if start < lowest:
            raise ValueError(f"beginning of range ({start}) below minimum ({lowest}): {part}")
        if end > highest:
            raise ValueError(f"end of range ({end}) above maximum ({highest}): {part}")
        if start > end:
            raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {part}")
        if not width:
            raise ValueError(f"step of range should be a positive number: {part}")
        found.update(range(start, end + 1, width))
    return found


def _number(text: str, names: dict[str, int]) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    if text.lower() in names:
        return names[text.lower()]
    raise ValueError(f"failed to parse int from {text}")
