"""The words that the tables of several answers have in common: counts and ages.

Answers and the commands that print them use it. Invariant: an age is written as kubectl writes it.
"""

from collections.abc import Sequence

from stellwerk_kube.clock import SystemClock, parse_moment
from stellwerk_kube.names import duration_text


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
