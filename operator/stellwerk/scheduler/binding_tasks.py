"""The binding tasks: many at once, bounded, some of which preemption may cancel.

The scheduling coroutine starts them and waits for a free slot; shutdown drains them. Invariant: a
pod has at most one binding task, and a task that ends, however it ends, leaves the registry.
"""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

MAX_BINDINGS_IN_FLIGHT: Final = 512
"""Back-pressure.

Slots for bindings; without a free one the scheduling coroutine waits, so that memory and staleness
stay bounded. A binding that waits on Permit or PreBind needs none: the pod that it waits for may be
the next to be scheduled.
"""


class BindingTasks:
    """Tasks by the uid of their pod."""

    def __init__(self, limit: int = MAX_BINDINGS_IN_FLIGHT) -> None:
        self._limit = limit
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._without_slot: set[str] = set()
        """Bindings that wait on Permit or PreBind."""
        self._cancellable: dict[str, str] = {}
        """Bindings that can be cancelled → why they have been ("": they have not)."""
        self.unconfirmed: dict[str, float] = {}
        """Pods that were bound (at that monotonic time), as the watch has yet to show."""
        self.doubted: set[str] = set()
        """Pods that count as bound, and that an event has shown without a node."""
        self._free = asyncio.Event()
        self._free.set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, uid: str) -> bool:
        return uid in self._tasks

    def confirmed(self, uid: str) -> None:
        """The pod is on its node, or has none any more: there is nothing to find out."""
        self.unconfirmed.pop(uid, None)
        self.doubted.discard(uid)

    def start(self, uid: str, binding: Coroutine[Any, Any, None]) -> None:
        """Run a binding."""
        task = asyncio.get_running_loop().create_task(binding, name=f"bind {uid}")
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))
        self._count()

    async def free_slot(self) -> None:
        """Wait until another binding may start."""
        await self._free.wait()

    @contextmanager
    def slot_released(self, uid: str) -> Iterator[None]:
        """While a binding waits on Permit or PreBind, another may have its slot."""
        self._without_slot.add(uid)
        self._count()
        try:
            yield
        finally:
            self._without_slot.discard(uid)
            self._count()

    @contextmanager
    def cancellable(self, uid: str) -> Iterator[None]:
        """While nothing has been asked of the API that could not be taken back."""
        self._cancellable[uid] = ""
        try:
            yield
        finally:
            if not self._cancellable[uid]:
                del self._cancellable[uid]

    def cancel(self, uid: str, reason: str) -> bool:
        """Cancel a binding; False if there is none, or if it has gone too far."""
        task = self._tasks.get(uid)
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
            self._tasks[uid].cancel()
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks.values(), timeout=timeout_seconds)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _ended(self, uid: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(uid) is task:
            del self._tasks[uid]
            self._cancellable.pop(uid, None)
        self._count()

    def _count(self) -> None:
        if len(self._tasks) - len(self._without_slot) < self._limit:
            self._free.set()
        else:
            self._free.clear()
