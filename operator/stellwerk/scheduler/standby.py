"""The work of a process that stands by: it stays ready to decide within milliseconds.

`app` waits here for the lease. Events go on filling cache and queue, and what they leave to be done
in slices is done; nothing takes pods out of activeQ, so that what other processes bind stays in it
as stale items. Invariant: nothing is written
to the API, and activeQ holds at most about twice as many items as pods wait.
"""

import asyncio
import gc
from typing import Final

from stellwerk.scheduler.scheduler import ActiveQueue
from stellwerk.world.world import World

_LOOK_SECONDS: Final = 1.0
_STALE_ITEMS: Final = 1024
"""So many are not worth the sorting."""


async def stand_by(world: World, active: ActiveQueue, leading: asyncio.Event) -> None:
    """Keep activeQ short, queue and snapshot up to date, until this process leads."""
    # What was listed stays, and holds no cycles: the collector need not look at it at all.
    gc.freeze()
    while not leading.is_set():
        world.cache.update_snapshot()
        if len(active) > 2 * world.queue.pending()["active"] + _STALE_ITEMS:
            active.discard_stale()
        await _work_off(world, leading)
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await leading.wait()
        except TimeoutError:
            pass


async def _work_off(world: World, leading: asyncio.Event) -> None:
    """Do what is left of requeueing, slice by slice, unless this process leads by then."""
    is_left = True
    while is_left and not leading.is_set():
        is_left = world.queue.backlog.work_off()
        await asyncio.sleep(0)
