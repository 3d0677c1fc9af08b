"""The queue of all pods that are to be scheduled (`PriorityQueue`), as plain state.

Event handlers add, update and delete pods and report changes in the cluster. The scheduling
coroutine pops pods and gives back those that failed. Timers flush. activeQ itself is a priority
queue elsewhere, fed through `push`: an entry that leaves it early, or is sorted again, leaves a
stale item there, which `pop` refuses.

From a change in the cluster to a requeued pod, call by call: `EventHandlers` reports the change;
`move_all_to_active_or_backoff`, `_requeue_by_hints`; `UnschedulablePods.ask_hints` finds the pods
that were rejected by plugins with a registration for the change; `HintEvaluation` calls the
functions that these plugins have registered (`events_to_register`, for example `_began_to_match` of
NodeAffinity); `_requeue` moves each pod for which one of them answers Queue, to activeQ, or to
backoffQ if its backoff has not passed. Files beside this one have the parts:
`backoff_queue`, `unschedulable_pods` and `queueing_hints` (which pods a change may help),
`in_flight_events` (changes that come while a pod is being tried), `requeue_backlog` (changes that
concern many pods), `namespace_fairness` (the order among equals).

No limit bounds the number of pods here, in all or by namespace: the queue holds every pending pod
of the API, where ResourceQuotas bound them. One pod is bounded by `models.complexity`: beyond
`--max-pod-complexity` it stays here and is rejected without a look at any node.
Invariants: each pod has one entry, and each entry one `place`, from `add` until `delete`, so that
no pod is lost and none is popped twice. A change moves only pods whose last attempt ended before
the change came: a later attempt has seen it in its snapshot, or among its in-flight events.
"""

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from stellwerk.backend.backoff_queue import (
    MIN_STALE_ITEMS,
    BackoffQueue,
    is_backing_off,
    set_backoff,
)
from stellwerk.backend.in_flight_events import InFlightEvents
from stellwerk.backend.namespace_fairness import NamespaceFairness
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.queued_pod import (
    BACKOFF_Q,
    IN_FLIGHT,
    NO_PLUGINS,
    UNSCHEDULABLE_PODS,
    ActiveItem,
    Place,
    QueuedPod,
    QueueEvent,
    QueueingStrategy,
)
from stellwerk.backend.queueing_policy import QueueingPolicy, QueueObserver
from stellwerk.backend.requeue_backlog import UNITS_PER_MOVE, RequeueBacklog, Work
from stellwerk.backend.unschedulable_pods import UnschedulablePods
from stellwerk.framework.events import Action, ClusterChange, Resource, is_echo, own_changes
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroupKey

MAX_UNSCHEDULABLE_SECONDS: Final = 300.0
"""Longest time that a pod stays in unschedulablePods without a retry
(`DefaultPodMaxInUnschedulablePodsDuration`). It helps pods whose hints miss a change."""
_ENTRIES_PER_UNIT: Final = 20
"""Pods of other profiles whose visit counts as one unit of the backlog."""
_log = logging.getLogger(__name__)


class SchedulingQueue:
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
        push_observed: Callable[[ActiveItem], None] = lambda _: None,
    ) -> None:
        """Begin empty; `push` fills activeQ, `push_observed` the activeQ of observed pods."""
        self.max_unschedulable_seconds = max_unschedulable_seconds
        """Longest time in unschedulablePods without a retry, whatever changes."""
        self.entries: dict[str, QueuedPod] = {}
        """Every pod by uid, popped ones included; other modules only read it."""
        self.nominator = nominator or Nominator()
        self.group_came_at: dict[PodGroupKey, float] = {}
        """Times by which the pods of some groups are sorted, however late they come or return: of
        groups of which some pods are bound and too few. `keep_group_order` writes it."""
        self._push = push
        self._push_observed = push_observed
        self._policy = policy
        self._observer = observer
        self._wake = wake
        """Called when backoffQ has a pod and activeQ none: `pop_from_backoff` would find it."""
        self._backoff_q = BackoffQueue()
        self._unschedulable_pods = UnschedulablePods(
            policy.hints, observer, self.nominator.node_of, policy
        )
        self._in_flight = InFlightEvents()
        self._due: list[tuple[float, int, QueuedPod]] = []
        """A heap of (due_at, number, entry); stale where it is not the `due_at` of the entry."""
        self._counts = [0] * len(Place)
        """Pods by place, without those that are observed."""
        self._observed_counts = [0] * len(Place)
        self._sequence = count(1)
        self._fairness = NamespaceFairness()
        self.backlog = RequeueBacklog(self._retry_all)
        """Requeueing that is too long for one slice; the scheduler works it off."""
        self._moved = 0
        """Pods that changes have moved so far."""
        self._changed_at = 0.0
        """Time at which the last change came."""

    # --- what event handlers call ---------------------------------------------------------------

    def add(self, pod: PodInfo, now: float, profile_name: str = "") -> None:
        """Enter a new pod, which has no node; empty: the profile that its schedulerName names."""
        known = self.entries.get(pod.uid)
        if known is not None:
            _log.error("pod %s was added, but is in the queue: %s", pod.key, known.place.name)
            if known.place in IN_FLIGHT:
                self.update(pod, now)
                return
            self.delete(pod.uid)
        self._enter(pod, profile_name or pod.spec.scheduler_name, QueueEvent.POD_ADD, now)

    def update(self, pod: PodInfo, now: float) -> PodInfo | None:
        """Replace a pod, which has no node; returns it as it was before (None: it was unknown).

        A pod in activeQ or backoffQ stays there. One in unschedulablePods is requeued if a plugin
        that rejected it answers Queue to the update. For a popped pod the update is kept until its
        attempt ends.
        """
        entry = self.entries.get(pod.uid)
        if entry is None:
            self._enter(pod, self._policy.profile_name(pod), QueueEvent.POD_UPDATE, now)
            return None
        before, entry.newest = entry.newest, pod
        if is_echo(before, pod):
            return before
        if entry.place in IN_FLIGHT:
            for change in own_changes(before, pod):
                self._in_flight.record(change, uid=pod.uid)
            return before
        if not entry.is_observed:
            self.nominator.update(before, pod)
        entry.pod = pod
        if entry.place in UNSCHEDULABLE_PODS or entry.place is Place.OBSERVED:
            self._requeue_by_update(entry, before, now)
        else:
            self._update_order(entry)
        return before

    def delete(self, uid: str) -> PodInfo | None:
        """Remove a pod that was deleted or bound; returns it as last seen (None: it was unknown).

        The attempt of a popped pod goes on; `add_unschedulable_if_not_present` will refuse it.
        """
        entry = self.entries.pop(uid, None)
        if entry is not None:
            self._set_unschedulable_plugins(entry, NO_PLUGINS, NO_PLUGINS)
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

        The hints that the rejecting plugins have registered say which (`events_to_register`, asked
        by `UnschedulablePods.ask_hints`). Returns how many pods it has moved; if many are
        concerned, the rest follows in slices (`backlog`). `max_priority` limits it to pods that a
        nomination of that priority may have kept from a node; `except_uid` is the pod that caused
        the change.
        """
        moved = 0
        counts, observed = self._counts, self._observed_counts
        if (
            counts[Place.UNSCHEDULABLE]
            or counts[Place.GATED]
            or observed[Place.UNSCHEDULABLE]
            or observed[Place.GATED]
        ):
            before, self._changed_at = self._moved, now
            work = self._requeue_by_hints(change, now, max_priority, except_uid)
            self.backlog.begin(work, is_change=True)
            moved = self._moved - before
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
        stays = entry is None or entry.place in IN_FLIGHT or entry.place is Place.GATED
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

        Without plugins that rejected it, or with `error`, it goes to podErrorBackoffQ. The hints of
        these plugins judge the changes since it was popped. None: it is gone, or was given back
        already.
        """
        uid = entry.pod.uid
        if self.entries.get(uid) is not entry:
            if uid not in self.entries:
                self._in_flight.end(uid)
            return None
        if entry.place not in IN_FLIGHT:
            _log.error("pod %s is already in the queue: %s", entry.pod.key, entry.place.name)
            return None
        # Another profile may serve the pod by now. Its plugins have not rejected the pod, so that
        # their hints cannot judge the changes.
        profile_before, entry.profile_name = (
            entry.profile_name,
            self._policy.profile_name(entry.newest),
        )
        served_as_before = profile_before == entry.profile_name
        if (entry.profile_name in self._policy.observing) is not entry.is_observed:
            self.hand_over(entry, now)
            return self.place(uid)
        rejected_by = NO_PLUGINS if error else frozenset(unschedulable_plugins)
        self._set_unschedulable_plugins(
            entry, rejected_by, NO_PLUGINS if error else frozenset(pending_plugins)
        )
        self._count_failure(entry, now)
        entry.pod = entry.newest
        counts = bool(entry.rejector_plugins) and served_as_before
        changes = self._in_flight.since_popped(uid, entry.profile_name) if counts else None
        self._in_flight.end(uid)
        strategy = self._strategy_after_attempt(entry, changes)
        if not entry.is_observed:
            self.nominator.add(entry.pod)
        self._requeue(entry, strategy, QueueEvent.ATTEMPT_FAILURE, now)
        return entry.place

    def observe(self, entry: QueuedPod, now: float) -> None:
        """Let a popped pod of a profile that observes wait for the other scheduler.

        It stays until the pod changes, its profile does, or it is bound or deleted.
        """
        if self.entries.get(entry.pod.uid) is entry and entry.place is Place.IN_FLIGHT:
            entry.pod, entry.queued_at = entry.newest, now
            self._put(entry, Place.OBSERVED)
        self._in_flight.end(entry.pod.uid)

    def done(self, uid: str) -> None:
        """Stop keeping changes for a pod that passed Permit: nothing can reject it any more."""
        entry = self.entries.get(uid)
        if entry is not None and entry.place is Place.IN_FLIGHT:
            self._put(entry, Place.BINDING)
        self._in_flight.end(uid)

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
            elif entry.place is not Place.OBSERVED:
                self._in_flight.record(_everything(QueueEvent.FORCE_ACTIVATE), uid=pod.uid)

    def rerun_pre_enqueue(self, uid: str, place: Place = Place.GATED) -> None:
        """Run PreEnqueue of a gated pod; if it passes, only other plugins' rejections hold it."""
        entry = self.entries.get(uid)
        if entry is not None and entry.place is place:
            self._move_to_unschedulable_pods(entry, QueueEvent.GATE_OPENED)

    def retry_profile(self, profile_name: str, now: float) -> None:
        """Requeue every pod that a profile rejected or gated before it changed."""
        self._unschedulable_pods.refresh_hints(profile_name)
        rejected = self._unschedulable_pods.of_profile(profile_name)
        self.backlog.begin(self._requeue_without_hints(rejected, QueueEvent.PROFILE_CHANGE, now))
        self._in_flight.record(_everything(QueueEvent.PROFILE_CHANGE), profile_name=profile_name)
        if profile_name in self._policy.observing or any(self._observed_counts):
            self.backlog.begin(self._follow_mode(profile_name, now))

    def hand_over(self, entry: QueuedPod, now: float) -> None:
        """Enter a pod anew whose profile observes now, or no longer does: nothing of it is void.

        Called with a pod that was popped, or that waits.
        """
        uid = entry.pod.uid
        if self.entries.get(uid) is entry:
            self._in_flight.end(uid)
            self.delete(uid)
            self._enter(entry.newest, entry.profile_name, QueueEvent.PROFILE_CHANGE, now)

    def _follow_mode(self, profile_name: str, now: float) -> Work:
        """Hand over the pods of a profile that has another mode, and decide observed ones anew."""
        is_observed = profile_name in self._policy.observing
        for number, entry in enumerate(list(self.entries.values()), 1):
            if self.entries.get(entry.pod.uid) is not entry or entry.profile_name != profile_name:
                if number % _ENTRIES_PER_UNIT == 0:
                    yield 1
                continue
            if entry.is_observed is not is_observed:
                if entry.place not in IN_FLIGHT:
                    self.hand_over(entry, now)
            elif entry.place is Place.OBSERVED:
                self._activate(entry, QueueEvent.PROFILE_CHANGE, now)
            yield UNITS_PER_MOVE

    def move_to_profile(self, entry: QueuedPod, profile_name: str, now: float) -> None:
        """Let another profile serve a pod that waits; rejections by the former one are void."""
        if (profile_name in self._policy.observing) is not entry.is_observed:
            entry.profile_name = profile_name
            self.hand_over(entry, now)
            return
        rejected_by, pending = entry.unschedulable_plugins, entry.pending_plugins
        self._set_unschedulable_plugins(entry, NO_PLUGINS, NO_PLUGINS)
        entry.profile_name = profile_name
        if entry.place is not Place.GATED:
            self._set_unschedulable_plugins(entry, rejected_by, pending)
        if entry.place in UNSCHEDULABLE_PODS:
            strategy = QueueingStrategy.AFTER_BACKOFF
            self._requeue(entry, strategy, QueueEvent.PROFILE_CHANGE, now)
        elif entry.place is Place.OBSERVED:
            self._activate(entry, QueueEvent.PROFILE_CHANGE, now)
        else:
            self._passes_pre_enqueue(entry, QueueEvent.PROFILE_CHANGE)

    def keep_group_order(self, key: PodGroupKey, came_at: float, uids: Iterable[str]) -> None:
        """Sort a group's pods by the time at which the group came, from now on and in activeQ.

        This also ends their backoff early: a member that a change may help goes to activeQ at once.
        Otherwise pods that came later would take the room while it waits. A member does wait if its
        attempt ended in an error, or if its namespace has spent its share
        (`QueuedPod.may_go_early`). All this ends when `group_came_at` loses the group.
        """
        self.group_came_at[key] = came_at
        for uid in uids:
            entry = self.entries.get(uid)
            if entry is None or entry.place is not Place.ACTIVE:
                continue
            if self._group_came_at(entry) is not None:
                self._push_active(entry, came_at)

    def reorder(self) -> None:
        """Sort activeQ and backoffQ again after QueueSort changed."""
        for entry in self.entries.values():
            if entry.sequence:
                self._update_order(entry)

    # --- what timers and metrics call -----------------------------------------------------------

    def flush_backoff(self, now: float) -> None:
        """Move pods whose backoff has passed to activeQ; due each whole second."""
        self.backlog.begin(self._backoff_flush(now))

    def flush_unschedulable(self, now: float) -> None:
        """Requeue pods that were unschedulable for too long, in case a hint has missed a change.

        Gated pods are among them: PreEnqueue runs again, as often as other pods are retried.
        """
        before = now - self.max_unschedulable_seconds
        waiting = self._unschedulable_pods.queued_before(before)
        # What is observed is decided again by a change alone.
        forgotten = [each for each in waiting if each.flushed_at < before and not each.is_observed]
        for entry in forgotten:
            entry.flushed_at = now
        work = self._requeue_without_hints(forgotten, QueueEvent.UNSCHEDULABLE_TIMEOUT, now)
        self.backlog.begin(work)

    def flush_due(self, wall_seconds: float, now: float) -> None:
        """Requeue the rejected pods whose rejection ends by itself at a time that has come.

        `wall_seconds`: the wall clock, in seconds since the epoch. Each pod is requeued once for a
        time: then its plugin no longer rejects it, or the time is another one.
        """
        due = []
        while self._due and self._due[0][0] <= wall_seconds:
            due_at, _, entry = heappop(self._due)
            if not self._is_due(due_at, entry):
                continue
            if entry.place is Place.IN_FLIGHT:
                # The attempt began before that time.
                ended = _everything(QueueEvent.REJECTION_ENDED)
                self._in_flight.record(ended, uid=entry.pod.uid)
            else:
                due.append(entry)
        if due:
            work = self._requeue_without_hints(due, QueueEvent.REJECTION_ENDED, now)
            self.backlog.begin(work)

    @property
    def has_due(self) -> bool:
        """Whether `flush_due` may find a pod, now or later."""
        return bool(self._due)

    @property
    def next_due(self) -> float:
        """The wall-clock time of the next `flush_due` that may find a pod; infinite: none will."""
        return self._due[0][0] if self._due else math.inf

    def _note_due(self, entry: QueuedPod) -> None:
        """Note when a rejection of an unschedulable pod ends by itself, if that is news.

        Of an observed pod the other scheduler's attempts say when it is decided again.
        """
        if entry.is_observed:
            return
        due_at = self._policy.rejection_ends_at(
            entry.profile_name, entry.unschedulable_plugins, entry.pod
        )
        if due_at in {entry.due_at, math.inf}:
            return
        if len(self._due) > 2 * len(self.entries) + MIN_STALE_ITEMS:
            # A time may be hours away: pods that were deleted would be kept until then.
            self._due = [item for item in self._due if self._is_due(item[0], item[2])]
            heapify(self._due)
        entry.due_at = due_at
        heappush(self._due, (due_at, next(self._sequence), entry))

    def _is_due(self, due_at: float, entry: QueuedPod) -> bool:
        """Whether an item of the heap still says when the rejection of a pod here ends."""
        return entry.due_at == due_at and self.entries.get(entry.pod.uid) is entry

    def _backoff_flush(self, now: float) -> Work:
        for entry in self._backoff_q.pop_all_backoff_completed(now):
            # PreEnqueue ran on the way into backoffQ.
            self._move_to_active_q(entry, QueueEvent.BACKOFF_COMPLETE, now)
            yield UNITS_PER_MOVE

    # --- what metrics, debugger and audit read --------------------------------------------------

    def pod(self, uid: str) -> PodInfo | None:
        """The pod as the API last showed it."""
        entry = self.entries.get(uid)
        return entry.newest if entry else None

    def place(self, uid: str) -> Place | None:
        """The place of a pod; None: it is not in the queue."""
        entry = self.entries.get(uid)
        return entry.place if entry else None

    def position(self, uid: str) -> int | None:
        """The number of pods in activeQ before this one; None: it is not there. O(n)."""
        entry = self.entries.get(uid)
        if entry is None or entry.place is not Place.ACTIVE:
            return None
        own = (entry.sort_key, entry.sequence)
        return sum(
            other.place is Place.ACTIVE
            and not other.is_observed
            and (other.sort_key, other.sequence) < own
            for other in self.entries.values()
        )

    def counted(self, *places: Place) -> int:
        """The number of pods in these places, those that are observed among them."""
        return sum(self._counts[place] + self._observed_counts[place] for place in places)

    def observed(self, *places: Place) -> int:
        """The number of pods in these places that another scheduler serves."""
        return sum(self._observed_counts[place] for place in places)

    def pending(self) -> Mapping[str, int]:
        """Pods by the label of `scheduler_pending_pods`, without those that are observed."""
        return {
            "active": self._counts[Place.ACTIVE],
            "backoff": sum(self._counts[place] for place in BACKOFF_Q),
            "unschedulable": self._counts[Place.UNSCHEDULABLE],
            "gated": self._counts[Place.GATED],
        }

    def in_flight_event_counts(self) -> Mapping[str, int]:
        """Remembered changes by name, and pods in flight, for `scheduler_inflight_events`."""
        return self._in_flight.counts()

    def describe(self) -> str:
        """The summary line that kube-scheduler writes on SIGUSR2."""
        return (
            f"activeQ:{self._counts[Place.ACTIVE]}; backoffQ:{self.pending()['backoff']}; "
            f"unschedulablePods:{self.counted(*UNSCHEDULABLE_PODS)}"
        )

    # --- rejected pods on their way back --------------------------------------------------------
    #
    # Five things requeue a rejected pod. All of them end in `_requeue`, which moves one pod:
    #   a change in the cluster    _requeue_by_hints        if a hint answers Queue
    #   an update of the pod       update                   if a hint answers Queue
    #   the end of its attempt     _strategy_after_attempt  if a hint answers Queue to a change
    #                                                       that came during the attempt
    #   a rejection that ends      flush_due                when a plugin says that it does
    #   a timeout, a new profile   _requeue_without_hints   always
    #   or too many changes

    def _requeue_by_hints(
        self, change: ClusterChange, now: float, max_priority: int | None, except_uid: str
    ) -> Work:
        """Requeue the pods for which a plugin that rejected them answers Queue to a change."""
        for asked, worth in self._unschedulable_pods.ask_hints(change, max_priority):
            yield asked
            worth.sort(key=_order_of_return)
            if self.group_came_at:
                # All of them may be more than one slice moves: these go first.
                worth.sort(key=lambda each: each[0].pod.group not in self.group_came_at)
            for entry, strategy in worth:
                # Slices may have passed since the change came: the pod may have been tried again.
                waits = entry.place in UNSCHEDULABLE_PODS and entry.queued_at <= now
                if waits and entry.pod.uid != except_uid:
                    self._requeue(entry, strategy, change.name, now)
                    self._moved += 1
                    yield UNITS_PER_MOVE

    def _requeue_by_update(self, entry: QueuedPod, before: PodInfo, now: float) -> None:
        """Requeue a pod that was updated if a plugin that rejected it answers Queue to that.

        An observed pod that nothing rejected is decided again, whatever changed.
        """
        place = entry.place
        if place in UNSCHEDULABLE_PODS:
            self._unschedulable_pods.add_or_update(entry)
        if place is Place.UNSCHEDULABLE:
            self._note_due(entry)
        for change in own_changes(before, entry.pod):
            if place is Place.OBSERVED:
                self._activate(entry, change.name, now)
                break
            strategy = self._unschedulable_pods.strategy_for(entry, change)
            if strategy is not QueueingStrategy.SKIP:
                self._requeue(entry, strategy, change.name, now)
                if entry.place is not place:
                    break

    def _requeue_without_hints(
        self, entries: Sequence[QueuedPod], event: QueueEvent, now: float
    ) -> Work:
        """Requeue those of these rejected pods whose last attempt ended before `now`."""
        for entry in entries:
            if entry.place in UNSCHEDULABLE_PODS and entry.queued_at <= now:
                entry.was_flushed = event is QueueEvent.UNSCHEDULABLE_TIMEOUT
                at_once = event is QueueEvent.MANY_CHANGES and entry.pending_plugins
                strategy = (
                    QueueingStrategy.IMMEDIATELY if at_once else QueueingStrategy.AFTER_BACKOFF
                )
                self._requeue(entry, strategy, event, now)
                if entry.place is Place.GATED:
                    # It did not leave by the timeout, and may leave later by a hint that worked.
                    entry.was_flushed = False
                yield UNITS_PER_MOVE

    def _retry_all(self) -> Work:
        """Requeue all of unschedulablePods; the backlog calls it in place of too many changes."""
        rejected = self._unschedulable_pods.queued_before(math.inf)
        return self._requeue_without_hints(rejected, QueueEvent.MANY_CHANGES, self._changed_at)

    def _strategy_after_attempt(
        self, entry: QueuedPod, changes: Sequence[ClusterChange] | None
    ) -> QueueingStrategy:
        """Judge the changes during an attempt (`determineSchedulingHintForInFlightPod`).

        None: the attempt ended in an error, or the changes are not known; the pod is retried after
        its backoff.
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

    def _requeue(
        self, entry: QueuedPod, strategy: QueueingStrategy, event: str, now: float
    ) -> None:
        """Move a pod to the place of a strategy (`requeuePodWithQueueingStrategy`, v1.36)."""
        if strategy is QueueingStrategy.SKIP:
            self._move_to_unschedulable_pods(entry, event)
        elif (
            strategy is QueueingStrategy.AFTER_BACKOFF
            and is_backing_off(entry, now)
            and not (entry.may_go_early and self._group_came_at(entry) is not None)
        ):
            self._move_to_backoff_q(entry, event)
        else:
            self._activate(entry, event, now)

    # --- one pod from place to place ------------------------------------------------------------

    def _enter(self, pod: PodInfo, profile_name: str, event: QueueEvent, now: float) -> None:
        entry = self.entries[pod.uid] = QueuedPod(pod, pod, profile_name, now)
        entry.is_observed = profile_name in self._policy.observing
        self._activate(entry, event, now)

    def _move_to_unschedulable_pods(self, entry: QueuedPod, event: str) -> None:
        """Move a rejected pod to unschedulablePods, gated or not.

        kube-scheduler runs PreEnqueue only when the pod leaves again; run here, it keeps a pod that
        preempts others gated until its preemption has been carried out, whatever changes.
        """
        if self._passes_pre_enqueue(entry, event):
            self._put(entry, Place.UNSCHEDULABLE)
            self._note(entry, "unschedulable", event)
            self._note_due(entry)

    def _activate(self, entry: QueuedPod, event: str, now: float) -> None:
        if self._passes_pre_enqueue(entry, event):
            self._move_to_active_q(entry, event, now)

    def _move_to_active_q(self, entry: QueuedPod, event: str, now: float) -> None:
        if entry.initial_attempt_at is None:
            entry.initial_attempt_at = now
            if entry.pod.details.nominated_node_name and not entry.is_observed:
                # Never tried, it can have no other nomination than its status says.
                self.nominator.add(entry.pod)
        entry.active_since = now
        self._put(entry, Place.ACTIVE)
        is_retry = entry.attempts > 0
        if entry.is_observed:
            sorted_at = now
        elif self.group_came_at and (came_at := self._group_came_at(entry)) is not None:
            sorted_at = came_at
        elif is_retry and self.nominator.node_of(entry.pod.uid):
            # A node's resources are kept free for it, so that no other pod may pass it.
            sorted_at = entry.queued_at
        else:
            came_at = now if is_retry else entry.queued_at
            namespace = entry.pod.namespace
            sorted_at = self._fairness.sorted_at(namespace, came_at, is_retry=is_retry)
        self._push_active(entry, sorted_at)
        self._note(entry, "active", event)

    def _group_came_at(self, entry: QueuedPod) -> float | None:
        """The time by which a pod is sorted with its group; None: by its own."""
        if not self.group_came_at or entry.pod.group is None:
            return None
        came_at = self.group_came_at.get(entry.pod.group)
        is_placed_together = came_at is not None and self._policy.places_groups(entry.profile_name)
        return came_at if is_placed_together else None

    def _move_to_backoff_q(self, entry: QueuedPod, event: str) -> None:
        # Run here and not when it leaves: an idle activeQ pops pods from here at any time.
        if not self._passes_pre_enqueue(entry, event):
            return
        # After an error a pod waits in podErrorBackoffQ, which an idle activeQ does not empty.
        self._put(entry, Place.BACKOFF if entry.may_go_early else Place.ERROR_BACKOFF)
        self._note(entry, "backoff", event)
        self._push_backoff(entry)
        if entry.place is Place.BACKOFF and not self._counts[Place.ACTIVE]:
            self._wake()

    def _passes_pre_enqueue(self, entry: QueuedPod, event: str) -> bool:
        """Run PreEnqueue; returns False for a pod that a plugin gates, which is moved."""
        status = self._policy.pre_enqueue(entry.pod, entry.gating_plugin)
        if status.ok:
            entry.gating_plugin = ""
            return True
        entering = entry.place not in UNSCHEDULABLE_PODS
        entry.gating_plugin = status.plugin
        rejected_by = entry.unschedulable_plugins | {status.plugin}
        self._set_unschedulable_plugins(entry, rejected_by, entry.pending_plugins)
        self._put(entry, Place.GATED)
        if entering:
            self._note(entry, "unschedulable", event)
        return False

    def _put(self, entry: QueuedPod, place: Place) -> None:
        """Change `place`, here alone: counts, index and sequence change with it."""
        before, entry.place = entry.place, place
        counts = self._observed_counts if entry.is_observed else self._counts
        counts[before] -= 1
        counts[place] += 1
        # Its item in activeQ or backoffQ, if there is one, is stale from here on.
        entry.sequence = 0
        if (before is Place.ACTIVE) is not (place is Place.ACTIVE) and not entry.is_observed:
            self._fairness.count(entry.pod.namespace, 1 if place is Place.ACTIVE else -1)
        if place in UNSCHEDULABLE_PODS:
            self._unschedulable_pods.add_or_update(entry)
        elif before in UNSCHEDULABLE_PODS:
            self._unschedulable_pods.delete(entry.pod.uid)

    def _push_active(self, entry: QueuedPod, sorted_at: float) -> None:
        entry.sorted_at = sorted_at
        if entry.returned_as:
            entry.sort_key = self._sort_key(entry)
        else:
            entry.sort_key = self._policy.sort_key(entry.pod, sorted_at)
        entry.sequence = next(self._sequence)
        push = self._push_observed if entry.is_observed else self._push
        push(ActiveItem(entry.sort_key, entry.sequence, entry))

    def _push_backoff(self, entry: QueuedPod) -> None:
        entry.sorted_at = entry.queued_at
        entry.sort_key = self._sort_key(entry)
        entry.sequence = next(self._sequence)
        live = self._counts[entry.place] + self._observed_counts[entry.place]
        self._backoff_q.push(entry, live)

    def _sort_key(self, entry: QueuedPod) -> tuple[float, ...]:
        """Return QueueSort's key; among equal pods that were tried, the first to return is first.

        The order in which a change moves them depends on the index of unschedulablePods, so that it
        cannot break ties.
        """
        key = self._policy.sort_key(entry.pod, entry.sorted_at)
        return (*key, entry.returned_as) if entry.returned_as else key

    # --- updates of a pod in a queue ------------------------------------------------------------

    def _update_order(self, entry: QueuedPod) -> None:
        """Sort an entry of activeQ or backoffQ again if its key changed; its old item is stale."""
        if self._sort_key(entry) == entry.sort_key:
            return
        if entry.place is Place.ACTIVE:
            self._push_active(entry, entry.sorted_at)
        else:
            self._push_backoff(entry)

    def _pop(self, entry: QueuedPod) -> QueuedPod:
        self._set_unschedulable_plugins(entry, NO_PLUGINS, NO_PLUGINS)
        entry.attempts += 1
        self._put(entry, Place.IN_FLIGHT)
        self._in_flight.start(entry.pod.uid)
        return entry

    def _count_failure(self, entry: QueuedPod, now: float) -> None:
        """Count a rejection or an error, and begin the backoff that follows."""
        if entry.rejector_plugins:
            entry.unschedulable_count += 1
            entry.consecutive_errors = 0
        else:
            entry.consecutive_errors += 1
        entry.queued_at, entry.returned_as = now, next(self._sequence)
        entry.was_flushed = False
        set_backoff(entry, self._policy.backoff(entry.pod))

    def _set_unschedulable_plugins(
        self, entry: QueuedPod, unschedulable: frozenset[str], pending: frozenset[str]
    ) -> None:
        """Set the plugins that rejected a pod, and report the difference to those before."""
        if not (entry.unschedulable_plugins or entry.pending_plugins or unschedulable or pending):
            # Most pods are never rejected.
            return
        before = entry.rejector_plugins
        entry.unschedulable_plugins, entry.pending_plugins = unschedulable, pending
        if self._observer is not None and not entry.is_observed:
            after, profile = entry.rejector_plugins, entry.profile_name
            for plugin in before - after:
                self._observer.rejected(plugin, profile, -1)
            for plugin in after - before:
                self._observer.rejected(plugin, profile, 1)

    def _note(self, entry: QueuedPod, queue: str, event: str) -> None:
        if self._observer is not None and not entry.is_observed:
            self._observer.incoming(queue, event)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("pod %s moved to %s by %s", entry.pod.key, queue, event)


def _order_of_return(each: tuple[QueuedPod, QueueingStrategy]) -> tuple[float, int]:
    # Pods may return in the same moment, above all in virtual time. `returned_as` orders them: the
    # order of the index cannot, because an update of a pod's status changes it.
    return each[0].queued_at, each[0].returned_as


def _everything(event: QueueEvent) -> ClusterChange:
    return ClusterChange(Resource.WILDCARD, Action.ALL, label=event)
