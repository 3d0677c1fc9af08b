"""The binding tasks: many at once, bounded, and each one can be cancelled by preemption.

The scheduling coroutine starts them and waits for room; shutdown drains them. Invariant: a pod has
at most one binding task, and a task that ends, however it ends, leaves the registry.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

MAX_BINDINGS_IN_FLIGHT: Final = 512
"""Back-pressure.

Beyond it the scheduling coroutine waits, so that memory and staleness stay bounded.
"""


class BindingTasks:
    """Tasks by the uid of their pod."""

    def __init__(self, limit: int = MAX_BINDINGS_IN_FLIGHT) -> None:
        self._limit = limit
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._room = asyncio.Event()
        self._room.set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, uid: str, binding: Coroutine[Any, Any, None]) -> None:
        """Run a binding."""
        task = asyncio.get_running_loop().create_task(binding, name=f"bind {uid}")
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._ended(uid, done))
        if len(self._tasks) >= self._limit:
            self._room.clear()

    async def room(self) -> None:
        """Wait until another binding may start."""
        await self._room.wait()

    def cancel(self, uid: str) -> bool:
        """Cancel a binding; False if there is none."""
        task = self._tasks.get(uid)
        return task is not None and task.cancel()

    def uids(self) -> list[str]:
        """The pods being bound."""
        return list(self._tasks)

    async def drain(self, timeout_seconds: float) -> None:
        """Let the bindings in flight finish; those that do not in time are cancelled."""
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
        if len(self._tasks) < self._limit:
            self._room.set()
