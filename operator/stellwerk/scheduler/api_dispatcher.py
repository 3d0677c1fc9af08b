"""Writes that nothing waits for: reports into the status of pending pods, and calls of plugins.

Reports say why a pod is pending and which node it is nominated to. Attempts that fail put them
here, bindings cancel or flush them, those on pods that are gone or bound from outside are dropped.
They stand behind bindings and evictions: a binding says PodScheduled itself, and takes the
nomination away, so that what it overtakes need not be written at all (as with kube-scheduler's
SchedulerAsyncAPICalls). Plugins hand calls over through their handle, PostFilter through its
answer: reservations taken back, claims deallocated or deleted. Invariants: of a pod at most one
report is being written and one is pending, which holds the newest of everything that was put;
nothing is written for a pod whose report is cancelled until another one is put; a plugin's call
that cannot be carried out while the API is unavailable is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from contextlib import asynccontextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stellwerk_kube.errors import NotFound, NotLeader, SchedulerError, Throttled, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from stellwerk.framework.interface import APICall
    from stellwerk.framework.services import ClusterClient, Recorder
    from stellwerk.world.pod_status import Report
    from stellwerk_kube.clock import Clock

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 2.0
_TRIES: Final = 30
_WRITERS: Final = 4
"""A report that a writer has taken cannot be overtaken any more: few, so that this is the next."""


class APICalls:
    """The calls of plugins that are under way, a task each.

    While the API is away or throttles, a call is tried 30 times, 2 s apart; then it is given up
    with a line in the log.
    """

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, api_call: APICall) -> None:
        """Carry it out in a task of its own."""
        task = asyncio.get_running_loop().create_task(self._carry_out(api_call), name=api_call.act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, api_call: APICall) -> None:
        for _ in range(_TRIES):
            try:
                await api_call.carry_out(self._client)
            except (Unavailable, Throttled) as failure:
                logger.info("cannot %s yet: %s", api_call.act, failure)
                await asyncio.sleep(_RETRY_SECONDS)
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


class StatusReports:
    """Reports on pods on their way to the API, a few at a time."""

    def __init__(self, client: ClusterClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.pending: OrderedDict[str, Report] = OrderedDict()
        """By the uid of the pod, in the order in which they are written; a plain dict walks past
        all that were taken from its front before."""
        self.writing: dict[str, asyncio.Event] = {}
        """Uids of the pods whose report is being written → set when it is."""
        self._writers: set[asyncio.Task[None]] = set()

    def put(self, report: Report) -> None:
        """Have it written some time, unless it is cancelled before."""
        uid = report.pod.uid
        before = self.pending.get(uid)
        self.pending[uid] = report if before is None else before.followed_by(report)
        if len(self._writers) < _WRITERS:
            writer = asyncio.get_running_loop().create_task(
                self._write_all(), name="reports", context=Context()
            )
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)

    def drop(self, uid: str) -> None:
        """Drop what is pending about a pod: it is true no more."""
        self.pending.pop(uid, None)

    async def cancel_or_flush(self, uid: str) -> None:
        """Drop what is pending about a pod; what is being written is waited for."""
        self.drop(uid)
        while (written := self.writing.get(uid)) is not None:
            await written.wait()

    async def write(self, report: Report) -> None:
        """Write it in place of what is pending about the pod."""
        await self.cancel_or_flush(report.pod.uid)
        await self._write(report)

    async def _write_all(self) -> None:
        while (uid := self._next()) is not None:
            await self._write(self.pending.pop(uid))

    def _next(self) -> str | None:
        return next((uid for uid in self.pending if uid not in self.writing), None)

    async def _write(self, report: Report) -> None:
        pod, patch = report.pod, report.patch(self._clock)
        if patch is None:
            return
        written = self.writing[pod.uid] = asyncio.Event()
        try:
            await self._client.patch_pod_status(pod.namespace, pod.name, patch, urgent=False)
        except NotLeader:
            logger.debug("%s is reported on by the process that leads", pod.key)
        except NotFound:
            logger.debug("%s is gone, its condition is not needed any more", pod.key)
        except SchedulerError as failure:
            # In memory it is so; the pod's next failed attempt writes what is then true.
            logger.warning("cannot report on %s: %s", pod.key, failure)
        finally:
            del self.writing[pod.uid]
            written.set()


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
    """One writer at a time for each key, in the order of arrival: `Handle.one_at_a_time`."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        """Of the keys that anything holds or waits for."""
        self._users: Counter[str] = Counter()

    @asynccontextmanager
    async def one_at_a_time(self, key: str) -> AsyncIterator[None]:
        """Wait for the others with this key."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] += 1
        try:
            async with lock:
                yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
