"""Writes that plugins do not wait for: reservations taken back, claims deallocated or deleted.

Plugins hand them over through their handle, PostFilter through its answer. Invariant: one that
cannot be carried out while the API is unavailable is tried again; any other failure is logged, and
whatever it was about is found as it is by the next attempt.
"""

import asyncio
import logging
from typing import Final

from stellwerk.errors import NotFound, NotLeader, SchedulerError, Throttled, Unavailable
from stellwerk.framework.follow_up import FollowUp
from stellwerk.framework.services import ClusterClient

logger = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 2.0
_TRIES: Final = 30


class FollowUps:
    """The writes under way, a task each."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, follow_up: FollowUp) -> None:
        """Carry it out in a task of its own."""
        task = asyncio.get_running_loop().create_task(
            self._carry_out(follow_up), name=follow_up.act
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, follow_up: FollowUp) -> None:
        for _ in range(_TRIES):
            try:
                await follow_up.carry_out(self._client)
            except (Unavailable, Throttled) as failure:
                logger.info("cannot %s yet: %s", follow_up.act, failure)
                await asyncio.sleep(_PAUSE_SECONDS)
            except (NotFound, NotLeader) as failure:
                logger.debug("no need to %s: %s", follow_up.act, failure)
                return
            except SchedulerError as failure:
                logger.warning("cannot %s: %s", follow_up.act, failure)
                return
            except Exception:
                logger.exception("cannot %s", follow_up.act)
                return
            else:
                return
        logger.warning("cannot %s: the API is unavailable", follow_up.act)
