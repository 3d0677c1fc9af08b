"""Changes in the cluster that came while pods were in flight, to be replayed if they are rejected.

Part of the scheduling queue. A pod is decided on a snapshot; what changes after that and before its
failure is known would be missed otherwise. Invariant: a change is kept as long as some pod that
was in flight when it came still is, and no longer; of too many, the oldest count as "anything may
have happened" for the pods that needed them.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from stellwerk.framework.events import ClusterChange

MAX_EVENTS: Final = 16_384
"""A pod may wait on Permit for a quarter of an hour, through a million changes."""
POD_POPPED: Final = "PodPopped"
"""What kube-scheduler calls a pod in flight among the events of `inflight_events`."""


@dataclass(frozen=True, slots=True, eq=False)
class InFlightEvent:
    """A change, and the only pod or profile that it concerns, if it does not concern all."""

    change: ClusterChange
    uid: str = ""
    profile_name: str = ""

    def concerns(self, uid: str, profile_name: str) -> bool:
        """Whether the change may matter to a pod that the profile serves."""
        if self.uid:
            return self.uid == uid
        return not self.profile_name or self.profile_name == profile_name


class InFlightEvents:
    """kube-scheduler's inFlightEvents: one list of changes, and for each pod where it begins."""

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._max_events = max_events
        self._events: deque[InFlightEvent] = deque()
        self._first = 0
        """Position of the oldest kept event; positions only grow."""
        self._starts: OrderedDict[str, int] = OrderedDict()
        """Position at which each pod was popped, by uid; the oldest first."""

    def start(self, uid: str) -> None:
        """Remember changes for a pod that was popped."""
        self._starts.pop(uid, None)
        self._starts[uid] = self._first + len(self._events)

    def end(self, uid: str) -> None:
        """Drop the events that only this pod needed; its attempt can no longer be rejected."""
        if self._starts.pop(uid, None) is not None:
            self._drop_unneeded()

    def record(self, change: ClusterChange, *, uid: str = "", profile_name: str = "") -> None:
        """Remember a change for the pods in flight that it concerns."""
        if not self._starts or (uid and uid not in self._starts):
            return
        self._events.append(InFlightEvent(change, uid, profile_name))
        if len(self._events) > self._max_events:
            for _ in range(self._max_events // 2):
                self._events.popleft()
            self._first += self._max_events // 2

    def since_popped(self, uid: str, profile_name: str) -> Sequence[ClusterChange] | None:
        """What changed for a pod since it was popped; None: some of it was dropped."""
        start = self._starts.get(uid, -1)
        if start < self._first:
            return None
        newer = islice(self._events, start - self._first, None)
        return [event.change for event in newer if event.concerns(uid, profile_name)]

    def counts(self) -> Mapping[str, int]:
        """Kept events by name and pods in flight, for `scheduler_inflight_events`."""
        counts = Counter(event.change.name for event in self._events)
        counts[POD_POPPED] = len(self._starts)
        return counts

    def _drop_unneeded(self) -> None:
        oldest = next(iter(self._starts.values()), self._first + len(self._events))
        while self._first < oldest:
            self._events.popleft()
            self._first += 1
