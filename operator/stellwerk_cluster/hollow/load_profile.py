"""Load profiles: how much of its usage a pod uses at which time of day, as files say it.

Read by `lifecycle`, used by `load`. Invariant: the steps are in order, and no two begin at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

HOUR_MINUTES: Final = 60
MOST_PERCENT: Final = 1000
_DAY_MINUTES: Final = 24 * HOUR_MINUTES


class Step(NamedTuple):
    """From a minute of the day on, so many percent."""

    minute: int
    percent: int


def parse_load(text: str) -> tuple[Step, ...]:
    """`08:00=100%,20:00=30%` in order of time; each step holds until the next, over midnight.

    Raises:
        ValueError: it is no such list.
    """
    steps = sorted(_step(part.strip()) for part in text.split(",")) if text.strip() else []
    if len({step.minute for step in steps}) < len(steps):
        raise ValueError("a time stands twice")
    return tuple(steps)


def _step(text: str) -> Step:
    at, _, percent = text.partition("=")
    hour, colon, minute = at.partition(":")
    if not colon or not percent.endswith("%"):
        raise ValueError(f"{text[:40]}: expected a step like 08:00=100%")
    step = Step(int(hour) * HOUR_MINUTES + int(minute), int(percent[:-1]))
    in_a_day = 0 <= int(minute) < HOUR_MINUTES and 0 <= step.minute < _DAY_MINUTES
    if not in_a_day or not 0 <= step.percent <= MOST_PERCENT:
        raise ValueError(f"{text[:40]}: not a time of day, or not 0% to {MOST_PERCENT}%")
    return step
