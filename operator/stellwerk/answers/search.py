"""Objects by a part of their name, as the operator's port finds them.

`explain.lists.search` finds them, the page shows them as one types.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.answers.answer import PortAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject(PortAnswer):
    """An object that has the text in its name."""

    kind: str
    """Pod, Node, PodGroup, ResourceClaim, SchedulerProfile, or the kind of a controller."""
    name: str
    """NAMESPACE/NAME, or the name of an object without a namespace."""
    where: str | None = None
    """The node of a pod, or the queue that it waits in; absent: another kind of object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(PortAnswer):
    """Objects by a part of their name: those first that are called so, then what begins so."""

    total: int
    items: Sequence[FoundObject]
    near: Sequence[FoundObject] | None = None
    """Objects whose name differs by a few letters; absent: some have the text, or none is near."""
