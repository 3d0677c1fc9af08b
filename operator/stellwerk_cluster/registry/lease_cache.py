"""A cache of the leases of nodes that are well: renewals are computed, and written when read.

The heartbeat of the hollow nodes keeps them, the HTTP server says what is about to be read, and the
node lifecycle controller asks when a node was last heard of. Invariant: what is read of a lease is
what it would be if every renewal had been written at its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_kube.clock import Clock

LEASES: Final = "leases.coordination.k8s.io"
"""The place of leases in the store."""
NODES: Final = "nodes"
LEASE_NAMESPACE: Final = "kube-node-lease"


@dataclass(frozen=True, slots=True)
class _Rhythm:
    """The times at which a lease is renewed, monotonic seconds: once, then in even periods."""

    begun: float
    second: float
    period_seconds: float

    def last(self, now: float) -> float:
        """The latest renewal that is not after `now`."""
        if now < self.second:
            return self.begun
        return self.second + (now - self.second) // self.period_seconds * self.period_seconds

    def next(self, now: float) -> float:
        """The first renewal after `now`."""
        return self.second if now < self.second else self.last(now) + self.period_seconds


class LeaseCache:
    """The rhythms of the leases that are kept."""

    def __init__(self, clock: Clock) -> None:
        """No lease is kept."""
        self._clock = clock
        self._rhythms: dict[str, _Rhythm] = {}
        self.on_read: Callable[[str | None, bool], None] = lambda _name, _watch: None
        """Called before a lease, or (None) all of them, are read or watched: writes renewals."""
        self.on_nodes_read: Callable[[str | None], None] = lambda _name: None
        """Called before a node, or (None) all of them, are read: writes what is to be reported."""
        self.on_released: list[Callable[[str, float], None]] = []
        """Called with a node's name and its last renewal, monotonic, when its lease is released."""

    def keep(self, name: str, seconds_to_second: float, period_seconds: float) -> None:
        """Renew the lease of a node now, after some seconds, and then in even periods."""
        now = self._clock.monotonic()
        self._rhythms[name] = _Rhythm(now, now + seconds_to_second, period_seconds)

    def release(self, name: str) -> None:
        """Renew it no more; without effect if it is not kept."""
        renewed = self.renewed(name)
        if renewed is not None:
            del self._rhythms[name]
            for listener in self.on_released:
                listener(name, renewed)

    def drop(self, name: str) -> None:
        """The node is no more, and nothing waits for it."""
        self._rhythms.pop(name, None)

    def names(self) -> tuple[str, ...]:
        """The nodes whose leases are kept."""
        return tuple(self._rhythms)

    def renewed(self, name: str) -> float | None:
        """The time of a lease's last renewal, monotonic; None: it is not kept."""
        rhythm = self._rhythms.get(name)
        return None if rhythm is None else rhythm.last(self._clock.monotonic())

    def seconds_to_next(self, name: str) -> float | None:
        """The seconds until its next renewal; None: it is not kept."""
        rhythm, now = self._rhythms.get(name), self._clock.monotonic()
        return None if rhythm is None else rhythm.next(now) - now

    def before_read(
        self, kind: ResourceKind, namespace: str | None, name: str, *, watch: bool
    ) -> None:
        """A client is about to read objects of a kind, in one namespace or (None) in all."""
        if kind.storage_name == LEASES and namespace in {None, LEASE_NAMESPACE}:
            self.on_read(name or None, watch)
        elif kind.storage_name == NODES and not watch:
            self.on_nodes_read(name or None)
