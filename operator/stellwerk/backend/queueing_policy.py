"""What the scheduling queue needs to know of profiles, and whom it tells what it does.

The scheduler implements both: frameworks and metrics live above this layer. Invariant: no method
raises; plugins are contained by whoever implements the policy.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.framework.events import ClusterChange, ClusterEventWithHint
from stellwerk.framework.status import Status
from stellwerk.models.pod import PodInfo


class QueueingPolicy(Protocol):
    """What the profiles say about queueing."""

    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        """QueueSort's key; smaller is first."""
        ...

    def pre_enqueue(self, pod: PodInfo, first_plugin: str) -> Status:
        """The first PreEnqueue answer that is not Success, with its plugin, or OK.

        `first_plugin` (if it is one of the profile's) is asked first: it gated the pod last time.
        """
        ...

    def hints(self, scheduler_name: str) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """What the plugins of a profile registered; one that is missing waits for every event."""
        ...

    def backoff(self, scheduler_name: str) -> Backoff:
        """The backoff of a profile."""
        ...


class QueueObserver(Protocol):
    """Told about movements and hints, for metrics and logs."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered active, backoff or unschedulable."""
        ...

    def rejected(self, plugin: str, profile: str, change: int) -> None:
        """One pod more (+1) or less (−1) waits because of a plugin."""
        ...

    def hints_evaluated(
        self, plugin: str, event: str, result: str, times: int, seconds: float
    ) -> None:
        """A plugin's hint was asked about a change so many times, in so many seconds together.

        `result` is Queue, QueueSkip or Error.
        """
        ...

    def hint_failed(
        self, plugin: str, pod: PodInfo, change: ClusterChange, failure: Exception
    ) -> None:
        """A hint raised; it counts as Queue."""
        ...
