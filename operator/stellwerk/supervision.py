"""A process from its start to its end, and its tasks: when one ends, so do the others, in order.

Invariant: when `run_together` returns or raises, none of the tasks runs any more.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from stellwerk_kube.errors import SchedulerError, in_words

logger = logging.getLogger(__name__)

ENDED_AT_ONCE: Final = 143
"""The exit status after a second signal: 128 + SIGTERM, as if there were no handler."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

_Result = TypeVar("_Result")


@contextmanager
def announced(version: str) -> Iterator[None]:
    """Log that the operator starts, and, whatever happens, that it ends."""
    logger.info("stellwerk %s starts, process %d", version, os.getpid())
    try:
        yield
    finally:
        logger.info("stellwerk ends")


class Ending:
    """The end that signals ask for: by the first one in order, by any further one at once."""

    def __init__(self, exit_process: Callable[[int], object] = os._exit) -> None:
        self.stop = asyncio.Event()
        self._exit_process = exit_process

    def on_signal(self) -> None:
        """End the process, or end it without waiting for anything more."""
        if self.stop.is_set():
            logger.warning("second signal: stopping at once, without waiting for bindings")
            self._exit_process(ENDED_AT_ONCE)
        else:
            logger.info("stopping: bindings in progress are finished first")
        self.stop.set()


def take_signals(on_signal: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT call a function, in place of what they did before."""
    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal)


async def until_stopped(stop: asyncio.Event, run: Coroutine[Any, Any, _Result]) -> _Result | None:
    """Return what a coroutine returns; None: `stop` was set before, and it was cancelled."""
    task = asyncio.create_task(run, name="waiting at the start")
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        return None if stop.is_set() else task.result()
    finally:
        task.cancel()
        stopped.cancel()
        await asyncio.wait({task, stopped})


async def run_together(stop: asyncio.Event, **runs: Coroutine[Any, Any, None]) -> None:
    """Run named coroutines until `stop` is set or one of them ends; cancel them in their order.

    Raises:
        SchedulerError: what the first of them, in their order, has raised; or the name of the one
            that ended by another error, which is in the log then, or without any.
    """
    tasks = [asyncio.create_task(run, name=name) for name, run in runs.items()]
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        early = [] if stop.is_set() else [task.get_name() for task in tasks if task.done()]
    finally:
        for task in (*tasks, stopped):
            task.cancel()
            await asyncio.wait({task})
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            if isinstance(error, SchedulerError):
                raise error
            logger.error('the task "%s" failed', task.get_name(), exc_info=error)
            ended = f'the task "{task.get_name()}" ended: {in_words(error)}'
            raise SchedulerError(ended) from error
    if early:
        raise SchedulerError(f'the task "{early[0]}" ended unexpectedly')
