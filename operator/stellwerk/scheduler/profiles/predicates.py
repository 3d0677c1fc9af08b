"""Waiting for something that watch events make true, without polling: `Handle.wait_until`.

The event handlers call `look` after every event. Invariant: no wait is longer than its timeout.
"""

import asyncio
from collections.abc import Callable


class Predicates:
    """The predicates that are waited for."""

    def __init__(self) -> None:
        self.pending: dict[asyncio.Future[None], Callable[[], bool]] = {}
        """What is not true yet, by the future that is to be woken."""

    def look(self) -> None:
        """Something was seen in the cluster: wake those whose predicate holds now."""
        for future, predicate in list(self.pending.items()):
            if not future.done() and predicate():
                future.set_result(None)

    async def wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until the predicate holds; False if it does not in time."""
        if predicate():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pending[future] = predicate
        try:
            async with asyncio.timeout(timeout_seconds):
                await future
        except TimeoutError:
            return predicate()
        finally:
            del self.pending[future]
        return True
