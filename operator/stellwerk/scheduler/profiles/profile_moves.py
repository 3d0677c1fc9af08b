"""Waiting pods on their way to the profile that serves them now, in slices.

The loader calls it after profiles changed, event handlers after a namespace's or a pod's labels
did. Invariant: once the queue's backlog is worked off, each waiting pod is in the queue under the
profile that `Profiles` names, or with the pods that have none; a popped one stays with the profile
that its attempt began with until that ends.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from stellwerk.backend.queued_pod import IN_FLIGHT, QueuedPod
from stellwerk.backend.scheduling_queue import MOVE_UNITS, Work
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.profiles.without_profile import PodsWithoutProfile
from stellwerk.world.world import World

_ALL: Final = ""
_MOST_NAMESPACES: Final = 64
"""Of more that have changed, all pods are looked at once."""
_LOOKS: Final = 20
"""To look at so many pods of other namespaces takes about as long as a hint function."""


@dataclass(slots=True, eq=False)
class ProfileMoves:
    """Moves pods that wait, with or without a profile."""

    world: World
    without_profile: PodsWithoutProfile
    on_change: Callable[[str], None] = lambda _: None
    """Called before pods are moved, with their namespace; empty: of all namespaces."""
    _changed: dict[str, None] = field(default_factory=dict)
    """Namespaces whose pods are still to be looked at, in order; _ALL: those of all."""
    _is_moving: bool = False
    """Whether the backlog has that work."""

    def profiles_changed(self) -> None:
        """Others serve, or selectors are others."""
        self._begin(_ALL)

    def namespace_changed(self, namespace: str) -> None:
        """A namespace has other labels, or was seen for the first time, or is gone."""
        profiles = self.world.profiles
        profiles.overlaps.forget(namespace)
        if profiles.selectors.read_namespaces:
            profiles.selectors.forget(namespace)
            self._begin(namespace)

    def pod_changed(self, uid: str, now: float) -> None:
        """A pod in the queue has other labels."""
        entry = self.world.queue.entries.get(uid)
        if entry is not None and entry.place not in IN_FLIGHT:
            self._move(entry, now)

    def _begin(self, namespace: str) -> None:
        self.on_change(namespace)
        self._changed[namespace] = None
        if len(self._changed) > _MOST_NAMESPACES:
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
                yield MOVE_UNITS
            elif looks % _LOOKS == 0:
                yield 1
        for entry in list(world.queue.entries.values()):
            looks += 1
            if not namespace or entry.pod.namespace == namespace:
                waits = world.queue.entries.get(entry.pod.uid) is entry
                moved = waits and entry.place not in IN_FLIGHT and self._move(entry, now)
                yield MOVE_UNITS if moved else 1
            elif looks % _LOOKS == 0:
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
