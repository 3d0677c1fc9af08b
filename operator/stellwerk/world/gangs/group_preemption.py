"""The victims of a group's preemption, decided before any is evicted; `submit_group_result` evicts.

`group_decision` asks when no placement holds the group, and its driver answers the requests for
members here, too. Everything is tried on a fork of the World: all units that may go are removed,
the group is placed, and what can be spared is returned, by counting if that is exact, otherwise by
`Reprieve`; from 1.37 on members stay where they were placed (`_choose_in_place`). Invariants:
without any one of the victims the group would not have been placed, up to 1.36 nowhere, as far as
the limit of decisions lets that be found out; a unit goes whole or stays, every pod is in at most
one, the preemptor's own members and terminating pods are in none, and chance has no part in the
order.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from stellwerk.framework.extension_points import ADMITS_VICTIMS
from stellwerk.framework.types import CycleState
from stellwerk.framework.victim_order import (
    KUBE_SCHEDULERS_ORDER,
    SparingRule,
    VictimOrder,
)
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroupKey
from stellwerk.models.scheduling_spec import PREEMPT_NEVER
from stellwerk.plugins.shared.disruption_budgets import DisruptionBudgets
from stellwerk.plugins.shared.victims import is_leaving_as_victim, started_at
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.world.gangs.group_attempt import (
    GroupAttempt,
    GroupContext,
    GroupRequest,
    GroupSteps,
    MemberResult,
    nodes_of,
    place,
    try_other_orders,
    undo_attempt,
    undo_results,
)
from stellwerk.world.gangs.group_capacity import FreeCapacity, counts_exactly
from stellwerk.world.gangs.pod_groups import priority_of
from stellwerk.world.world import World
from stellwerk_kube.compatibility import ReleaseRule

NEVER: Final = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS: Final = "No preemption victims found for incoming preemptor"
NOT_WITH_CONSTRAINTS: Final = (
    "workload aware preemption is not supported for pod groups with scheduling constraints"
)
TOO_MANY: Final = "too many pods would have to be examined to find those that need not be evicted"
NOT_EVEN_WITHOUT: Final = "pod group is unschedulable even without any pod of lower priority"
MAX_MEMBER_DECISIONS: Final = 4_000
"""Decisions on members for placing the whole group anew while units are spared; half of them may be
for other orders. Beyond it no unit is spared by moving members on other nodes, and if it is
then unknown which pods can stay, nothing is evicted (`TOO_MANY`)."""
UNITS_PER_STEP: Final = 50
"""Units that are removed or returned before a yield to the driver: each changes rows of the
snapshot."""
PODS_PER_STEP: Final = 1000
"""Pods that are read or sorted before a yield to the driver: reading changes no row."""


@dataclass(frozen=True, slots=True)
class PreemptionUnit:
    """Pods that are evicted together or not at all."""

    pods: tuple[PodInfo, ...]
    priority: int
    is_group: bool

    def importance(self, order: VictimOrder) -> tuple[int | bool | float | str, ...]:
        """A sort key: the most important first; equal ones by uid.

        Of equal priority what the order spares comes before groups, and groups before other pods;
        costs count between equals of all that, before the start.
        """
        start = min(map(started_at, self.pods))
        size = len(self.pods) if self.is_group else 0
        *spared, cost = order.standing(self.pods)
        uid = min(pod.uid for pod in self.pods)
        return (-self.priority, *spared, not self.is_group, -size, cost, start, uid)


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """The victims of a group's preemption, and the nodes that its members get then."""

    victims: tuple[PodInfo, ...]
    """To be evicted; empty: those that are terminating are enough."""
    nodes: dict[str, str]
    """The node that each member goes to then: its name by uid."""
    is_reservation: bool = False
    """Nothing is evicted for it: the nodes are kept until pods have ended by themselves."""
    ending: frozenset[str] | None = None
    """Uids of the pods that may be among them, as of when room began to be kept."""
    is_ongoing: bool = False
    """Victims of an earlier attempt are terminating on these nodes; nothing else was looked for."""
    decided_by: str = ""
    """Text on what the profile's order of equal victims has changed; empty: nothing."""


Preempting: TypeAlias = GroupSteps[GroupPreemption | str]
"""A generator that returns the victims and nodes, or the reason why nothing makes room."""


PlaceGroup: TypeAlias = Callable[[GroupContext, GroupRequest], GroupSteps[GroupAttempt | str]]
"""A function that places a group in the best of its placements; its generator returns the attempt,
or the reason why there is none."""


def preempt(context: GroupContext, request: GroupRequest, place_group: PlaceGroup) -> Preempting:
    """Find the victims for a group that no placement holds now."""
    if ReleaseRule.ONGOING_GROUP_PREEMPTION in context.profile.compatibility:
        ongoing = _ongoing(context.world, request)
        if ongoing:
            return GroupPreemption((), ongoing, is_ongoing=True)
    once = ReleaseRule.GROUP_PREEMPTS_ONCE in context.profile.compatibility
    priority = _priority(request)
    obstacle = _why_not_eligible(context, request, priority)
    if obstacle:
        return obstacle
    fork = _fork(context)
    yield None
    others = yield from preemption_units(fork.world, request.group.key)
    post_filters = context.profile.framework.plugins.get(ExtensionPoint.POST_FILTER, ())
    judges, namespace = ADMITS_VICTIMS.among(post_filters), request.group.key.namespace
    state = CycleState()
    state.moment_seconds = request.moment_seconds
    order = context.profile.framework.handle.victim_order(state)
    units = [
        each
        for each in others
        if each.priority < priority
        and all(plugin.admits_victim(namespace, pod) for plugin in judges for pod in each.pods)
    ]
    if _remove_leaving(fork.world, priority):
        attempt = (
            (yield from place_group(fork, request))
            if once
            else (yield from _in_any_order(fork, request))
        )
        if isinstance(attempt, GroupAttempt):
            return GroupPreemption((), nodes_of(attempt))
    if once:
        found = yield from _choose_in_place(fork, request, units, place_group, order)
    else:
        found = yield from _choose(fork, request, units, order)
    if isinstance(found, str) or not order.differs:
        return found
    return (yield from _with_reasons(found, units, order))


def _with_reasons(
    found: GroupPreemption, units: Sequence[PreemptionUnit], order: VictimOrder
) -> GroupSteps[GroupPreemption]:
    """Add what the order has changed among the units on the nodes that are made free."""
    going, names = {pod.uid for pod in found.victims}, set(found.nodes.values())
    victims = [unit.pods for unit in units if unit.pods[0].uid in going]
    counts: Counter[SparingRule] = Counter()
    misread = list[PodInfo]()
    for begin in range(0, len(units), PODS_PER_STEP):
        yield None
        near = [
            unit.pods
            for unit in units[begin : begin + PODS_PER_STEP]
            if any(pod.node_name in names for pod in unit.pods)
        ]
        counts += order.count_behind(victims, (each for each in near if each[0].uid not in going))
        misread += (pod for pods in near for pod in pods if pod.details.deletion_cost is None)
    texts = [*order.put_behind(counts), *order.misread(misread)]
    return replace(found, decided_by="; ".join(texts))


def _why_not_eligible(context: GroupContext, request: GroupRequest, priority: int) -> str:
    """The reason for which no victims are looked for; empty: they are."""
    once = ReleaseRule.GROUP_PREEMPTS_ONCE in context.profile.compatibility
    if request.group.topology and not once:
        return NOT_WITH_CONSTRAINTS
    if any(pod.spec.preemption_policy == PREEMPT_NEVER for pod in request.members):
        return NEVER
    return "" if _may_help(context.world, priority) else NO_VICTIMS


def _ongoing(world: World, request: GroupRequest) -> dict[str, str]:
    """The nominations of members while a victim is terminating on one of their nodes.

    By uid; empty: the group waits for no victim. As the first question of `PodGroupPostFilter`
    since v1.37 (#140641): what is under way is neither repeated nor extended.
    """
    nominated = {pod.uid: world.nominator.node_of(pod.uid) for pod in request.members}
    nominated = {uid: node_name for uid, node_name in nominated.items() if node_name}
    if not nominated:
        return {}
    nodes, priority = frozenset(nominated.values()), _priority(request)
    own = world.pod_groups.key_of
    waits = any(
        pod.node_name in nodes
        and pod.priority < priority
        and is_leaving_as_victim(pod)
        and own.get(pod.uid) != request.group.key
        for pod in world.cache.pods()
    )
    return nominated if waits else {}


def _choose_in_place(
    fork: GroupContext,
    request: GroupRequest,
    units: Sequence[PreemptionUnit],
    place_group: PlaceGroup,
    order: VictimOrder,
) -> Preempting:
    """The victims among these units; members stay on the nodes that they get without all of them.

    As `PodGroupPostFilter` of v1.37 does: more may be evicted than would have to be.
    """
    if not units:
        return NO_VICTIMS
    row_local = yield from _only_rows_matter(fork, request.members)
    ordered = yield from in_reprieve_order(fork, units, order, budgets=True)
    yield from remove_units(fork.world, ordered)
    attempt = yield from place_group(fork, request)
    if isinstance(attempt, str):
        return attempt
    nodes, victims = nodes_of(attempt), list[PreemptionUnit]()
    for number, unit in enumerate(ordered):
        if number % UNITS_PER_STEP == 0:
            yield None
        if not (yield from _return_beside(fork, attempt, unit, nodes, row_local=row_local)):
            victims.append(unit)
    return _found(victims, attempt)


def _return_beside(
    fork: GroupContext,
    attempt: GroupAttempt,
    unit: PreemptionUnit,
    nodes: Mapping[str, str],
    *,
    row_local: bool,
) -> GroupSteps[bool]:
    """Put a unit back if each member still passes the filters on its node; else it stays away.

    `row_local`: members on other nodes than the unit's need not be asked.
    """
    names = {pod.node_name for pod in unit.pods}
    asked = [
        (number, each)
        for number, each in enumerate(attempt.results)
        if each.assumed is not None and (not row_local or each.assumed.node_name in names)
    ]
    results = [each for _, each in asked]
    undo_results(fork, results)
    for pod in unit.pods:
        fork.world.cache.set_pod(pod)
    pods = [each.pod for each in results]
    tried = yield from place(fork, pods, attempt.placement, nodes)
    is_spared = tried.placed == len(pods)
    if not is_spared:
        undo_attempt(fork, tried)
        for pod in unit.pods:
            fork.world.cache.remove_pod(pod.uid)
        tried = yield from place(fork, pods, attempt.placement, nodes)
    for (number, _), result in zip(asked, tried.results, strict=True):
        attempt.results[number] = result
    return is_spared


def reserve(context: GroupContext, request: GroupRequest) -> Preempting:
    """Find the nodes that are kept for a group until pods of no higher priority have ended.

    Only of pods that are known to end in time; which of them end first is not known: the least
    important are taken to. Pods that have come since room began to be kept are not waited for,
    however unimportant: whatever comes, the number of those that are can only fall.
    """
    if request.group.topology:
        return NOT_WITH_CONSTRAINTS
    priority = min(_priority(request), *(pod.priority for pod in request.members))
    fork = _fork(context)
    others = yield from preemption_units(fork.world, request.group.key)
    units = [each for each in others if each.priority <= priority]
    if (ends := request.known_to_end) is not None:
        units = [each for each in units if all(pod.uid in ends for pod in each.pods)]
        if _remove_leaving(fork.world):
            attempt = yield from _in_any_order(fork, request)
            if attempt is not None:
                kept = GroupPreemption((), nodes_of(attempt))
                return _reserved(kept, request.ending or frozenset())
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


def _may_help(world: World, priority: int) -> bool:
    """Whether there is any pod whose end could help; a fork for none would be dear."""
    groups = (each.group for each in world.pod_groups.groups.values())
    return any(group is not None and group.evicted_whole for group in groups) or any(
        pod.terminating or pod.priority < priority for pod in world.cache.pods()
    )


def _remove_leaving(world: World, priority: int | None = None) -> bool:
    """Take terminating pods off their nodes; returns whether there are any.

    With the priority of a preemptor only those that may be victims: what is deleted otherwise keeps
    no room for a group that waits.
    """
    leaving = [
        pod
        for pod in world.cache.pods()
        if pod.terminating
        and (priority is None or pod.priority < priority or is_leaving_as_victim(pod))
    ]
    for pod in leaving:
        world.cache.remove_pod(pod.uid)
    return bool(leaving)


def _fork(context: GroupContext) -> GroupContext:
    world = context.world.fork(context.world.random)
    profile = world.profiles.served[context.profile.scheduler_name]
    moment = context.moment_seconds
    return GroupContext(world, profile, context.obstacle, moment_seconds=moment)


def _choose(
    fork: GroupContext,
    request: GroupRequest,
    units: Sequence[PreemptionUnit],
    order: VictimOrder = KUBE_SCHEDULERS_ORDER,
    *,
    budgets: bool = True,
) -> Preempting:
    """The victims among these units, on a fork where what is terminating has gone."""
    if not units:
        return NO_VICTIMS
    members = request.members
    row_local = yield from _only_rows_matter(fork, members)
    moment = fork.moment_seconds
    alike = row_local and counts_exactly(fork.profile, members, moment)
    ordered = yield from in_reprieve_order(fork, units, order, budgets=budgets)
    yield from remove_units(fork.world, ordered)
    free_capacity = FreeCapacity(
        fork.world, fork.profile, members, request.needed, alike=alike, moment_seconds=moment
    )
    if not free_capacity.is_enough:
        return NOT_EVEN_WITHOUT
    if free_capacity.is_exact:
        found = yield from _counted(fork, request, ordered, free_capacity)
        if found is not None:
            return found
    attempt = yield from _in_any_order(fork, request)
    if attempt is None:
        return NOT_EVEN_WITHOUT
    reprieve = Reprieve(fork, request, attempt, free_capacity, row_local=row_local)
    victims = yield from reprieve.run(ordered)
    return TOO_MANY if victims is None else _found(victims, reprieve.attempt)


def _in_any_order(fork: GroupContext, request: GroupRequest) -> GroupSteps[GroupAttempt | None]:
    """The group placed on the fork; None: it is not, and nothing is assumed."""
    attempt = yield from place(fork, request.members)
    if request.is_met_by(attempt):
        return attempt
    undo_attempt(fork, attempt)
    return (yield from try_other_orders(fork, request, attempt, request.budget_seconds))[0]


def _only_rows_matter(fork: GroupContext, members: Sequence[PodInfo]) -> GroupSteps[bool]:
    """Whether pods on other nodes matter to no member; with fewer pods, they do not, either."""
    framework = fork.profile.framework
    fork.world.cache.update_snapshot()
    reads_time = framework.reads_time
    different = {
        (pod.spec, pod.label_set, pod.unscheduled_since_seconds if reads_time else None): pod
        for pod in members
    }
    for pod in different.values():
        yield None
        state = CycleState()
        state.moment_seconds = fork.moment_seconds
        framework.filtering.find_feasible(pod, state, sample=False)
        if not framework.filters.is_row_local(state, pod):
            return False
    return True


def _counted(
    fork: GroupContext,
    request: GroupRequest,
    units: Sequence[PreemptionUnit],
    free_capacity: FreeCapacity,
) -> GroupSteps[GroupPreemption | None]:
    """The victims as counted; None: members cannot be placed so, as where nominations matter.

    Then the fork and the free capacity are as they were.
    """
    victims: list[PreemptionUnit] = []
    spared: list[PreemptionUnit] = []
    for number, unit in enumerate(units):
        if number % UNITS_PER_STEP == 0:
            yield None
        (spared if free_capacity.try_return(unit.pods) else victims).append(unit)
    yield from return_units(fork.world, spared)
    attempt = yield from place(fork, request.members)
    if request.is_met_by(attempt):
        return _found(victims, attempt)
    undo_attempt(fork, attempt)
    yield from remove_units(fork.world, spared)
    for unit in spared:
        free_capacity.remove(unit.pods)
    return None


def _found(victims: Sequence[PreemptionUnit], attempt: GroupAttempt) -> GroupPreemption:
    return GroupPreemption(tuple(pod for unit in victims for pod in unit.pods), nodes_of(attempt))


def _priority(request: GroupRequest) -> int:
    """The group's own; where it has none, that of the least of its members."""
    if request.group.priority is None:
        return min(pod.priority for pod in request.members)
    return request.group.priority


def preemption_units(world: World, own: PodGroupKey) -> Generator[None, None, list[PreemptionUnit]]:
    """Find all that could be evicted for a group: groups that go whole, every other pod alone."""
    states, found = world.pod_groups, list[PreemptionUnit]()
    in_groups: set[str] = set()
    for members in states.groups.values():
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
            found.append(PreemptionUnit(pods, priority_of(members), is_group=True))
    for number, pod in enumerate(world.cache.pods()):
        if number % PODS_PER_STEP == PODS_PER_STEP - 1:
            yield
        if pod.uid not in in_groups and not pod.terminating and states.key_of.get(pod.uid) != own:
            found.append(PreemptionUnit((pod,), pod.priority, is_group=False))
    return found


def in_reprieve_order(
    context: GroupContext,
    units: Sequence[PreemptionUnit],
    order: VictimOrder = KUBE_SCHEDULERS_ORDER,
    *,
    budgets: bool,
) -> Generator[None, None, list[PreemptionUnit]]:
    """Sort units in the order in which they are spared: budget violations first, then importance.

    `order`: among equal priorities. `budgets`: False for units that end by themselves, which
    violates no budget.
    """
    ranked = yield from _ranked(units, order)
    if not budgets:
        return ranked
    pods = [pod for unit in ranked for pod in unit.pods]
    budgeted = DisruptionBudgets(context.world.objects, context.profile.compatibility)
    over = budgeted.violating(pods)
    violating = {pod.uid for pod, is_over in zip(pods, over, strict=True) if is_over}
    yield
    if not violating:
        return ranked
    return sorted(ranked, key=lambda unit: not any(pod.uid in violating for pod in unit.pods))


def _ranked(
    units: Sequence[PreemptionUnit], order: VictimOrder
) -> Generator[None, None, list[PreemptionUnit]]:
    """The most important first; sorted part by part."""
    parts = []
    for begin in range(0, len(units), PODS_PER_STEP):
        part = units[begin : begin + PODS_PER_STEP]
        keyed = ((unit.importance(order), begin + at, unit) for at, unit in enumerate(part))
        parts.append(sorted(keyed))
        yield
    ranked = []
    for number, (_, _, unit) in enumerate(heapq.merge(*parts)):
        if number % PODS_PER_STEP == PODS_PER_STEP - 1:
            yield
        ranked.append(unit)
    return ranked


def remove_units(world: World, units: Iterable[PreemptionUnit]) -> Iterator[None]:
    """Take the pods of units off their nodes, in steps."""
    for number, unit in enumerate(units):
        if number % UNITS_PER_STEP == UNITS_PER_STEP - 1:
            world.cache.update_snapshot()
            yield
        for pod in unit.pods:
            world.cache.remove_pod(pod.uid)


def return_units(world: World, units: Iterable[PreemptionUnit]) -> Iterator[None]:
    """Put the pods of units on their nodes again, in steps."""
    for number, unit in enumerate(units):
        if number % UNITS_PER_STEP == UNITS_PER_STEP - 1:
            world.cache.update_snapshot()
            yield
        for pod in unit.pods:
            world.cache.set_pod(pod)


class Reprieve:
    """Returns units one by one, as long as the group has its nodes, where counting is not exact.

    It begins without any of them on the fork, with the group placed. Invariant: in the end the
    group is placed beside all that are spared, and none of the others could be spared: by count, or
    by placing the group anew; where that was done too often already, by moving no more members than
    those on its nodes.
    """

    def __init__(
        self,
        context: GroupContext,
        request: GroupRequest,
        attempt: GroupAttempt,
        free_capacity: FreeCapacity,
        *,
        row_local: bool,
    ) -> None:
        """`row_local`: pods on other nodes matter to no member, whatever units come back."""
        self._context, self._request, self._free_capacity = context, request, free_capacity
        self.attempt = attempt
        """The members where they are now, assumed on the fork."""
        self._on: dict[str, set[int]] = {}
        """Positions in its results of the members on each node."""
        self._row_local = row_local
        self._decided = 0
        self._note_all()

    def run(self, units: Sequence[PreemptionUnit]) -> GroupSteps[Sequence[PreemptionUnit] | None]:
        """Spare what can be spared, in this order; returns the others.

        None: it would take too long to find out.
        """
        victims, before = list(units), -1
        while len(victims) != before:
            # Members may have moved since a unit was refused.
            before = len(victims)
            victims = yield from self._refused(victims)
        if self._row_local or (yield from self._place_beside_spared()):
            return victims
        kept = {id(unit) for unit in victims}
        yield from remove_units(
            self._context.world, [unit for unit in units if id(unit) not in kept]
        )
        found = yield from self._by_halves(units)
        while found is not None and (fewer := (yield from self._one_by_one(found))) != found:
            found = fewer
        return found if found is not None and (yield from self._place_beside_spared()) else None

    def _refused(self, units: Sequence[PreemptionUnit]) -> GroupSteps[list[PreemptionUnit]]:
        """Spare what can be spared, once; returns the others."""
        refused = []
        for number, unit in enumerate(units):
            if number % UNITS_PER_STEP == 0:
                yield None
            if not self._free_capacity.try_return(unit.pods):
                refused.append(unit)
            elif not (yield from self._spare(unit)):
                self._free_capacity.remove(unit.pods)
                refused.append(unit)
        return refused

    def _spare(self, unit: PreemptionUnit) -> GroupSteps[bool]:
        """Put a unit back; if the group then has no nodes, take it away again."""
        if not any(pod.node_name in self._on for pod in unit.pods):
            self._return_unit(unit)
            return True
        if (yield from self._spare_with_moves(unit)):
            return True
        return (yield from self._spare_anew(unit))

    def _spare_with_moves(self, unit: PreemptionUnit) -> GroupSteps[bool]:
        """Put a unit back beside the members on its nodes, or with those elsewhere."""
        context, attempt = self._context, self.attempt
        names = {pod.node_name for pod in unit.pods}
        moving = sorted(index for name in names for index in self._on.pop(name, ()))
        results = [attempt.results[index] for index in moving]
        pods, nodes = [each.pod for each in results], nodes_of(GroupAttempt(results=results))
        undo_results(context, results)
        self._return_unit(unit)
        # Where others matter, members that move would be judged beside some that came after them.
        tried = yield from place(
            context, pods, attempt.placement, None if self._row_local else nodes
        )
        is_spared = tried.placed == len(pods)
        if not is_spared:
            undo_attempt(context, tried)
            self._remove_unit(unit)
            tried = yield from place(context, pods, attempt.placement, nodes)
        for index, result in zip(moving, tried.results, strict=True):
            attempt.results[index] = result
            self._note(index, result)
        return is_spared

    def _spare_anew(self, unit: PreemptionUnit) -> GroupSteps[bool]:
        """Put a unit back, and the whole group wherever it fits then."""
        if self._decided >= MAX_MEMBER_DECISIONS:
            return False
        before = self.attempt
        undo_attempt(self._context, before)
        self._return_unit(unit)
        if (yield from self._placed_anew()):
            return True
        self._remove_unit(unit)
        members = [each.pod for each in before.results]
        self.attempt = yield from place(self._context, members, before.placement, nodes_of(before))
        self._note_all()
        return False

    def _placed_anew(self) -> GroupSteps[bool]:
        """Place the group, of which no member is placed; False: nothing is assumed."""
        context, request = self._context, self._request
        attempt = yield from place(context, request.members)
        self._decided += len(request.members)
        if not request.is_met_by(attempt):
            undo_attempt(context, attempt)
            if self._decided >= MAX_MEMBER_DECISIONS // 2:
                return False
            other, tried = yield from try_other_orders(context, request, attempt, math.inf)
            self._decided += tried * len(request.members)
            if other is None:
                return False
            attempt = other
        self.attempt = attempt
        self._note_all()
        return True

    def _place_beside_spared(self) -> GroupSteps[bool]:
        """Place the group beside all that has come back, if it can be; members are taken back."""
        before = self.attempt
        undo_attempt(self._context, before)
        members = [each.pod for each in before.results]
        attempt = yield from place(self._context, members, before.placement, nodes_of(before))
        if self._request.is_met_by(attempt):
            self.attempt = attempt
            return True
        undo_attempt(self._context, attempt)
        return (yield from self._placed_anew())

    def _by_halves(
        self, units: Sequence[PreemptionUnit]
    ) -> GroupSteps[list[PreemptionUnit] | None]:
        """Spare as many at once as can be; returns the others; None: it takes too long.

        No member is assumed, before and after.
        """
        if self._decided >= MAX_MEMBER_DECISIONS:
            return None
        yield from return_units(self._context.world, units)
        if (yield from self._placed_anew()):
            undo_attempt(self._context, self.attempt)
            return []
        yield from remove_units(self._context.world, units)
        if len(units) == 1:
            return list(units)
        middle = len(units) // 2
        first = yield from self._by_halves(units[:middle])
        second = None if first is None else (yield from self._by_halves(units[middle:]))
        return None if first is None or second is None else [*first, *second]

    def _one_by_one(self, units: list[PreemptionUnit]) -> GroupSteps[list[PreemptionUnit]]:
        """Spare what can be spared beside all that was by now; returns the others.

        What comes back may lead members elsewhere, where they leave more free. No member is
        assumed, before and after.
        """
        refused = []
        for unit in units:
            self._return_unit(unit)
            if self._decided < MAX_MEMBER_DECISIONS and (yield from self._placed_anew()):
                undo_attempt(self._context, self.attempt)
            else:
                self._remove_unit(unit)
                refused.append(unit)
        return refused

    def _note_all(self) -> None:
        """Note the node of each member."""
        self._on.clear()
        for index, result in enumerate(self.attempt.results):
            self._note(index, result)

    def _note(self, index: int, result: MemberResult) -> None:
        if result.assumed is not None:
            self._on.setdefault(result.assumed.node_name, set()).add(index)

    def _return_unit(self, unit: PreemptionUnit) -> None:
        for pod in unit.pods:
            self._context.world.cache.set_pod(pod)

    def _remove_unit(self, unit: PreemptionUnit) -> None:
        for pod in unit.pods:
            self._context.world.cache.remove_pod(pod.uid)
