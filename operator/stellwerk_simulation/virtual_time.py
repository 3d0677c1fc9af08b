"""The scheduling loop in virtual time, which passes as events and timers say.

Simulations and reruns drive it: they let time pass up to an event, change the World, and have
decided what can be. Invariant: when `run` returns, nothing is left that could be tried or carried
out at this moment, and the loop waits for a pod.
"""

import heapq
from collections.abc import Awaitable, Callable, Coroutine, Generator
from itertools import count
from math import floor, inf
from typing import Any, Final

from typing_extensions import override

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.world.loop import TIMERS, ActiveQ, Timer, Waits, scheduling_loop
from stellwerk.world.world import World
from stellwerk_kube.clock import VirtualClock
from stellwerk_simulation.instant_cluster import InstantCluster

_MAX_TIMERS_WITHOUT_EVENT: Final = 1000
"""A pod that is tried so often while nothing happens waits until something does."""


class VirtualTime(Waits):
    """Drives the scheduling loop, the timers, and what is to happen at a time."""

    def __init__(
        self,
        world: World,
        clock: VirtualClock,
        active: ActiveQ,
        attempt: Callable[[QueuedPod], Awaitable[None]],
        cluster: InstantCluster,
    ) -> None:
        self._world, self._clock, self._active = world, clock, active
        self._attempt, self._cluster = attempt, cluster
        self._loop: Coroutine[Any, Any, None] | None = None
        self._events: list[tuple[float, str, int, Callable[[str], None]]] = []
        self._count = count()
        self._idle_until: dict[str, float] = {}
        """By the name of a timer; before then it changes nothing."""

    # --- what drives it ---------------------------------------------------------------------------

    def call_at(self, seconds: float, name: str, act: Callable[[str], None]) -> None:
        """Have something happen at a time; at the same one, in the order of the names."""
        heapq.heappush(self._events, (seconds, name, next(self._count), act))

    def next_event(self) -> float:
        """The time of the next event; inf: none is left."""
        return self._events[0][0] if self._events else inf

    def next_due(self) -> float:
        """A time by which the timers have tried the next pod that is due; inf: none will be.

        Such a pod waits for time alone, and is tried although no event is left.
        """
        world = self._world
        left = world.queue.next_due - world.clock.now().timestamp()
        return inf if left == inf else floor(self._clock.monotonic() + max(0.0, left)) + 2.0

    def run(self) -> None:
        """Try what can be tried now, and what that makes worth another attempt.

        Raises:
            PluginFailure: a plugin raised.
        """
        if self._loop is None:
            self._loop = scheduling_loop(self._world, self._active, self._attempt, self)
        self._requeue()
        self._loop.send(None)

    def pass_until(self, seconds: float) -> None:
        """Let time pass, with the events and timers on the way, and run after each.

        What comes of those at the last moment is left for the next run.
        """
        timers = 0
        while True:
            due = min(seconds, self.next_event())
            if timers < _MAX_TIMERS_WITHOUT_EVENT:
                timer_due = self._next_timer()
                timers += timer_due <= due
                due = min(due, timer_due)
            self._clock.advance(max(0.0, due - self._clock.monotonic()))
            while self.next_event() <= due:
                _, name, _, act = heapq.heappop(self._events)
                act(name)
                timers = 0
            self._act_timers(due)
            if due >= seconds:
                return
            self.run()

    # --- timers -----------------------------------------------------------------------------------

    def _next_timer(self) -> float:
        """The time at which a timer has something to do; inf: no pod waits for one."""
        world, now = self._world, self._clock.monotonic()
        due = inf
        for timer in TIMERS:
            if timer.has_work(world):
                since = max(now, self._idle_for(timer))
                due = min(due, (floor(since / timer.period_seconds) + 1) * timer.period_seconds)
        return due

    def _act_timers(self, now: float) -> None:
        """Act as the operator's timers do when so many seconds have passed since its start."""
        world = self._world
        if not world.queue.entries:
            return
        for timer in TIMERS:
            if now % timer.period_seconds == 0 and now > self._idle_for(timer):
                timer.act(world)
                self._idle_until[timer.name] = timer.idle_until(world)

    def _idle_for(self, timer: Timer) -> float:
        return 0.0 if self._world.profiles.has_unanswered else self._idle_until.get(timer.name, 0.0)

    # --- what the loop waits for ------------------------------------------------------------------

    @override
    async def slot(self) -> None:
        """Bindings take no time."""

    @override
    async def pod(self) -> None:
        if not self._cluster.happen():
            await _BackToTheDriver()
        self._requeue()

    @override
    async def others(self, in_hand: QueuedPod | None) -> None:
        self._cluster.happen()
        self._requeue()

    def _requeue(self) -> None:
        """Do at once what the operator does in slices."""
        while self._world.queue.backlog.work_off():
            pass


class _BackToTheDriver:
    """Suspends the loop until it is driven again."""

    def __await__(self) -> Generator[None, None, None]:
        yield
