"""Whose eviction makes room for a whole group: the smallest set by a stated order, decided at once.

Group decisions ask when no placement holds the group. Everything is tried on a fork of the World.
Invariant: without any one of the victims the group would not have been placed; a unit goes whole or
stays, the preemptor's own members are never among the victims, and pods that are terminating count
as gone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import PREEMPT_NEVER
from stellwerk.world.gangs.attempt import Attempt, Ground, Steps, nodes_of, place, take_back
from stellwerk.world.gangs.bounds import counts_exactly
from stellwerk.world.gangs.group_request import GroupRequest
from stellwerk.world.gangs.reprieve import Reprieve
from stellwerk.world.gangs.room import Room
from stellwerk.world.gangs.second_look import look_again
from stellwerk.world.gangs.victim_units import (
    PAUSE_UNITS,
    Unit,
    come_back,
    in_order,
    leave,
    units_beside,
)
from stellwerk.world.world import World

NEVER: Final = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
NOT_WITH_CONSTRAINTS: Final = (
    "workload aware preemption is not supported for pod groups with scheduling constraints"
)
TOO_MANY: Final = "too many pods would have to be looked at to find out which can be spared"
NOT_EVEN_WITHOUT: Final = "pod group is unschedulable even without any pod of lower priority"


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


Preempting: TypeAlias = Steps[GroupPreemption | str]
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
    fork = _fork(ground)
    others = yield from units_beside(fork.world, request.group.key)
    units = [each for each in others if each.priority <= priority]
    if (ending := request.ending) is not None:
        older = [each for each in units if all(pod.uid in ending for pod in each.pods)]
        found = yield from _choose(_fork(fork), request, older, budgets=False)
        if not isinstance(found, str):
            return _reserved(found, ending)
    found = yield from _choose(fork, request, units, budgets=False)
    if isinstance(found, str):
        return found
    return _reserved(found, frozenset(pod.uid for each in units for pod in each.pods))


def _reserved(found: GroupPreemption, ending: frozenset[str]) -> GroupPreemption:
    return GroupPreemption((), found.nodes, is_reservation=True, ending=ending)


def preempt(ground: Ground, request: GroupRequest) -> Preempting:
    """Find the victims for a group that no placement holds now."""
    if request.group.topology:
        return NOT_WITH_CONSTRAINTS
    if any(pod.spec.preemption_policy == PREEMPT_NEVER for pod in request.members):
        return NEVER
    priority = _priority(request)
    if not _may_help(ground.world, priority):
        return NO_VICTIMS
    fork = _fork(ground)
    yield None
    others = yield from units_beside(fork.world, request.group.key)
    units = [each for each in others if each.priority < priority]
    leaving = [pod for pod in fork.world.cache.pods() if pod.terminating]
    for pod in leaving:
        fork.world.cache.remove_pod(pod.uid)
    if leaving:
        attempt = yield from _in_any_order(fork, request)
        if attempt is not None:
            return GroupPreemption((), nodes_of(attempt))
    return (yield from _choose(fork, request, units))


def _may_help(world: World, priority: int) -> bool:
    """Whether there is any pod whose end could help; a fork for none would be dear."""
    groups = (each.group for each in world.pod_groups.groups.values())
    return any(group is not None and group.evicted_whole for group in groups) or any(
        pod.terminating or pod.priority < priority for pod in world.cache.pods()
    )


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
    members = request.members
    row_local = yield from _only_rows_matter(fork, members)
    alike = row_local and counts_exactly(fork, members)
    ordered = yield from in_order(fork.world, units, budgets=budgets)
    yield from leave(fork.world, ordered)
    room = Room(fork, members, request.needed, alike=alike)
    if not room.is_enough:
        return NOT_EVEN_WITHOUT
    if room.is_exact:
        found = yield from _counted(fork, request, ordered, room)
        if found is not None:
            return found
    attempt = yield from _in_any_order(fork, request)
    if attempt is None:
        return NOT_EVEN_WITHOUT
    reprieve = Reprieve(fork, request, attempt, room, row_local=row_local)
    victims = yield from reprieve.run(ordered)
    return TOO_MANY if victims is None else _found(victims, reprieve.attempt)


def _in_any_order(fork: Ground, request: GroupRequest) -> Steps[Attempt | None]:
    """The group placed on the fork; None: it is not, and nothing is assumed."""
    attempt = yield from place(fork, request.members)
    if request.is_met_by(attempt):
        return attempt
    take_back(fork, attempt)
    return (yield from look_again(fork, request, attempt, request.budget_seconds))[0]


def _only_rows_matter(fork: Ground, members: Sequence[PodInfo]) -> Steps[bool]:
    """Whether pods on other nodes matter to no member; with fewer pods, they do not, either."""
    framework = fork.profile.framework
    fork.world.cache.update_snapshot()
    for pod in {(pod.spec, pod.label_set): pod for pod in members}.values():
        yield None
        state = CycleState()
        framework.filtering.find_feasible(pod, state, sample=False)
        if not framework.filters.is_row_local(state, pod):
            return False
    return True


def _counted(
    fork: Ground, request: GroupRequest, units: Sequence[Unit], room: Room
) -> Steps[GroupPreemption | None]:
    """The victims as counted; None: members cannot be placed so, as where nominations matter.

    Then the fork and the room are as they were.
    """
    victims: list[Unit] = []
    spared: list[Unit] = []
    for number, unit in enumerate(units):
        if number % PAUSE_UNITS == 0:
            yield None
        (spared if room.takes_back(unit.pods) else victims).append(unit)
    yield from come_back(fork.world, spared)
    attempt = yield from place(fork, request.members)
    if request.is_met_by(attempt):
        return _found(victims, attempt)
    take_back(fork, attempt)
    yield from leave(fork.world, spared)
    for unit in spared:
        room.gives_up(unit.pods)
    return None


def _found(victims: Sequence[Unit], attempt: Attempt) -> GroupPreemption:
    return GroupPreemption(tuple(pod for unit in victims for pod in unit.pods), nodes_of(attempt))


def _priority(request: GroupRequest) -> int:
    """The group's own; where it has none, that of the least of its members."""
    if request.group.priority is None:
        return min(pod.priority for pod in request.members)
    return request.group.priority
