"""Finds the terms whose selector can match a set of labels, without trying each.

Most selectors ask for one value of some label; a term is filed under that. With 30,000 pods that
each repel their own kind, a new pod is compared with one term and not with all. Invariant:
`candidates` leaves out no term that matches.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Generic, TypeVar

from stellwerk.models.selectors import Requirement

Term = TypeVar("Term")

_MOST_VALUES: Final = 256
"""A term that asks for one of more is compared with every pod: that costs less than to file it."""


def most_selective(requirements: Sequence[Requirement]) -> Requirement | None:
    """The requirement with the fewest wanted values; None: no requirement names values."""
    if len(requirements) == 1:
        return requirements[0] if requirements[0].operator == "In" else None
    wanting = [requirement for requirement in requirements if requirement.operator == "In"]
    return min(wanting, key=lambda requirement: len(requirement.values), default=None)


class TermIndex(Generic[Term]):
    """Terms by a label that every matching pod must have."""

    def __init__(self) -> None:
        self._by_label: dict[tuple[str, str], dict[Term, None]] = {}
        self._others: dict[Term, None] = {}

    def add(self, term: Term, requirements: Sequence[Requirement]) -> None:
        """File a term under its most selective requirement."""
        requirement = _filed_under(requirements)
        if requirement is None:
            self._others[term] = None
            return
        for value in requirement.values:
            self._by_label.setdefault((requirement.key, value), {})[term] = None

    def discard(self, term: Term, requirements: Sequence[Requirement]) -> None:
        """Take a term out again."""
        requirement = _filed_under(requirements)
        if requirement is None:
            self._others.pop(term, None)
            return
        for value in requirement.values:
            filed = self._by_label.get((requirement.key, value), {})
            filed.pop(term, None)
            if not filed:
                self._by_label.pop((requirement.key, value), None)

    def candidates(self, labels: Mapping[str, str]) -> Iterator[Term]:
        """Terms that may match these labels, each once."""
        yield from self._others
        for label in labels.items():
            yield from self._by_label.get(label, ())


def _filed_under(requirements: Sequence[Requirement]) -> Requirement | None:
    requirement = most_selective(requirements)
    return None if requirement is None or len(requirement.values) > _MOST_VALUES else requirement
