"""The words that the tables of several answers have in common: counts and ages.

Answers and the commands that print them use it. Invariant: an age is written as kubectl writes it.
"""

from collections.abc import Sequence
from typing import Final

from stellwerk_kube.clock import SystemClock, parse_moment
from stellwerk_kube.names import duration_text

_SMALLEST_PERCENT: Final = 0.05
"""Percent below which a share is written as less than 0.1 %: one of many is not none."""
_LARGE_SECONDS: Final = 10.0
"""Latency from which it is written in seconds."""


def counted(number: int, noun: str) -> str:
    """A number of things, in the plural where it is not 1."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def controller_name(namespace: str, controller: str) -> str:
    """A controller of a namespace in the words of `stellwerk explain`; `controller`: KIND/NAME."""
    kind, _, name = controller.partition("/")
    return f"{namespace}/{kind.lower()}/{name}"


def named(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def age(moment: str, *, ahead: bool = False) -> str:
    """The time since then, or until then, as kubectl writes ages."""
    try:
        seconds = (SystemClock().now() - parse_moment(moment)).total_seconds()
    except ValueError:
        return moment
    return duration_text(max(0.0, -seconds if ahead else seconds))


def ago(moment: str) -> str:
    """The time since then, followed by "ago"; a text that is no moment stays as it is."""
    passed = age(moment)
    return passed if passed == moment else f"{passed} ago"


def percent(part: int, total: int) -> str:
    """A share in percent; a part is never written as nothing, nor as all. Of nothing: empty."""
    if not total:
        return ""
    share = 100 * part / total
    if 0 < share < _SMALLEST_PERCENT:
        return "<0.1 %"
    if part < total and share > 100 - _SMALLEST_PERCENT:
        return ">99.9 %"
    return f"{share:.1f} %"


def latency(seconds: float) -> str:
    """A latency with its unit: milliseconds below ten seconds."""
    return f"{seconds * 1000:,.0f} ms" if seconds < _LARGE_SECONDS else f"{seconds:,.0f} s"
