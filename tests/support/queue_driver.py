"""A scheduling queue driven as the scheduler does it, over virtual time and without an event loop.

Tests of the queue, its properties and its cost use it. Invariant: activeQ is a plain heap that only
`push` fills and only `pop` empties, as the PriorityQueue of the scheduling coroutine is.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from typing_extensions import override

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.backend.queueing_policy import QueueingPolicy, QueueObserver
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.framework.types import OK, Status, unschedulable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from stellwerk.backend.queued_pod import ActiveItem, Place, QueuedPod
    from stellwerk.framework.events import ClusterChange, ClusterEventWithHint
    from stellwerk.models.pod import PodInfo


@dataclass
class Policy(QueueingPolicy):
    """One set of rules for every profile, open to the test's changes."""

    registered: Mapping[str, Sequence[ClusterEventWithHint]] = field(default_factory=dict)
    backoffs: Backoff = field(default_factory=Backoff)
    gates: dict[str, str] = field(default_factory=dict)
    """uid → the plugin that gates the pod."""
    profiles: dict[str, str] = field(default_factory=dict)
    """uid → the profile of a pod that is not of the one that it names."""
    due: dict[str, float] = field(default_factory=dict)
    """uid → the time at which the rejection of a pod ends by itself."""
    reversed_sort: bool = False
    ran_first: list[str] = field(default_factory=list)

    @override
    def profile_name(self, pod: PodInfo) -> str:
        return self.profiles.get(pod.uid, pod.spec.scheduler_name)

    @override
    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        return (pod.priority if self.reversed_sort else -pod.priority, queued_at_seconds)

    @override
    def pre_enqueue(self, pod: PodInfo, first_plugin: str) -> Status:
        self.ran_first.append(first_plugin)
        gate = self.gates.get(pod.uid)
        return unschedulable(gate, "gated") if gate else OK

    @override
    def hints(self, profile_name: str) -> Mapping[str, Sequence[ClusterEventWithHint]]:
        assert profile_name
        return self.registered

    @override
    def rejection_ends_at(
        self, profile_name: str, rejected_by: AbstractSet[str], pod: PodInfo
    ) -> float:
        assert profile_name
        return self.due.get(pod.uid, math.inf) if rejected_by else math.inf

    @override
    def backoff(self, pod: PodInfo) -> Backoff:
        assert pod.spec.scheduler_name
        return self.backoffs

    @override
    def places_groups(self, profile_name: str) -> bool:
        return True


@dataclass
class Observed(QueueObserver):
    """What the queue reported."""

    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    rejected_pods: Counter[tuple[str, str]] = field(default_factory=Counter)
    hints: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    failures: list[tuple[str, str, Exception]] = field(default_factory=list)

    @override
    def incoming(self, queue: str, event: str) -> None:
        self.moves[queue, event] += 1

    @override
    def rejected(self, plugin: str, profile: str, change: int) -> None:
        self.rejected_pods[plugin, profile] += change

    @override
    def hints_evaluated(
        self, plugin: str, event: str, result: str, times: int, seconds: float
    ) -> None:
        assert seconds >= 0
        self.hints[plugin, event, result] += times

    @override
    def hint_failed(
        self, plugin: str, pod: PodInfo, change: ClusterChange, failure: Exception
    ) -> None:
        assert pod.uid
        self.failures.append((plugin, change.name, failure))


class QueueDriver:
    """The queue, its activeQ and a clock that stands until it is moved."""

    def __init__(self, policy: Policy | None = None, *, now: float = 1000.0) -> None:
        self.policy = policy or Policy()
        self.observed = Observed()
        self.active: list[ActiveItem] = []
        self.wakes = 0
        self.now = now
        self.queue = SchedulingQueue(
            self._push, self.policy, observer=self.observed, wake=self._wake
        )

    def _push(self, item: ActiveItem) -> None:
        heappush(self.active, item)

    def _wake(self) -> None:
        self.wakes += 1

    def add(self, *pods: PodInfo) -> None:
        for pod in pods:
            self.queue.add(pod, self.now)

    def pop(self) -> QueuedPod | None:
        """The next pod, as the scheduling coroutine pops it; None: there is none."""
        while self.active:
            popped = self.queue.pop(heappop(self.active))
            if popped is not None:
                return popped
        return self.queue.pop_from_backoff()

    def pop_named(self, name: str) -> QueuedPod:
        """The next pod, which must be this one."""
        entry = self.pop()
        assert entry is not None
        assert entry.pod.name == name
        return entry

    def fail(
        self, entry: QueuedPod, *unschedulable_plugins: str, pending: Sequence[str] = ()
    ) -> Place | None:
        """Give a pod back: rejected by these plugins, or, without any, after an error."""
        return self.queue.add_unschedulable_if_not_present(
            entry, unschedulable_plugins, pending, now=self.now
        )

    def reject(self, pod: PodInfo, *unschedulable_plugins: str) -> QueuedPod:
        """Add a pod to an idle queue and let it be rejected."""
        self.add(pod)
        entry = self.pop_named(pod.name)
        self.fail(entry, *unschedulable_plugins)
        return entry

    def change(self, change: ClusterChange) -> int:
        return self.queue.move_all_to_active_or_backoff(change, self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass, with the timers ticking as the scheduler's do."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now // 1 + 1)
            self.queue.flush_backoff(self.now)
            if self.now % 30 == 0:
                self.queue.flush_unschedulable(self.now)

    def drain(self) -> list[str]:
        """Pop everything that can be popped, in order."""
        names = []
        while (entry := self.pop()) is not None:
            names.append(entry.pod.name)
        return names
