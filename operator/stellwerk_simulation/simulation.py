"""One run: pods arrive, each is decided as the operator decides, and leaves when its time is over.

Runs call it, in processes of their own. Invariant: every decision is `world.decide` and
`world.apply` on the World's own queue; what is recorded is read from the snapshot afterwards.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Final

from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.clock import VirtualClock
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.models.pod import PodInfo
from stellwerk.models.profile import LoadedProfile
from stellwerk.plugins.gpu.fragmentation import TypicalPod, TypicalPods
from stellwerk.world.decide import decide
from stellwerk.world.effects import Eviction, apply
from stellwerk_simulation.account import Account, RunResult
from stellwerk_simulation.arrivals import Arrivals
from stellwerk_simulation.cluster import ActivePods, PodMaker, make_world
from stellwerk_simulation.conduct import Conduct
from stellwerk_simulation.trace import TracePod

_SECONDS_APART: Final = 1.0
"""Pods without times of their own arrive one after the other."""
_BACKOFF_FLUSH_SECONDS: Final = 1.0
_MOST_FLUSHES: Final = 1000
"""A pod that is tried so often while nothing happens waits until something does."""


class Simulation:
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
        self._active, self._clock = ActivePods(), VirtualClock()
        self._world = make_world(
            arrivals.nodes, profile, seed, self._active, self._clock, self._conduct.plan_seconds
        )
        self._pods = PodMaker(profile.scheduler_name)
        self._arrived: dict[str, TracePod] = {}
        """By uid; those that are waiting or running."""
        self._bound: dict[str, str] = {}
        """The node of each running pod, by uid."""
        self._leaving: list[tuple[float, str]] = []
        self._account = Account(
            arrivals.nodes, self._world.cache, TypicalPods(typical), profile.name, seed
        )

    def run(self, pods: Sequence[TracePod], tick: Callable[[int], None]) -> RunResult:
        """Let these pods arrive; `tick` is called with their number now and then.

        Raises:
            PluginFailure: a plugin raised.
        """
        if self._conduct.timed:
            pods = sorted(pods, key=lambda pod: pod.arrives_seconds)
        for number, pod in enumerate(pods, start=1):
            self.arrive(pod)
            if number % 100 == 0 or number == len(pods):
                tick(number)
        while self._leaving:
            self._pass_until(self._leaving[0][0])
        return self._account.result(self._clock.monotonic())

    def arrive(self, pod: TracePod) -> str:
        """Schedule one pod; returns the node that it runs on from now on; empty: none took it.

        Raises:
            PluginFailure: a plugin raised.
        """
        now = self._clock.monotonic()
        self._pass_until(pod.arrives_seconds if self._conduct.timed else now + _SECONDS_APART)
        made = self._pods.pod(pod)
        self._arrived[made.uid] = pod
        self._account.arrived(pod, self._clock.monotonic())
        self._world.queue.add(made, self._clock.monotonic())
        self._drain()
        self._account.note_load()
        return self._bound.get(made.uid, "")

    # --- time passes ------------------------------------------------------------------------------

    def _pass_until(self, at_seconds: float) -> None:
        """Pods leave when their time is over; those that wait are tried as the queue says."""
        flushes = 0
        while True:
            now = self._clock.monotonic()
            due = min(at_seconds, self._leaving[0][0] if self._leaving else at_seconds)
            if self._backs_off() and flushes < _MOST_FLUSHES:
                due = min(due, now + _BACKOFF_FLUSH_SECONDS)
                flushes += 1
            self._clock.advance(max(0.0, due - now))
            if self._conduct.queues:
                self._world.queue.flush_backoff(self._clock.monotonic())
                self._drain()
            while self._leaving and self._leaving[0][0] <= due:
                self._leave(heapq.heappop(self._leaving)[1])
                self._drain()
                flushes = 0
            if due >= at_seconds:
                return

    def _backs_off(self) -> bool:
        places = (Place.BACKOFF, Place.ERROR_BACKOFF)
        return self._conduct.queues and any(
            entry.place in places for entry in self._world.queue.entries.values()
        )

    def _leave(self, uid: str) -> None:
        """A pod has finished, or was evicted."""
        pod, node_name = self._arrived.pop(uid, None), self._bound.pop(uid, "")
        removed = self._world.cache.remove_pod(uid)
        if pod is None or removed is None:
            return
        self._world.cache.update_snapshot()
        self._account.left(pod, node_name, self._clock.monotonic())
        change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, removed, None)
        self._world.queue.move_all_to_active_or_backoff(change, self._clock.monotonic())
        self._work_off()

    # --- decisions --------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Decide for whatever is in activeQ."""
        self._work_off()
        while (item := self._active.next()) is not None:
            queued = self._world.queue.pop(item)
            if queued is not None:
                self._schedule(queued)

    def _work_off(self) -> None:
        backlog = self._world.queue.backlog
        while backlog:
            backlog.work_off()

    def _schedule(self, queued: QueuedPod) -> None:
        world, uid = self._world, queued.pod.uid
        profile = world.profiles.of(queued.pod)
        if profile is None:
            raise LookupError(f"no profile of the simulation serves {queued.pod.key}")
        world.cache.update_snapshot()
        effects = apply(world, queued, decide(world, queued.pod, profile))
        if effects.bind is not None:
            world.queue.delete(uid)
            self._bind(effects.bind)
        elif effects.evict is not None:
            self._evict(effects.evict)
        elif not self._conduct.queues:
            world.queue.delete(uid)
            del self._arrived[uid]

    def _bind(self, bound: PodInfo) -> None:
        """The binding is confirmed at once, as a watch would do."""
        self._world.cache.set_pod(bound)
        self._world.cache.update_snapshot()
        pod, now = self._arrived[bound.uid], self._clock.monotonic()
        self._bound[bound.uid] = bound.node_name
        self._account.bound(pod, bound.node_name, now)
        if self._conduct.timed and pod.runs_seconds is not None:
            heapq.heappush(self._leaving, (now + pod.runs_seconds, bound.uid))

    def _evict(self, eviction: Eviction) -> None:
        """Victims are gone at once, for good; the pod that they make room for is tried again."""
        self._account.preempted(len(eviction.victims))
        self._world.preempting.discard(eviction.preemptor.uid)
        for victim in eviction.victims:
            self._leave(victim.uid)
        self._world.queue.activate([eviction.preemptor], self._clock.monotonic())
