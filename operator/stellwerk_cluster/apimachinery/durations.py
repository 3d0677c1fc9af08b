"""Ages and durations as kubectl shows them (duration.HumanDuration, v1.36).

Called by what computes the cells of tables. Invariant: a text has at most two units, and the
smaller one is left out where it no longer matters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import parse_timestamp

if TYPE_CHECKING:
    from datetime import datetime, timedelta

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
_LETTERS: Final = {1: "s", _MINUTE: "m", _HOUR: "h", _DAY: "d", _YEAR: "y"}
_SCALES: Final = (
    (2 * _MINUTE, 1, 0),
    (10 * _MINUTE, _MINUTE, 1),
    (3 * _HOUR, _MINUTE, 0),
    (8 * _HOUR, _HOUR, _MINUTE),
    (2 * _DAY, _HOUR, 0),
    (8 * _DAY, _DAY, _HOUR),
    (2 * _YEAR, _DAY, 0),
    (8 * _YEAR, _YEAR, _DAY),
)
"""Below each limit: the unit that is shown, and the smaller one shown beside it (0: none)."""


def age_text(since: str | None, now: datetime) -> str:
    """The time since then as kubectl writes it: exact while short, coarse when long."""
    if not since:
        return "<unknown>"
    return duration_text(now - parse_timestamp(since))


def duration_text(duration: timedelta) -> str:
    """The duration in the one or two units that matter (duration.HumanDuration, v1.36)."""
    seconds = int(duration.total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(0, seconds)
    for limit, unit, smaller in _SCALES:
        if seconds < limit:
            whole, rest = divmod(seconds, unit)
            small = rest // smaller if smaller else 0
            tail = f"{small}{_LETTERS[smaller]}" if small else ""
            return f"{whole}{_LETTERS[unit]}{tail}"
    return f"{seconds // _YEAR}y"
