"""What lies in the scheduling queue: every pod's entry, and how many are in each place.

The base of the scheduling queue, which alone writes it; metrics, debugger and audit read.
Invariant: reading changes nothing, and what is read often (`pending`, `counted`) is O(1).
"""

from collections.abc import Mapping

from stellwerk.backend.in_flight_events import InFlightEvents
from stellwerk.backend.queued_pod import BACKOFF_Q, UNSCHEDULABLE_PODS, Place, QueuedPod
from stellwerk.models.pod import PodInfo


class QueueContents:
    """Entries and how many are where; treat them as read-only."""

    def __init__(self, max_unschedulable_seconds: float) -> None:
        self.max_unschedulable_seconds = max_unschedulable_seconds
        """After so long in unschedulablePods a pod is retried whatever changes."""
        self.entries: dict[str, QueuedPod] = {}
        """By uid, popped pods included; the queue alone puts in and takes out."""
        self._counts = [0] * len(Place)
        self._in_flight = InFlightEvents()

    def pod(self, uid: str) -> PodInfo | None:
        """The pod as the API last showed it."""
        entry = self.entries.get(uid)
        return entry.newest if entry else None

    def place(self, uid: str) -> Place | None:
        """Where a pod is; None: it is not in the queue."""
        entry = self.entries.get(uid)
        return entry.place if entry else None

    def position(self, uid: str) -> int | None:
        """How many pods in activeQ are popped before this one; None: it is not there. O(n)."""
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.ACTIVE:
            return None
        own = (entry.sort_key, entry.sequence)
        return sum(
            other.place is Place.ACTIVE and (other.sort_key, other.sequence) < own
            for other in self.entries.values()
        )

    def counted(self, *places: Place) -> int:
        """How many pods are in these places."""
        return sum(self._counts[place] for place in places)

    def pending(self) -> Mapping[str, int]:
        """Pods by the label of `scheduler_pending_pods`."""
        return {
            "active": self._counts[Place.ACTIVE],
            "backoff": self.counted(*BACKOFF_Q),
            "unschedulable": self._counts[Place.UNSCHEDULABLE],
            "gated": self._counts[Place.GATED],
        }

    def in_flight_event_counts(self) -> Mapping[str, int]:
        """Remembered changes by name, and pods in flight, for `scheduler_inflight_events`."""
        return self._in_flight.counts()

    def describe(self) -> str:
        """The summary line that kube-scheduler writes on SIGUSR2."""
        return (
            f"activeQ:{self._counts[Place.ACTIVE]}; backoffQ:{self.counted(*BACKOFF_Q)}; "
            f"unschedulablePods:{self.counted(*UNSCHEDULABLE_PODS)}"
        )
