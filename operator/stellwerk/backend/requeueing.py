"""Rejected pods on their way back to activeQ or backoffQ, many at a time and step by step.

Part of the scheduling queue, which says what to requeue and how one pod is moved. Invariant: a pod
that was tried since is not moved for what its attempt has seen, or has had kept for it.
"""

import math
from collections.abc import Sequence
from typing import Protocol

from stellwerk.backend.change_actions import own_changes
from stellwerk.backend.queued_pod import (
    UNSCHEDULABLE_PODS,
    Place,
    QueuedPod,
    QueueEvent,
    QueueingStrategy,
)
from stellwerk.backend.requeue_backlog import MOVE_UNITS, RequeueBacklog, Work
from stellwerk.backend.unschedulable_pods import UnschedulablePods
from stellwerk.framework.events import ClusterChange
from stellwerk.models.pod import PodInfo


class Requeue(Protocol):
    """Moves one pod."""

    def __call__(
        self, entry: QueuedPod, strategy: QueueingStrategy, event: str, now: float
    ) -> None:
        """Move it to the place of a strategy."""
        ...


class Requeueing:
    """What changes, timers and edited profiles requeue; small work at once, the rest in slices."""

    def __init__(self, unschedulable_pods: UnschedulablePods, requeue: Requeue) -> None:
        self._unschedulable_pods = unschedulable_pods
        self._requeue = requeue
        self.backlog = RequeueBacklog(self._everything)
        self._moved = 0
        """Pods that changes have moved so far."""
        self._changed_at = 0.0
        """When the last change came."""

    def after(
        self, change: ClusterChange, now: float, max_priority: int | None, except_uid: str
    ) -> int:
        """Requeue the pods for which a change is worth an attempt; returns how many so far."""
        before, self._changed_at = self._moved, now
        self.backlog.begin(self._worth(change, now, max_priority, except_uid), is_change=True)
        return self._moved - before

    def all_of(self, entries: Sequence[QueuedPod], event: QueueEvent, now: float) -> None:
        """Requeue rejected pods, whatever their hints would say."""
        self.backlog.begin(self._all_of(entries, event, now))

    def of_profile(self, profile_name: str, now: float) -> None:
        """Requeue what a profile rejected or gated before it changed."""
        self._unschedulable_pods.refresh_hints(profile_name)
        rejected = self._unschedulable_pods.of_profile(profile_name)
        self.all_of(rejected, QueueEvent.PROFILE_CHANGE, now)

    def timed_out(self, since_seconds: float, now: float) -> None:
        """Requeue what was rejected before a time and has not been tried since."""
        forgotten = self._unschedulable_pods.queued_before(since_seconds)
        ungated = [entry for entry in forgotten if entry.place is Place.UNSCHEDULABLE]
        self.all_of(ungated, QueueEvent.UNSCHEDULABLE_TIMEOUT, now)

    def updated(self, entry: QueuedPod, before: PodInfo, now: float) -> None:
        """Requeue a rejected pod whose own update a rejector registered."""
        place, entry.pod = entry.place, entry.newest
        self._unschedulable_pods.add_or_update(entry)
        for change in own_changes(before, entry.pod):
            strategy = self._unschedulable_pods.strategy_for(entry, change)
            if strategy is QueueingStrategy.SKIP:
                continue
            self._requeue(entry, strategy, change.name, now)
            if entry.place is not place:
                return

    def strategy_after(
        self, entry: QueuedPod, changes: Sequence[ClusterChange] | None
    ) -> QueueingStrategy:
        """What the changes during an attempt mean (`determineSchedulingHintForInFlightPod`).

        None: they are not known, or none could matter more than that the attempt broke.
        """
        if changes is None:
            return QueueingStrategy.AFTER_BACKOFF
        pending = bool(entry.pending_plugins)
        best = QueueingStrategy.IMMEDIATELY if pending else QueueingStrategy.AFTER_BACKOFF
        found = QueueingStrategy.SKIP
        for change in changes:
            found = max(found, self._unschedulable_pods.strategy_for(entry, change))
            if found is best:
                break
        return found

    def _worth(
        self, change: ClusterChange, now: float, max_priority: int | None, except_uid: str
    ) -> Work:
        slices = self._unschedulable_pods.worth_requeuing_in_slices(change, max_priority)
        for asked, worth in slices:
            yield asked
            worth.sort(key=_queued_at)
            for entry, strategy in worth:
                waits = entry.place in UNSCHEDULABLE_PODS and entry.queued_at <= now
                if waits and entry.pod.uid != except_uid:
                    self._requeue(entry, strategy, change.name, now)
                    self._moved += 1
                    yield MOVE_UNITS

    def _all_of(self, entries: Sequence[QueuedPod], event: QueueEvent, now: float) -> Work:
        for entry in entries:
            if entry.place in UNSCHEDULABLE_PODS and entry.queued_at <= now:
                entry.was_flushed = event is QueueEvent.UNSCHEDULABLE_TIMEOUT
                at_once = event is QueueEvent.MANY_CHANGES and entry.pending_plugins
                strategy = (
                    QueueingStrategy.IMMEDIATELY if at_once else QueueingStrategy.AFTER_BACKOFF
                )
                self._requeue(entry, strategy, event, now)
                yield MOVE_UNITS

    def _everything(self) -> Work:
        """In place of many changes: what is in unschedulablePods now."""
        rejected = self._unschedulable_pods.queued_before(math.inf)
        return self._all_of(rejected, QueueEvent.MANY_CHANGES, self._changed_at)


def _queued_at(each: tuple[QueuedPod, QueueingStrategy]) -> float:
    return each[0].queued_at
