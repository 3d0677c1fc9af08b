"""Whose eviction makes room for a whole group: the smallest set by a stated order, decided at once.

Group decisions ask when no placement holds the group. Everything is tried on a fork of the World.
Invariant: without any one of the victims the group would not have been placed; a unit goes whole or
stays, the preemptor's own members are never among the victims, and pods that are terminating count
as gone.
"""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from stellwerk.backend.pod_groups import priority_of
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import PREEMPT_NEVER
from stellwerk.plugins.preemption.disruption_budgets import DisruptionBudgets
from stellwerk.plugins.preemption.victim_order import started_at
from stellwerk.world.decide import Decision
from stellwerk.world.gangs.attempt import Ask, Attempt, Ground, place, take_back
from stellwerk.world.gangs.group_request import GroupRequest
from stellwerk.world.world import World

NEVER: Final = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
NOT_WITH_CONSTRAINTS: Final = (
    "workload aware preemption is not supported for pod groups with scheduling constraints"
)
NOT_EVEN_WITHOUT: Final = "pod group is unschedulable even without any pod of lower priority"
MAX_TRIALS: Final = 64
"""So many times the whole group is placed anew to spare a unit; after that, units are spared only
where no member is."""


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


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """What makes room for a group."""

    victims: tuple[PodInfo, ...]
    """To be evicted; empty: those that are terminating are enough."""
    nodes: dict[str, str]
    """Where each member goes then: node name by uid."""
    is_reservation: bool = False
    """Nothing is evicted for it: the nodes are kept until pods have ended by themselves."""
    ending: frozenset[str] | None = None
    """Uids of the pods that may be among them, as of when room began to be kept."""


Preempting: TypeAlias = Generator[Ask, Decision, GroupPreemption | str]
"""Gives what makes room, or why nothing does."""


def reserve(ground: Ground, request: GroupRequest) -> Preempting:
    """Find the nodes that are kept for a group until pods of no higher priority have ended.

    Which of them end first is not known: the least important are taken to. Pods that have come
    since room began to be kept are not waited for, however unimportant: whatever comes, the number
    of those that are can only fall.
    """
    if request.group.topology:
        return NOT_WITH_CONSTRAINTS
    priority = min(_priority(request), *(pod.priority for pod in request.members))
    units = [each for each in _units(ground.world, request) if each.priority <= priority]
    for ending in (request.ending, frozenset(_uids(units))):
        older = [each for each in units if ending is not None and ending.issuperset(_uids([each]))]
        found = yield from _choose(_fork(ground), request, older, budgets=False)
        if not isinstance(found, str):
            return GroupPreemption((), found.nodes, is_reservation=True, ending=ending)
    return found


def preempt(ground: Ground, request: GroupRequest) -> Preempting:
    """Find the victims for a group that no placement holds now."""
    if request.group.topology:
        return NOT_WITH_CONSTRAINTS
    if any(pod.spec.preemption_policy == PREEMPT_NEVER for pod in request.members):
        return NEVER
    priority = _priority(request)
    units = [each for each in _units(ground.world, request) if each.priority < priority]
    leaving = [pod for pod in ground.world.cache.pods() if pod.terminating]
    if not units and not leaving:
        return NO_VICTIMS
    fork = _fork(ground)
    for pod in leaving:
        fork.world.cache.remove_pod(pod.uid)
    if leaving:
        attempt = yield from place(fork, request.members)
        if request.is_met_by(attempt):
            return GroupPreemption((), nodes_of(attempt))
        take_back(fork, attempt)
    return (yield from _choose(fork, request, units))


def _fork(ground: Ground) -> Ground:
    world = ground.world.fork(ground.world.random)
    profile = world.profiles.served[ground.profile.scheduler_name]
    return Ground(world, profile, ground.obstacle)


def _choose(
    fork: Ground, request: GroupRequest, units: Sequence[Unit], *, budgets: bool = True
) -> Preempting:
    """The victims among these units, on a fork where what is terminating has gone."""
    if not units:
        return NO_VICTIMS
    for unit in units:
        _remove(fork.world, unit)
    attempt = yield from place(fork, request.members)
    if not request.is_met_by(attempt):
        return NOT_EVEN_WITHOUT
    reprieve = _Reprieve(fork, request, attempt)
    victims = yield from reprieve.run(_in_order(fork.world, units, budgets=budgets))
    pods = tuple(pod for unit in victims for pod in unit.pods)
    return GroupPreemption(pods, nodes_of(reprieve.attempt))


def _priority(request: GroupRequest) -> int:
    """The group's own; where it has none, that of the least of its members."""
    if request.group.priority is None:
        return min(pod.priority for pod in request.members)
    return request.group.priority


class _Reprieve:
    """Puts units back one by one, for as long as the group has its nodes."""

    def __init__(self, ground: Ground, request: GroupRequest, attempt: Attempt) -> None:
        self._ground, self._request = ground, request
        self.attempt = attempt
        """The members where they are now, assumed on the fork."""
        self._trials = 0

    def run(self, units: Sequence[Unit]) -> Generator[Ask, Decision, list[Unit]]:
        """Spare what can be spared, in this order; returns the others."""
        victims = []
        for unit in units:
            is_spared = yield from self._spare(unit)
            if not is_spared:
                victims.append(unit)
        return victims

    def _spare(self, unit: Unit) -> Generator[Ask, Decision, bool]:
        """Put a unit back; if the group then has no nodes, take it away again."""
        taken = {each.assumed.node_name for each in self.attempt.verdicts if each.assumed}
        if self._is_apart(unit, taken):
            _put_back(self._ground.world, unit)
            return True
        if self._trials >= MAX_TRIALS:
            return False
        self._trials += 1
        before = self.attempt
        take_back(self._ground, before)
        _put_back(self._ground.world, unit)
        attempt = yield from place(self._ground, self._request.members)
        if self._request.is_met_by(attempt):
            self.attempt = attempt
            return True
        take_back(self._ground, attempt)
        _remove(self._ground.world, unit)
        nodes = nodes_of(before)
        members = [each.pod for each in before.verdicts]
        self.attempt = yield from place(self._ground, members, before.placement, nodes)
        return False

    def _is_apart(self, unit: Unit, taken: set[str]) -> bool:
        """Whether no member is where the unit's pods are, and only that could matter."""
        if any(pod.node_name in taken for pod in unit.pods):
            return False
        filters = self._ground.profile.framework.filters
        return all(
            each.decision is not None and filters.is_row_local(each.state, each.pod)
            for each in self.attempt.verdicts
            if each.assumed is not None
        )


def _units(world: World, request: GroupRequest) -> Iterator[Unit]:
    """Everything that could be evicted: groups that go whole, and every other pod alone."""
    book, own = world.pod_groups, request.group.key
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
            yield Unit(pods, priority_of(members), is_group=True)
    for pod in world.cache.pods():
        if pod.uid not in in_groups and not pod.terminating and book.key_of.get(pod.uid) != own:
            yield Unit((pod,), pod.priority, is_group=False)


def _uids(units: Sequence[Unit]) -> Iterator[str]:
    return (pod.uid for unit in units for pod in unit.pods)


def _in_order(world: World, units: Sequence[Unit], *, budgets: bool) -> list[Unit]:
    """The order in which they are spared: budget violations first, then by importance."""
    ranked = sorted(units, key=lambda unit: unit.importance)
    if not budgets:
        return ranked
    pods = [pod for unit in ranked for pod in unit.pods]
    over = DisruptionBudgets(world.objects).violating(pods)
    violating = {pod.uid for pod, is_over in zip(pods, over, strict=True) if is_over}
    return sorted(ranked, key=lambda unit: not any(pod.uid in violating for pod in unit.pods))


def _remove(world: World, unit: Unit) -> None:
    for pod in unit.pods:
        world.cache.remove_pod(pod.uid)


def _put_back(world: World, unit: Unit) -> None:
    for pod in unit.pods:
        world.cache.set_pod(pod)


def nodes_of(attempt: Attempt) -> dict[str, str]:
    """The node name of each member that has one, by uid."""
    return {
        each.pod.uid: each.assumed.node_name
        for each in attempt.verdicts
        if each.assumed is not None
    }
