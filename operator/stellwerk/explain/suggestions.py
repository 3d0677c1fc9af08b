"""Suggestions in words: alike changes of several objects that help are one suggestion.

`WouldFit` makes them, tables and JSON show them. Invariant: every object that a
suggestion names was tried on its own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from stellwerk.framework.changes import Change, FreeResources, Tolerate, amounts_text
from stellwerk.models.answers.suggestion import Suggestion
from stellwerk.models.pod_affinity import SpreadConstraint

ClosedDomain: TypeAlias = tuple[SpreadConstraint, str]
"""A constraint, and the value of its topology key where it lets no pod in."""
_NAMED: Final = 2
"""So many objects are named; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Changes that were made together, after which the pod fitted."""

    changes: tuple[Change, ...]
    node_count: int
    """How many nodes took the pod then."""
    node_names: tuple[str, ...]
    """Some of them."""
    closed: ClosedDomain | None = None
    """The domain that the changes open; None: they say themselves what they do."""

    @property
    def reason(self) -> str:
        """The reason for which as many pods have to go as do; empty where no pod has to."""
        if self.closed is None:
            return ""
        constraint, value = self.closed
        count = len(self.changes)
        pods = "1 pod" if count == 1 else f"{count} pods"
        key, skew = constraint.topology_key, constraint.max_skew
        return f"{pods} too many in {key}={value} for maxSkew {skew}"

    @property
    def sort_key(self) -> tuple[object, ...]:
        """Fewer changes first, then cheaper ones, then smaller ones."""
        costs = sorted(change.cost for change in self.changes)
        sizes = [
            amount
            for change in self.changes
            if isinstance(change, FreeResources)
            for _, amount in change.amounts
        ]
        return (len(self.changes), costs, sizes, -self.node_count)


@dataclass(slots=True)
class AlikeProofs:
    """One way to make the pod fit, and objects to which alike changes would do as well."""

    proof: Proof
    others: list[Proof] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The suggestion in one line."""
        words = " and ".join(change.describe() for change in self.proof.changes)
        if self.proof.reason:
            words = f"{self.proof.reason}: {words}"
        if self.others:
            named = [_alternative(self.proof, other) for other in self.others[: _NAMED - 1]]
            left = len(self.others) - len(named)
            words += "".join(f", {each}" for each in named)
            words += f" or {left} more" if left else ""
            words = words if left else _with_or(words, named)
        elif len(self.proof.changes) == 1 and isinstance(self.proof.changes[0], Tolerate):
            count = self.proof.node_count
            words += f" → {count} node{'s' if count != 1 else ''}"
        return words

    def answer(self) -> Suggestion:
        """The suggestion as it is answered."""
        return Suggestion(
            text=self.text,
            reason=self.proof.reason or None,
            changes=[change.fields() for change in self.proof.changes],
            feasible_nodes=self.proof.node_count,
            nodes=list(self.proof.node_names),
            alternatives=[[change.fields() for change in each.changes] for each in self.others],
        )


def grouped(proofs: Iterable[Proof]) -> list[AlikeProofs]:
    """Suggestions in the order of cost; none holds all changes of another."""
    by_group: dict[tuple[tuple[str, ...], ...], AlikeProofs] = {}
    least: list[frozenset[Change]] = []
    for proof in sorted(proofs, key=lambda each: each.sort_key):
        changes = frozenset(proof.changes)
        if any(smaller <= changes for smaller in least):
            continue
        least.append(changes)
        key = tuple(sorted(change.group for change in proof.changes))
        known = by_group.get(key)
        if known is None:
            by_group[key] = AlikeProofs(proof)
        else:
            known.others.append(proof)
    return list(by_group.values())


def _alternative(first: Proof, other: Proof) -> str:
    """Another object, with the amount where that differs."""
    if len(other.changes) > 1:
        return " and ".join(change.describe() for change in other.changes)
    change, known = other.changes[0], first.changes[0]
    if isinstance(change, FreeResources) and isinstance(known, FreeResources):
        same = change.amounts == known.amounts
        amounts = "" if same else f"{amounts_text(dict(change.amounts))} on "
        return f"{amounts}{change.target}"
    return change.target


def _with_or(words: str, named: Sequence[str]) -> str:
    last = named[-1]
    return f"{words[: -len(last) - 2]} or {last}"
