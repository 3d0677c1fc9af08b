"""What is shown the decisions of the group cycle: a recording, for one.

The group cycle calls it, synchronously and in the order in which things happen. Invariant: what is
shown has had no effect yet, so that an observer which keeps it, and what the World itself reports
(columns written, assumptions forgotten), has all there is to decide the same again.
"""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Protocol

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.world.decide import Decision
from stellwerk.world.gangs.attempt import Ask
from stellwerk.world.gangs.group_decision import GroupDecision


class GroupObserver(Protocol):
    """Sees what is decided on the operator's World; trials on forks are not shown."""

    @abstractmethod
    def member_decided(self, ask: Ask, queued: QueuedPod, decision: Decision) -> None:
        """A member was decided in one of perhaps many attempts at its group.

        With a node, it is assumed there next; it is forgotten again where the attempt is given up.
        """

    @abstractmethod
    def group_decided(self, queued: Mapping[str, QueuedPod], decision: GroupDecision) -> None:
        """All attempts at a group are over; `queued` are its members by uid.

        Where it is placed, the members that are assumed are bound next. All others are requeued,
        and victims evicted.
        """
