"""Drives what observes: decides on pods that wait for another scheduler, compares its bindings.

The scheduler runs it beside the scheduling loop, in slices that leave other work as much time.
Decisions are made on the live World, between those of the scheduling loop, and dropped: this is the
one place where observed pods are decided, and it has nothing to write with. Invariant: a popped pod
is back in its place in the queue before anything is awaited, unless devices are searched for it.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, Protocol

from stellwerk.answers.observed import ObservedComparison, ObservedProfile, ObservedShadow
from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.framework.handle import RandomNumbers
from stellwerk.framework.types import CycleState
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo
from stellwerk.observing.comparison import BindingComparison, decide_thoroughly
from stellwerk.observing.tally import Tally
from stellwerk.observing.trailing import (
    AROUND_SECONDS,
    FAILED,
    TOO_MANY,
    Binding,
    Compared,
    Reading,
    Trail,
    TrailingWorld,
)
from stellwerk.profiles.loader import ProfileLoader
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.observers.decision_log import log_decision
from stellwerk.scheduler.scheduler import MAX_ROWS_PER_STEP, ActiveQueue
from stellwerk.scheduler.time_slice import (
    FILTER_SLICE_SECONDS,
    TIME_SLICE_SECONDS,
    in_slices,
)
from stellwerk.world.decide import Decision, Failure
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

logger = logging.getLogger(__name__)

MAX_WAIT_SECONDS: Final = 1.0
"""A pod that has waited longer for its decision is left without one: the observer is behind, and
explanations decide by themselves."""
BUSY_PAUSE_SECONDS: Final = 0.002
"""Pause while the scheduling loop is in the middle of a decision, and has the snapshot."""
MAX_OBSERVER_PAUSE_SECONDS: Final = 1.0
"""Longest pause before the next change is looked at."""


class SchedulingLoop(Protocol):
    """The scheduling loop, whose decisions and the observer's are made one after the other."""

    @property
    def is_busy(self) -> bool:
        """Whether a decision is under way, and has the snapshot."""
        ...

    async def ready(self) -> None:
        """Wait until the World is ready to be decided on."""
        ...


class _Slices:
    """Pauses for as long as work has taken: half of the time is left to others."""

    def __init__(self) -> None:
        self._taken_seconds = 0.0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Count the CPU time of the block, in which nothing is awaited."""
        began_seconds = time.thread_time()
        try:
            yield
        finally:
            self._taken_seconds += time.thread_time() - began_seconds

    async def pass_on(self) -> None:
        """Pause if the slice is used up."""
        if self._taken_seconds >= TIME_SLICE_SECONDS:
            pause_seconds, self._taken_seconds = self._taken_seconds, 0.0
            await asyncio.sleep(pause_seconds)


class Observer:
    """Decides on the pods of profiles that observe, and compares what becomes of them."""

    def __init__(
        self,
        world: World,
        active: ActiveQueue,
        handlers: EventHandlers,
        loader: ProfileLoader,
        metrics: Metrics,
        reading: Reading,
        numbers: Callable[[], RandomNumbers],
        loop: SchedulingLoop,
    ) -> None:
        """Prepare to observe.

        Args:
            world: the live World.
            active: the activeQ of observed pods.
            handlers: tell the trail of what happens in the cluster.
            loader: has the shadows of observed profiles.
            metrics: count what is observed, in families of their own.
            reading: what limits foreign plugins and reads numbers for plugins.
            numbers: makes a generator that breaks ties of the trailing copy.
            loop: the scheduling loop.
        """
        self._world = world
        self._active = active
        self._handlers = handlers
        self._loader = loader
        self._metrics = metrics
        self._reading = reading
        self._numbers = numbers
        self._loop = loop
        self._tallies: dict[str, Tally] = {}
        """By schedulerName."""
        self.deciding = ""
        """The uid of the pod whose devices are searched for in slices; empty: none."""
        self._comparing = ""
        """The uid of the pod whose binding is being compared; empty: none."""
        self._runs = False
        self._changed = asyncio.Event()
        """Set when the trail has a change."""
        self._failed: set[str] = set()
        """Profiles of which a failure was logged with its traceback."""
        world.profiles.on_observing = self._follow
        queue = world.queue
        places = [place for place in Place if place is not Place.ABSENT]
        metrics.observed_pending_pods.labels().set_function(lambda: queue.observed(*places))
        metrics.observed_changes.labels().set_function(self._changes_waiting)

    async def run(self) -> None:
        """Observe until cancelled."""
        self._runs = True
        self._follow()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._decide_waiting(), name="observed pods")
                tasks.create_task(self._compare_bindings(), name="observed bindings")
        finally:
            self._runs, self._handlers.trail = False, None

    def _changes_waiting(self) -> float:
        trail = self._handlers.trail
        return 0.0 if trail is None else float(len(trail.changes))

    def _follow(self) -> None:
        """Observe for the profiles that observe now; a new version begins with new counts."""
        observing = {
            name: served for name, served in self._world.profiles.served.items() if served.observes
        }
        for name in self._tallies.keys() - observing.keys():
            del self._tallies[name]
        for name, served in observing.items():
            tally = self._tallies.get(name)
            if tally is None or tally.loaded.spec != served.loaded.spec:
                self._tallies[name] = Tally(served.loaded, self._world.clock.now())
        if not observing:
            self._handlers.trail = None
        elif self._runs and self._handlers.trail is None:
            trail = Trail(self._world, self._numbers, self._reading)
            trail.is_relisting = lambda: self._handlers.barrier.is_applying
            trail.on_change = self._changed.set
            trail.on_dropped = lambda binding: self._put(binding, None, TOO_MANY)
            self._handlers.trail = trail

    # --- pods that wait -------------------------------------------------------------------------

    async def _decide_waiting(self) -> None:
        """Decide on one observed pod after the other, between the scheduling loop's decisions."""
        slices = _Slices()
        while True:
            await self._active.filled()
            if self._loop.is_busy:
                await asyncio.sleep(BUSY_PAUSE_SECONDS)
            await self._loop.ready()
            if self._loop.is_busy or self._active.empty():
                continue
            with slices.working():
                queued = self._world.queue.pop(self._active.get_nowait())
                work = None if queued is None else self._decide(queued)
            if queued is not None and work is not None:
                # Devices are searched in slices; all other decisions are finished by now.
                await self._finish(queued, work)
            await slices.pass_on()

    def _decide(self, queued: QueuedPod) -> Iterator[None] | None:
        """Decide on a pod and put it back where it belongs.

        Returns the work that is left before it can be decided, if its filters need more than a
        slice of time; None: it is done.
        """
        world, pod, now = self._world, queued.pod, self._world.clock.monotonic()
        profile = world.profiles.of(pod)
        if profile is None:
            self._loader.without_profile.take_out(pod)
            return None
        if not profile.observes:
            world.queue.hand_over(queued, now)
            return None
        since = queued.active_since
        is_late = since is not None and now - since > MAX_WAIT_SECONDS
        if pod.terminating or is_late:
            if not pod.terminating:
                self._count_decision(profile, "skipped")
            world.queue.observe(queued, now)
            return None
        decision: Decision | Failure
        try:
            if pod.spec.too_complex:
                decision = Failure.too_complex(pod.spec)
            else:
                state = CycleState()
                state.slice_seconds = FILTER_SLICE_SECONDS
                world.cache.update_snapshot()
                decision = decide_thoroughly(world, pod, profile, state)
                if state.unfinished is not None:
                    return state.unfinished
        except Exception as failure:  # noqa: BLE001 one pod must not end the observer
            decision = Failure.error(str(failure))
            self._log_once(profile.scheduler_name, f"cannot decide on {pod.key}", failure)
        self._put_back(queued, profile, decision)
        return None

    async def _finish(self, queued: QueuedPod, work: Iterator[None]) -> None:
        """Do what is left of a costly search in slices, and leave the decision to explanations.

        What was found stays with the plugin, so that the next decision on it is cheap.
        """
        profile = self._world.profiles.of(queued.pod)
        self.deciding = queued.pod.uid
        try:
            await in_slices(work, self._world.clock.monotonic)
        except Exception as failure:  # noqa: BLE001 one pod must not end the observer
            self._log_once(queued.profile_name, f"cannot decide on {queued.pod.key}", failure)
        finally:
            self.deciding = ""
        if profile is not None:
            self._count_decision(profile, "skipped")
        self._world.queue.observe(queued, self._world.clock.monotonic())

    def _put_back(
        self, queued: QueuedPod, profile: ServedProfile, decision: Decision | Failure
    ) -> None:
        """Count a decision and put the pod where it waits: for a change, or for its binding."""
        queue, now = self._world.queue, self._world.clock.monotonic()
        if logger.isEnabledFor(logging.DEBUG):
            log_decision(queued.pod, profile.scheduler_name, decision)
        failure = decision if isinstance(decision, Failure) else decision.failure
        if failure is not None and failure.rejected:
            self._count_decision(profile, "rejected")
            queue.add_unschedulable_if_not_present(
                queued, failure.unschedulable_plugins, failure.pending_plugins, now=now
            )
            return
        # Explanations show an error; it is not tried again and again.
        self._count_decision(profile, "node" if failure is None else "failed")
        queue.observe(queued, now)

    def _count_decision(self, profile: ServedProfile, result: str) -> None:
        self._metrics.observed_decisions.labels(profile.scheduler_name, result).inc()
        tally = self._tallies.get(profile.scheduler_name)
        if tally is not None:
            if result == "skipped":
                tally.skipped_decisions += 1
            else:
                tally.decisions += 1

    # --- bindings -------------------------------------------------------------------------------

    async def _compare_bindings(self) -> None:
        """Take what happened to the trailing copy, and compare each binding before it is taken."""
        slices, clock = _Slices(), self._world.clock
        while True:
            await self._changed.wait()
            trail = self._handlers.trail
            due_seconds = None if trail is None else trail.due_seconds
            if trail is None or due_seconds is None:
                self._changed.clear()
                continue
            early_seconds = due_seconds - clock.monotonic()
            if early_seconds > 0:
                await asyncio.sleep(min(early_seconds, MAX_OBSERVER_PAUSE_SECONDS))
                continue
            if isinstance(trail.changes[0], Binding):
                await _written_ahead(trail.copy)
            await self._take(trail, slices)

    async def _take(self, trail: Trail, slices: _Slices) -> None:
        """Take the first change, if there is one; count it if it is a binding."""
        if not trail.changes:
            return
        change = trail.changes[0]
        self._comparing = change.pod.uid if isinstance(change, Binding) else ""
        steps = trail.take(self._observing, self._show_shadows)
        try:
            while True:
                with slices.working():
                    next(steps)
                await slices.pass_on()
        except StopIteration as ended:
            found: Compared | None = ended.value
        except Exception as failure:
            if not isinstance(change, Binding):
                raise
            self._log_once(change.profile_name, f"cannot compare {change.pod.key}", failure)
            found = Compared(change, None, FAILED)
        finally:
            self._comparing = ""
        if found is not None:
            self._put(found.binding, found.comparison, found.incomparable)
        await slices.pass_on()

    def _observing(self, scheduler_name: str) -> ServedProfile | None:
        """The profile that observes a schedulerName; None: none does any more."""
        served = self._world.profiles.served.get(scheduler_name)
        return served if served is not None and served.observes else None

    def _show_shadows(
        self, copy: TrailingWorld, binding: Binding, compared: BindingComparison
    ) -> None:
        """Let shadows of the observed profile decide on the same state."""
        if not self._loader.shadows.by_name:
            return
        decision = replace(compared.decision, failure=None, node_name=binding.pod.node_name)
        late_seconds = self._world.clock.monotonic() - binding.seen_seconds - AROUND_SECONDS
        self._loader.shadows.look_at_binding(
            copy.world, copy.profile, decision.search.pod, decision, max(0.0, late_seconds)
        )

    def _put(
        self, binding: Binding, comparison: BindingComparison | None, incomparable: str
    ) -> None:
        """Count a binding in one class."""
        name = binding.profile_name
        tally = self._tallies.get(name)
        if tally is None:
            return
        result = tally.put(binding, comparison, incomparable)
        self._metrics.observed_bindings.labels(name, result).inc()
        if binding.after_seconds is not None:
            self._metrics.observed_binding_duration.labels(name).observe(binding.after_seconds)

    def _log_once(self, scheduler_name: str, act: str, failure: Exception) -> None:
        """Log a failure, the first of a profile with its traceback."""
        if scheduler_name not in self._failed:
            self._failed.add(scheduler_name)
            logger.error("%s %s", scheduler_name, act, exc_info=failure)
        else:
            logger.debug("%s %s: %s", scheduler_name, act, failure)

    # --- what was found -------------------------------------------------------------------------

    def described(self, comparisons: int) -> Iterator[ObservedProfile]:
        """Every profile that observes, with up to this number of its last comparisons."""
        waiting = Counter(
            entry.profile_name for entry in self._world.queue.entries.values() if entry.is_observed
        )
        trail = self._handlers.trail
        for name, tally in sorted(self._tallies.items()):
            pending = 0 if trail is None else trail.pending[name]
            served = self._world.profiles.served.get(name)
            release = "" if served is None else str(served.compatibility.version)
            shadows = [*self._shadows_of(tally.loaded.name)]
            yield tally.described(waiting[name], pending, comparisons, release, shadows)

    def comparison_of(self, pod: PodInfo) -> ObservedComparison | None:
        """The comparison of a bound pod; None: there is none, or it is no longer kept."""
        profile = self._world.profiles.of(pod)
        tally = None if profile is None else self._tallies.get(profile.scheduler_name)
        return None if tally is None else tally.comparison_of(pod.key, pod.node_name)

    def is_comparison_pending(self, pod: PodInfo) -> bool:
        """Whether the binding of a pod was seen and is still to be compared."""
        trail = self._handlers.trail
        return self._comparing == pod.uid or (trail is not None and trail.has_binding(pod.uid))

    def _shadows_of(self, name: str) -> Iterator[ObservedShadow]:
        for shadow in self._loader.shadows.by_name.values():
            if shadow.profile.loaded.spec.shadow_of == name:
                yield ObservedShadow(
                    name=shadow.profile.loaded.name,
                    compared=shadow.compared,
                    differing=shadow.differing,
                    mean_gain_points=round(shadow.mean_gain, 2),
                )


async def _written_ahead(copy: TrailingWorld) -> None:
    """Write the copy's rows that changed, in steps: after a pause they may be very many."""
    cache = copy.world.cache
    if cache.unindexed:
        for _ in cache.index_terms():
            await asyncio.sleep(0)
    while cache.changed_nodes > MAX_ROWS_PER_STEP:  # other tasks run, nothing is awaited
        cache.write_ahead(MAX_ROWS_PER_STEP)
        await asyncio.sleep(0)
