"""The usage that annotations declare of a pod: amounts, and how much of them at which hour.

Hollow nodes show it and simulations reckon with it. Invariant: what is no amount counts as nothing;
the steps of a load profile are in order, and no two begin at once.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_kube.quantity import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_HOUR_MINUTES: Final = 60
_MAX_PERCENT: Final = 1000
"""Percent of its usual usage that a pod may declare for a time of day."""
_DAY_MINUTES: Final = 24 * _HOUR_MINUTES
_FOLLOWS_LOAD: Final = frozenset(("cpu", "memory", "pids"))
"""Resources that a pod gives back when its load falls; what it has stored, it keeps."""


def parse_usage(text: str) -> dict[str, int]:
    """`cpu=100m,memory=64Mi`: cpu in millicores, all else in whole units.

    What is no amount counts as nothing.
    """
    used = {}
    for part in text.split(","):
        name, _, amount = part.strip().partition("=")
        try:
            value = parse_quantity(amount)
        except ValueError:
            continue
        used[name] = max(0, int(value * 1000 if name == "cpu" else value))
    return used


class LoadStep(NamedTuple):
    """From a minute of the day on, so many percent."""

    minute: int
    percent: int


def parse_load(text: str) -> tuple[LoadStep, ...]:
    """`08:00=100%,20:00=30%` in order of time; each step holds until the next, over midnight.

    Raises:
        ValueError: it is no such list.
    """
    steps = sorted(_step(part.strip()) for part in text.split(",")) if text.strip() else []
    if len({step.minute for step in steps}) < len(steps):
        raise ValueError("a time occurs twice")
    return tuple(steps)


def _step(text: str) -> LoadStep:
    at, _, percent = text.partition("=")
    hour, colon, minute = at.partition(":")
    if not colon or not percent.endswith("%"):
        raise ValueError(f"{text[:40]}: expected a step like 08:00=100%")
    step = LoadStep(int(hour) * _HOUR_MINUTES + int(minute), int(percent[:-1]))
    in_a_day = 0 <= int(minute) < _HOUR_MINUTES and 0 <= step.minute < _DAY_MINUTES
    if not in_a_day or not 0 <= step.percent <= _MAX_PERCENT:
        raise ValueError(f"{text[:40]}: not a time of day, or not 0% to {_MAX_PERCENT}%")
    return step


def at_load(usage: Mapping[str, int], load: str, now: datetime) -> Mapping[str, int]:
    """A usage at this time of day.

    Raises:
        ValueError: the load is no list of steps.
    """
    steps = parse_load(load)
    if not steps:
        return usage
    minute = now.hour * _HOUR_MINUTES + now.minute
    # Before the first step of the day, the last one of the day before holds.
    percent = steps[bisect_right(steps, (minute, _MAX_PERCENT)) - 1].percent
    return {
        name: amount * percent // 100 if name in _FOLLOWS_LOAD else amount
        for name, amount in usage.items()
    }
