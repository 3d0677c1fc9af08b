"""Changes in the cluster that arrive while a pod is being tried: kube-scheduler's inFlightEvents.

The scheduling queue records every change here and reads the list when an attempt fails. A pod is
decided on a snapshot, so that a change that comes later, but before the failure is known, would be
missed otherwise: the pod would stay unschedulable although a node has become free.
Invariant: a change is kept as long as any pod that was in flight when it came still is, and no
longer. If there are too many changes, the oldest are dropped, and `since_popped` says so for the
pods that needed them.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from stellwerk.framework.events import ClusterChange

MAX_IN_FLIGHT_EVENTS: Final = 16_384
"""Changes that are kept. A pod may wait on Permit for 15 minutes, through a million changes. Beyond
this number the older half is dropped, and a pod that needed it is retried after its backoff,
whatever the changes were."""
POD_POPPED: Final = "PodPopped"
"""kube-scheduler's name for a pod in flight, among the events of `scheduler_inflight_events`."""


@dataclass(frozen=True, slots=True, eq=False)
class InFlightEvent:
    """A change, and the pod or the profile that it is limited to, if there is one."""

    change: ClusterChange
    uid: str = ""
    profile_name: str = ""

    def concerns(self, uid: str, profile_name: str) -> bool:
        """Return whether the change may matter to a pod that the profile serves."""
        if self.uid:
            return self.uid == uid
        return not self.profile_name or self.profile_name == profile_name


class InFlightEvents:
    """One list of changes for all pods in flight, and for each pod the position where it begins.

    Positions count all changes that were ever kept, so that they stay valid when the front of the
    list is dropped.
    """

    def __init__(self, max_events: int = MAX_IN_FLIGHT_EVENTS) -> None:
        self._max_events = max_events
        self._events: deque[InFlightEvent] = deque()
        self._first = 0
        """Position of the oldest kept event; positions only grow."""
        self._starts: OrderedDict[str, int] = OrderedDict()
        """Position at which each pod was popped, by uid; the oldest first."""

    def start(self, uid: str) -> None:
        """Keep changes for a pod that was popped."""
        self._starts.pop(uid, None)
        self._starts[uid] = self._first + len(self._events)

    def end(self, uid: str) -> None:
        """Drop the changes that only this pod needed; its attempt can no longer be rejected."""
        if self._starts.pop(uid, None) is None:
            return
        oldest = next(iter(self._starts.values()), self._first + len(self._events))
        while self._first < oldest:
            self._events.popleft()
            self._first += 1

    def record(self, change: ClusterChange, *, uid: str = "", profile_name: str = "") -> None:
        """Keep a change for the pods in flight that it concerns."""
        if not self._starts or (uid and uid not in self._starts):
            return
        self._events.append(InFlightEvent(change, uid, profile_name))
        if len(self._events) > self._max_events:
            for _ in range(self._max_events // 2):
                self._events.popleft()
            self._first += self._max_events // 2

    def since_popped(self, uid: str, profile_name: str) -> Sequence[ClusterChange] | None:
        """List the changes since a pod was popped that concern it; None: some were dropped."""
        start = self._starts.get(uid, -1)
        if start < self._first:
            return None
        newer = islice(self._events, start - self._first, None)
        return [event.change for event in newer if event.concerns(uid, profile_name)]

    def counts(self) -> Mapping[str, int]:
        """Count kept changes by name, and pods in flight, for `scheduler_inflight_events`."""
        counts = Counter(event.change.name for event in self._events)
        counts[POD_POPPED] = len(self._starts)
        return counts
