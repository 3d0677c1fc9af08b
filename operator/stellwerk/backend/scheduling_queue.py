"""Every pod that waits to be scheduled, and which of them is next.

Event handlers add, update and delete pods and report changes in the cluster; the scheduling
coroutine takes pods and gives back those that failed; a timer flushes. activeQ itself is a priority
queue elsewhere, fed through `push`: entries that leave it early stay there as stale items, which
`pop` refuses. Invariant: each pod has one entry and each entry one `place`, from `add` until it is
deleted or bound (`delete`), so that no pod is lost and none is taken twice.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count, takewhile
from typing import Final, TypeAlias

from stellwerk.backend.backoff_queue import BackoffQueue, is_backing_off, set_backoff
from stellwerk.backend.change_actions import pod_update_actions
from stellwerk.backend.in_flight_events import InFlightEvents
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.queued_pod import (
    BACKING_OFF,
    NO_PLUGINS,
    TAKEN,
    WAITING,
    Place,
    QueuedPod,
    QueueEvent,
    QueueingStrategy,
)
from stellwerk.backend.queueing_policy import QueueingPolicy, QueueObserver
from stellwerk.backend.unschedulable_pods import UnschedulablePods
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.models.pod import PodInfo

_log = logging.getLogger(__name__)

MAX_UNSCHEDULABLE_SECONDS: Final = 300.0
"""`DefaultPodMaxInUnschedulablePodsDuration`."""

ActiveItem: TypeAlias = tuple[tuple[float, ...], int, QueuedPod]
"""(sort key, sequence, entry): what a priority queue orders; equal keys are in order of entry."""
Push: TypeAlias = Callable[[tuple[float, ...], int, QueuedPod], None]


class SchedulingQueue:
    """See the module docstring. `now` is always the monotonic time in seconds."""

    def __init__(
        self,
        push: Push,
        policy: QueueingPolicy,
        *,
        nominator: Nominator | None = None,
        observer: QueueObserver | None = None,
        wake: Callable[[], None] = lambda: None,
        max_unschedulable_seconds: float = MAX_UNSCHEDULABLE_SECONDS,
    ) -> None:
        self.nominator = nominator or Nominator()
        self._push = push
        self._policy = policy
        self._observer = observer
        self._wake = wake
        """Called when backoffQ has a pod and activeQ none: `pop_from_backoff` would find it."""
        self._max_unschedulable_seconds = max_unschedulable_seconds
        self._entries: dict[str, QueuedPod] = {}
        self._counts = [0] * len(Place)
        self._backoff = BackoffQueue()
        self._waiting = UnschedulablePods(policy.hints, observer)
        self._longest_waiting: OrderedDict[str, QueuedPod] = OrderedDict()
        """WAITING entries by uid, in the order of queued_at."""
        self._in_flight = InFlightEvents()
        self._sequence = count(1)

    # --- what handlers tell ---------------------------------------------------------------------

    def add(self, pod: PodInfo, now: float) -> None:
        """A pod of ours without a node appeared."""
        known = self._entries.get(pod.uid)
        if known is not None:
            _log.error("pod %s was added, but is in the queue: %s", pod.key, known.place.name)
            if known.place in TAKEN:
                self.update(pod, now)
                return
            self.delete(pod.uid)
        self._enter(pod, QueueEvent.POD_ADD, now)

    def update(self, pod: PodInfo, now: float) -> PodInfo | None:
        """A pod without a node changed; returns it as it was before (None: it was unknown).

        In activeQ and backoffQ it stays; a rejected pod is woken if a rejector's hint says that
        this change may help; for a pod that is being scheduled the change is remembered.
        """
        entry = self._entries.get(pod.uid)
        if entry is None:
            self._enter(pod, QueueEvent.POD_UPDATE, now)
            return None
        before, entry.newest = entry.newest, pod
        if _same_version(before, pod):
            return before
        if entry.place in TAKEN:
            for change in _own_changes(before, pod):
                self._in_flight.record(change, uid=pod.uid)
            return before
        self.nominator.update(before, pod)
        if entry.place in WAITING:
            self._update_waiting(entry, before, now)
        else:
            entry.pod = pod
            self._update_order(entry)
        return before

    def delete(self, uid: str) -> PodInfo | None:
        """A pod was deleted or bound; returns it as last seen (None: it was unknown).

        The attempt of a taken pod goes on; `add_unschedulable_if_not_present` will refuse it.
        """
        self.nominator.remove(uid)
        entry = self._entries.pop(uid, None)
        if entry is None:
            return None
        self._set_rejectors(entry, NO_PLUGINS, NO_PLUGINS)
        self._put(entry, Place.GONE)
        return entry.newest

    def move_all_to_active_or_backoff(
        self,
        change: ClusterChange,
        now: float,
        *,
        max_priority: int | None = None,
        except_uid: str = "",
    ) -> int:
        """Something changed in the cluster: wakes the pods that it may help; returns how many.

        `max_priority` limits it to pods that a nomination of that priority stood in the way of;
        `except_uid` is a pod that it is no news to.
        """
        woken = self._waiting.woken_by(change, max_priority)
        if except_uid:
            woken = [each for each in woken if each[0].pod.uid != except_uid]
        for entry, strategy in woken:
            self._requeue(entry, strategy, change.name, now)
        self._in_flight.record(change)
        return len(woken)

    # --- what the scheduling coroutine does -----------------------------------------------------

    def pop(self, entry: QueuedPod, now: float) -> QueuedPod | None:
        """Take an entry that came out of activeQ; None if it is stale. It is then in flight."""
        return self._pop(entry, now) if entry.place is Place.ACTIVE else None

    def pop_from_backoff(self, now: float) -> QueuedPod | None:
        """Take the next pod of backoffQ if activeQ is empty; pods that broke wait to the end."""
        if self._counts[Place.ACTIVE]:
            return None
        entry = self._backoff.pop_early()
        if entry is None:
            return None
        self._note(entry, "active", QueueEvent.POP_FROM_BACKOFF)
        return self._pop(entry, now)

    def add_unschedulable_if_not_present(
        self,
        entry: QueuedPod,
        unschedulable_plugins: Iterable[str] = (),
        pending_plugins: Iterable[str] = (),
        *,
        error: bool = False,
        now: float,
    ) -> Place | None:
        """Give back a taken pod (`AddUnschedulableIfNotPresent`); returns where it went.

        Without rejectors, or with `error`, it goes to error backoff. Changes that came while it was
        in flight are put to its rejectors' hints now. None: it is gone, or was given back already.
        """
        uid = entry.pod.uid
        if self._entries.get(uid) is not entry:
            if uid not in self._entries:
                self._in_flight.end(uid)
            return None
        if entry.place not in TAKEN:
            _log.error("pod %s is already in the queue: %s", entry.pod.key, entry.place.name)
            return None
        rejected_by = NO_PLUGINS if error else frozenset(unschedulable_plugins)
        self._set_rejectors(entry, rejected_by, NO_PLUGINS if error else frozenset(pending_plugins))
        self._count_failure(entry, now)
        entry.pod = entry.newest
        strategy = self._missed(entry)
        self._in_flight.end(uid)
        self._requeue(entry, strategy, QueueEvent.ATTEMPT_FAILURE.value, now)
        self.nominator.add(entry.pod)
        return entry.place

    def done(self, uid: str) -> None:
        """No rejection can come any more (Permit has passed): changes need not be remembered."""
        self._in_flight.end(uid)
        entry = self._entries.get(uid)
        if entry is not None and entry.place is Place.IN_FLIGHT:
            self._put(entry, Place.BINDING)

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Promise a node ahead of the API (empty: take it back), unless the pod is gone."""
        entry = self._entries.get(pod.uid)
        if entry is not None:
            self.nominator.nominate(entry.newest, node_name)

    def activate(self, pods: Iterable[PodInfo], now: float) -> None:
        """Move pods to activeQ without backoff; one in flight will be retried if it fails."""
        for pod in pods:
            entry = self._entries.get(pod.uid)
            if entry is None:
                continue
            if entry.place in WAITING:
                self._activate(entry, QueueEvent.FORCE_ACTIVATE.value, now)
            elif entry.place in BACKING_OFF:
                self._enter_active(entry, QueueEvent.FORCE_ACTIVATE.value, now)
            else:
                self._in_flight.record(_everything(QueueEvent.FORCE_ACTIVATE), uid=pod.uid)

    def rerun_pre_enqueue(self, uid: str) -> None:
        """A gated pod's plugin may let it pass now; then it waits for its other rejectors only."""
        entry = self._entries.get(uid)
        if entry is not None and entry.place is Place.GATED:
            self._lay_down(entry, QueueEvent.GATE_OPENED.value)

    def retry_profile(self, scheduler_name: str, now: float) -> None:
        """The profile changed: every pod that it rejected or gated deserves another attempt."""
        self._waiting.refresh_hints(scheduler_name)
        for entry in self._waiting.of_profile(scheduler_name):
            self._requeue(
                entry, QueueingStrategy.AFTER_BACKOFF, QueueEvent.PROFILE_CHANGE.value, now
            )
        self._in_flight.record(
            _everything(QueueEvent.PROFILE_CHANGE), scheduler_name=scheduler_name
        )

    def reorder(self) -> None:
        """QueueSort changed: give every pod in activeQ and backoffQ its new place in the order."""
        for entry in list(self._entries.values()):
            if entry.place not in WAITING and entry.place not in TAKEN:
                self._update_order(entry)

    # --- what timers do -------------------------------------------------------------------------

    def flush_backoff(self, now: float) -> None:
        """Move pods whose backoff has passed to activeQ; due each whole second."""
        for entry in self._backoff.pop_completed(now):
            # PreEnqueue was asked on the way into backoffQ.
            self._enter_active(entry, QueueEvent.BACKOFF_COMPLETE.value, now)

    def flush_unschedulable(self, now: float) -> None:
        """Retry pods that waited too long: the net below hints that miss something."""
        latest = now - self._max_unschedulable_seconds
        too_long = takewhile(lambda entry: entry.queued_at < latest, self._longest_waiting.values())
        for entry in [entry for entry in too_long if entry.place is Place.UNSCHEDULABLE]:
            entry.was_flushed = True
            event = QueueEvent.UNSCHEDULABLE_TIMEOUT.value
            self._requeue(entry, QueueingStrategy.AFTER_BACKOFF, event, now)

    # --- what others ask ------------------------------------------------------------------------

    def __len__(self) -> int:
        """How many pods have an entry, taken ones included."""
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def entry(self, uid: str) -> QueuedPod | None:
        """The entry of a pod; treat as read-only."""
        return self._entries.get(uid)

    def entries(self) -> Iterator[QueuedPod]:
        """Every entry, taken ones included."""
        return iter(self._entries.values())

    def pod(self, uid: str) -> PodInfo | None:
        """The pod as the API last showed it."""
        entry = self._entries.get(uid)
        return entry.newest if entry else None

    def place(self, uid: str) -> Place | None:
        """Where a pod is, for the audit; None: nowhere."""
        entry = self._entries.get(uid)
        return entry.place if entry else None

    def counted(self, *places: Place) -> int:
        """How many pods are in these places; O(1)."""
        return sum(self._counts[place] for place in places)

    def pending(self) -> Mapping[str, int]:
        """Pods by the label of `scheduler_pending_pods`; O(1)."""
        return {
            "active": self._counts[Place.ACTIVE],
            "backoff": self.counted(Place.BACKOFF, Place.ERROR_BACKOFF),
            "unschedulable": self._counts[Place.UNSCHEDULABLE],
            "gated": self._counts[Place.GATED],
        }

    def in_flight_event_counts(self) -> Mapping[str, int]:
        """Remembered changes by name, and pods in flight, for `scheduler_inflight_events`."""
        return self._in_flight.counts()

    def position(self, uid: str) -> int | None:
        """How many pods in activeQ are to be taken before this one; None: it is not there. O(n)."""
        entry = self._entries.get(uid)
        if entry is None or entry.place is not Place.ACTIVE:
            return None
        own = (entry.sort_key, entry.sequence)
        return sum(
            other.place is Place.ACTIVE and (other.sort_key, other.sequence) < own
            for other in self._entries.values()
        )

    def describe(self) -> str:
        """The summary line that kube-scheduler writes on SIGUSR2."""
        backing_off = self.counted(Place.BACKOFF, Place.ERROR_BACKOFF)
        waiting = self.counted(Place.UNSCHEDULABLE, Place.GATED)
        return (
            f"activeQ:{self._counts[Place.ACTIVE]}; backoffQ:{backing_off}; "
            f"unschedulablePods:{waiting}"
        )

    # --- moving ---------------------------------------------------------------------------------

    def _enter(self, pod: PodInfo, event: QueueEvent, now: float) -> None:
        entry = self._entries[pod.uid] = QueuedPod(pod, pod, now)
        self._activate(entry, event.value, now)

    def _requeue(
        self, entry: QueuedPod, strategy: QueueingStrategy, event: str, now: float
    ) -> None:
        """`requeuePodWithQueueingStrategy`, v1.36."""
        if strategy is QueueingStrategy.SKIP:
            self._lay_down(entry, event)
        elif strategy is QueueingStrategy.AFTER_BACKOFF and is_backing_off(entry, now):
            self._back_off(entry, event)
        else:
            self._activate(entry, event, now)

    def _lay_down(self, entry: QueuedPod, event: str) -> None:
        """Let a rejected pod wait, gated or not.

        kube-scheduler asks the gates only when the pod is woken; asked here, they spare a pod that
        preempts others every change until its victims are told.
        """
        if self._passes_gates(entry, event):
            self._put(entry, Place.UNSCHEDULABLE)
            self._note(entry, "unschedulable", event)

    def _activate(self, entry: QueuedPod, event: str, now: float) -> None:
        if self._passes_gates(entry, event):
            self._enter_active(entry, event, now)

    def _enter_active(self, entry: QueuedPod, event: str, now: float) -> None:
        if entry.initial_attempt_at is None:
            entry.initial_attempt_at = now
            self.nominator.add(entry.pod)
        self._put(entry, Place.ACTIVE)
        self._note(entry, "active", event)
        self._push_active(entry)

    def _back_off(self, entry: QueuedPod, event: str) -> None:
        # Asked here and not when it leaves: an idle activeQ takes pods from here at any time.
        if not self._passes_gates(entry, event):
            return
        self._put(entry, Place.BACKOFF if entry.rejectors else Place.ERROR_BACKOFF)
        self._note(entry, "backoff", event)
        self._push_backoff(entry)
        if entry.place is Place.BACKOFF and not self._counts[Place.ACTIVE]:
            self._wake()

    def _passes_gates(self, entry: QueuedPod, event: str) -> bool:
        """Ask PreEnqueue; a pod that a plugin gates waits for what that plugin registered."""
        status = self._policy.pre_enqueue(entry.pod, entry.gating_plugin)
        if status.ok:
            entry.gating_plugin = ""
            return True
        entering = entry.place not in WAITING
        entry.gating_plugin = status.plugin
        rejected_by = entry.unschedulable_plugins | {status.plugin}
        self._set_rejectors(entry, rejected_by, entry.pending_plugins)
        self._put(entry, Place.GATED)
        if entering:
            self._note(entry, "unschedulable", event)
        return False

    def _put(self, entry: QueuedPod, place: Place) -> None:
        """The one place where `place` changes: indexes and counts change with it."""
        uid = entry.pod.uid
        if entry.place in WAITING:
            self._waiting.remove(uid)
            if place not in WAITING:
                del self._longest_waiting[uid]
        self._counts[entry.place] -= 1
        self._counts[place] += 1
        entry.place = place
        if place in WAITING:
            self._waiting.add(entry)
            # A gate that opens or closes is no new beginning.
            self._longest_waiting.setdefault(uid, entry)

    def _push_active(self, entry: QueuedPod) -> None:
        entry.sort_key = self._policy.sort_key(entry.pod, entry.queued_at)
        entry.sequence = next(self._sequence)
        self._push(entry.sort_key, entry.sequence, entry)

    def _push_backoff(self, entry: QueuedPod) -> None:
        entry.sort_key = self._policy.sort_key(entry.pod, entry.queued_at)
        entry.sequence = next(self._sequence)
        self._backoff.push(entry, self._counts[entry.place])

    # --- updates of a pod in a queue ------------------------------------------------------------

    def _update_order(self, entry: QueuedPod) -> None:
        """Sort an entry anew if its pod's update moved it; the old item becomes stale."""
        if self._policy.sort_key(entry.pod, entry.queued_at) == entry.sort_key:
            return
        if entry.place in BACKING_OFF:
            self._push_backoff(entry)
            return
        # activeQ knows entries, not sequences: the item that lies there must be of another entry.
        moved = self._entries[entry.pod.uid] = replace(entry)
        entry.place = Place.GONE
        self._push_active(moved)

    def _update_waiting(self, entry: QueuedPod, before: PodInfo, now: float) -> None:
        pod, place = entry.newest, entry.place
        self._waiting.remove(pod.uid)
        entry.pod = pod
        self._waiting.add(entry)
        for change in _own_changes(before, pod):
            strategy = self._waiting.strategy_for(entry, change)
            if strategy is QueueingStrategy.SKIP:
                continue
            self._requeue(entry, strategy, change.name, now)
            if entry.place is not place:
                return

    # --- attempts -------------------------------------------------------------------------------

    def _pop(self, entry: QueuedPod, now: float) -> QueuedPod:
        self._put(entry, Place.IN_FLIGHT)
        entry.taken_at = now
        entry.attempts += 1
        self._set_rejectors(entry, NO_PLUGINS, NO_PLUGINS)
        self._in_flight.start(entry.pod.uid)
        return entry

    def _count_failure(self, entry: QueuedPod, now: float) -> None:
        if entry.rejectors:
            entry.unschedulable_count += 1
            entry.consecutive_errors = 0
        else:
            entry.consecutive_errors += 1
        entry.queued_at = now
        entry.was_flushed = False
        set_backoff(entry, self._policy.backoff(entry.pod.spec.scheduler_name))

    def _missed(self, entry: QueuedPod) -> QueueingStrategy:
        """What the changes during the attempt mean (`determineSchedulingHintForInFlightPod`)."""
        if not entry.rejectors:
            return QueueingStrategy.AFTER_BACKOFF
        changes = self._in_flight.since_taken(entry.pod)
        if changes is None:
            return QueueingStrategy.AFTER_BACKOFF
        best = (
            QueueingStrategy.IMMEDIATELY
            if entry.pending_plugins
            else QueueingStrategy.AFTER_BACKOFF
        )
        found = QueueingStrategy.SKIP
        for change in changes:
            found = max(found, self._waiting.strategy_for(entry, change))
            if found is best:
                break
        return found

    def _set_rejectors(
        self, entry: QueuedPod, unschedulable: frozenset[str], pending: frozenset[str]
    ) -> None:
        before = entry.rejectors
        entry.unschedulable_plugins, entry.pending_plugins = unschedulable, pending
        if self._observer is not None and (before or unschedulable or pending):
            after, profile = entry.rejectors, entry.pod.spec.scheduler_name
            for plugin in before - after:
                self._observer.rejected(plugin, profile, -1)
            for plugin in after - before:
                self._observer.rejected(plugin, profile, 1)

    def _note(self, entry: QueuedPod, queue: str, event: str) -> None:
        if self._observer is not None:
            self._observer.incoming(queue, event)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("pod %s moved to %s by %s", entry.pod.key, queue, event)


def _same_version(before: PodInfo, pod: PodInfo) -> bool:
    """Whether this is an echo; a priority resolved late changes the spec of the same version."""
    version = pod.resource_version
    return bool(version) and version == before.resource_version and pod.spec is before.spec


def _own_changes(old: PodInfo, new: PodInfo) -> Iterator[ClusterChange]:
    for action in pod_update_actions(old, new):
        yield ClusterChange(Resource.UNSCHEDULED_POD, action, old, new)


def _everything(event: QueueEvent) -> ClusterChange:
    return ClusterChange(Resource.WILDCARD, Action.ALL, label=event.value)
