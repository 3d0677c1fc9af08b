"""Decides whether this process schedules: at once, or with leader election while it has the lease.

`app` makes one, runs it beside the scheduler and the watches, and waits for `leading`. A process
that loses the lease ends, as kube-scheduler does: what it has assumed, queued and counted was true
under the lease only, and a new process reads it all from the API within seconds. Invariant:
`leading` is set at most once, and the lease is released only after the last write was answered.
The writes of a process that has lost the lease are stopped by `connection.Fence`.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from stellwerk.client.connection import Fence, open_fence
from stellwerk.client.elector import Elector

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stellwerk.client.election import LeaderElectionOptions
    from stellwerk.client.kubernetes import KubernetesClient
    from stellwerk.metrics import Metrics
    from stellwerk_kube.clock import Clock

_MAX_SETTLE_SECONDS: Final = 1.0
"""Longest wait of a release for the last writes to be answered, and seen by the watches."""
_SETTLED_CHECK_SECONDS: Final = 0.005
"""Time between two looks whether the last writes are settled."""


def fence_for(options: LeaderElectionOptions, clock: Clock) -> Fence:
    """Return the fence of a process: closed until it leads, or open without leader election."""
    if not options.leader_elect:
        return open_fence()
    return Fence(clock.monotonic, guarding=True, margin_seconds=options.margin_seconds)


def process_identity() -> str:
    """Return a name for this process that no other has: of its host, as kube-scheduler's."""
    return f"{socket.gethostname()}_{uuid4()}"


class Leadership:
    """One process's part in the election, from its first list to its end."""

    def __init__(self, elector: Elector | None, fence: Fence) -> None:
        """Stand for nothing yet; without an elector the process leads from the start."""
        self._elector = elector
        self._fence = fence
        self.identity = process_identity()
        """The holder in the lease, and the name of this process for kopf."""
        self.published: Callable[[], Mapping[str, str]] = dict
        """The annotations of the lease while this process holds it."""
        self.leading = asyncio.Event()
        """An event that is set once writes may be sent."""
        if elector is None:
            self.leading.set()

    @classmethod
    def of(
        cls,
        options: LeaderElectionOptions,
        client: KubernetesClient,
        fence: Fence,
        *,
        clock: Clock,
        metrics: Metrics,
        jitter: Callable[[], float],
    ) -> Leadership:
        """Return what the options ask for.

        Raises:
            ConfigurationError: the options contradict each other.
        """
        if not options.leader_elect:
            return cls(None, fence)
        options.check()
        leadership = cls(None, fence)
        leadership.leading.clear()
        leadership._elector = Elector(
            client.lease(
                options.resource_namespace,
                options.resource_name,
                leadership._annotations,
            ),
            options,
            leadership.identity,
            fence=fence,
            clock=clock,
            metrics=metrics,
            jitter=jitter,
        )
        return leadership

    @property
    def is_leading(self) -> bool:
        """Whether this process may write now."""
        return self._fence.is_open

    @property
    def standing_by_for(self) -> str | None:
        """The identity of the process that leads, empty if it is not known; None: this one does."""
        if self.is_leading:
            return None
        return "" if self._elector is None else self._elector.holder

    def _annotations(self) -> Mapping[str, str]:
        return self.published()

    def watchdog(self) -> str | None:
        """Return what is wrong with the election, for the health check; None: nothing is."""
        return self._elector.watchdog() if self._elector is not None else None

    async def run(
        self, synced: Callable[[], Awaitable[None]], is_confirmed: Callable[[], bool]
    ) -> None:
        """Stand once the lists are complete, and lead, until cancelled: then release the lease.

        Args:
            synced: waits for the first lists; before them there is no candidate.
            is_confirmed: whether the watches have shown everything that was bound.

        Raises:
            LeaseLostError: the lease was lost, and the process must end.
        """
        await synced()
        if self._elector is None:
            await asyncio.Event().wait()
            return
        try:
            await self._elector.acquire()
            self.leading.set()
            await self._elector.renew()
        except asyncio.CancelledError:
            await self._settle(is_confirmed)
            await self._elector.release()
            raise

    async def _settle(self, is_confirmed: Callable[[], bool]) -> None:
        """Let the last writes arrive, so that the next holder's watches have them, too."""
        self._fence.close()
        deadline_seconds = asyncio.get_running_loop().time() + _MAX_SETTLE_SECONDS
        while not (self._fence.in_flight == 0 and is_confirmed()):
            if asyncio.get_running_loop().time() >= deadline_seconds:
                return
            await asyncio.sleep(_SETTLED_CHECK_SECONDS)
