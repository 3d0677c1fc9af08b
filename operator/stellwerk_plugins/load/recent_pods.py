"""Pods that came to their nodes lately, whose load no measurement shows yet.

A book that every TargetLoadPacking of a scheduler reads. It has no clock: who reads it says what
time it is, first of all, and pods that came since the last look are taken to have come now. Of
pods that were there at the first look status.startTime tells. Kept is what some reader may still
ask for. Invariant: a pod that is taken away and put back between two looks, as a trial does, keeps
its time.
"""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override

from stellwerk.plugin_api import Book, NodeInfo, PodInfo

_SWEEP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod on its node, and when it came there; whole seconds since the epoch."""

    pod: PodInfo
    at_seconds: int


class RecentPods(Book):
    """By row, the pods that came within the last minutes."""

    def __init__(self) -> None:
        self.by_row: dict[int, dict[str, Arrival]] = {}
        """Arrivals by uid; only rows that have any."""
        self._unseen: dict[str, tuple[int, PodInfo]] = {}
        """Pods that were put on a row since the last look."""
        self._taken: dict[str, Arrival | None] = {}
        """Pods taken off since the last look; None: it came long ago."""
        self._opened = False
        self._swept_seconds = 0.0
        self._wanted_since: dict[str, float] = {}
        """By reader, the time before which it asks for nothing."""

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        self.by_row.pop(row, None)

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        uid = pod.uid
        if change < 0:
            if self._unseen.pop(uid, None) is None:
                self._taken[uid] = self._take(row, uid)
        elif uid in self._taken:
            arrival = self._taken.pop(uid)
            if arrival is not None:
                self._put(row, Arrival(pod, arrival.at_seconds))
        else:
            self._unseen[uid] = (row, pod)

    def look(self, reader: str, now_seconds: float, since_seconds: float) -> None:
        """Take what came since the last look as come now.

        `reader` asks for nothing that came before `since_seconds`, now or later.
        """
        self._wanted_since[reader] = since_seconds
        for row, pod in self._unseen.values():
            at_seconds = int(now_seconds) if self._opened else _started(pod)
            if at_seconds is not None:
                self._put(row, Arrival(pod, at_seconds))
        self._unseen.clear()
        self._taken.clear()
        self._opened = True
        if now_seconds - self._swept_seconds > _SWEEP_SECONDS:
            self._swept_seconds = now_seconds
            self._sweep(min(self._wanted_since.values()))

    @override
    def fork(self) -> "RecentPods":
        fork = RecentPods()
        fork.by_row = {row: pods.copy() for row, pods in self.by_row.items()}
        fork._unseen, fork._taken = self._unseen.copy(), self._taken.copy()
        fork._opened, fork._swept_seconds = self._opened, self._swept_seconds
        fork._wanted_since = self._wanted_since.copy()
        return fork

    def _put(self, row: int, arrival: Arrival) -> None:
        self.by_row.setdefault(row, {})[arrival.pod.uid] = arrival

    def _take(self, row: int, uid: str) -> Arrival | None:
        pods = self.by_row.get(row)
        arrival = pods.pop(uid, None) if pods else None
        if pods is not None and not pods:
            del self.by_row[row]
        return arrival

    def _sweep(self, since_seconds: float) -> None:
        for row, pods in list(self.by_row.items()):
            for uid, arrival in list(pods.items()):
                if arrival.at_seconds < since_seconds:
                    del pods[uid]
            if not pods:
                del self.by_row[row]


def _started(pod: PodInfo) -> int | None:
    """The time at which the kubelet took the pod; None: unknown."""
    return None if pod.started_seconds is None else int(pod.started_seconds)
