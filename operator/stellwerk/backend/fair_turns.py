"""Turns in activeQ among pods of equal priority: a namespace that floods it waits for itself.

Part of the scheduling queue. kube-scheduler sorts by time of arrival alone, so that one pod waits
behind however many another namespace has created before it. Here the pods of a namespace of which
more than fifty wait count as if they had come later, the more of them wait the later. Invariant:
pods of one namespace that come one after the other keep their order, and what counts is how many
wait, not how fast they come or are decided.
"""

from typing import Final

FIRST: Final = 50
"""So many waiting pods of a namespace count as having come when they came."""
LAG_SECONDS: Final = 0.02
"""Of each further one: as long as dozens of attempts take."""
MOST_SECONDS: Final = 60.0
"""No pod is passed for longer by those that come after it."""


class FairTurns:
    """How many pods of each namespace wait in activeQ, and up to when their turns are taken."""

    def __init__(self) -> None:
        self._waiting: dict[str, int] = {}
        self._taken: dict[tuple[str, bool], float] = {}
        """Of first attempts and of retries, while pods of the namespace wait."""

    def came(self, namespace: str) -> None:
        """A pod has come into activeQ."""
        self._waiting[namespace] = self._waiting.get(namespace, 0) + 1

    def left(self, namespace: str) -> None:
        """A pod has left activeQ."""
        waiting = self._waiting[namespace] - 1
        if waiting:
            self._waiting[namespace] = waiting
            return
        del self._waiting[namespace]
        if self._taken:
            self._taken.pop((namespace, False), None)
            self._taken.pop((namespace, True), None)

    def turn(self, namespace: str, came_at: float, *, retry: bool) -> float:
        """When a pod counts as having come that is in activeQ by now."""
        further = self._waiting.get(namespace, 0) - FIRST
        taken = self._taken.get((namespace, retry), came_at)
        if further <= 0 and taken <= came_at:
            return came_at
        lag_seconds = min(MOST_SECONDS, LAG_SECONDS * max(further, 0))
        turn = self._taken[namespace, retry] = max(taken, came_at + lag_seconds)
        return turn
