"""activeQ: the asyncio.PriorityQueue between events and the scheduling coroutine.

The scheduling queue pushes items and signals, the scheduling coroutine takes them. Invariant: the
order is that of the items, and every item comes out once; stale ones `SchedulingQueue.pop` refuses.
"""

import asyncio

from stellwerk.backend.queued_pod import ActiveItem


class ActiveQueue:
    """Items by sort key and sequence; the coroutine sleeps while there are none."""

    def __init__(self) -> None:
        self._queue: asyncio.PriorityQueue[ActiveItem] = asyncio.PriorityQueue()
        self._signals = 0

    def push(self, item: ActiveItem) -> None:
        """Put in the item of a pod."""
        self._queue.put_nowait(item)

    def wake(self) -> None:
        """Let `next` return although there is no pod here: backoffQ has one."""
        if self._queue.empty():
            # Negative, so that no pod's item has the same sequence.
            self._signals -= 1
            self._queue.put_nowait(ActiveItem((), self._signals, None))

    def empty(self) -> bool:
        """Whether there is no item, stale ones included."""
        return self._queue.empty()

    def __len__(self) -> int:
        return self._queue.qsize()

    def discard_stale(self) -> None:
        """Take out the items of pods that are not in activeQ any more."""
        items = [self._queue.get_nowait() for _ in range(len(self))]
        for item in items:
            if item.entry is not None and item.entry.sequence == item.sequence:
                self._queue.put_nowait(item)

    async def next(self) -> ActiveItem:
        """The first item, as soon as there is one."""
        return await self._queue.get()
