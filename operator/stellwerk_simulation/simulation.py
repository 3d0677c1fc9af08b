"""One run: pods arrive one after the other, each is decided as the operator decides, or dropped.

Runs call it, in processes of their own. Invariant: every decision is `world.decide` and
`world.apply` on the World's own queue; what is recorded is read from the snapshot afterwards.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from stellwerk.clock import VirtualClock
from stellwerk.models.profile import LoadedProfile
from stellwerk.plugins.gpu.fragmentation import TypicalPod, TypicalPods
from stellwerk.world.decide import decide
from stellwerk.world.effects import apply
from stellwerk_simulation.arrivals import Arrivals, gpu_capacity
from stellwerk_simulation.cluster import ActivePods, PodMaker, make_world
from stellwerk_simulation.fragmentation_record import FragmentationRecord
from stellwerk_simulation.trace import TracePod

_SECONDS_APART: Final = 1.0
"""Pods without times of their own arrive one after the other."""


class Event(NamedTuple):
    """The cluster after one arrival; amounts in thousandths of a device."""

    arrived: int
    """What all pods so far asked for, this one and dropped ones included."""
    used: int
    fragmented: float
    """Of what is idle, rounded to two decimals."""
    ratio_pct: float
    """The fragmented share of what is idle, in percent, rounded to two decimals."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run."""

    profile: str
    seed: int
    capacity: int
    """Thousandths of all devices."""
    events: Sequence[Event]
    placed: int
    """Pods; the rest of the arrivals was dropped."""
    nodes_in_use: int


class Simulation:
    """A cluster of a trace under one profile, to which pods arrive."""

    def __init__(
        self,
        arrivals: Arrivals,
        profile: LoadedProfile,
        typical: Sequence[TypicalPod],
        seed: int,
        plan_seconds: float = 0.0,
    ) -> None:
        self._profile, self._seed = profile, seed
        self._capacity = gpu_capacity(arrivals.nodes)
        self._active = ActivePods()
        self._clock = VirtualClock()
        self._world = make_world(
            arrivals.nodes, profile, seed, self._active, self._clock, plan_seconds
        )
        self._pods = PodMaker(profile.scheduler_name)
        self._record = FragmentationRecord(self._world.cache.snapshot, TypicalPods(typical))
        self._world.cache.update_snapshot()
        self._record.begin()
        self._arrived = self._used = self._placed = 0
        self._used_nodes: set[str] = set()

    def run(self, pods: Sequence[TracePod], tick: Callable[[int], None]) -> RunResult:
        """Let these pods arrive; `tick` is called with their number now and then.

        Raises:
            PluginFailure: a plugin raised.
        """
        loads: list[tuple[int, int, int]] = []
        for number, pod in enumerate(pods, start=1):
            node_name = self.arrive(pod)
            if node_name:
                self._world.cache.update_snapshot()
                self._record.note(node_name)
            loads.append((self._arrived, self._used, self._placed))
            if number % 100 == 0 or number == len(pods):
                tick(number)
        fragmented = list(self._record.totals())
        return RunResult(
            self._profile.name,
            self._seed,
            self._capacity,
            [self._event(arrived, used, fragmented[placed]) for arrived, used, placed in loads],
            self._placed,
            len(self._used_nodes),
        )

    def arrive(self, pod: TracePod) -> str:
        """Schedule one pod, or drop it for good; returns the node that it runs on from now on.

        Raises:
            PluginFailure: a plugin raised.
        """
        self._clock.advance(_SECONDS_APART)
        self._arrived += pod.total_milli
        node_name = self._schedule(pod)
        if node_name:
            self._used += pod.total_milli
            self._placed += 1
            self._used_nodes.add(node_name)
        return node_name

    def _schedule(self, pod: TracePod) -> str:
        """The node that the pod is bound to; empty: none takes it."""
        world = self._world
        made = self._pods.pod(pod)
        world.queue.add(made, world.clock.monotonic())
        queued = world.queue.pop(self._active.items.pop())
        profile = world.profiles.of(made)
        if queued is None or profile is None:
            raise LookupError(f"{made.key} is not in the queue of the simulation")
        world.cache.update_snapshot()
        bound = apply(world, queued, decide(world, queued.pod, profile)).bind
        world.queue.delete(made.uid)
        if bound is None:
            return ""
        # The binding is confirmed at once, as a watch would do.
        world.cache.set_pod(bound)
        return bound.node_name

    def _event(self, arrived: int, used: int, fragmented: float) -> Event:
        idle = self._capacity - used
        ratio = 100 * fragmented / idle if idle else 0.0
        return Event(arrived, used, round(fragmented, 2), round(ratio, 2))
