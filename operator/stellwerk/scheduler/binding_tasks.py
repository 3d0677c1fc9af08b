"""The asyncio tasks in which decided pods are bound: one for each pod, and a limit on their number.

`ScheduleOne` and `SubmitGroupResult` start a task for each assumed pod (`BindingTasks.start`); it
runs `BindingCycle.run`. The scheduling coroutine waits here for a free slot, preemption cancels
tasks here, and explanations read how far a task has come. Invariant: a pod has at most one task.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from stellwerk.backend.queued_pod import BindingStage

MAX_BINDINGS_IN_FLIGHT: Final = 512
"""Slots for bindings. Without a free slot the scheduling coroutine waits, so that memory and the
number of assumed pods stay bounded while the API server is slow. A binding that waits on Permit or
PreBind needs no slot: the pod that it waits for may be the next to be scheduled.
"""
MIN_FREE_SHARE: Final = 16
"""After the last slot was taken, one slot in 16 must be free before the scheduling coroutine goes
on. If the API server sets the pace, slots come back one by one, and decisions made one by one,
between other work, cost much more than decisions in a row.
"""


class BindingTasks:
    """The binding tasks by the uid of their pod, and the slots that they take."""

    def __init__(self, limit: int = MAX_BINDINGS_IN_FLIGHT) -> None:
        self._limit = limit
        self._goes_on_at = limit - limit // MIN_FREE_SHARE
        self.tasks: dict[str, asyncio.Task[None]] = {}
        """By uid of the pod; other modules only read it."""
        self._without_slot: set[str] = set()
        """Bindings that wait on Permit or PreBind."""
        self._cancellable: dict[str, str] = {}
        """The reason, by uid of each binding that may be cancelled; "": it was not cancelled."""
        self.unconfirmed: dict[str, float] = {}
        """Monotonic time of the answer, by uid of the bound pods that the watch has yet to show."""
        self.doubted: set[str] = set()
        """Uids of pods that count as bound, and that an event has shown without a node."""
        self.stages: dict[str, BindingStage] = {}
        """The point that each binding is at, by uid; explanations show it."""
        self.has_free_slot = True
        """Whether another binding may start."""
        self._free = asyncio.Event()
        self._free.set()

    def __len__(self) -> int:
        return len(self.tasks)

    def __contains__(self, uid: str) -> bool:
        return uid in self.tasks

    def stage(self, uid: str) -> BindingStage | None:
        """Return how far a binding has come; None: there is none."""
        found = self.stages.get(uid)
        if found is not None or uid not in self.unconfirmed:
            return found
        return BindingStage("Bind", self.unconfirmed[uid], ("the watch to show the binding",))

    def confirmed(self, uid: str) -> None:
        """Stop tracking a pod: the watch has confirmed the binding, or the pod is gone."""
        self.unconfirmed.pop(uid, None)
        self.doubted.discard(uid)

    def start(self, uid: str, binding: Coroutine[Any, Any, None]) -> None:
        """Run a binding in a task of its own."""
        task = asyncio.get_running_loop().create_task(binding, name=f"bind {uid}")
        self.tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))
        self._count()

    async def free_slot(self) -> None:
        """Wait until another binding may start."""
        await self._free.wait()

    @contextmanager
    def slot_released(self, uid: str) -> Iterator[None]:
        """Give the slot of a binding to others inside the block: it waits on Permit or PreBind."""
        self._without_slot.add(uid)
        self._count()
        try:
            yield
        finally:
            self._without_slot.discard(uid)
            self._count()

    @contextmanager
    def cancellable(self, uid: str) -> Iterator[None]:
        """Allow `cancel` for this binding inside the block.

        No request that cannot be undone is sent inside it.
        """
        self._cancellable[uid] = ""
        try:
            yield
        finally:
            if not self._cancellable[uid]:
                del self._cancellable[uid]

    def cancel(self, uid: str, reason: str) -> bool:
        """Cancel a binding; False if there is none, or if it has gone too far."""
        task = self.tasks.get(uid)
        if task is None or self._cancellable.get(uid) != "":
            return False
        self._cancellable[uid] = reason
        return task.cancel()

    def cancelled_because(self, uid: str) -> str:
        """The reason for which a binding was cancelled; empty if it was not, or by the shutdown."""
        return self._cancellable.get(uid, "")

    async def drain(self, timeout_seconds: float) -> None:
        """Let bindings in flight finish; those without a slot, and late ones, are cancelled."""
        for uid in self._without_slot:
            self.tasks[uid].cancel()
        if not self.tasks:
            return
        _, late = await asyncio.wait(self.tasks.values(), timeout=timeout_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        if self.tasks.get(uid) is task:
            del self.tasks[uid]
            self._cancellable.pop(uid, None)
            self.stages.pop(uid, None)
        self._count()

    def _count(self) -> None:
        taken = len(self.tasks) - len(self._without_slot)
        if taken >= self._limit:
            self.has_free_slot = False
            self._free.clear()
        elif taken <= self._goes_on_at:
            self.has_free_slot = True
            self._free.set()
