"""Computing in a process of its own, so that it takes neither the loop's time nor its thread.

`app` makes one, plugins reach it through their Handle. Invariant: the process is started when the
first work is handed over, ends with the scheduler's, and one that died is replaced.
"""

import asyncio
import multiprocessing
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Generic, TypeVar

from typing_extensions import override

from stellwerk.framework.worker import PendingResult, Worker

Result = TypeVar("Result")


class WorkerProcess(Worker):
    """One process, in which work is done in the order in which it was handed over."""

    def __init__(self) -> None:
        self._executor: ProcessPoolExecutor | None = None

    @override
    def compute(self, work: Callable[[], Result]) -> PendingResult[Result]:
        try:
            return _Under(self._started().submit(work))
        except BrokenProcessPool:
            self.close()
            return _Under(self._started().submit(work))

    async def computed(self, work: Callable[[], Result]) -> Result:
        """Return the result of work, for what may wait; raises what the work raises."""
        try:
            future = self._started().submit(work)
        except BrokenProcessPool:
            self.close()
            future = self._started().submit(work)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the process; what it has not begun is never done."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
            self._executor = None

    def _started(self) -> ProcessPoolExecutor:
        if self._executor is None:
            # Spawned: a fork of a process with threads and open connections is not safe.
            context = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(1, context)
        return self._executor


class _Under(PendingResult[Result], Generic[Result]):
    def __init__(self, future: "Future[Result]") -> None:
        self._future = future

    @override
    def ready(self) -> bool:
        return self._future.done()

    @override
    def result(self) -> Result:
        return self._future.result()
