"""The scheduling coroutine of a simulation: which pod is next, and when what follows happens.

A simulation drives it, one moment of virtual time after the other. Invariant: pods are decided in
the order and with the turns of the operator's own scheduling coroutine, on a cluster that carries
everything out at once; all that waits for a turn has had it when `run` returns.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.events import Action, ClusterChange, Resource
from stellwerk.models.pod import PodInfo
from stellwerk.world.decide import decide
from stellwerk.world.effects import Effects, Eviction, apply
from stellwerk.world.pod_status import CLEAR_NOMINATION, NominatingMode, Report
from stellwerk.world.world import World
from stellwerk_simulation.cluster import ActivePods

TURN_DECISIONS: Final = 8
"""After so many, what follows from them has its turn; as in `scheduler.scheduler`."""
TURN_SECONDS: Final = 0.002
"""The same, after so long: also when the first pod comes after a pause."""


class Cluster(Protocol):
    """What follows what becomes of pods; the snapshot shows it already."""

    def on_bound(self, pod: PodInfo) -> None:
        """A pod has a node."""
        ...

    def on_gone(self, pod: PodInfo) -> None:
        """A pod has left its node."""
        ...

    def on_preempted(self, victims: Sequence[PodInfo]) -> None:
        """Pods are evicted for another one; each is gone later on."""
        ...

    def on_dropped(self, pod: PodInfo) -> None:
        """A pod that no node takes is given up."""
        ...


class Turns:
    """Decides for the pods of a World's queue, and carries out what follows."""

    def __init__(self, world: World, active: ActivePods, cluster: Cluster, *, drops: bool) -> None:
        """`drops`: a pod that no node takes is given up, in place of waiting in the queue."""
        self._world, self._active, self._cluster = world, active, cluster
        self._drops = drops
        self._due: deque[Callable[[], None]] = deque()
        """What follows from decisions, and has not happened yet."""
        self._has_news = False
        self._decisions, self._turn_began_seconds = 0, 0.0

    def run(self) -> None:
        """Decide for whatever can be tried now, and for what that makes worth another attempt.

        Raises:
            PluginFailure: a plugin raised.
        """
        while self._decide_some() or self._let_happen():
            pass

    def remove(self, uid: str) -> None:
        """A pod leaves its node, if it is on one."""
        world = self._world
        removed = world.cache.remove_pod(uid)
        if removed is None:
            return
        world.cache.update_snapshot()
        self._cluster.on_gone(removed)
        self._changed(Action.DELETE, removed)

    # --- decisions --------------------------------------------------------------------------------

    def _decide_some(self) -> bool:
        """Decide until there is none left, with turns for what follows; whether any was."""
        decided = False
        while (queued := self._next()) is not None:
            if self._has_news and queued.attempts > 1:
                # A binding goes out before what was refused is tried again.
                self._others_turn()
            self._has_news = queued.attempts == 1
            self._decide(queued)
            decided = True
            self._decisions += 1
            seconds = self._world.clock.monotonic() - self._turn_began_seconds
            if self._decisions == TURN_DECISIONS or seconds >= TURN_SECONDS:
                self._others_turn()
        return decided

    def _others_turn(self) -> None:
        self._let_happen()
        self._decisions, self._turn_began_seconds = 0, self._world.clock.monotonic()

    def _next(self) -> QueuedPod | None:
        queue = self._world.queue
        while queue.backlog.work_off():
            pass
        while (item := self._active.next()) is not None:
            queued = queue.pop(item)
            if queued is not None:
                return queued
        return queue.pop_from_backoff()

    def _decide(self, queued: QueuedPod) -> None:
        world, uid = self._world, queued.pod.uid
        profile = world.profiles.of(queued.pod)
        if profile is None:
            raise LookupError(f"no profile of the simulation serves {queued.pod.key}")
        world.cache.update_snapshot()
        effects = apply(world, queued, decide(world, queued.pod, profile))
        if effects.bind is not None:
            self._due.append(partial(self._bind, effects.bind))
        else:
            self._follow(uid, effects)

    def _follow(self, uid: str, effects: Effects) -> None:
        """What follows where there is no node."""
        if effects.evict is not None:
            self._due.append(partial(self._evict, effects.evict))
        elif self._drops:
            self._due.append(partial(self._drop, uid))
        if effects.patch is not None:
            self._due.append(partial(self._nominate, effects.patch))

    # --- what follows -----------------------------------------------------------------------------

    def _let_happen(self) -> bool:
        """Carry out what is due by now; whether anything was."""
        due, self._due = self._due, deque()
        for act in due:
            act()
        return bool(due)

    def _bind(self, assumed: PodInfo) -> None:
        """The binding is confirmed, and the kubelet has started the pod."""
        world = self._world
        world.queue.done(assumed.uid)
        bound = assumed.with_node(assumed.node_name)
        # As kubelets write it: whole seconds.
        bound.start_time = world.clock.now().isoformat(timespec="seconds")
        world.cache.set_pod(bound)
        world.queue.delete(bound.uid)
        world.cache.update_snapshot()
        self._cluster.on_bound(bound)
        if world.queue.entries:
            self._changed(Action.ADD, bound)

    def _drop(self, uid: str) -> None:
        pending = self._world.queue.delete(uid)
        if pending is not None:
            self._cluster.on_dropped(pending)
            self._nomination_changed(pending)

    def _nominate(self, report: Report) -> None:
        """The pod's status shows the nomination, or that it has none any more."""
        queue, nomination = self._world.queue, report.nomination
        before = queue.pod(report.pod.uid)
        if before is None or nomination.mode is not NominatingMode.OVERRIDE:
            return
        if before.nominated_node_name != nomination.node_name:
            shown = before.with_node("")
            shown.nominated_node_name = nomination.node_name
            queue.update(shown, self._world.clock.monotonic())
            self._nomination_changed(before)

    def _nomination_changed(self, before: PodInfo) -> None:
        """Pods that a lower or equal nomination stood in the way of may fit now."""
        if before.nominated_node_name:
            self._changed(Action.DELETE, before, before.priority)

    def _evict(self, eviction: Eviction) -> None:
        """Victims go at once, the last one when the others are gone."""
        self._clear_lower_nominations(eviction)
        self._cluster.on_preempted(eviction.victims)
        *others, last = eviction.victims
        evict_last = partial(self._evict_last, eviction.preemptor, last)
        if others:
            self._due.append(partial(self._evict_others, others, evict_last))
        else:
            evict_last()

    def _evict_others(self, victims: Sequence[PodInfo], then: Callable[[], None]) -> None:
        for victim in victims:
            self.remove(victim.uid)
        # It takes a turn until the preemption has heard of their ends, and goes on.
        self._due.append(partial(self._in_the_next_turn, then))

    def _in_the_next_turn(self, act: Callable[[], None]) -> None:
        self._due.append(act)

    def _evict_last(self, preemptor: PodInfo, victim: PodInfo) -> None:
        """With the last victim gone, the preemptor is worth another attempt."""
        world = self._world
        gone_already = world.cache.pod(victim.uid) is None
        world.preempting.discard(preemptor.uid)
        world.queue.rerun_pre_enqueue(preemptor.uid)
        self.remove(victim.uid)
        if gone_already:
            world.activate([preemptor])

    def _clear_lower_nominations(self, eviction: Eviction) -> None:
        """Pods of lower priority that are nominated to the node look for another one."""
        world, preemptor = self._world, eviction.preemptor
        nominated = world.nominator.pods_for_node(eviction.candidate.node_name)
        lower = [pod for pod in nominated if pod.priority < preemptor.priority]
        for pod in lower:
            world.queue.nominate(pod, "")
        world.activate(lower)
        for pod in lower:
            self._due.append(partial(self._nominate, Report(pod, nomination=CLEAR_NOMINATION)))

    def _changed(self, action: Action, pod: PodInfo, max_priority: int | None = None) -> None:
        """Requeue the pods that it may help that a pod has come to a node, or has left it."""
        old, new = (None, pod) if action is Action.ADD else (pod, None)
        self._world.queue.move_all_to_active_or_backoff(
            ClusterChange(Resource.ASSIGNED_POD, action, old, new),
            self._world.clock.monotonic(),
            max_priority=max_priority,
        )
