"""The way of attempts and plugins to the API: client, events, and writes that nothing waits for.

`app` makes one `APIDispatcher` for the scheduler. Status reports of pending pods have a module of
their own (`status_reports`); here are the calls that plugins hand over, through their Handle or as
the answer of PostFilter: reservations taken back, claims deallocated or deleted. Invariant: a
plugin's call that cannot be carried out while the API is unavailable is tried again for a minute.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from stellwerk.framework.interface import APICall
from stellwerk.framework.services import ClusterClient, Recorder
from stellwerk.scheduler.status_reports import StatusReports
from stellwerk_kube.errors import NotFound, NotLeader, SchedulerError, Throttled, Unavailable

logger = logging.getLogger(__name__)

CALL_RETRY_SECONDS: Final = 2.0
"""Pause between two tries of a plugin's call while the API is unavailable or throttles."""
MAX_CALL_TRIES: Final = 30
"""Tries of a plugin's call: with the pauses a minute, longer than an API server's restart takes."""


class APICalls:
    """The calls of plugins that are under way, a task each.

    While the API is unavailable or throttles, a call is tried again; after MAX_CALL_TRIES it is
    given up with a line in the log.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, api_call: APICall) -> None:
        """Carry a call out in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._carry_out(api_call), name=api_call.act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, api_call: APICall) -> None:
        for _ in range(MAX_CALL_TRIES):
            try:
                await api_call.carry_out(self._client)
            except (Unavailable, Throttled) as failure:
                logger.info("cannot %s yet: %s", api_call.act, failure)
                await asyncio.sleep(CALL_RETRY_SECONDS)
            except (NotFound, NotLeader) as failure:
                logger.debug("no need to %s: %s", api_call.act, failure)
                return
            except SchedulerError as failure:
                logger.warning("cannot %s: %s", api_call.act, failure)
                return
            except Exception:
                logger.exception("cannot %s", api_call.act)
                return
            else:
                return
        logger.warning("cannot %s: the API is unavailable", api_call.act)


@dataclass(frozen=True, slots=True)
class APIDispatcher:
    """The client, the recorder of events, and the writes that nothing waits for."""

    client: ClusterClient
    recorder: Recorder
    reports: StatusReports
    api_calls: APICalls = field(init=False)
    """The writes that plugins want and do not wait for."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "api_calls", APICalls(self.client))


class KeyedLocks:
    """Locks by key, given in the order of arrival: plugins reach them as `Handle.one_at_a_time`."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        """The locks that are held or waited for; the others are dropped."""
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def one_at_a_time(self, key: str) -> AsyncIterator[None]:
        """Wait for the others with this key, and hold its lock inside the block."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
