"""Numbers as the page shows them: amounts with their units, shares as steps of a colour scale.

Templates and views use it. Invariant: a step is one of eleven, whatever the number, so that a style
sheet can name each of them.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from stellwerk.models.answers.listings import NodeFields

STEPS: Final = 10
_HIGHEST_SCORE: Final = 100
_BINARY: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_BYTES: Final = frozenset({"memory", "ephemeral-storage"})


def step(value: float, highest: float = _HIGHEST_SCORE) -> int:
    """A share of the highest value, from 0 to STEPS."""
    if highest <= 0:
        return 0
    return max(0, min(STEPS, int(value * STEPS / highest)))


def amount(resource: str, value: int) -> str:
    """An amount of a resource in the unit that kubectl shows it in."""
    if resource == "cpu":
        return f"{value / 1000:g}" if value >= 1000 or not value else f"{value}m"  # noqa: PLR2004
    if resource in _BYTES or resource.startswith("hugepages-"):
        for unit, size in _BINARY:
            if value >= size:
                return f"{value / size:.3g} {unit}"
    return f"{value}"


def share(used: int, offered: int) -> int:
    """Percent of what is offered; what is used of nothing is all of it."""
    if offered <= 0:
        return 100 if used > 0 else 0
    return used * 100 // offered


def resources_of(nodes: Sequence[NodeFields], most: int) -> list[str]:
    """The resources that any of the nodes offers: the native ones first, then by name."""
    native = ["cpu", "memory", "pods", "ephemeral-storage"]
    offered = {name for node in nodes for name, value in node.allocatable.items() if value}
    return [*(name for name in native if name in offered), *sorted(offered - {*native})][:most]


def local_time(text: str) -> str:
    """A moment of the operator's answers as the clock of this machine shows it."""
    try:
        moment = datetime.fromisoformat(text).astimezone()
    except ValueError:
        return text
    return f"{moment:%H:%M:%S}"
