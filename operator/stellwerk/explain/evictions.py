"""The last preemptions, by victim and by preemptor.

The scheduling cycle keeps one entry per preemption; explanations read them. Invariant: they are
bounded in number, and stay when the pods are gone, for it is then that they are asked for.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from stellwerk.framework.interface import Candidate
from stellwerk.models.answers.pod import (
    LastPreemption,
    PreemptedBy,
    PreemptionCandidate,
    VictimFields,
)
from stellwerk.models.pod import PodInfo
from stellwerk.world.decide import Decision

_MOST: Final = 4096
_CANDIDATES: Final = 20


Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True)
class Nomination:
    """A node that victims were to leave for a preemptor."""

    preemptor: PodInfo
    node_name: str
    decided_at_seconds: float
    """Monotonic."""


class Evictions:
    """The last preemptions by the names of victims and of preemptors."""

    def __init__(self) -> None:
        self._by_victim: OrderedDict[str, PreemptedBy] = OrderedDict()
        self._by_preemptor: OrderedDict[str, LastPreemption] = OrderedDict()
        self._nominations: OrderedDict[str, Nomination] = OrderedDict()
        """The last one of each preemptor, in the order in which they were made."""

    def keep(self, decision: Decision, decided_at: str, now_seconds: float) -> None:
        """Keep what a decision that nominates a node means for its victims, and why that node.

        `now_seconds`: monotonic, of the decision.
        """
        chosen, preemptor = decision.candidate, decision.search.pod
        if chosen is None:
            return
        for victim in chosen.victims:
            _put(self._by_victim, victim.key, _for_victim(victim, preemptor, decided_at))
        nomination = Nomination(preemptor, chosen.node_name, now_seconds)
        _put(self._nominations, preemptor.key, nomination)
        others = decision.post_filter.candidates if decision.post_filter is not None else ()
        last = LastPreemption(
            decided_at=decided_at,
            node=chosen.node_name,
            budget_violations=chosen.pdb_violations,
            victims=_victims(chosen),
            candidates=len(others),
            others=[_for_candidate(each) for each in others[:_CANDIDATES] if each is not chosen],
            nominated_node=chosen.node_name,
        )
        _put(self._by_preemptor, preemptor.key, last)

    def of_victim(self, key: str) -> PreemptedBy | None:
        """The preemptor of a pod, and when; None: there was none, as far as is known."""
        return self._by_victim.get(key)

    def of_preemptor(self, key: str) -> LastPreemption | None:
        """The last preemption for a pod, with the other candidates."""
        return self._by_preemptor.get(key)

    def nomination_of(self, key: str) -> Nomination | None:
        """The node that a preemptor was nominated to last, and when."""
        return self._nominations.get(key)

    def later_on(self, nomination: Nomination) -> Iterator[Nomination]:
        """The nominations to the same node afterwards, the newest first."""
        for other in reversed(self._nominations.values()):
            if other.decided_at_seconds <= nomination.decided_at_seconds:
                return
            if other.node_name == nomination.node_name:
                yield other


def _put(entries: OrderedDict[str, Entry], key: str, entry: Entry) -> None:
    entries.pop(key, None)
    entries[key] = entry
    while len(entries) > _MOST:
        entries.popitem(last=False)


def _for_victim(victim: PodInfo, preemptor: PodInfo, decided_at: str) -> PreemptedBy:
    return PreemptedBy(
        by=preemptor.key,
        by_priority=preemptor.priority,
        priority=victim.priority,
        node=victim.node_name,
        decided_at=decided_at,
    )


def _for_candidate(candidate: Candidate) -> PreemptionCandidate:
    return PreemptionCandidate(
        node=candidate.node_name,
        budget_violations=candidate.pdb_violations,
        victims=_victims(candidate),
    )


def _victims(candidate: Candidate) -> list[VictimFields]:
    return [VictimFields(pod=victim.key, priority=victim.priority) for victim in candidate.victims]
