"""Work that is due now or later, and the loop that does it, for controllers and kubelets.

A `Worker` follows collections of the store, puts keys into its `WorkQueue` and reconciles them one
by one. `WorkLoop` runs all workers in the server's event loop; tests call `settle` instead, with a
virtual clock. Invariant: a key waits in a queue at most once, and a worker that fails for one key
goes on with the others.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from typing import TYPE_CHECKING, Final, Protocol

from stellwerk_cluster.apimachinery.failures import StatusError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from stellwerk_kube.clock import Clock

_log = logging.getLogger(__name__)
_KEYS_PER_SLICE: Final = 50
"""Keys that are reconciled before the event loop runs other tasks."""
_FIRST_RETRY_SECONDS: Final = 1.0
"""Pause after a first failure; it doubles with each further one in a row."""
_MAX_RETRY_SECONDS: Final = 300.0
"""Longest of these pauses."""
_MAX_WAIT_SECONDS: Final = 60.0
"""Longest wait for a key before the queue looks at the clock again."""


class WorkQueue:
    """Keys that are due now, in order of arrival, and keys that become due later."""

    def __init__(self, clock: Clock) -> None:
        """Delays are counted from the clock's monotonic time."""
        self._clock = clock
        self._due: dict[Hashable, None] = {}
        self._later: list[tuple[float, int, Hashable]] = []
        self._sequence = 0
        self._failures: dict[Hashable, int] = {}
        self._pausing: set[Hashable] = set()
        self.wake: Callable[[], None] = lambda: None
        """Called when there is new work."""

    def add(self, key: Hashable) -> None:
        """The key is due now."""
        self._due[key] = None
        self.wake()

    def add_after(self, key: Hashable, delay_seconds: float) -> None:
        """The key becomes due after a delay."""
        if delay_seconds <= 0:
            self.add(key)
            return
        self._sequence += 1
        heapq.heappush(self._later, (self._clock.monotonic() + delay_seconds, self._sequence, key))
        self.wake()

    def add_within(self, key: Hashable, pause_seconds: float) -> None:
        """The key becomes due after a pause, once, however often this is asked for meanwhile.

        It is work that waits, and not a timer: until then the queue is not at rest.
        """
        if key not in self._pausing:
            self._pausing.add(key)
            self.add_after(key, pause_seconds)

    def retry(self, key: Hashable) -> None:
        """The key failed, and becomes due again after a time that grows with each failure."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay_seconds = min(_FIRST_RETRY_SECONDS * 2.0 ** min(failures, 16), _MAX_RETRY_SECONDS)
        self.add_after(key, delay_seconds)

    def succeeded(self, key: Hashable) -> None:
        """The key did not fail: its next failure counts as the first."""
        self._failures.pop(key, None)

    @property
    def at_rest(self) -> bool:
        """Whether nothing is due and nothing has failed; timers of later work do not count."""
        now = self._clock.monotonic()
        timed_out = bool(self._later) and self._later[0][0] <= now
        return not (self._due or self._failures or self._pausing or timed_out)

    def take(self) -> Hashable | None:
        """The next key that is due; None if there is none."""
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            self._due.setdefault(heapq.heappop(self._later)[2])
        if not self._due:
            return None
        key = next(iter(self._due))
        del self._due[key]
        self._pausing.discard(key)
        return key

    def seconds_until_due(self) -> float:
        """The seconds until a key is due."""
        if self._due:
            return 0.0
        if not self._later:
            return _MAX_WAIT_SECONDS
        return max(0.0, self._later[0][0] - self._clock.monotonic())


class Worker(Protocol):
    """A controller or kubelet: follows the store into its queue, and reconciles key by key."""

    queue: WorkQueue

    def reconcile(self, key: Hashable) -> None:
        """Bring what the key names into order."""
        ...


class WorkLoop:
    """Lets workers take turns, in the server's event loop or, for tests, until nothing is due."""

    def __init__(self, workers: Iterable[Worker]) -> None:
        """Run these workers, each in its turn."""
        self._workers = list(workers)
        self._wake = asyncio.Event()
        for worker in self._workers:
            worker.queue.wake = self._wake.set

    @property
    def busy(self) -> list[str]:
        """The workers that have work due or failing work; none: every controller is at rest."""
        return [type(each).__name__ for each in self._workers if not each.queue.at_rest]

    def settle(self) -> None:
        """Do all work that is due now, including what it brings about."""
        while self._round(limit=None):
            pass

    async def run(self) -> None:
        """Do work whenever it is due, until cancelled."""
        while True:
            self._wake.clear()
            if self._round(limit=_KEYS_PER_SLICE):
                await asyncio.sleep(0)
                continue
            wait = min(
                (worker.queue.seconds_until_due() for worker in self._workers),
                default=_MAX_WAIT_SECONDS,
            )
            try:
                async with asyncio.timeout(min(wait, _MAX_WAIT_SECONDS)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _round(self, limit: int | None) -> bool:
        """Let every worker do some work; whether there was any."""
        worked = False
        for worker in self._workers:
            done = 0
            while limit is None or done < limit:
                key = worker.queue.take()
                if key is None:
                    break
                self._reconcile(worker, key)
                done += 1
            worked = worked or done > 0
        return worked

    @staticmethod
    def _reconcile(worker: Worker, key: Hashable) -> None:
        try:
            worker.reconcile(key)
            worker.queue.succeeded(key)
        except StatusError as error:
            # Another write came first, or the object is refused: by the next look that may be over.
            _log.info("%s: %s: %s", type(worker).__name__, key, error.message)
            worker.queue.retry(key)
        except Exception:  # noqa: BLE001  (the top of one key's work: the others go on)
            _log.exception("%s failed for %s", type(worker).__name__, key)
            worker.queue.retry(key)
