"""Fairness between namespaces: the time by which a pod is sorted among those of equal priority.

kube-scheduler sorts pods of equal priority by their time of arrival alone. There, a namespace that
creates 10,000 pods delays the next pod of every other namespace until all of them were tried. Here
two rules change the time by which a pod is sorted (docs/queue.md, "Order among equals"):

- A first attempt passes retries: a retried pod is sorted a minute after it came back to activeQ.
- A namespace waits for itself: if it has more than MAX_PODS_IN_ARRIVAL_ORDER pods in activeQ, each
  further one is sorted later, in proportion to the number of its waiting pods.

The scheduling queue reads this time when a pod enters activeQ, and reports each pod that enters or
leaves activeQ. Invariant: first attempts of one namespace keep their order among themselves, and so
do its retries. The delay depends on how many of its pods wait, not on how fast they come or are
decided. `scheduler.throttle` has the other half of fairness: a namespace whose attempts take long
lets others pass.
"""

from typing import Final

MAX_PODS_IN_ARRIVAL_ORDER: Final = 20
"""Pods of one namespace in activeQ that are sorted by their time of arrival. Further pods of that
namespace are sorted as if they had arrived later (`LAG_SECONDS_PER_POD`)."""
LAG_SECONDS_PER_POD: Final = 0.02
"""Seconds added to the arrival time of a further pod, for each pod of its namespace beyond
MAX_PODS_IN_ARRIVAL_ORDER. Longer than an attempt (about 0.1 ms), so that one namespace cannot delay
the others."""
MAX_LAG_SECONDS: Final = 300.0
"""Longest delay that a namespace's own pods add. Pods of other namespaces that arrive later than
that do not pass."""
RETRY_DELAY_SECONDS: Final = 60.0
"""Seconds added to the time at which a retried pod came back to activeQ. First attempts of equal
priority that arrive within this time go first; after it the retry is next."""


class NamespaceFairness:
    """Pods in activeQ by namespace, and the times by which delayed ones were sorted."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        """Pods in activeQ by namespace."""
        self._latest: dict[str, list[float]] = {}
        """[first attempts, retries] by namespace: the latest time that a delayed pod was sorted by.

        Later pods of the namespace are sorted no earlier, until none of its pods waits."""

    def count(self, namespace: str, change: int) -> None:
        """Count a pod that enters activeQ (+1) or leaves it (−1)."""
        waiting = self._waiting[namespace] = self._waiting.get(namespace, 0) + change
        if not waiting:
            del self._waiting[namespace]
            self._latest.pop(namespace, None)

    def sorted_at(self, namespace: str, came_at: float, *, is_retry: bool) -> float:
        """Return the time by which a pod is sorted that was just counted in activeQ.

        `came_at`: when a pod without attempts arrived, or when a retry came back to activeQ.
        """
        if is_retry:
            came_at += RETRY_DELAY_SECONDS
        waiting = self._waiting[namespace]
        if waiting <= MAX_PODS_IN_ARRIVAL_ORDER and namespace not in self._latest:
            return came_at
        latest = self._latest.setdefault(namespace, [0.0, 0.0])
        lag_seconds = LAG_SECONDS_PER_POD * max(waiting - MAX_PODS_IN_ARRIVAL_ORDER, 0)
        sorted_at = max(latest[is_retry], came_at + min(MAX_LAG_SECONDS, lag_seconds))
        latest[is_retry] = sorted_at
        return sorted_at
