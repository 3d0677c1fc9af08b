"""The one thread in which large objects are parsed while the event loop turns.

`Delivery.prepare` hands it what is to be done. Invariant: there is one, since every thread that
allocates keeps memory of its own, and two that parse are no faster than one.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

Result = TypeVar("Result")

_WORKER: Final = ThreadPoolExecutor(1, "stellwerk-prepare")
"""Its thread is started by the first object."""


async def beside_the_loop(act: Callable[[], Result]) -> Result:
    """What the act gives, when those that were asked for before have ended."""
    return await asyncio.get_running_loop().run_in_executor(_WORKER, act)
