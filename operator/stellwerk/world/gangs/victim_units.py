"""What could be evicted for a group: single pods, and groups that go as a whole.

Group preemption chooses among them. Invariant: every pod on a node is in at most one unit, none of
the preemptor's own and none that is terminating is in any, and units come in an order that chance
has no part in.
"""

import heapq
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from stellwerk.backend.pod_groups import priority_of
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group_key import PodGroupKey
from stellwerk.plugins.shared.disruption_budgets import DisruptionBudgets
from stellwerk.plugins.shared.victims import started_at
from stellwerk.world.world import World

PAUSE_UNITS: Final = 50
"""Of so many units that leave or come back, others have a moment before the next."""
_PAUSE_LOOKS: Final = 1000
"""The same of pods that are only looked at."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that are evicted together or not at all."""

    pods: tuple[PodInfo, ...]
    priority: int
    is_group: bool

    @property
    def importance(self) -> tuple[int, bool, int, float, str]:
        """A sort key: the most important first; equal ones by uid."""
        start = min(map(started_at, self.pods))
        size = len(self.pods) if self.is_group else 0
        return (-self.priority, not self.is_group, -size, start, min(pod.uid for pod in self.pods))


def leave(world: World, units: Iterable[Unit]) -> Iterator[None]:
    """Take the pods of units off their nodes; others have a moment now and then."""
    for number, unit in enumerate(units):
        if number % PAUSE_UNITS == PAUSE_UNITS - 1:
            world.cache.update_snapshot()
            yield
        for pod in unit.pods:
            world.cache.remove_pod(pod.uid)


def come_back(world: World, units: Iterable[Unit]) -> Iterator[None]:
    """Put the pods of units on their nodes again; others have a moment now and then."""
    for number, unit in enumerate(units):
        if number % PAUSE_UNITS == PAUSE_UNITS - 1:
            world.cache.update_snapshot()
            yield
        for pod in unit.pods:
            world.cache.set_pod(pod)


def units_beside(world: World, own: PodGroupKey) -> Generator[None, None, list[Unit]]:
    """Everything that could be evicted for a group: groups that go whole, every other pod alone."""
    book, found = world.pod_groups, list[Unit]()
    in_groups: set[str] = set()
    for members in book.groups.values():
        group = members.group
        if group is None or not group.evicted_whole:
            continue
        pods = tuple(
            placed
            for uid in members.pods
            if (placed := world.cache.pod(uid)) is not None and not placed.terminating
        )
        in_groups.update(members.pods)
        if pods and members.key != own:
            found.append(Unit(pods, priority_of(members), is_group=True))
    for number, pod in enumerate(world.cache.pods()):
        if number % _PAUSE_LOOKS == _PAUSE_LOOKS - 1:
            yield
        if pod.uid not in in_groups and not pod.terminating and book.key_of.get(pod.uid) != own:
            found.append(Unit((pod,), pod.priority, is_group=False))
    return found


def in_order(
    world: World, units: Sequence[Unit], *, budgets: bool
) -> Generator[None, None, list[Unit]]:
    """The order in which they are spared: budget violations first, then by importance.

    What ends by itself violates no budgets.
    """
    ranked = yield from _ranked(units)
    if not budgets:
        return ranked
    pods = [pod for unit in ranked for pod in unit.pods]
    over = DisruptionBudgets(world.objects).violating(pods)
    violating = {pod.uid for pod, is_over in zip(pods, over, strict=True) if is_over}
    yield
    if not violating:
        return ranked
    return sorted(ranked, key=lambda unit: not any(pod.uid in violating for pod in unit.pods))


def _ranked(units: Sequence[Unit]) -> Generator[None, None, list[Unit]]:
    """The most important first; sorted part by part."""
    parts = []
    for begin in range(0, len(units), _PAUSE_LOOKS):
        part = units[begin : begin + _PAUSE_LOOKS]
        keyed = ((unit.importance, begin + at, unit) for at, unit in enumerate(part))
        parts.append(sorted(keyed))
        yield
    ranked = []
    for number, (_, _, unit) in enumerate(heapq.merge(*parts)):
        if number % _PAUSE_LOOKS == _PAUSE_LOOKS - 1:
            yield
        ranked.append(unit)
    return ranked
