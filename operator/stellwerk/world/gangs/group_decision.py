"""From a World, a group and its members to a GroupDecision: nodes for enough of them, or for none.

The scheduler's group cycle and explanations drive `decide_group`. Invariant: when a decision says
that the group is placed, the members with nodes are assumed there, and they are enough; otherwise
the World is as it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from stellwerk.framework.extension_points import PLACEMENT_GENERATE
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup
from stellwerk.models.profile_defaults import GANG_SCHEDULING
from stellwerk.world.gangs.attempt import (
    HAS_CONSTRAINTS,
    PREEMPTED_BY_GROUP,
    Attempt,
    Ground,
    Steps,
    place,
    take_back,
)
from stellwerk.world.gangs.group_preemption import GroupPreemption, preempt, reserve
from stellwerk.world.gangs.group_request import GroupRequest
from stellwerk.world.gangs.placement_choice import PlacementChoice
from stellwerk.world.gangs.placements import Domains, UndeterminedDomainError, domains
from stellwerk.world.gangs.second_look import look_again
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

UNSCHEDULABLE_GROUP: Final = "pod group is unschedulable"
NO_PLACEMENTS: Final = "no feasible placements found"

Deciding: TypeAlias = Steps["GroupDecision"]


@dataclass(slots=True)
class GroupDecision:
    """What is to become of a group."""

    request: GroupRequest
    attempt: Attempt
    """The one that is taken, or the one that says best why there is none."""
    placed: bool = False
    """True: its members with nodes are assumed there."""
    message: str = ""
    """Why the group is not placed, as its condition says it."""
    placements: int = 1
    """How many there were."""
    attempts: int = 1
    """In all: placements, and orders of the members."""
    same_for_all: bool = False
    """The message is each member's, too: none was tried."""
    rejected_by: frozenset[str] = frozenset({GANG_SCHEDULING})
    """The plugins whose hints can end that."""
    preemption: GroupPreemption | None = None
    """What makes room; None: nothing does, or nothing has to."""


def decide_group(world: World, profile: ServedProfile, request: GroupRequest) -> Deciding:
    """Place the group: in the best placement, if need be in another order of its members.

    Preferred levels of topology are kept as far down as they can be.

    Raises:
        PluginFailure: a plugin raised.
    """
    group = request.group
    obstacle = HAS_CONSTRAINTS if group.has_constraints else PREEMPTED_BY_GROUP
    ground = Ground(world, profile, obstacle)
    lacking = _lacks(world, group, request.scheduled)
    if lacking:
        return _untried(request, lacking, "NodeResourcesFit")
    decision = None
    for keys in _levels(profile, group):
        decision = yield from _decide_at(ground, request, keys)
        if decision.placed or decision.attempt.broken:
            return decision
    assert decision is not None  # noqa: S101 there is always a level
    found = yield from preempt(ground, request)
    if isinstance(found, str) and request.keeps_room:
        found = yield from reserve(ground, request)
    if isinstance(found, str):
        decision.message = f"{decision.message}, {found}"
    else:
        decision.preemption = found
    return decision


def _levels(profile: ServedProfile, group: PodGroup) -> Sequence[Sequence[str]]:
    """The labels that divide nodes into placements, the most wanted ones first; at least one."""
    for generator in PLACEMENT_GENERATE.among(profile.framework.plugins):
        return generator.placement_keys(group) or ((),)
    return ((),)


def _decide_at(ground: Ground, request: GroupRequest, keys: Sequence[str]) -> Deciding:
    """Place the group on nodes that share the values of these labels."""
    snapshot = ground.world.cache.update_snapshot()
    try:
        found = domains(snapshot, keys, request.scheduled)
    except UndeterminedDomainError as undetermined:
        return GroupDecision(request, Attempt(broken=str(undetermined)), message=str(undetermined))
    if not found.placements:
        return _untried(request, NO_PLACEMENTS, GANG_SCHEDULING)
    if len(found.placements) > 1:
        decision = yield from _best_of(ground, request, found)
    else:
        attempt = yield from place(ground, request.members, found.placements[0])
        decision = _decision(request, attempt, found)
        if not decision.placed:
            take_back(ground, attempt)
    if decision.placed or decision.attempt.broken:
        return decision
    return (yield from _look_again(ground, decision))


def _best_of(ground: Ground, request: GroupRequest, found: Domains) -> Deciding:
    """Try the placements that promise most, and take the one that is best of those that hold."""
    choice = PlacementChoice(ground, request.members, request.needed, found)
    attempts = 0
    for index in choice.order:
        attempt = yield from place(ground, request.members, found.placements[index])
        attempts += 1
        met = request.is_met_by(attempt)
        choice.tried(index, attempt, met=met, scheduled=len(request.scheduled))
        if met and choice.is_settled:
            return replace(_decision(request, attempt, found), attempts=attempts)
        take_back(ground, attempt)
        if attempt.broken:
            return replace(_decision(request, attempt, found), attempts=attempts)
    best = choice.best()
    if best is None:
        return replace(_decision(request, choice.closest, found), attempts=attempts)
    attempt = yield from place(ground, best.members, best.placement, best.nodes)
    decision = replace(_decision(request, attempt, found), attempts=attempts)
    if not decision.placed:
        take_back(ground, attempt)
    return decision


def _look_again(ground: Ground, first: GroupDecision) -> Deciding:
    """Try other orders where the first attempt came closest; the first decision if none helps."""
    request = first.request
    met, tried = yield from look_again(ground, request, first.attempt, request.budget_seconds)
    first.attempts += tried
    return first if met is None else replace(first, attempt=met, placed=True, message="")


def _decision(request: GroupRequest, attempt: Attempt, found: Domains) -> GroupDecision:
    count = len(found.placements)
    if request.is_met_by(attempt):
        return GroupDecision(request, attempt, placed=True, placements=count)
    if attempt.broken:
        return GroupDecision(request, attempt, message=attempt.broken, placements=count)
    message = f"0/{count} placements are available, first placement status: {UNSCHEDULABLE_GROUP}"
    return GroupDecision(request, attempt, message=message, placements=count)


def _untried(request: GroupRequest, message: str, plugin: str) -> GroupDecision:
    return GroupDecision(
        request,
        Attempt(),
        message=message,
        placements=0,
        attempts=0,
        same_for_all=True,
        rejected_by=frozenset({plugin}),
    )


def _lacks(world: World, group: PodGroup, scheduled: Sequence[PodInfo]) -> str:
    """Why the cluster as a whole has no room for minResources; empty: it has."""
    snapshot = world.cache.update_snapshot()
    short = []
    for resource, wanted in group.min_resources.items():
        index = snapshot.resource_index(resource)
        free = 0
        if index is not None:
            left = snapshot.allocatable[index] - snapshot.requested[index]
            free = int(left[snapshot.alive].clip(min=0).sum())
        free += sum(pod.amounts.requests.get(resource, 0) for pod in scheduled)
        if free < wanted:
            short.append(resource)
    if not short:
        return ""
    return f"not enough room in the cluster for minResources: insufficient {', '.join(short)}"
