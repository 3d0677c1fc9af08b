"""Waiting pods on their way to the profile that serves them now, and those that none serves.

The loader calls `ProfileMoves` after profiles changed, event handlers after a namespace's or a
pod's labels did. Event handlers put into `PodsWithoutProfile` what had no profile from the start;
pods of a profile that goes are taken out of the queue with a condition that says so, and pods that
come after it went get the same, unless another scheduler has taken the name over. A pod whose
schedulerName was never served here is not written to, unless a selector lists the name and the
pod's namespace has not been seen; one whose schedulerName may be a misspelling of a served one gets
an event. Invariant: once the queue's backlog is worked off, each waiting pod is in the queue under
the profile that `Profiles` names, or with the pods that have none; a popped one stays with the
profile that its attempt began with until that ends.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Final

from stellwerk.backend.queued_pod import IN_FLIGHT, QueuedPod
from stellwerk.backend.requeue_backlog import UNITS_PER_MOVE, Work
from stellwerk.models.object_reference import pod_reference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.api_dispatcher import APIDispatcher
from stellwerk.world.pod_status import CLEAR_NOMINATION, POD_SCHEDULED, SCHEDULER_ERROR, Report
from stellwerk.world.world import World

MAX_PARALLEL_PATCHES: Final = 16
"""Conditions of pods without a profile that are written at the same time."""
SECONDS_FOR_ANOTHER_SCHEDULER: Final = 10.0
"""Time in which another scheduler has to show that a schedulerName is its own now. After it, pods
that came with the name get a condition."""


class PodsWithoutProfile:
    """The waiting pods that no profile serves, and their conditions that are to be written."""

    def __init__(self, world: World, dispatcher: APIDispatcher) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self.pods: dict[str, PodInfo] = {}
        self._unreported: dict[str, None] = {}
        """Uids of pods that were taken out of the queue, in order."""
        self._reporting: asyncio.Task[None] | None = None
        self._late: dict[str, float] = {}
        """Monotonic time of the next check, by uid, of pods that came after their profile went; in
        order."""
        self._waiting: asyncio.Task[None] | None = None
        self._reported: set[str] = set()
        """Uids of pods that have their condition, or are another scheduler's."""

    def put(self, pod: PodInfo) -> None:
        """Keep an unbound pod that no profile serves, as it was seen last."""
        uid = pod.uid
        self.pods[uid] = pod
        profiles = self._world.profiles
        is_ours = pod.spec.scheduler_name in profiles.once_served
        if not (is_ours or profiles.awaits_namespace(pod) or self._is_misspelt(pod)):
            return
        if len(self._reported) > len(self.pods):
            self._reported &= self.pods.keys()
        if uid in self._late or uid in self._reported:
            return
        self._late[uid] = self._world.clock.monotonic() + SECONDS_FOR_ANOTHER_SCHEDULER
        if self._waiting is None or self._waiting.done():
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_task(
                self._look_again(), name="late pods without profile", context=Context()
            )

    def _is_misspelt(self, pod: PodInfo) -> bool:
        """Return whether the schedulerName may be a misspelling of one that is served."""
        profiles = self._world.profiles
        name = pod.spec.scheduler_name
        return name not in profiles.once_served and bool(profiles.suggested(name))

    def let_go(self, uid: str) -> None:
        """Forget a pod that is queued from here on, or is gone."""
        self.pods.pop(uid, None)
        self._reported.discard(uid)

    def take_out(self, pod: PodInfo) -> bool:
        """Take a pod out of the queue if no profile serves it; False if it has one, or is gone."""
        if self._world.profiles.of(pod) is not None:
            return False
        queue = self._world.queue
        entry = queue.entries.get(pod.uid)
        if entry is None:
            return False
        queue.delete(pod.uid)
        self.pods[pod.uid] = entry.newest
        if not entry.is_observed:
            self._to_report(pod.uid)
        return True

    async def _look_again(self) -> None:
        """Report on pods that came late, unless another scheduler has shown itself in time."""
        while self._late:
            uid, due_seconds = next(iter(self._late.items()))
            await asyncio.sleep(max(0.0, due_seconds - self._world.clock.monotonic()))
            del self._late[uid]
            pod = self.pods.get(uid)
            if pod is None:
                continue
            self._reported.add(uid)
            # A condition is another scheduler's word, a scheduling gate, or what this operator has
            # said before.
            if not any(each["type"] == POD_SCHEDULED for each in pod.conditions):
                self._to_report(uid)

    def _to_report(self, uid: str) -> None:
        """Write about a pod in the background."""
        self._unreported[uid] = None
        self._reported.add(uid)
        if self._reporting is None or self._reporting.done():
            loop = asyncio.get_running_loop()
            self._reporting = loop.create_task(
                self._report_all(), name="pods without profile", context=Context()
            )

    async def _report_all(self) -> None:
        """Write the condition of every pod that was taken out."""
        await asyncio.gather(*(self._report_some() for _ in range(MAX_PARALLEL_PATCHES)))

    async def _report_some(self) -> None:
        while self._unreported:
            uid = next(iter(self._unreported))
            del self._unreported[uid]
            pod = self.pods.get(uid)
            # It may be bound, gone or queued again by now.
            if pod is not None:
                await self._report(pod)

    async def _report(self, pod: PodInfo) -> None:
        message = self._world.profiles.why_none(pod)
        self._dispatcher.recorder.event(
            pod_reference(pod),
            "Warning",
            "FailedScheduling",
            "Scheduling",
            message,
            reporting_controller=pod.spec.scheduler_name,
        )
        if not self._is_misspelt(pod):
            await self._dispatcher.reports.write(
                Report(pod, SCHEDULER_ERROR, message, CLEAR_NOMINATION)
            )


_ALL: Final = ""
"""All namespaces, in the place of a namespace's name."""
MAX_CHANGED_NAMESPACES: Final = 64
"""Above this number of changed namespaces, the pods of all are visited once, instead of all pods
once for each namespace."""
PODS_PER_UNIT: Final = 20
"""Pods of other namespaces whose visit counts as one unit of the backlog: it takes about as long as
a hint function."""


@dataclass(slots=True, eq=False)
class ProfileMoves:
    """Moves pods that wait, with or without a profile."""

    world: World
    without_profile: PodsWithoutProfile
    on_change: Callable[[str], None] = lambda _: None
    """Called before pods are moved to profiles with other names, with their namespace; empty: of
    all namespaces."""
    _changed: dict[str, None] = field(default_factory=dict)
    """Namespaces whose pods are still to be visited, in order; _ALL: all of them."""
    _is_moving: bool = False
    """True while the backlog has the work on `_changed`."""

    def profiles_changed(self, *, selected: bool) -> None:
        """Move pods because other profiles serve; `selected`: pods are selected otherwise."""
        if selected:
            self.on_change(_ALL)
        self._begin(_ALL)

    def namespace_changed(self, namespace: str) -> None:
        """Move pods after a namespace got other labels, was seen for the first time, or went."""
        profiles = self.world.profiles
        profiles.overlaps.forget(namespace)
        if profiles.selectors.read_namespaces:
            profiles.selectors.forget(namespace)
            self.on_change(namespace)
            self._begin(namespace)

    def pod_changed(self, uid: str, now: float) -> None:
        """Move a pod in the queue that has other labels."""
        entry = self.world.queue.entries.get(uid)
        if entry is not None and entry.place not in IN_FLIGHT:
            self._move(entry, now)

    def _begin(self, namespace: str) -> None:
        self._changed[namespace] = None
        if len(self._changed) > MAX_CHANGED_NAMESPACES:
            self._changed = {_ALL: None}
        if not self._is_moving:
            self._is_moving = True
            self.world.queue.backlog.begin(self._moving_all())

    def _moving_all(self) -> Work:
        """Work off what has changed, and what changes while that is done: one piece of work."""
        try:
            while self._changed:
                namespace = next(iter(self._changed))
                del self._changed[namespace]
                yield from self._moving(namespace)
        finally:
            self._is_moving = False

    def _moving(self, namespace: str) -> Work:
        """Move what is in the wrong place; pods that come meanwhile are put into the right one."""
        world, now = self.world, self.world.clock.monotonic()
        looks = 0
        for pod in list(self.without_profile.pods.values()):
            looks += 1
            if (not namespace or pod.namespace == namespace) and self._take_in(pod, now):
                yield UNITS_PER_MOVE
            elif looks % PODS_PER_UNIT == 0:
                yield 1
        for entry in list(world.queue.entries.values()):
            looks += 1
            if not namespace or entry.pod.namespace == namespace:
                waits = world.queue.entries.get(entry.pod.uid) is entry
                moved = waits and entry.place not in IN_FLIGHT and self._move(entry, now)
                yield UNITS_PER_MOVE if moved else 1
            elif looks % PODS_PER_UNIT == 0:
                yield 1

    def _take_in(self, pod: PodInfo, now: float) -> bool:
        """Queue a pod that had no profile, if it has one by now."""
        profile = self.world.profiles.of(pod)
        if profile is None or self.without_profile.pods.get(pod.uid) is not pod:
            return False
        self.without_profile.let_go(pod.uid)
        self.world.queue.add(pod, now, profile.scheduler_name)
        self.world.profiles.count_overlap(pod)
        return True

    def _move(self, entry: QueuedPod, now: float) -> bool:
        """Bring a waiting pod under its profile, or out of the queue if it has none."""
        profile = self.world.profiles.of(entry.newest)
        if profile is None:
            return self.without_profile.take_out(entry.newest)
        if profile.scheduler_name == entry.profile_name:
            return False
        self.world.queue.move_to_profile(entry, profile.scheduler_name, now)
        self.world.profiles.count_overlap(entry.newest)
        return True
