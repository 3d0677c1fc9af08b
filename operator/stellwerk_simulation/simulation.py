"""One run: pods arrive, each is decided as the operator decides, and leaves when its time is over.

Runs call it, in processes of their own. Invariant: every decision is `world.decide` and
`world.apply` on the World's own queue; what is recorded is read from the snapshot afterwards.
"""

import heapq
import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from typing_extensions import override

from stellwerk.backend.queued_pod import BACKOFF_Q, Place
from stellwerk.clock import VirtualClock
from stellwerk.models.pod import PodInfo
from stellwerk.models.profile import LoadedProfile
from stellwerk.plugins.gpu.fragmentation import TypicalPod, TypicalPods
from stellwerk_simulation.account import Account, RunResult
from stellwerk_simulation.arrivals import Arrivals
from stellwerk_simulation.budgets import Budgets
from stellwerk_simulation.cluster import ActivePods, PodMaker, make_world
from stellwerk_simulation.conduct import Conduct
from stellwerk_simulation.trace import TracePod
from stellwerk_simulation.turns import Cluster, Turns

_SECONDS_APART: Final = 1.0
"""Pods without times of their own arrive one after the other."""
BACKOFF_FLUSH_SECONDS: Final = 1.0
UNSCHEDULABLE_FLUSH_SECONDS: Final = 30.0
_MOST_FLUSHES: Final = 1000
"""A pod that is tried so often while nothing happens waits until something does."""


class Simulation(Cluster):
    """A cluster of a trace under one profile, to which pods arrive."""

    def __init__(
        self,
        arrivals: Arrivals,
        profile: LoadedProfile,
        typical: Sequence[TypicalPod],
        seed: int,
        conduct: Conduct | None = None,
    ) -> None:
        self._conduct = conduct or Conduct()
        active, self._clock = ActivePods(), VirtualClock()
        self._world = make_world(
            arrivals.nodes,
            profile,
            seed,
            active,
            arrivals.surroundings,
            self._clock,
            self._conduct.plan_seconds,
        )
        self._turns = Turns(self._world, active, self, drops=not self._conduct.queues)
        self._budgets = Budgets(self._world, arrivals.surroundings.source)
        self._pods = PodMaker(profile.scheduler_name, self._world.priority_classes.resolve)
        self._arrived: dict[str, TracePod] = {}
        """By uid; those that are waiting or running."""
        self._bound: dict[str, str] = {}
        """The node of each running pod, by uid."""
        self._leaving: list[tuple[float, str]] = []
        self._flush_after = 0.0
        """No pod has been unschedulable for long enough to be tried again before this time."""
        self._account = Account(
            arrivals.nodes, self._world.cache, TypicalPods(typical), profile.name, seed
        )

    def run(self, pods: Sequence[TracePod], tick: Callable[[int], None]) -> RunResult:
        """Let these pods arrive; `tick` is called with their number now and then.

        Raises:
            PluginFailure: a plugin raised.
        """
        arrived = 0
        for at_once in self._by_moment(pods):
            self._arrive(at_once)
            before, arrived = arrived, arrived + len(at_once)
            if arrived // 100 > before // 100 or arrived == len(pods):
                tick(arrived)
        while self._leaving:
            self._pass_until(self._leaving[0][0])
            self._turns.run()
        return self._account.result(self._clock.monotonic())

    def arrive(self, pod: TracePod) -> str:
        """Schedule one pod; returns the node that it runs on from now on; empty: none took it.

        Raises:
            PluginFailure: a plugin raised.
        """
        (uid,) = self._arrive([pod])
        return self._bound.get(uid, "")

    def _by_moment(self, pods: Sequence[TracePod]) -> Sequence[Sequence[TracePod]]:
        """The pods that come together, in the order in which they come."""
        if not self._conduct.timed:
            return [[pod] for pod in pods]
        ordered = sorted(pods, key=_arrives_seconds)
        return [list(group) for _, group in groupby(ordered, _arrives_seconds)]

    def _arrive(self, pods: Sequence[TracePod]) -> list[str]:
        """Schedule pods that come at the same time; returns their uids."""
        now = self._clock.monotonic()
        self._pass_until(pods[0].arrives_seconds if self._conduct.timed else now + _SECONDS_APART)
        now = self._clock.monotonic()
        uids = []
        for pod in pods:
            made = self._pods.pod(pod)
            uids.append(made.uid)
            self._arrived[made.uid] = pod
            self._account.arrived(pod, now)
            self._budgets.arrived(made)
            self._world.queue.add(made, now)
        self._turns.run()
        for _ in pods:
            self._account.note_load()
        return uids

    # --- time passes ------------------------------------------------------------------------------

    def _pass_until(self, at_seconds: float) -> None:
        """Let pods leave when their time is over, and waiting ones be tried as the queue says.

        What that means at the last moment is left to be decided.
        """
        flushes = 0
        while True:
            due = min(at_seconds, self._leaving[0][0] if self._leaving else at_seconds)
            if flushes < _MOST_FLUSHES:
                flush = self._next_flush()
                flushes += flush <= due
                due = min(due, flush)
            self._clock.advance(max(0.0, due - self._clock.monotonic()))
            while self._leaving and self._leaving[0][0] <= due:
                self._turns.remove(heapq.heappop(self._leaving)[1])
                flushes = 0
            self._flush(due)
            if due >= at_seconds:
                return
            self._turns.run()

    def _next_flush(self) -> float:
        """When the queue's timers have something to do."""
        queue, now = self._world.queue, self._clock.monotonic()
        if queue.counted(*BACKOFF_Q):
            return _following(now, BACKOFF_FLUSH_SECONDS)
        if not queue.counted(Place.UNSCHEDULABLE):
            return math.inf
        return _following(max(now, self._flush_after), UNSCHEDULABLE_FLUSH_SECONDS)

    def _flush(self, now: float) -> None:
        """What the operator's timers do at whole seconds, and at every thirtieth."""
        queue = self._world.queue
        if not queue.entries:
            return
        if now % BACKOFF_FLUSH_SECONDS == 0:
            queue.flush_backoff(now)
        if now % UNSCHEDULABLE_FLUSH_SECONDS == 0 and now > self._flush_after:
            queue.flush_unschedulable(now)
            waiting = queue.entries.values()
            since = [each.queued_at for each in waiting if each.place is Place.UNSCHEDULABLE]
            self._flush_after = min(since, default=now) + queue.max_unschedulable_seconds

    # --- what becomes of pods ---------------------------------------------------------------------

    @override
    def on_bound(self, pod: PodInfo) -> None:
        arrived, now = self._arrived[pod.uid], self._clock.monotonic()
        self._bound[pod.uid] = pod.node_name
        self._budgets.bound(pod)
        self._account.bound(arrived, pod.amounts.requests, pod.node_name, now)
        if self._conduct.timed and arrived.runs_seconds is not None:
            heapq.heappush(self._leaving, (now + arrived.runs_seconds, pod.uid))

    @override
    def on_gone(self, pod: PodInfo) -> None:
        arrived = self._arrived.pop(pod.uid)
        self._budgets.gone(pod)
        node_name, now = self._bound.pop(pod.uid), self._clock.monotonic()
        self._account.left(arrived, pod.amounts.requests, node_name, now)

    @override
    def on_preempted(self, victims: Sequence[PodInfo]) -> None:
        self._account.preempted(len(victims))

    @override
    def on_dropped(self, pod: PodInfo) -> None:
        self._budgets.gone(pod)
        del self._arrived[pod.uid]


def _arrives_seconds(pod: TracePod) -> float:
    return pod.arrives_seconds


def _following(seconds: float, period_seconds: float) -> float:
    """The first multiple of a period after a time."""
    return (math.floor(seconds / period_seconds) + 1) * period_seconds
