"""The result of a replay: decisions that come out as recorded, and those that do not.

Replays write it, the command prints it. Invariant: every decision is counted once; a group's is
one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from stellwerk.journal.entries import Decided, GroupDecided
from stellwerk.world.decide import Decision
from stellwerk.world.gangs.group_decision import GroupDecision

MAX_KEPT_DIFFERENCES: Final = 1000
"""Differences that are kept; all are counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that comes out otherwise now."""

    seconds: float
    key: str
    attempts: int
    recorded: str
    replayed: str


@dataclass(slots=True)
class ReplayResult:
    """The result of a replay."""

    releases: dict[str, None] = field(default_factory=dict)
    """The releases of Kubernetes that the decisions followed."""
    decisions: int = 0
    equal: int = 0
    groups: int = 0
    """Decisions on groups, among them."""
    unknown: int = 0
    """Decisions for pods that the journal does not hold."""
    differences: list[Difference] = field(default_factory=list)
    bound_by_others: int = 0
    """Bindings that another scheduler made, of pods whose arrival the journal holds."""
    among_best: int = 0
    """Those of them whose node is one of the best by the profile."""
    feasible: int = 0
    """Those of them whose node takes the pod at all."""

    def compare(
        self, seconds: float, key: str, attempts: int, recorded: str, replayed: str
    ) -> None:
        """Count a decision, which was and is now what these texts say."""
        if recorded == replayed:
            self.equal += 1
        elif len(self.differences) < MAX_KEPT_DIFFERENCES:
            self.differences.append(Difference(seconds, key, attempts, recorded, replayed))


def recorded_outcome(entry: Decided) -> str:
    """A recorded decision as text: equal texts are equal decisions."""
    return _said(entry.node_name, entry.nominated, entry.victims, entry.message)


def outcome(decision: Decision, *, hashed: bool = False) -> str:
    """A decision as text; a hashed journal holds no messages."""
    failure, candidate = decision.failure, decision.candidate
    return _said(
        decision.node_name,
        failure.nomination.node_name if failure is not None else "",
        () if candidate is None else [victim.uid for victim in candidate.victims],
        failure.message if failure is not None and not hashed else "",
    )


def recorded_group_outcome(entry: GroupDecided) -> str:
    """A recorded decision on a group as text."""
    if entry.placed:
        return _placed([(key, node) for _, key, _, node, _ in entry.members if node])
    return _said("", ", ".join(sorted(set(entry.nodes.values()))), entry.victims, entry.message)


def group_outcome(decision: GroupDecision, *, hashed: bool = False) -> str:
    """A decision on a group as text."""
    if decision.placed:
        assumed = {
            each.pod.uid: each.assumed.node_name
            for each in decision.attempt.results
            if each.assumed is not None
        }
        members = decision.request.members
        return _placed([(pod.key, assumed[pod.uid]) for pod in members if pod.uid in assumed])
    made = decision.preemption
    nodes = ", ".join(sorted(set(made.nodes.values()))) if made is not None else ""
    victims = [pod.uid for pod in made.victims] if made is not None else ()
    return _said("", nodes, victims, "" if hashed else decision.message)


def _placed(members: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{key} on {node}" for key, node in members)


def _said(node_name: str, nominated: str, victims: Sequence[str], message: str) -> str:
    if node_name:
        return f"on {node_name}"
    text = f"nominated to {nominated}, " if nominated else ""
    text += f"evicting {', '.join(victims)}: " if victims else ""
    return f"{text}{message}" or "no node"
