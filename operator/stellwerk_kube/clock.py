"""Time as a dependency: every module that needs the time is given a `Clock`.

Real processes use `SystemClock`; tests and in-process flows use `VirtualClock` and move it by hand.
The module also has the one reader and the writers of times in RFC 3339. Invariant: `monotonic()`
never runs backwards, and `now()` is aware and in UTC.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from typing_extensions import override

_SUSPEND_AWARE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has a clock of its own for it; elsewhere the monotonic one has to do."""


MAX_TIME_CHARACTERS = 64
"""Characters of a time. RFC 3339 needs 35 with nanoseconds and a zone."""


def parse_moment(text: object) -> datetime:
    """Return the moment that a time of RFC 3339 names, in UTC.

    It is the one reader of times: of objects, files, recordings and answers.

    Raises:
        ValueError: it is no text, no time, has no zone, or lies outside the years 1 to 9999 in UTC.
    """
    if not isinstance(text, str) or len(text) > MAX_TIME_CHARACTERS:
        raise ValueError("no time such as 2026-01-01T00:00:00Z")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"the time {text} has no zone, such as Z")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"the time {text} is in no year from 1 to 9999") from None


# --- writers of times: three precisions, because the API has two and answers a third ------------


def rfc3339_seconds(moment: datetime) -> str:
    """Return a time as the API's Time (metav1.Time): UTC, whole seconds."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def rfc3339_milliseconds(moment: datetime) -> str:
    """Return a time as the operator's answers and recordings have it: UTC, milliseconds.

    Decisions follow each other within one second, and microseconds would say nothing to a reader.
    """
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def rfc3339_microseconds(moment: datetime) -> str:
    """Return a time as the API's MicroTime (metav1.MicroTime): UTC, always six digits.

    Leases and events have it; the API refuses one without a fraction.
    """
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# --- clocks -------------------------------------------------------------------------------------


class Clock(Protocol):
    """Two readings of time: one for durations, one for timestamps."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary origin; for durations and deadlines."""
        ...

    def now(self) -> datetime:
        """Return the wall-clock time, aware, in UTC; for timestamps that others read."""
        ...


class SystemClock(Clock):
    """The machine's clock; its `monotonic` is the standard library's own function."""

    monotonic = staticmethod(time.monotonic)

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)


class SuspendAwareClock(SystemClock):
    """The machine's clock, whose monotonic time also passes while the machine is suspended.

    For deadlines that others rely on: a lease runs out for them, whatever this machine does.
    """

    @override
    def monotonic(self) -> float:
        return time.clock_gettime(_SUSPEND_AWARE)


class VirtualClock(Clock):
    """A clock that stands still between two calls of `advance`."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        """Begin at `start` (aware); the monotonic origin is zero.

        Raises:
            ValueError: `start` has no time zone.
        """
        if start.tzinfo is None:
            msg = "a clock needs an aware start time"
            raise ValueError(msg)
        self._start = start.astimezone(UTC)
        self._elapsed_seconds = 0.0

    @override
    def monotonic(self) -> float:
        return self._elapsed_seconds

    @override
    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_seconds)

    def advance(self, seconds: float) -> None:
        """Move both the monotonic and the wall-clock time forward.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            msg = f"time does not run backwards: {seconds}"
            raise ValueError(msg)
        self._elapsed_seconds += seconds
