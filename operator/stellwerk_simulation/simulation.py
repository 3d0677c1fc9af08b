"""One run: pods arrive, each is decided as the operator decides, and leaves when its time is over.

Runs call it, in processes of their own. Invariant: every decision is `world.decide` and
`world.apply` on the World's own queue; what is recorded is read from the snapshot afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf
from typing import Final

from typing_extensions import override

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.clock import VirtualClock
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.models.pod import PodInfo
from stellwerk.models.profile import LoadedProfile
from stellwerk.plugins.gpu.fragmentation import TypicalPod, TypicalPods
from stellwerk.world.decide import apply, decide
from stellwerk_simulation.arrivals import Arrivals
from stellwerk_simulation.budgets import Budgets
from stellwerk_simulation.cluster import ActivePods, PodMaker, make_world
from stellwerk_simulation.instant_cluster import InstantCluster, Pods
from stellwerk_simulation.run_metrics import RunMetrics, RunResult
from stellwerk_simulation.trace import TracePod
from stellwerk_simulation.virtual_time import VirtualTime


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """What a run does with time, and with pods that no node takes; the same for all of a trial."""

    timed: bool = False
    """Pods arrive and leave by the times of the trace; otherwise one by one, and stay."""
    queues: bool = False
    """A pod that no node takes waits in the queue; otherwise it is dropped for good."""
    plan_seconds: float = 0.0
    """Of virtual time, until a plan that was asked for is there."""


_SECONDS_APART: Final = 1.0
"""Pods without times of their own arrive one after the other."""


class Simulation(Pods):
    """A cluster of a trace under one profile, to which pods arrive."""

    def __init__(
        self,
        arrivals: Arrivals,
        profile: LoadedProfile,
        typical: Sequence[TypicalPod],
        seed: int,
        run_options: SimulationOptions | None = None,
    ) -> None:
        self._options = run_options or SimulationOptions()
        active, self._clock = ActivePods(), VirtualClock()
        self._world = make_world(
            arrivals.nodes,
            profile,
            seed,
            active,
            arrivals.cluster_objects,
            self._clock,
            self._options.plan_seconds,
        )
        self._cluster = InstantCluster(self._world, self)
        self._time = VirtualTime(
            self._world, self._clock, active, self._schedule_one, self._cluster
        )
        self._budgets = Budgets(self._world, arrivals.cluster_objects.source)
        self._pods = PodMaker(profile.scheduler_name, self._world.priority_classes.resolve)
        self._arrived: dict[str, TracePod] = {}
        """By uid; those that are waiting or running."""
        self._bound: dict[str, str] = {}
        """The node of each running pod, by uid."""
        self._metrics = RunMetrics(
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
        while (next_end := self._time.next_event()) < inf:
            self._time.pass_until(next_end)
            self._time.run()
        return self._metrics.result(self._clock.monotonic())

    def arrive(self, pod: TracePod) -> str:
        """Schedule one pod; returns the node that it runs on from now on; empty: none took it.

        Raises:
            PluginFailure: a plugin raised.
        """
        (uid,) = self._arrive([pod])
        return self._bound.get(uid, "")

    def _by_moment(self, pods: Sequence[TracePod]) -> Sequence[Sequence[TracePod]]:
        """The pods that come together, in the order in which they come."""
        if not self._options.timed:
            return [[pod] for pod in pods]
        ordered = sorted(pods, key=_arrives_seconds)
        return [list(group) for _, group in groupby(ordered, _arrives_seconds)]

    def _arrive(self, pods: Sequence[TracePod]) -> list[str]:
        """Schedule pods that come at the same time; returns their uids."""
        now = self._clock.monotonic()
        self._time.pass_until(
            pods[0].arrives_seconds if self._options.timed else now + _SECONDS_APART
        )
        now = self._clock.monotonic()
        uids = []
        for pod in pods:
            made = self._pods.pod(pod)
            uids.append(made.uid)
            self._arrived[made.uid] = pod
            self._metrics.arrived(pod, now)
            self._budgets.arrived(made)
            self._world.queue.add(made, now)
        self._time.run()
        for _ in pods:
            self._metrics.note_load()
        return uids

    async def _schedule_one(self, queued: QueuedPod) -> None:
        world, pod = self._world, queued.pod
        profile = world.profiles.of(pod)
        if profile is None:
            raise LookupError(f"no profile of the simulation serves {pod.key}")
        world.cache.update_snapshot()
        self._cluster.carry_out(pod, apply(world, queued, decide(world, pod, profile)))

    # --- what becomes of pods ---------------------------------------------------------------------

    @override
    def bind(self, assumed: PodInfo) -> None:
        """The binding is confirmed, and the kubelet has started the pod."""
        world, now = self._world, self._clock.monotonic()
        bound = assumed.with_node(assumed.node_name)
        # As kubelets write it: whole seconds.
        bound.start_time = world.clock.now().isoformat(timespec="seconds")
        world.cache.set_pod(bound)
        world.queue.delete(bound.uid)
        world.cache.update_snapshot()
        arrived = self._arrived[bound.uid]
        self._bound[bound.uid] = bound.node_name
        self._budgets.bound(bound)
        self._metrics.bound(arrived, bound.amounts.requests, bound.node_name, now)
        if self._options.timed and arrived.runs_seconds is not None:
            self._time.call_at(now + arrived.runs_seconds, bound.uid, self._end)
        if world.queue.entries:
            self._changed(Action.ADD, bound)

    @override
    def delete(self, victim: PodInfo) -> None:
        self._end(victim.uid)

    def _end(self, uid: str) -> None:
        """A pod leaves its node, if it is on one."""
        world = self._world
        removed = world.cache.remove_pod(uid)
        if removed is None:
            return
        world.cache.update_snapshot()
        arrived = self._arrived.pop(uid)
        self._budgets.gone(removed)
        node_name, now = self._bound.pop(uid), self._clock.monotonic()
        self._metrics.left(arrived, removed.amounts.requests, node_name, now)
        self._changed(Action.DELETE, removed)

    @override
    def nominate(self, pod: PodInfo, node_name: str) -> None:
        shown = pod.with_node("")
        shown.nominated_node_name = node_name
        self._world.queue.update(shown, self._clock.monotonic())
        self._nomination_changed(pod)

    @override
    def preempt(self, victims: Sequence[PodInfo]) -> None:
        self._metrics.preempted(len(victims))

    @override
    def refuse(self, uid: str) -> None:
        """Give up a pod that no node takes, where none waits in the queue."""
        pending = None if self._options.queues else self._world.queue.delete(uid)
        if pending is not None:
            self._budgets.gone(pending)
            del self._arrived[uid]
            self._nomination_changed(pending)

    def _nomination_changed(self, before: PodInfo) -> None:
        """Pods that a lower or equal nomination stood in the way of may fit now."""
        if before.nominated_node_name:
            self._changed(Action.DELETE, before, before.priority)

    def _changed(self, action: Action, pod: PodInfo, max_priority: int | None = None) -> None:
        """Requeue the pods that it may help that a pod has come to a node, or has left it."""
        old, new = (None, pod) if action is Action.ADD else (pod, None)
        self._world.queue.move_all_to_active_or_backoff(
            ClusterChange(Resource.ASSIGNED_POD, action, old, new),
            self._clock.monotonic(),
            max_priority=max_priority,
        )


def _arrives_seconds(pod: TracePod) -> float:
    return pod.arrives_seconds
