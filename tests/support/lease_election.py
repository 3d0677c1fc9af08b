"""Leader election without sockets: a lease kept in memory, and candidates that time is unkind to.

Every candidate has a clock of its own, may be stopped in mid-air as by SIGSTOP, and what it asks of
the API is delayed, lost, refused or never answered, as the test says. Invariant: the lease itself
follows the API's rules, whatever happens to requests and answers on their way.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterator
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from stellwerk.client.connection import Fence
from stellwerk.client.election import LeaderElectionOptions
from stellwerk.client.elector import Elector
from stellwerk.client.lease import Lease, LeaseApi, LeaseRecord
from stellwerk.metrics import Metrics
from stellwerk_kube.clock import Clock, VirtualClock
from stellwerk_kube.errors import Conflict, Unavailable

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject

Result = TypeVar("Result")

OPTIONS = LeaderElectionOptions(leader_elect=True)


class Fate(Enum):
    """What becomes of a request."""

    ANSWERED = "answered"
    LATE = "arrives after three seconds"
    LATE_ANSWER = "applied at once, answered after three seconds"
    VERY_LATE = "arrives after twelve seconds, long after its time-out"
    LOST = "never arrives"
    ANSWER_LOST = "applied, and the connection breaks"
    HUNG = "neither refused nor answered"
    REFUSED = "refused with a 500"


class LeaseServer:
    """One Lease, with optimistic concurrency."""

    def __init__(self) -> None:
        self.obj: JsonObject | None = None
        self.version = 0
        self.records: list[LeaseRecord] = []
        self.reports: list[str] = []
        self._changed = asyncio.Event()

    def lease(self) -> Lease | None:
        return None if self.obj is None else Lease.of(self.obj)

    def create(self, record: LeaseRecord) -> Lease:
        if self.obj is not None:
            raise Conflict("create lease", 409, "AlreadyExists", "it exists")
        return self.put(record)

    def update(self, lease: Lease, record: LeaseRecord) -> Lease:
        if self.obj is None or lease.obj["metadata"] != self.obj["metadata"]:
            raise Conflict("update lease", 409, "Conflict", "it has been modified")
        return self.put(record)

    def put(self, record: LeaseRecord) -> Lease:
        """Store whatever is given, as a user could."""
        self.version += 1
        self.obj = {"metadata": {"resourceVersion": str(self.version)}, "spec": record.spec()}
        self.records.append(record)
        self._notify()
        return Lease.of(self.obj)

    def delete(self) -> None:
        self.obj = None
        self._notify()

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self) -> None:
        await self._changed.wait()


class Freezer:
    """Stops a coroutine between two of its steps, as SIGSTOP stops a process."""

    def __init__(self) -> None:
        self._running = asyncio.Event()
        self._running.set()

    def stop(self) -> None:
        self._running.clear()

    def go_on(self) -> None:
        self._running.set()

    @property
    def is_stopped(self) -> bool:
        return not self._running.is_set()

    async def passed(self) -> None:
        await self._running.wait()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Awaitable[Result]:
        return _Freezable(self, coroutine)


class _Freezable(Awaitable[Result]):
    def __init__(self, freezer: Freezer, coroutine: Coroutine[Any, Any, Result]) -> None:
        self._freezer = freezer
        self._coroutine = coroutine

    @override
    def __await__(self) -> Generator[Any, Any, Result]:
        thrown: BaseException | None = None
        while True:
            while self._freezer.is_stopped:
                try:
                    yield from self._freezer.passed().__await__()
                except asyncio.CancelledError as cancelled:
                    thrown = cancelled  # it will notice when it goes on
            try:
                if thrown is None:
                    awaited = self._coroutine.send(None)
                else:
                    error, thrown = thrown, None
                    awaited = self._coroutine.throw(error)
            except StopIteration as done:
                result: Result = done.value
                return result
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 it is the coroutine's
                thrown = error


class CandidatesLease(LeaseApi):
    """The lease as one candidate reaches it."""

    def __init__(
        self,
        server: LeaseServer,
        freezer: Freezer,
        fates: Callable[[], Fate],
        *,
        watchable: bool = True,
    ) -> None:
        self.server = server
        self.asked: list[str] = []
        self._freezer = freezer
        self._fates = fates
        self._watchable = watchable

    @property
    @override
    def key(self) -> str:
        return "kube-system/kube-scheduler"

    @override
    async def get(self) -> Lease | None:
        return await self._ask("get", self.server.lease)

    @override
    async def create(self, record: LeaseRecord) -> Lease:
        return await self._ask("create", lambda: self.server.create(record))

    @override
    async def update(self, lease: Lease, record: LeaseRecord) -> Lease:
        return await self._ask("update", lambda: self.server.update(lease, record))

    @override
    async def watch(self) -> AsyncGenerator[Lease | None]:
        if not self._watchable:
            raise Unavailable("watch lease", None, "Reset", "no watch here")
        while True:
            changed = asyncio.create_task(self.server.changed())
            try:
                await self._freezer.passed()
                yield self.server.lease()
                await changed
            finally:
                changed.cancel()

    @override
    async def report(self, lease: Lease, message: str, now: datetime) -> None:
        self.server.reports.append(message)

    async def _ask(self, verb: str, apply: Callable[[], Result]) -> Result:
        self.asked.append(verb)
        fate = self._fates()
        await asyncio.sleep(0.003)
        if fate is Fate.REFUSED:
            raise Unavailable(verb, 500, "InternalError", "etcd is away")
        if fate in {Fate.LOST, Fate.HUNG}:
            await _for_ever(fate)
        if fate is Fate.VERY_LATE:
            # The network has it, whether or not its sender still waits.
            asyncio.get_running_loop().call_later(12, _quietly, apply)
            await _for_ever(Fate.HUNG)
        if fate is Fate.LATE:
            await asyncio.sleep(3)
        answer = apply()
        if fate is Fate.ANSWER_LOST:
            raise Unavailable(verb, None, "ConnectionResetError", "the connection broke")
        await asyncio.sleep(3 if fate is Fate.LATE_ANSWER else 0.003)
        return answer


async def _for_ever(fate: Fate) -> None:
    if fate is Fate.LOST:
        raise Unavailable("ask", None, "ConnectionRefusedError", "connection refused")
    await asyncio.Event().wait()


def _quietly(apply: Callable[[], object]) -> None:
    with contextlib.suppress(Conflict):
        apply()


class OwnClock(Clock):
    """A candidate's: begins anywhere, runs a little fast or slow, and its wall clock may lie."""

    def __init__(self, base: VirtualClock, *, offset_seconds: float = 0, rate: float = 1) -> None:
        self._base = base
        self._offset_seconds = offset_seconds
        self._rate = rate
        self.wall_offset_seconds = 0.0

    @override
    def monotonic(self) -> float:
        return self._offset_seconds + self._rate * self._base.monotonic()

    def suspended(self, seconds: float) -> None:
        """The machine was; its timers are that much late."""
        self._offset_seconds += seconds

    @override
    def now(self) -> datetime:
        return self._base.now() + timedelta(seconds=self.wall_offset_seconds)


class Candidate:
    """A process that stands once, and ends when it loses."""

    def __init__(
        self,
        server: LeaseServer,
        clock: Clock,
        name: str,
        *,
        fates: Iterator[Fate] | None = None,
        options: LeaderElectionOptions = OPTIONS,
        fence: Fence | None = None,
        watchable: bool = True,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.name = name
        self.freezer = Freezer()
        self.metrics = Metrics()
        self.fence = fence or Fence(
            clock.monotonic, guarding=True, margin_seconds=options.margin_seconds
        )
        self.lease = CandidatesLease(
            server,
            self.freezer,
            lambda: Fate.ANSWERED if fates is None else next(fates),
            watchable=watchable,
        )
        self.elector = Elector(
            self.lease,
            options,
            name,
            fence=self.fence,
            clock=clock,
            metrics=self.metrics,
            jitter=jitter,
        )
        self.led_at_seconds: float | None = None
        self._leading = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name=name)

    async def _run(self) -> None:
        await self.freezer.run(self._live())

    async def _live(self) -> None:
        await self.elector.acquire()
        self.led_at_seconds = asyncio.get_running_loop().time()
        self._leading.set()
        await self.elector.renew()

    async def kill(self) -> None:
        """End it without a word."""
        self.task.cancel()
        self.freezer.go_on()
        await asyncio.wait({self.task})

    async def stop(self) -> None:
        """End it as SIGTERM does."""
        await self.kill()
        await self.elector.release()

    async def leads(self) -> None:
        """Wait until it does."""
        await self._leading.wait()


def record(
    holder: str, *, duration_seconds: int = 15, renewed: str = "2026-01-01T00:00:00.000000Z"
) -> LeaseRecord:
    """What some other candidate wrote."""
    return LeaseRecord(holder, duration_seconds, renewed, renewed, 3)
