"""Tasks that belong together: when one ends, the others are ended, in order.

Invariant: when `run_together` returns or raises, none of the tasks runs any more.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def run_together(stop: asyncio.Event, **runs: Coroutine[Any, Any, None]) -> None:
    """Run named coroutines until `stop` is set or one of them ends; cancel them in their order.

    Raises:
        Exception: what the first of them, in their order, has raised.
    """
    tasks = [asyncio.create_task(run, name=name) for name, run in runs.items()]
    stopped = asyncio.create_task(stop.wait(), name="stop")
    try:
        await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (*tasks, stopped):
            task.cancel()
            await asyncio.wait({task})
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error
