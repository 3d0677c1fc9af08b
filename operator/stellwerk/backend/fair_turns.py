"""Turns in activeQ among pods of equal priority: a namespace that floods it waits for itself.

Part of the scheduling queue. kube-scheduler sorts by time of arrival alone, so that one pod waits
behind however many another namespace has created before it. Here the pods of a namespace of which
more than twenty wait count as if they had come later, the more of them wait the later. Invariant:
pods of one namespace that come one after the other keep their order, and what counts is how many
wait, not how fast they come or are decided.
"""

from typing import Final

FIRST: Final = 20
"""So many waiting pods of a namespace count as having come when they came."""
LAG_SECONDS: Final = 0.02
"""Of each further one: as long as dozens of attempts take."""
MOST_SECONDS: Final = 300.0
"""No pod is passed for longer by those that come after it."""


class FairTurns:
    """Up to when the turns of namespaces are taken that have many pods in activeQ."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {}
        """Of first attempts and of retries, by namespace, from the first pod that had to give way
        until none of the namespace waits any more."""

    def turn(self, namespace: str, came_at: float, waiting: int, *, retry: bool) -> float:
        """When a pod counts as having come, so many of its namespace waiting with it."""
        taken = self.taken.setdefault(namespace, [0.0, 0.0])
        lag_seconds = LAG_SECONDS * max(waiting - FIRST, 0)
        turn = max(taken[retry], came_at + min(MOST_SECONDS, lag_seconds))
        taken[retry] = turn
        return turn
