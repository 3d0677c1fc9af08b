"""kopf's tasks, from their start until nothing of them is left.

`lifecycle` starts them. Invariant: when `run_kopf` ends, however that is, no task of kopf runs any
more that could keep the process alive.

kopf ends as a whole when one of its watches meets an error, and then leaves tasks behind that take
a cancellation for a pause and go on: these are cancelled until they end.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import kopf

from stellwerk.errors import SchedulerError, in_words

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    Spawn = Callable[[], Awaitable[list[asyncio.Task[Any]]]]

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 10.0
_LEFT_BEHIND_SECONDS: Final = 5.0
_AGAIN_SECONDS: Final = 0.2
_FIRST_RESTART_SECONDS: Final = 1.0
_LONGEST_RESTART_SECONDS: Final = 15.0
_WELL_SECONDS: Final = 60.0
"""What has run for so long is started again as if for the first time."""
_PACKAGE: Final = str(Path(kopf.__file__).parent)


async def run_kopf(tasks: list[asyncio.Task[Any]]) -> None:
    """Watch over kopf's tasks until one of them ends, which none should, or until cancelled.

    Raises:
        SchedulerError: one has ended, with the reason.
    """
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop(tasks)
        await _stop_left_behind()
    for task in ended:
        error = None if task.cancelled() else task.exception()
        raise SchedulerError(f'the task "{task.get_name()}" ended: {in_words(error)}') from error


async def run_kopf_again_and_again(spawn: Spawn) -> None:
    """Run kopf, and start it again whenever it ends, until cancelled."""
    loop = asyncio.get_running_loop()
    pause_seconds = _FIRST_RESTART_SECONDS
    while True:
        began = loop.time()
        try:
            await run_kopf(await spawn())
        except SchedulerError as error:
            if loop.time() - began > _WELL_SECONDS:
                pause_seconds = _FIRST_RESTART_SECONDS
            logger.warning("kopf ended and is started again in %.0f s: %s", pause_seconds, error)
        await asyncio.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, _LONGEST_RESTART_SECONDS)


async def stop(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait for them; what does not end in time is named in the log."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    _, hanging = await asyncio.wait(tasks, timeout=STOP_SECONDS)
    for task in hanging:
        logger.warning('the task "%s" does not end', task.get_name())
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()):
            logger.debug('the task "%s" ended with %s', task.get_name(), in_words(error))


async def _stop_left_behind() -> None:
    deadline = asyncio.get_running_loop().time() + _LEFT_BEHIND_SECONDS
    while (left := _left_behind()) and asyncio.get_running_loop().time() < deadline:
        # A watch whose pause-waiter ends before it takes that for the end of a pause.
        streams = {task for task in left if not task.get_name().startswith("pause-waiter")}
        for task in streams or left:
            task.cancel()
        await asyncio.wait(left, timeout=_AGAIN_SECONDS)
    for task in left:
        logger.warning('the task "%s" of kopf does not end', task.get_name())


def _left_behind() -> set[asyncio.Task[Any]]:
    """The tasks that run kopf's code."""
    return {
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task()
        and (code := getattr(task.get_coro(), "cr_code", None)) is not None
        and code.co_filename.startswith(_PACKAGE)
    }
