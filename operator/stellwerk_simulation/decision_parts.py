"""Entries as they come, with all that was recorded of one decision put together.

Replays read a journal through it. Invariant: nothing is left out or reordered; only where a
decision waited in between is it held back to its end, which says what was drawn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from stellwerk.journal.entries import (
    Answered,
    Asked,
    Decided,
    Entry,
    GroupBegun,
    GroupDecided,
    InitialState,
)
from stellwerk.world.extenders import is_failure

_MOST_HELD: Final = 200_000
"""Entries; no decision takes longer."""


@dataclass(frozen=True, slots=True)
class PodDecision:
    """A decision that waited for extenders."""

    begun: Asked
    between: Sequence[Entry]
    """Their answers, and what happened meanwhile."""
    end: Decided | None
    """None: there was none, as an extender failed or the journal ends."""


@dataclass(frozen=True, slots=True)
class GroupsDecision:
    """A decision on a group."""

    begun: GroupBegun
    between: Sequence[Entry]
    end: GroupDecided | None


Part: TypeAlias = Entry | PodDecision | GroupsDecision


class DecisionParts:
    """Holds entries back while a decision is under way."""

    def __init__(self) -> None:
        self._begun: Asked | GroupBegun | None = None
        self._between: list[Entry] = []

    def take(self, entry: Entry) -> Iterator[Part]:
        """What can happen now that this entry is known."""
        if self._begun is not None:
            if not _ends(self._begun, entry) and len(self._between) < _MOST_HELD:
                self._between.append(entry)
                return
            whole = self._whole(self._begun, entry)
            self._begun, self._between = None, []
            yield whole
            if isinstance(entry, Answered) or whole.end is entry:
                return
        if isinstance(entry, Asked | GroupBegun):
            self._begun = entry
        else:
            yield entry

    def rest(self) -> Iterator[Part]:
        """What is left at the end of the journal."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            yield self._whole(begun, None)

    def _whole(self, begun: Asked | GroupBegun, end: Entry | None) -> PodDecision | GroupsDecision:
        between = self._between
        if isinstance(begun, GroupBegun):
            uids = [row[0] for row in end.members] if isinstance(end, GroupDecided) else None
            decided = end if uids == list(begun.members) else None
            return GroupsDecision(
                begun, between, decided if isinstance(decided, GroupDecided) else None
            )
        if isinstance(end, Answered):
            between = [*between, end]
        is_its = isinstance(end, Decided) and end.uid == begun.uid
        return PodDecision(begun, between, end if is_its and isinstance(end, Decided) else None)


def _ends(begun: Asked | GroupBegun, entry: Entry) -> bool:
    """Whether nothing of a decision that has begun comes after this entry."""
    if isinstance(entry, Decided | GroupBegun | GroupDecided | InitialState):
        return True
    if isinstance(begun, GroupBegun):
        return False
    return isinstance(entry, Asked) or (isinstance(entry, Answered) and is_failure(entry.answer))
