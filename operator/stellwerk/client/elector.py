"""Leader election on a Lease, as in client-go's `leaderelection`, but stricter.

`leadership` runs one elector, and opens the fence for writes. A candidate measures a lease's age on
its own monotonic clock, from the last change that it saw; it ignores the times in the record. Three
rules differ from client-go:

- The renew deadline counts from the moment when the last successful renewal was *sent*.
- A holder that reads another name in the lease ends at once.
- If a held lease is deleted, a candidate waits as if it still existed.

Invariant: the fence closes at least `margin_seconds` before another candidate may take the lease.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, TypeVar

from stellwerk.client.election import JITTER_FACTOR
from stellwerk.client.lease import LeaseRecord
from stellwerk_kube.clock import rfc3339_microseconds
from stellwerk_kube.errors import ApiError, Conflict, Forbidden, LeaseLostError
from stellwerk_kube.untrusted_text import cut, printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from stellwerk.client.connection import Fence
    from stellwerk.client.election import LeaderElectionOptions
    from stellwerk.client.lease import Lease, LeaseApi
    from stellwerk.metrics import Metrics
    from stellwerk_kube.clock import Clock

logger = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")

_WATCHDOG_SECONDS: Final = 20.0
"""Time beyond the lease that the health check tolerates (`NewLeaderHealthzAdaptor`)."""
MAX_LEASE_SECONDS: Final = 3600
"""Longest time for which a lease is believed without a renewal. Who may create Leases could
otherwise write one that lasts for 68 years, and nothing would be scheduled."""
_MAX_HOLDER_CHARACTERS: Final = 300
"""Characters of a holder's name that the log shows."""
_MIN_PAUSE_SECONDS: Final = 0.001
"""Shortest pause near a deadline: without it, a clock that runs faster than the loop's would have
the elector ask again and again."""


class Elector:
    """One candidate for one lease: follows, acquires, renews, and at the end releases or loses."""

    def __init__(
        self,
        lease: LeaseApi,
        options: LeaderElectionOptions,
        identity: str,
        *,
        fence: Fence,
        clock: Clock,
        metrics: Metrics,
        jitter: Callable[[], float],
    ) -> None:
        """Ask nothing yet.

        Args:
            lease: what the candidates compete for.
            options: how long everything takes; checked.
            identity: the name of this process in the lease; no other one ever has it.
            fence: opened with the lease; its clock is `clock`.
            clock: for deadlines, and for the times that are written into the lease.
            metrics: shows whether this process leads.
            jitter: in [0, 1); spreads the candidates' attempts.
        """
        self._lease = lease
        self._options = options
        self._identity = identity
        self._fence = fence
        self._clock = clock
        self._jitter = jitter
        self._master = metrics.leader_election_master_status.labels(options.resource_name)
        self._slow_path = metrics.leader_election_slowpath.labels(options.resource_name)
        self._observed: Lease | None = None
        self._observed_at_seconds = 0.0
        """The time at which this candidate saw the record change last."""
        self._has_led = False
        self._has_written = False
        """Whether the lease may have this candidate's name, as far as is known here."""
        self._released_by_other = asyncio.Event()
        self._reporting: asyncio.Task[None] | None = None

    @property
    def is_leader(self) -> bool:
        """Whether the record that was seen last has this candidate's name."""
        return self._holder == self._identity

    @property
    def holder(self) -> str:
        """The candidate whose name the record that was seen last has; empty: none."""
        return self._holder

    def watchdog(self) -> str | None:
        """Return what is wrong: a holder that neither renews nor ends; None: nothing is."""
        tolerated_seconds = self._options.lease_duration_seconds + _WATCHDOG_SECONDS
        silent_seconds = self._clock.monotonic() - self._observed_at_seconds
        if not self.is_leader or silent_seconds <= tolerated_seconds:
            return None
        return f"failed election to renew leadership on lease {self._options.resource_name}"

    async def acquire(self) -> None:
        """Follow until the lease is this candidate's, and the fence open."""
        self._master.set(0)
        logger.info("attempting to acquire leader lease %s...", self._lease.key)
        watching = asyncio.create_task(self._watch_forever(), name="lease watch")
        try:
            while not await self._succeeds(self._acquire_or_renew()):
                await self._follow()
        finally:
            watching.cancel()
            await asyncio.wait({watching})
        self._master.set(1)
        logger.info("successfully acquired lease %s", self._lease.key)
        self._reporting = asyncio.create_task(self._report(), name="lease event")

    async def renew(self) -> None:
        """Keep the lease, until it is lost.

        Raises:
            LeaseLostError: another process has it, or no renewal succeeded in time; the fence is
                closed.
        """
        reason = "failed to renew it in time"
        try:
            while self._fence.is_open:
                left_seconds = self._fence.closes_at_seconds - self._clock.monotonic()
                pause_seconds = min(self._options.retry_period_seconds, left_seconds)
                await asyncio.sleep(max(_MIN_PAUSE_SECONDS, pause_seconds))
                if self._fence.is_open:
                    await self._succeeds(self._acquire_or_renew())
        except _DeposedError as deposed:
            reason = str(deposed)
        self._fence.close()
        self._master.set(0)
        raise LeaseLostError(f"lost the lease {self._lease.key}: {reason}")

    async def release(self) -> None:
        """Give the lease away, with the fence closed; leave it to run out if that is not safe."""
        self._fence.close()
        if not self._has_written:
            return
        self._master.set(0)
        if not self._fence.is_settled:
            logger.warning(
                "a write was not answered: lease %s is not released and expires by itself",
                self._lease.key,
            )
            return
        try:
            try:
                await self._give_away()
            except Conflict:
                # A renewal that was interrupted was applied between reading and writing.
                await self._give_away()
        except (ApiError, TimeoutError) as failure:
            logger.warning(
                "lease %s is not released and expires by itself: %s",
                self._lease.key,
                _one_line(failure),
            )
        else:
            logger.info("released lease %s", self._lease.key)

    # --- one attempt ------------------------------------------------------------------------------

    async def _acquire_or_renew(self) -> bool:
        """Try once (`tryAcquireOrRenew`); True if the lease is held with the fence open."""
        if self.is_leader and self._is_valid() and self._observed is not None:
            try:
                return await self._write_over(self._observed)
            except (ApiError, TimeoutError) as failure:
                logger.warning("failed to update lease optimistically: %s", _one_line(failure))
        lease = await self._timely(self._lease.get())
        if lease is None:
            return await self._create()
        self._observe(lease)
        if self._holder and not self.is_leader and self._is_valid():
            self._check_deposed()
            logger.debug("lease %s is held by %s", self._lease.key, self._holder)
            return False
        if self.is_leader:
            self._slow_path.inc()
        else:
            self._check_deposed()
        return await self._write_over(lease)

    async def _create(self) -> bool:
        if self._holder and not self.is_leader and self._is_valid():
            return False  # deleted under its holder, which goes on until the renew deadline
        sent_at_seconds = self._clock.monotonic()
        now = rfc3339_microseconds(self._clock.now())
        record = LeaseRecord(
            self._identity, self._options.recorded_duration_seconds, now, now, lease_transitions=0
        )
        self._has_written = True
        return self._held(await self._timely(self._lease.create(record)), sent_at_seconds)

    async def _write_over(self, lease: Lease) -> bool:
        """Put this candidate's name and the time into the lease that was read."""
        now = rfc3339_microseconds(self._clock.now())
        duration_seconds = self._options.recorded_duration_seconds
        record = lease.record.taken(self._identity, duration_seconds, now)
        self._has_written = True
        sent_at_seconds = self._clock.monotonic()
        return self._held(await self._timely(self._lease.update(lease, record)), sent_at_seconds)

    async def _give_away(self) -> None:
        lease = await self._timely(self._lease.get())
        if lease is None or lease.record.holder_identity != self._identity:
            return
        record = lease.record.released(self._clock.now())
        self._observe(await self._timely(self._lease.update(lease, record)))

    async def _succeeds(self, attempt: Awaitable[bool]) -> bool:
        try:
            return await attempt
        except Conflict as conflict:
            logger.info("%s", conflict)
        except (ApiError, TimeoutError) as failure:
            logger.warning("lease %s: %s", self._lease.key, _one_line(failure))
        return False

    async def _timely(self, call: Awaitable[_Answer]) -> _Answer:
        limit_seconds = self._options.call_timeout_seconds
        if self._fence.is_open:
            left_seconds = self._fence.closes_at_seconds - self._clock.monotonic()
            limit_seconds = min(limit_seconds, left_seconds)
        async with asyncio.timeout(limit_seconds):
            return await call

    # --- what was seen ----------------------------------------------------------------------------

    @property
    def _holder(self) -> str:
        return "" if self._observed is None else self._observed.record.holder_identity

    def _is_valid(self) -> bool:
        """Whether the record that was seen last has not run out (`isLeaseValid`)."""
        return self._observed is not None and self._clock.monotonic() < self._valid_until()

    def _valid_until(self) -> float:
        duration = 0 if self._observed is None else self._observed.record.lease_duration_seconds
        return self._observed_at_seconds + min(duration, MAX_LEASE_SECONDS)

    def _observe(self, lease: Lease) -> None:
        """Take in what the API shows; only another record starts its time anew."""
        before = self._holder
        if self._observed is None or self._observed.record != lease.record:
            self._observed_at_seconds = self._clock.monotonic()
        self._observed = lease
        if self._holder and self._holder != before:
            logger.info("the leader is %s", cut(printable(self._holder), _MAX_HOLDER_CHARACTERS))
            if lease.record.lease_duration_seconds > MAX_LEASE_SECONDS:
                logger.warning(
                    "lease %s says that it lasts for %d s; it is taken %d s after the last renewal",
                    self._lease.key,
                    lease.record.lease_duration_seconds,
                    MAX_LEASE_SECONDS,
                )

    def _held(self, lease: Lease, sent_at_seconds: float) -> bool:
        """Note that the API took this candidate's record; False if the answer came too late."""
        self._observe(lease)
        in_time = self._fence.extend(sent_at_seconds + self._options.renew_deadline_seconds)
        self._has_led = self._has_led or in_time
        return in_time

    def _check_deposed(self) -> None:
        if self._has_led:
            raise _DeposedError(
                f"{self._holder} has it" if self._holder else "it was released by another"
            )

    # --- while another one leads ------------------------------------------------------------------

    async def _follow(self) -> None:
        """Wait for the next attempt: a retry period and some, the lease's end, or its release."""
        period_seconds = self._options.retry_period_seconds
        delay_seconds = period_seconds * (1 + JITTER_FACTOR * self._jitter())
        left_seconds = self._valid_until() - self._clock.monotonic()
        if self._holder and left_seconds > 0:
            delay_seconds = min(delay_seconds, max(_MIN_PAUSE_SECONDS, left_seconds))
        try:
            async with asyncio.timeout(delay_seconds):
                await self._released_by_other.wait()
        except TimeoutError:
            pass
        self._released_by_other.clear()

    async def _watch_forever(self) -> None:
        """See renewals when they are made, and a release at once; without it, attempts do."""
        while True:
            try:
                async with aclosing(self._lease.watch()) as leases:
                    async for lease in leases:
                        if lease is not None:
                            self._observe(lease)
                        if not self._holder:
                            self._released_by_other.set()
            except Forbidden as refusal:
                logger.info(
                    "the release of a lease is noticed at the next attempt only: %s", refusal
                )
                return
            except (ApiError, ValueError) as failure:
                logger.debug("%s", failure)
            await asyncio.sleep(self._options.retry_period_seconds)

    async def _report(self) -> None:
        if self._observed is None:
            return
        try:
            await self._lease.report(
                self._observed, f"{self._identity} became leader", self._clock.now()
            )
        except ApiError as failure:
            logger.warning("%s", failure)


class _DeposedError(Exception):
    """The lease has another holder, or none, while this process held it."""


def _one_line(failure: Exception) -> str:
    return "no answer in time" if isinstance(failure, TimeoutError) else str(failure)
