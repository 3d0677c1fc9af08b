"""Every pod that is to be scheduled, and which of them is next.

Event handlers add, update and delete pods and report changes in the cluster; the scheduling
coroutine pops pods and gives back those that failed; timers flush. activeQ itself is a priority
queue elsewhere, fed through `push`: an entry that leaves it early, or is sorted anew, leaves a
stale item there, which `pop` refuses. Invariant: each pod has one entry and each entry one `place`,
from `add` until it is deleted or bound (`delete`), so that no pod is lost and none is popped twice.
"""

import logging
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final

from stellwerk.backend.backoff_queue import BackoffQueue, is_backing_off, set_backoff
from stellwerk.backend.change_actions import is_echo, own_changes
from stellwerk.backend.fair_turns import FIRST, FairTurns
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.queue_contents import QueueContents
from stellwerk.backend.queued_pod import (
    BACKOFF_Q,
    NO_PLUGINS,
    POPPED,
    UNSCHEDULABLE_PODS,
    ActiveItem,
    Place,
    QueuedPod,
    QueueEvent,
    QueueingStrategy,
)
from stellwerk.backend.queueing_policy import QueueingPolicy, QueueObserver
from stellwerk.backend.requeue_backlog import MOVE_UNITS, Work
from stellwerk.backend.requeueing import Requeueing
from stellwerk.backend.unschedulable_pods import UnschedulablePods
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.models.pod import PodInfo

_log = logging.getLogger(__name__)

MAX_UNSCHEDULABLE_SECONDS: Final = 300.0
"""`DefaultPodMaxInUnschedulablePodsDuration`."""
RETRY_GIVES_WAY_SECONDS: Final = 60.0
"""First attempts of equal priority pass a retry for so long, and no longer."""


class SchedulingQueue(QueueContents):
    """kube-scheduler's PriorityQueue as plain state: `now` is the monotonic time in seconds."""

    def __init__(
        self,
        push: Callable[[ActiveItem], None],
        policy: QueueingPolicy,
        *,
        nominator: Nominator | None = None,
        observer: QueueObserver | None = None,
        wake: Callable[[], None] = lambda: None,
        max_unschedulable_seconds: float = MAX_UNSCHEDULABLE_SECONDS,
    ) -> None:
        super().__init__(max_unschedulable_seconds)
        self.nominator = nominator or Nominator()
        self._push = push
        self._policy = policy
        self._observer = observer
        self._wake = wake
        """Called when backoffQ has a pod and activeQ none: `pop_from_backoff` would find it."""
        self._backoff_q = BackoffQueue()
        self._unschedulable_pods = UnschedulablePods(policy.hints, observer, self.nominator.node_of)
        self._sequence = count(1)
        self._turns = FairTurns()
        self._waiting: dict[str, int] = {}
        """Pods in activeQ by namespace."""
        self._requeueing = Requeueing(self._unschedulable_pods, self._requeue)
        self.backlog = self._requeueing.backlog
        """What is left to be requeued; the scheduler works it off."""

    # --- what event handlers call ---------------------------------------------------------------

    def add(self, pod: PodInfo, now: float, profile_name: str = "") -> None:
        """Enter a new pod, which has no node; empty: the profile that its schedulerName names."""
        known = self.entries.get(pod.uid)
        if known is not None:
            _log.error("pod %s was added, but is in the queue: %s", pod.key, known.place.name)
            if known.place in POPPED:
                self.update(pod, now)
                return
            self.delete(pod.uid)
        self._enter(pod, profile_name or pod.spec.scheduler_name, QueueEvent.POD_ADD, now)

    def update(self, pod: PodInfo, now: float) -> PodInfo | None:
        """Replace a pod, which has no node; returns it as it was before (None: it was unknown).

        In activeQ and backoffQ it stays; from unschedulablePods it is moved if a rejector's hint
        answers Queue to its update; for a popped pod the update is remembered.
        """
        entry = self.entries.get(pod.uid)
        if entry is None:
            self._enter(pod, self._policy.profile_name(pod), QueueEvent.POD_UPDATE, now)
            return None
        before, entry.newest = entry.newest, pod
        if is_echo(before, pod):
            return before
        if entry.place in POPPED:
            for change in own_changes(before, pod):
                self._in_flight.record(change, uid=pod.uid)
            return before
        self.nominator.update(before, pod)
        if entry.place in UNSCHEDULABLE_PODS:
            self._requeueing.updated(entry, before, now)
        else:
            entry.pod = pod
            self._update_order(entry)
        return before

    def delete(self, uid: str) -> PodInfo | None:
        """Remove a pod that was deleted or bound; returns it as last seen (None: it was unknown).

        The attempt of a popped pod goes on; `add_unschedulable_if_not_present` will refuse it.
        """
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._set_rejectors(entry, NO_PLUGINS, NO_PLUGINS)
            self._put(entry, Place.ABSENT)
        if self.nominator.by_node:
            self.nominator.remove(uid)
        return None if entry is None else entry.newest

    def move_all_to_active_or_backoff(
        self,
        change: ClusterChange,
        now: float,
        *,
        max_priority: int | None = None,
        except_uid: str = "",
    ) -> int:
        """Requeue the unschedulable pods that a change in the cluster may help.

        Returns how many it has moved; where many are concerned, the rest follows in slices
        (`backlog`). `max_priority` limits it to pods that a nomination of that priority stood in
        the way of; `except_uid` is a pod that the change came from.
        """
        moved = 0
        if self._counts[Place.UNSCHEDULABLE] or self._counts[Place.GATED]:
            moved = self._requeueing.after(change, now, max_priority, except_uid)
        self._in_flight.record(change)
        return moved

    # --- what the scheduling coroutine and binding tasks call -----------------------------------

    def pop(self, item: ActiveItem) -> QueuedPod | None:
        """Put the pod of an item taken from activeQ in flight; None if the item is stale."""
        entry = item.entry
        stale = entry is None or entry.sequence != item.sequence
        return None if entry is None or stale else self._pop(entry)

    def pop_with_group(self, uid: str) -> QueuedPod | None:
        """Put a member in flight with the one that was popped; None: it cannot be tried now."""
        entry = self.entries.get(uid)
        stays = entry is None or entry.place in POPPED or entry.place is Place.GATED
        return None if entry is None or stays else self._pop(entry)

    def pop_from_backoff(self) -> QueuedPod | None:
        """Put the next pod of podBackoffQ in flight if activeQ is empty; None: there is none."""
        if self._counts[Place.ACTIVE] or not self._counts[Place.BACKOFF]:
            return None
        entry = self._backoff_q.pop_backoff()
        if entry is None:
            return None
        entry.active_since = None
        self._note(entry, "active", QueueEvent.POP_FROM_BACKOFF)
        return self._pop(entry)

    def add_unschedulable_if_not_present(
        self,
        entry: QueuedPod,
        unschedulable_plugins: Iterable[str] = (),
        pending_plugins: Iterable[str] = (),
        *,
        error: bool = False,
        now: float,
    ) -> Place | None:
        """Give back a popped pod (`AddUnschedulableIfNotPresent`); returns where it went.

        Without rejectors, or with `error`, it goes to podErrorBackoffQ. Its rejectors' hints judge
        the changes since it was popped. None: it is gone, or was given back already.
        """
        uid = entry.pod.uid
        if self.entries.get(uid) is not entry:
            if uid not in self.entries:
                self._in_flight.end(uid)
            return None
        if entry.place not in POPPED:
            _log.error("pod %s is already in the queue: %s", entry.pod.key, entry.place.name)
            return None
        served_as_before = self._serve_anew(entry)
        rejected_by = NO_PLUGINS if error else frozenset(unschedulable_plugins)
        self._set_rejectors(entry, rejected_by, NO_PLUGINS if error else frozenset(pending_plugins))
        self._count_failure(entry, now)
        entry.pod = entry.newest
        counts = bool(entry.rejectors) and served_as_before
        changes = self._in_flight.since_popped(uid, entry.profile_name) if counts else None
        self._in_flight.end(uid)
        strategy = self._requeueing.strategy_after(entry, changes)
        self.nominator.add(entry.pod)
        self._requeue(entry, strategy, QueueEvent.ATTEMPT_FAILURE, now)
        return entry.place

    def done(self, uid: str) -> None:
        """Stop remembering changes for a pod that passed Permit: nothing rejects it any more."""
        self._in_flight.end(uid)
        entry = self.entries.get(uid)
        if entry is not None and entry.place is Place.IN_FLIGHT:
            self._put(entry, Place.BINDING)

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Nominate a pod that is in the queue before the API shows it (empty: to no node)."""
        entry = self.entries.get(pod.uid)
        if entry is not None:
            self.nominator.nominate(entry.newest, node_name)
            if entry.place in UNSCHEDULABLE_PODS:
                self._unschedulable_pods.add_or_update(entry)

    def activate(self, pods: Iterable[PodInfo], now: float) -> None:
        """Move pods to activeQ without backoff; one in flight will be retried if it fails."""
        for pod in pods:
            entry = self.entries.get(pod.uid)
            if entry is None:
                continue
            if entry.place in UNSCHEDULABLE_PODS:
                self._activate(entry, QueueEvent.FORCE_ACTIVATE, now)
            elif entry.place in BACKOFF_Q:
                self._move_to_active_q(entry, QueueEvent.FORCE_ACTIVATE, now)
            else:
                self._in_flight.record(_everything(QueueEvent.FORCE_ACTIVATE), uid=pod.uid)

    def rerun_pre_enqueue(self, uid: str, place: Place = Place.GATED) -> None:
        """Run PreEnqueue of a gated pod; if it passes, only its other rejectors hold the pod."""
        entry = self.entries.get(uid)
        if entry is not None and entry.place is place:
            self._move_to_unschedulable_pods(entry, QueueEvent.GATE_OPENED)

    def retry_profile(self, profile_name: str, now: float) -> None:
        """Requeue every pod that a profile rejected or gated before it changed."""
        self._requeueing.of_profile(profile_name, now)
        self._in_flight.record(_everything(QueueEvent.PROFILE_CHANGE), profile_name=profile_name)

    def move_to_profile(self, entry: QueuedPod, profile_name: str, now: float) -> None:
        """Let another profile serve a pod that waits: what the former one said of it is void."""
        rejected_by, pending = entry.unschedulable_plugins, entry.pending_plugins
        self._set_rejectors(entry, NO_PLUGINS, NO_PLUGINS)
        entry.profile_name = profile_name
        if entry.place is not Place.GATED:
            self._set_rejectors(entry, rejected_by, pending)
        if entry.place in UNSCHEDULABLE_PODS:
            strategy = QueueingStrategy.AFTER_BACKOFF
            self._requeue(entry, strategy, QueueEvent.PROFILE_CHANGE, now)
        else:
            self._passes_pre_enqueue(entry, QueueEvent.PROFILE_CHANGE)

    def reorder(self) -> None:
        """Sort activeQ and backoffQ anew after QueueSort changed."""
        for entry in self.entries.values():
            if entry.sequence:
                self._update_order(entry)

    # --- what timers and metrics call -----------------------------------------------------------

    def flush_backoff(self, now: float) -> None:
        """Move pods whose backoff has passed to activeQ; due each whole second."""
        self.backlog.begin(self._backoff_flush(now))

    def flush_unschedulable(self, now: float) -> None:
        """Requeue pods that were unschedulable for too long: the net below hints that miss some."""
        self._requeueing.timed_out(now - self.max_unschedulable_seconds, now)

    def _backoff_flush(self, now: float) -> Work:
        for entry in self._backoff_q.pop_all_backoff_completed(now):
            # PreEnqueue ran on the way into backoffQ.
            self._move_to_active_q(entry, QueueEvent.BACKOFF_COMPLETE, now)
            yield MOVE_UNITS

    def _enter(self, pod: PodInfo, profile_name: str, event: QueueEvent, now: float) -> None:
        entry = self.entries[pod.uid] = QueuedPod(pod, pod, profile_name, now)
        self._activate(entry, event, now)

    def _requeue(
        self, entry: QueuedPod, strategy: QueueingStrategy, event: str, now: float
    ) -> None:
        """Move a pod to the place of a strategy (`requeuePodWithQueueingStrategy`, v1.36)."""
        if strategy is QueueingStrategy.SKIP:
            self._move_to_unschedulable_pods(entry, event)
        elif strategy is QueueingStrategy.AFTER_BACKOFF and is_backing_off(entry, now):
            self._move_to_backoff_q(entry, event)
        else:
            self._activate(entry, event, now)

    def _move_to_unschedulable_pods(self, entry: QueuedPod, event: str) -> None:
        """Move a rejected pod to unschedulablePods, gated or not.

        kube-scheduler runs PreEnqueue only when the pod leaves again; run here, it keeps a pod that
        preempts others gated until its preemption has been carried out, whatever changes.
        """
        if self._passes_pre_enqueue(entry, event):
            self._put(entry, Place.UNSCHEDULABLE)
            self._note(entry, "unschedulable", event)

    def _activate(self, entry: QueuedPod, event: str, now: float) -> None:
        if self._passes_pre_enqueue(entry, event):
            self._move_to_active_q(entry, event, now)

    def _move_to_active_q(self, entry: QueuedPod, event: str, now: float) -> None:
        if entry.initial_attempt_at is None:
            entry.initial_attempt_at = now
            if entry.pod.nominated_node_name:
                # Never tried, it can have no other nomination than its status says.
                self.nominator.add(entry.pod)
        entry.active_since = now
        self._put(entry, Place.ACTIVE)
        self._note(entry, "active", event)
        self._push_active(entry, self._turn(entry, now))

    def _move_to_backoff_q(self, entry: QueuedPod, event: str) -> None:
        # Run here and not when it leaves: an idle activeQ pops pods from here at any time.
        if not self._passes_pre_enqueue(entry, event):
            return
        self._put(entry, Place.BACKOFF if entry.may_go_early else Place.ERROR_BACKOFF)
        self._note(entry, "backoff", event)
        self._push_backoff(entry)
        if entry.place is Place.BACKOFF and not self._counts[Place.ACTIVE]:
            self._wake()

    def _passes_pre_enqueue(self, entry: QueuedPod, event: str) -> bool:
        """Run PreEnqueue; a pod that a plugin gates moves to unschedulablePods."""
        status = self._policy.pre_enqueue(entry.pod, entry.gating_plugin)
        if status.ok:
            entry.gating_plugin = ""
            return True
        entering = entry.place not in UNSCHEDULABLE_PODS
        entry.gating_plugin = status.plugin
        rejected_by = entry.unschedulable_plugins | {status.plugin}
        self._set_rejectors(entry, rejected_by, entry.pending_plugins)
        self._put(entry, Place.GATED)
        if entering:
            self._note(entry, "unschedulable", event)
        return False

    def _put(self, entry: QueuedPod, place: Place) -> None:
        """Change `place`, here alone: counts, index and sequence change with it."""
        before, entry.place = entry.place, place
        self._counts[before] -= 1
        self._counts[place] += 1
        # What lies in activeQ or backoffQ for it is stale from here on.
        entry.sequence = 0
        if (before is Place.ACTIVE) is not (place is Place.ACTIVE):
            self._count_waiting(entry.pod.namespace, 1 if place is Place.ACTIVE else -1)
        if place in UNSCHEDULABLE_PODS:
            self._unschedulable_pods.add_or_update(entry)
        elif before in UNSCHEDULABLE_PODS:
            self._unschedulable_pods.delete(entry.pod.uid)

    def _turn(self, entry: QueuedPod, now: float) -> float:
        """When the pod counts as having come, among those of equal priority."""
        namespace, retry = entry.pod.namespace, entry.attempts > 0
        if retry and self.nominator.node_of(entry.pod.uid):
            # Room is kept for it, which others are kept from.
            return entry.queued_at
        came_at = now + RETRY_GIVES_WAY_SECONDS if retry else entry.queued_at
        waiting = self._waiting[namespace]
        if waiting <= FIRST and namespace not in self._turns.taken:
            return came_at
        return self._turns.turn(namespace, came_at, waiting, retry=retry)

    def _count_waiting(self, namespace: str, change: int) -> None:
        waiting = self._waiting[namespace] = self._waiting.get(namespace, 0) + change
        if not waiting:
            del self._waiting[namespace]
            self._turns.taken.pop(namespace, None)

    def _push_active(self, entry: QueuedPod, sorted_at: float) -> None:
        entry.sorted_at = sorted_at
        entry.sort_key = self._policy.sort_key(entry.pod, entry.sorted_at)
        entry.sequence = next(self._sequence)
        self._push(ActiveItem(entry.sort_key, entry.sequence, entry))

    def _push_backoff(self, entry: QueuedPod) -> None:
        entry.sorted_at = entry.queued_at
        entry.sort_key = self._policy.sort_key(entry.pod, entry.sorted_at)
        entry.sequence = next(self._sequence)
        self._backoff_q.push(entry, self._counts[entry.place])

    # --- updates of a pod in a queue ------------------------------------------------------------

    def _update_order(self, entry: QueuedPod) -> None:
        """Sort an entry of activeQ or backoffQ anew if its key changed; its old item is stale."""
        if self._policy.sort_key(entry.pod, entry.sorted_at) == entry.sort_key:
            return
        if entry.place is Place.ACTIVE:
            self._push_active(entry, entry.sorted_at)
        else:
            self._push_backoff(entry)

    def _serve_anew(self, entry: QueuedPod) -> bool:
        """Note the profile that serves a popped pod by now; False: it is another one."""
        before, entry.profile_name = entry.profile_name, self._policy.profile_name(entry.newest)
        return before == entry.profile_name

    def _pop(self, entry: QueuedPod) -> QueuedPod:
        self._put(entry, Place.IN_FLIGHT)
        entry.attempts += 1
        self._set_rejectors(entry, NO_PLUGINS, NO_PLUGINS)
        self._in_flight.start(entry.pod.uid)
        return entry

    def _count_failure(self, entry: QueuedPod, now: float) -> None:
        """Count a rejection or an error, and begin the backoff that follows."""
        if entry.rejectors:
            entry.unschedulable_count += 1
            entry.consecutive_errors = 0
        else:
            entry.consecutive_errors += 1
        entry.queued_at = now
        entry.was_flushed = False
        set_backoff(entry, self._policy.backoff(entry.pod))

    def _set_rejectors(
        self, entry: QueuedPod, unschedulable: frozenset[str], pending: frozenset[str]
    ) -> None:
        """Set the plugins that rejected a pod, and report what is new and what is no longer so."""
        if not (entry.unschedulable_plugins or entry.pending_plugins or unschedulable or pending):
            # As most pods: never rejected.
            return
        before = entry.rejectors
        entry.unschedulable_plugins, entry.pending_plugins = unschedulable, pending
        if self._observer is not None:
            after, profile = entry.rejectors, entry.profile_name
            for plugin in before - after:
                self._observer.rejected(plugin, profile, -1)
            for plugin in after - before:
                self._observer.rejected(plugin, profile, 1)

    def _note(self, entry: QueuedPod, queue: str, event: str) -> None:
        if self._observer is not None:
            self._observer.incoming(queue, event)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("pod %s moved to %s by %s", entry.pod.key, queue, event)


def _everything(event: QueueEvent) -> ClusterChange:
    return ClusterChange(Resource.WILDCARD, Action.ALL, label=event)
