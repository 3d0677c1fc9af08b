"""The scheduling loop: pods are decided one after another, in the order of the queue.

It names no event loop. `scheduler/scheduler.py` drives it on asyncio, `virtual_time.py` of the
simulation by `send(None)`, in time that passes as events say; both carry out what is decided
while the loop waits. Invariant: which pod is next, and how much is decided before others go on,
is said here and nowhere else.
"""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, Protocol

from stellwerk.backend.queued_pod import BACKOFF_Q, UNSCHEDULABLE_PODS, ActiveItem, QueuedPod
from stellwerk.world.world import World

MAX_DECISIONS_PER_SLICE: Final = 8
"""Decisions in a row after which the loop yields. A decision right after another one costs less
than one after other work, because its data are still in the processor's caches."""
DECISION_SLICE_SECONDS: Final = 0.002
"""Time after which the loop yields, however few decisions it has made."""


class ActiveQ(Protocol):
    """activeQ: items by sort key and sequence, stale ones among them (`asyncio.PriorityQueue`)."""

    def empty(self) -> bool:
        """Whether there is no item."""
        ...

    def get_nowait(self) -> ActiveItem:
        """Take out the first item."""
        ...


class Waits(Protocol):
    """The waits of the loop. When one of these returns, the World is ready to be decided on."""

    async def slot(self) -> None:
        """Wait until a binding may start."""
        ...

    async def pod(self) -> None:
        """Wait until activeQ or backoffQ may have a pod."""
        ...

    async def others(self, in_hand: QueuedPod | None) -> None:
        """Let events and bindings go on; `in_hand` is popped and will be tried afterwards."""
        ...


async def scheduling_loop(
    world: World,
    active: ActiveQ,
    attempt: Callable[[QueuedPod], Awaitable[None]],
    waits: Waits,
) -> None:
    """Try one pod after another, until cancelled or closed."""
    now = world.clock.monotonic
    decisions, began_seconds = 0, now()
    was_first_attempt = False
    while True:
        await waits.slot()
        queued = await _next_pod(world, active, waits)
        if was_first_attempt and queued.attempts > 1:
            # A binding goes out before a refused pod is tried again.
            await waits.others(queued)
            decisions, began_seconds = 0, now()
        was_first_attempt = queued.attempts == 1
        await attempt(queued)
        decisions += 1
        if decisions == MAX_DECISIONS_PER_SLICE or now() - began_seconds >= DECISION_SLICE_SECONDS:
            await waits.others(None)
            decisions, began_seconds = 0, now()


async def _next_pod(world: World, active: ActiveQ, waits: Waits) -> QueuedPod:
    """Pop the head of activeQ; while activeQ is empty, that of backoffQ (`popBackoffQ`)."""
    queue = world.queue
    while True:
        while not active.empty():
            queued = queue.pop(active.get_nowait())
            if queued is not None:
                return queued
        queued = queue.pop_from_backoff()
        if queued is not None:
            return queued
        await waits.pod()


# --- timers ---------------------------------------------------------------------------------------


class Timer(NamedTuple):
    """Something that is done again and again, for the first time after one period."""

    name: str
    period_seconds: float
    act: Callable[[World], None]
    has_work: Callable[[World], bool]
    """Whether there is anything that it may be for, now or later."""
    idle_until: Callable[[World], float]
    """Before when it changes nothing, unless a plugin fails to answer meanwhile. O(n)."""


def _flush_backoff(world: World) -> None:
    world.queue.flush_backoff(world.clock.monotonic())


def _has_backoff(world: World) -> bool:
    return world.queue.counted(*BACKOFF_Q) > 0


def _never_idle(_: World) -> float:
    return 0.0


def _flush_unschedulable(world: World) -> None:
    """Requeue what has waited for too long, and ask anew where a plugin could not answer."""
    world.queue.flush_unschedulable(world.clock.monotonic())
    unanswered = (world.queue.pod(uid) for uid in world.profiles.take_unanswered())
    world.activate([pod for pod in unanswered if pod is not None])


def _has_unschedulable(world: World) -> bool:
    return world.queue.counted(*UNSCHEDULABLE_PODS) > 0 or world.profiles.has_unanswered


def _unschedulable_for_long(world: World) -> float:
    queue, now = world.queue, world.clock.monotonic()
    waiting = queue.entries.values()
    since = (
        max(each.queued_at, each.flushed_at) for each in waiting if each.place in UNSCHEDULABLE_PODS
    )
    return min(since, default=now) + queue.max_unschedulable_seconds


def _flush_due(world: World) -> None:
    world.queue.flush_due(world.clock.now().timestamp(), world.clock.monotonic())


def _has_due(world: World) -> bool:
    return world.queue.has_due


def _until_due(world: World) -> float:
    clock = world.clock
    return clock.monotonic() + max(0.0, world.queue.next_due - clock.now().timestamp())


TIMERS: Final = (
    Timer("backoff flush", 1.0, _flush_backoff, _has_backoff, _never_idle),
    Timer(
        "unschedulable flush",
        30.0,
        _flush_unschedulable,
        _has_unschedulable,
        _unschedulable_for_long,
    ),
    Timer("due rejections", 1.0, _flush_due, _has_due, _until_due),
)
"""`flushBackoffQCompleted` and `flushUnschedulablePodsLeftover`; the third is our own."""
