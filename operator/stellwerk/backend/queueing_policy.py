"""Protocols of the scheduling queue: its policy, read from profiles, and its observer.

`world.profiles.Profiles` implements the policy, `scheduler.observers.instruments.QueueMetrics` the
observer: frameworks and metrics live above this layer. Invariant: no method raises; the policy
catches exceptions of plugins.
"""

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.framework.events import ClusterChange, ClusterEventWithHint
from stellwerk.framework.types import Status
from stellwerk.models.pod import PodInfo


class QueueingPolicy(Protocol):
    """The rules of profiles about queueing."""

    observing: AbstractSet[str] = frozenset()
    """The schedulerNames of profiles whose pods another scheduler serves."""

    def profile_name(self, pod: PodInfo) -> str:
        """The schedulerName of the profile that serves a pod: the pod's own, but for selectors."""
        return pod.spec.scheduler_name

    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        """QueueSort's key; smaller is first.

        `queued_at_seconds`: the time by which the queue sorts the pod (`QueuedPod.sorted_at`), with
        the delay of `namespace_fairness`.
        """
        ...

    def pre_enqueue(self, pod: PodInfo, first_plugin: str) -> Status:
        """The first PreEnqueue answer that is not Success, with its plugin, or OK.

        `first_plugin` (if it is one of the profile's) runs first: it gated the pod last time.
        """
        ...

    def hints(self, profile_name: str) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        """The registrations of a profile's plugins; one that is missing registered all events."""
        ...

    def rejection_ends_at(
        self,
        profile_name: str,  # noqa: ARG002 of use to policies with profiles
        rejected_by: AbstractSet[str],  # noqa: ARG002
        pod: PodInfo,  # noqa: ARG002
    ) -> float:
        """The first time from which on a plugin that rejected a pod no longer does.

        In seconds since the epoch, by the wall clock; infinite: no rejection ends by itself.
        """
        return math.inf

    def backoff(self, pod: PodInfo) -> Backoff:
        """The backoff of a pod's profile."""
        ...

    def places_groups(self, profile_name: str) -> bool:
        """Whether a profile decides groups of pods as a whole."""
        ...


class QueueObserver(Protocol):
    """Receives movements and evaluations of hints, for metrics and logs."""

    def incoming(self, queue: str, event: str) -> None:
        """A pod entered active, backoff or unschedulable (the queue), moved by an event."""
        ...

    def rejected(self, plugin: str, profile: str, change: int) -> None:
        """One pod more (+1) or less (−1) is not scheduled because of a plugin."""
        ...

    def hints_evaluated(
        self, plugin: str, event: str, result: str, times: int, seconds: float
    ) -> None:
        """Count calls of a plugin's hint function for a change: their number, and their total time.

        `result` is Queue, QueueSkip or Error.
        """
        ...

    def hint_failed(
        self, plugin: str, pod: PodInfo, change: ClusterChange, failure: Exception
    ) -> None:
        """A hint function raised; that counts as Queue."""
        ...
