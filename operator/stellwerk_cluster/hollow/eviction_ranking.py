"""The order of eviction when a node runs short, and the victim of the OOM killer.

Called by the node pressure worker. Invariant: critical pods and static ones are never named for
eviction; the order is that of the kubelet of v1.36.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.hollow.eviction_thresholds import RESOURCE_OF

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SYSTEM_CRITICAL: Final = 2_000_000_000
_GUARANTEED_SCORE: Final = -997
_BEST_EFFORT_SCORE: Final = 1000
_LOWEST_BURSTABLE: Final = 3
"""One above what a Guaranteed pod could get with the pod's own sandbox, since v1.30."""
_HIGHEST_BURSTABLE: Final = 999
NODE_CRITICAL: Final = 2_000_001_000


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A running pod: what it uses, what it asks for, and how much it matters."""

    name: str
    priority: int = 0
    usage: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    """With overhead."""
    static: bool = False
    qos: str = "BestEffort"

    @property
    def critical(self) -> bool:
        """Whether the kubelet evicts it in no case (`IsCriticalPod`)."""
        return self.static or self.priority >= _SYSTEM_CRITICAL

    def used(self, parts: Iterable[str]) -> int:
        """The sum of these parts of its usage."""
        return sum(self.usage.get(part, 0) for part in parts)


def ranked(
    candidates: Iterable[EvictionCandidate], signal: str, parts: tuple[str, ...]
) -> list[EvictionCandidate]:
    """The pods that may be evicted, first to go first; `parts` of their usage count.

    Of memory and storage: those above their request first, then by priority, then by how much
    they are above. Processes and inodes have no requests: by priority, then by usage.
    """
    resource = RESOURCE_OF[signal]

    def order(pod: EvictionCandidate) -> tuple[bool, int, int]:
        used = pod.used(parts)
        if resource in {"pids", "inodes"}:
            return False, pod.priority, -used
        above = used - pod.requests.get(resource, 0)
        return above <= 0, pod.priority, -above

    return sorted((pod for pod in candidates if not pod.critical), key=order)


def oom_score_adjust(pod: EvictionCandidate, memory_request: int, capacity: int) -> int:
    """`oom_score_adj` of a container of the pod that asks for so much memory."""
    if pod.static or pod.priority >= NODE_CRITICAL or pod.qos == "Guaranteed":
        return _GUARANTEED_SCORE
    if pod.qos == "BestEffort":
        return _BEST_EFFORT_SCORE
    score = 1000 - (1000 * memory_request) // capacity
    return min(max(_LOWEST_BURSTABLE, score), _HIGHEST_BURSTABLE)


def oom_victim(candidates: Iterable[EvictionCandidate], capacity: int) -> EvictionCandidate | None:
    """The pod whose process the kernel kills: the largest share of memory, adjusted."""

    def score(pod: EvictionCandidate) -> int:
        request = pod.requests.get("memory", 0)
        share = 1000 * pod.usage.get("memory", 0) // max(1, capacity)
        return share + oom_score_adjust(pod, request, capacity)

    return max((pod for pod in candidates if pod.usage.get("memory", 0)), key=score, default=None)
