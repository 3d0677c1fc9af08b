"""What a process does that stands by: it stays ready to decide within milliseconds.

`app` waits here for the lease. Events go on filling cache and queue; nothing takes pods out of
activeQ, so that what other processes bind stays in it as stale items. Invariant: nothing is written
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
    """Keep activeQ short and the snapshot new, until this process leads."""
    # What was listed stays, and holds no cycles: the collector need not look at it at all.
    gc.freeze()
    while not leading.is_set():
        world.cache.update_snapshot()
        if len(active) > 2 * world.queue.pending()["active"] + _STALE_ITEMS:
            active.discard_stale()
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await leading.wait()
        except TimeoutError:
            pass
