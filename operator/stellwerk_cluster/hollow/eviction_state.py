"""The state of a kubelet's eviction between two syncs (`managerImpl.synchronize`, v1.36).

One `EvictionState` for each node under pressure. Invariant: a condition holds from the look that
finds a threshold met until the transition period has passed since the last one that does, whatever
the grace period of the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.hollow.eviction_thresholds import (
    CONDITION_OF,
    CONTAINERFS,
    CONTAINERFS_INODES,
    IMAGEFS,
    IMAGEFS_INODES,
    MEMORY,
    NODEFS,
    NODEFS_INODES,
    PIDS,
    KubeletConfiguration,
    Threshold,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk_cluster.hollow.node_usage import Observation

_ORDER: Final = (
    MEMORY,
    IMAGEFS,
    IMAGEFS_INODES,
    CONTAINERFS,
    CONTAINERFS_INODES,
    NODEFS,
    NODEFS_INODES,
    PIDS,
)
"""Which signal is dealt with first: memory before disk."""


@dataclass(slots=True)
class EvictionState:
    """Of one node."""

    configuration: KubeletConfiguration
    first_met: dict[Threshold, float] = field(default_factory=dict)
    last_seen: dict[str, float] = field(default_factory=dict)
    """Condition → when a threshold of it was last met, monotonic."""
    acting: tuple[Threshold, ...] = ()
    """Thresholds that were dealt with at the last look: to be reclaimed beyond."""

    def look(
        self, signals: Mapping[str, Observation], now: float
    ) -> tuple[frozenset[str], Threshold | None]:
        """(conditions that hold, the threshold to deal with) at a look."""
        met = [
            each
            for each in self.configuration.thresholds
            if _is_met(each, signals, until_reclaimed=each in self.acting)
        ]
        self.first_met = {each: self.first_met.get(each, now) for each in met}
        for each in met:
            self.last_seen[CONDITION_OF[each.signal]] = now
        period = self.configuration.transition_seconds
        # What is met now holds, even with a transition period of nothing.
        self.last_seen = {
            condition: since
            for condition, since in self.last_seen.items()
            if since == now or now - since < period
        }
        due = [each for each in met if now - self.first_met[each] >= (each.grace_seconds or 0.0)]
        self.acting = tuple(due)
        # The sort is stable: of one signal, the hard threshold comes first.
        due.sort(key=lambda each: (_ORDER.index(each.signal), not each.hard))
        return frozenset(self.last_seen), due[0] if due else None

    @property
    def at_rest(self) -> bool:
        """Whether nothing is met and no condition holds."""
        return not self.first_met and not self.last_seen


def _is_met(
    threshold: Threshold, signals: Mapping[str, Observation], *, until_reclaimed: bool
) -> bool:
    observed = signals.get(threshold.signal)
    return observed is not None and threshold.is_met(*observed, until_reclaimed=until_reclaimed)
