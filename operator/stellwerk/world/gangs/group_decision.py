"""The decision on a group, nodes for enough of its members or for none; `group_cycle` drives it.

`decide_group` is a generator: it yields requests for single decisions and is sent the answers
(`group_attempt` names the two drivers). `scheduler.gangs.submit_group_result` carries the result
out. Of several placements some are tried and the best one is taken (`PlacementChoice`). Invariants:
when a decision says that the group is placed, the members with nodes are assumed there, and they
are enough; otherwise the World is as it was, and `member_failures` says what each member waits for.
`RemainingMembers` are those that are left when a group is placed. Which placements are tried, and
which one is best, follows from scores and then from the labels' values, never from chance. A
member's node inside a placement is drawn among nodes of equal score, as for any pod
(`world.decide.choose`, `_pick_of_equals`), unless the profile's tieBreak is NodeRank.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from stellwerk.framework.extension_points import COUNTS_ROOM, PLACEMENT_GENERATE, PLACEMENT_SCORE
from stellwerk.framework.types import PlacementSums, joined_placements
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup
from stellwerk.models.scheduling_spec import PREEMPT_NEVER
from stellwerk.plugins.shared.volume_claims import claim_volumes, reach_labels
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.snapshot.columns import IntColumn
from stellwerk.world.decide import Decision, Failure
from stellwerk.world.gangs.group_attempt import (
    HAS_CONSTRAINTS,
    PREEMPTED_BY_GROUP,
    EarlyEnd,
    GroupAttempt,
    GroupContext,
    GroupRequest,
    GroupSteps,
    MemberResult,
    Refusals,
    is_about_spec,
    likeness,
    nodes_of,
    place,
    try_other_orders,
    undo_attempt,
)
from stellwerk.world.gangs.group_capacity import capacity
from stellwerk.world.gangs.group_preemption import GroupPreemption, preempt, reserve
from stellwerk.world.gangs.placements import (
    EVERYWHERE,
    Domains,
    Placement,
    UndeterminedDomainError,
    domains,
    placement_sums,
    sums,
)
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.compatibility import Compatibility, ReleaseRule

WAITING_FOR_OTHERS: Final = (
    "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, "
    "one or more plugins asked to wait and no plugin rejected pod"
)
OTHER_FAILED: Final = "failed to schedule other pod from a pod group: "
UNSCHEDULABLE_GROUP: Final = "pod group is unschedulable"
PREEMPTION: Final = "pod group preemption: "
ONGOING_PREEMPTION: Final = "ongoing preemption on nominated nodes"
NO_PLACEMENTS: Final = "no feasible placements found"
MAX_PLACEMENTS_TRIED: Final = 10
"""Placements of a group that are tried. If there are more, the ten that promise most are, by what
their nodes could hold: an attempt costs a decision for each member, counting does not."""
Deciding: TypeAlias = GroupSteps["GroupDecision"]


@dataclass(slots=True)
class GroupDecision:
    """The nodes of a group's members, or why it has none and what makes room for it."""

    request: GroupRequest
    attempt: GroupAttempt
    """The one that is taken, or the one that says best why there is none."""
    placed: bool = False
    """True: its members with nodes are assumed there."""
    message: str = ""
    """The reason why the group is not placed, as its condition says it."""
    placements: int = 1
    """The number of placements that there were."""
    attempts: int = 1
    """The number of attempts, over placements and orders of the members."""
    same_for_all: bool = False
    """The message is each member's, too: none was tried."""
    rejected_by: frozenset[str] = frozenset({GANG_SCHEDULING})
    """The plugins whose hints can end that."""
    preemption: GroupPreemption | None = None
    """The preemption that makes room; None: none does, or none has to."""
    says_victims: bool = False
    """The message says that there are victims."""
    refused_by: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The plugins that refused each member in any placement and any order, by its uid."""
    part: Mapping[str, str] = field(default_factory=dict)
    """The nodes that members would get though too few do, by uid; only where the request keeps
    them."""


@dataclass(frozen=True, slots=True)
class DecidedGroup:
    """The outcome of a decision on a group, as another profile's is compared with it."""

    key: str
    """namespace/name."""
    nodes: Mapping[str, str]
    """Node by uid, of the members that have one, in the order in which they were placed."""
    message: str = ""
    """The reason why the group was not placed."""


def decide_group(world: World, profile: ServedProfile, request: GroupRequest) -> Deciding:
    """Place the group: in the best placement, if need be in another order of its members.

    Preferred levels of topology are kept as far down as they can be.

    Raises:
        PluginFailure: a plugin raised.
    """
    group = request.group
    obstacle = HAS_CONSTRAINTS if group.has_constraints else PREEMPTED_BY_GROUP
    refusals = Refusals()
    context = GroupContext(
        world,
        profile,
        obstacle,
        _early_end(profile, request),
        refusals,
        moment_seconds=request.moment_seconds,
    )
    if request.lacks_members:
        # None is placed, so that no victims are looked for: room is kept for those that are there.
        everyone = replace(context, early_end=None)
        decision = yield from _decide_in(everyone, replace(request, budget_seconds=0.0))
        decision.part = yield from _part_with_nodes(everyone, decision)
        return decision
    lacking = _lacking_min_resources(world, group, request.scheduled)
    if lacking:
        filters = profile.framework.plugins.get(ExtensionPoint.FILTER, ())
        return _untried(request, lacking, *(each.name for each in COUNTS_ROOM.among(filters)))
    decision = yield from _decide_in(context, request)
    if decision.placed or decision.attempt.broken:
        return decision
    sharing = replace(context, shares_volumes=True)
    for keys in _levels_of_volumes(world, request.members):
        # What one of them chooses for a claim is known to the API only once all are bound. The
        # others wait for the volume when they are bound, and see then whether they reach it.
        shared = yield from _decide_in(sharing, request, keys)
        if shared.placed:
            return shared
    decision.refused_by = refusals.by_uid
    yield from _make_room(context, decision)
    return decision


def _make_room(context: GroupContext, decision: GroupDecision) -> GroupSteps[None]:
    """Find the victims, or the nodes that are kept, for a group that is not placed."""
    request = decision.request
    found = yield from preempt(context, request, _placed_on_fork)
    once = ReleaseRule.GROUP_PREEMPTS_ONCE in context.profile.compatibility
    if once:
        _say_preemption(decision, found)
    if isinstance(found, str) and request.reserves_capacity:
        found = yield from reserve(context, request)
    if not isinstance(found, str):
        decision.preemption = found
    elif not once:
        decision.message = f"{decision.message}, {found}"
    if decision.preemption is None and request.keeps_part:
        decision.part = yield from _part_with_nodes(context, decision)


def _part_with_nodes(
    context: GroupContext, decision: GroupDecision
) -> GroupSteps[Mapping[str, str]]:
    """The nodes of the members that have one in the attempt that came closest, all tried."""
    attempt = decision.attempt
    if attempt.gave_up:
        every = replace(context, early_end=None, refusals=None)
        attempt = yield from place(every, decision.request.members, attempt.placement)
        undo_attempt(every, attempt)
    return {} if attempt.broken else nodes_of(attempt)


def _decide_in(
    context: GroupContext, request: GroupRequest, together: Sequence[str] = ()
) -> Deciding:
    """Place the group on nodes of the most wanted label that holds it.

    `together`: labels of which its nodes are to have the same values besides.
    """
    decision = None
    for keys in _levels(context.profile, request.group):
        decision = yield from _decide_at(context, request, tuple(dict.fromkeys((*keys, *together))))
        if decision.placed or decision.attempt.broken:
            return decision
    assert decision is not None  # noqa: S101 there is always a level
    return decision


def _levels_of_volumes(world: World, members: Sequence[PodInfo]) -> Sequence[Sequence[str]]:
    """The labels within which members that share a claim are tried apart, the surest first.

    A driver makes a volume for the node that the first one chooses, and tells by which labels it is
    reached from others. It may reach further, e.g. two zones: without success, all nodes are tried.
    None: no two members use the same claim for a volume.
    """
    users = Counter(
        (pod.namespace, name)
        for pod in members
        for name in {volume.claim_name for volume in claim_volumes(pod)}
    )
    shared = [key for key, count in users.items() if count > 1]
    if not shared:
        return ()
    found = (world.objects.get("PersistentVolumeClaim", *key) for key in shared)
    keys = sorted(reach_labels(world.objects, [each for each in found if each is not None]))
    return (keys, ()) if keys else ((),)


def _say_preemption(decision: GroupDecision, found: GroupPreemption | str) -> None:
    """Add to the message what came of the preemption, in the words of v1.37."""
    if isinstance(found, str):
        decision.message = f"{decision.message}, {PREEMPTION}{found}"
    elif found.is_ongoing:
        decision.message = f"{decision.message}, {PREEMPTION}{ONGOING_PREEMPTION}"
        decision.says_victims = True
    elif found.victims:
        said = f"found a placement for podgroup, preempting {len(found.victims)} victims"
        decision.message = f"{decision.message}, {PREEMPTION}{said}"
        decision.says_victims = True


def _placed_on_fork(fork: GroupContext, request: GroupRequest) -> GroupSteps[GroupAttempt | str]:
    """The group in the best of its placements on a fork; or why there is none."""
    message, context = NO_PLACEMENTS, replace(fork, early_end=_early_end(fork.profile, request))
    for keys in _levels(fork.profile, request.group):
        decision = yield from _decide_at(context, request, keys)
        if decision.placed:
            return decision.attempt
        message = decision.message
    return message


def _early_end(profile: ServedProfile, request: GroupRequest) -> EarlyEnd | None:
    if ReleaseRule.STOP_IN_VAIN not in profile.compatibility:
        return None
    return EarlyEnd(max(1, request.group.min_count), len(request.scheduled) + request.finished)


def _levels(profile: ServedProfile, group: PodGroup) -> Sequence[Sequence[str]]:
    """The labels that divide nodes into placements, the most wanted ones first; at least one."""
    for generator in PLACEMENT_GENERATE.among(profile.framework.plugins):
        return generator.placement_keys(group) or ((),)
    return ((),)


def _decide_at(context: GroupContext, request: GroupRequest, keys: Sequence[str]) -> Deciding:
    """Place the group on nodes that share the values of these labels; without labels, on any."""
    found = None
    if keys:
        snapshot = context.world.cache.update_snapshot()
        try:
            found = domains(snapshot, keys, request.scheduled)
        except UndeterminedDomainError as undetermined:
            return GroupDecision(
                request, GroupAttempt(broken=str(undetermined)), message=str(undetermined)
            )
        if not found.placements:
            return _untried(request, NO_PLACEMENTS, GANG_SCHEDULING)
    if found is not None and len(found.placements) > 1:
        decision = yield from _best_of(context, request, found)
    else:
        placement = found.placements[0] if found is not None else EVERYWHERE
        attempt = yield from place(context, request.members, placement)
        decision = _decision(request, attempt, 1)
        if not decision.placed:
            undo_attempt(context, attempt)
    if decision.placed or decision.attempt.broken:
        return decision
    # The attempt that came closest is tried again in other orders.
    met, tried = yield from try_other_orders(
        context, request, decision.attempt, request.budget_seconds
    )
    decision.attempts += tried
    return decision if met is None else replace(decision, attempt=met, placed=True, message="")


def _best_of(context: GroupContext, request: GroupRequest, found: Domains) -> Deciding:
    """Try the placements that promise most, and take the one that is best of those that hold.

    The one of the nominated nodes is taken before all others if it holds the group: victims were
    evicted there.
    """
    choice = PlacementChoice(context, request.members, request.needed, found)
    nominated, order = _nominated_placement(context, request, found), choice.order
    if nominated is not None:
        order = [nominated, *(index for index in order if index != nominated)]
    attempts = 0
    for index in order:
        attempt = yield from place(context, request.members, found.placements[index])
        attempts += 1
        met = request.is_met_by(attempt)
        choice.tried(index, attempt, met=met, scheduled=len(request.scheduled))
        if met and (choice.is_settled or index == nominated):
            return replace(_decision(request, attempt, len(found.placements)), attempts=attempts)
        undo_attempt(context, attempt)
        if attempt.broken:
            return replace(_decision(request, attempt, len(found.placements)), attempts=attempts)
    best = choice.best()
    if best is None:
        if context.refusals is not None and attempts < len(found.placements):
            context.refusals.include_untried()
        return replace(_decision(request, choice.closest, len(found.placements)), attempts=attempts)
    attempt = yield from place(context, best.members, best.placement, best.nodes)
    decision = replace(_decision(request, attempt, len(found.placements)), attempts=attempts)
    if not decision.placed:
        undo_attempt(context, attempt)
    return decision


def _nominated_placement(
    context: GroupContext, request: GroupRequest, found: Domains
) -> int | None:
    """The placement with the nodes to which most members are nominated; None: there is none."""
    if ReleaseRule.NOMINATED_PLACEMENT_FIRST not in context.profile.compatibility:
        return None
    nominator, row_of = context.world.nominator, context.world.cache.snapshot.row_of
    rows = (row_of.get(nominator.node_of(pod.uid)) for pod in request.members)
    counts = Counter(int(found.of_row[row]) for row in rows if row is not None)
    del counts[-1]
    # Placements have one order: of equal ones, the first.
    return max(sorted(counts), key=counts.__getitem__, default=None)


def _decision(request: GroupRequest, attempt: GroupAttempt, count: int) -> GroupDecision:
    """The decision that an attempt in one of `count` placements comes to."""
    if request.is_met_by(attempt):
        return GroupDecision(request, attempt, placed=True, placements=count)
    if attempt.broken:
        return GroupDecision(request, attempt, message=attempt.broken, placements=count)
    why = attempt.gave_up or UNSCHEDULABLE_GROUP
    message = f"0/{count} placements are available, first placement status: {why}"
    return GroupDecision(request, attempt, message=message, placements=count)


def _untried(request: GroupRequest, message: str, *plugins: str) -> GroupDecision:
    return GroupDecision(
        request,
        GroupAttempt(),
        message=message,
        placements=0,
        attempts=0,
        same_for_all=True,
        # A profile without such a plugin has no hint for it: GangScheduling's nodes wake it.
        rejected_by=frozenset(plugins or {GANG_SCHEDULING}),
    )


def _lacking_min_resources(world: World, group: PodGroup, scheduled: Sequence[PodInfo]) -> str:
    """The resources that the whole cluster lacks for minResources, in a sentence; empty: none."""
    if not group.min_resources:
        return ""
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


# --- what follows for a group that is not placed ------------------------------------------------


def missing_text(decision: GroupDecision) -> str:
    """Return how many members get no node, with the reason of the first; empty: none was tried.

    Members that no plugin has turned away wait for this one. Explanations say it; the condition of
    the group has `GroupDecision.message`.
    """
    results, members = decision.attempt.results, decision.request.members
    own = [(each.pod.key, each.failure) for each in results if each.failure is not None]
    key, failure = next((each for each in own if each[1].rejected), ("", None))
    if failure is None:
        return ""
    without = len(members) - sum(each.assumed is not None for each in results)
    verb = "gets" if without == 1 else "get"
    return f"{without} of {len(members)} members {verb} no node; {key}: {failure.message}"


def member_failures(decision: GroupDecision) -> dict[str, Failure]:
    """The failure of each member of a group that is not placed, by uid.

    It is the member's own, or else that of the group, with the plugins that refused the member in
    any attempt. Of members that are alike, one waits for events in place of all: a change that may
    help it brings the others along.
    """
    attempt = decision.attempt
    as_group = decision.same_for_all or decision.preemption is not None
    message = decision.message if as_group else WAITING_FOR_OTHERS
    of_group = Failure(message, decision.rejected_by, rejected=True)
    failures = {each.pod.uid: each.failure or of_group for each in attempt.results}
    failures |= {pod.uid: of_group for pod in decision.request.members if pod.uid not in failures}
    if attempt.broken:
        others = Failure.error(f"{OTHER_FAILED}{attempt.broken}")
        return {uid: others if each.rejected else each for uid, each in failures.items()}
    # Those that the attempt looked at come first, in its order.
    pods = {each.pod.uid: each.pod for each in attempt.results}
    pods |= {pod.uid: pod for pod in decision.request.members}
    refusals = [
        (uid, failure.unschedulable_plugins | decision.refused_by.get(uid, frozenset()))
        for uid, failure in failures.items()
        if failure.rejected and (failure is not of_group or uid in decision.refused_by)
    ]
    awake: dict[Hashable, list[frozenset[str]]] = {}
    # A member that more plugins refused waits for the events of one like it with fewer, too.
    for uid, plugins in sorted(refusals, key=lambda each: -len(each[1] - {GANG_SCHEDULING})):
        pod = pods[uid]
        alike = awake.setdefault((pod.spec, pod.label_set, pod.node_names), [])
        waits = plugins - {GANG_SCHEDULING}
        sleeps = any(waits <= others for others in alike) and not pod.volumes
        alike.append(waits)
        own = frozenset({GANG_SCHEDULING}) if sleeps else plugins
        failures[uid] = replace(failures[uid], unschedulable_plugins=own)
    return failures


class RemainingMembers:
    """The members that are left when enough others have nodes.

    Decided as 1.38, they are tried again as a group, which preempts for them if none of them can be
    placed. Before, each is tried once more by itself: as a pod of its own it may
    preempt, as a member it may not. Nothing would come of that where the group has constraints; a
    group that is evicted whole evicts none for a part of it.
    """

    def __init__(self, decision: GroupDecision, compatibility: Compatibility) -> None:
        group, results = decision.request.group, decision.attempt.results
        goes_back = ReleaseRule.REMAINDER_STAYS_A_GROUP in compatibility
        self.again = [each for each in results if decision.placed and goes_back and _is_left(each)]
        """The results of members for which the group is tried again at once."""
        is_tried = (
            decision.placed
            and not goes_back
            and not (group.evicted_whole or group.has_constraints or group.topology)
        )
        self.results = [
            each
            for each in results
            if is_tried and _is_left(each) and each.pod.spec.preemption_policy != PREEMPT_NEVER
        ]
        """The results of members that are tried by themselves, as members of the group."""
        self.uids = {each.pod.uid for each in self.results}
        self._refused: set[Hashable] = set()

    def is_refused(self, pod: PodInfo) -> bool:
        """Whether a member that is like this one was tried without success."""
        return likeness(pod) in self._refused

    def helps(self, decision: Decision) -> bool:
        """Whether the decision gives the pod a node by itself, or a way to make room for it."""
        if decision.failure is None or decision.candidate is not None:
            return True
        post_filter = decision.post_filter
        if post_filter is not None and post_filter.api_call is not None:
            return True
        key = likeness(decision.search.pod)
        if key is not None and is_about_spec(decision):
            self._refused.add(key)
        return False


def _is_left(result: MemberResult) -> bool:
    failure = result.failure
    is_refused = result.assumed is None and failure is not None and failure.rejected
    return is_refused and not result.pod.spec.too_complex


# --- several placements -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FeasiblePlacement:
    """A placement that holds the group, and where its members were."""

    placement: Placement
    members: Sequence[PodInfo]
    nodes: Mapping[str, str]
    """Node name by uid, of the members that have one."""
    sums: PlacementSums


class PlacementChoice:
    """The order of the placements, and what came of those that were tried."""

    def __init__(
        self, context: GroupContext, members: Sequence[PodInfo], needed: int, found: Domains
    ) -> None:
        self._context, self._found = context, found
        self._resources = _resources(context, members)
        self._feasible: list[FeasiblePlacement] = []
        self.closest = GroupAttempt()
        """The attempt that placed most, the first of them."""
        many = len(found.placements) > MAX_PLACEMENTS_TRIED
        self.order: Sequence[int] = range(len(found.placements))
        self._exact = False
        if many:
            self._rank(members, needed)

    @property
    def is_settled(self) -> bool:
        """Whether the first placement that holds the group is the best, and is taken at once."""
        return self._exact

    def tried(self, index: int, attempt: GroupAttempt, *, met: bool, scheduled: int) -> None:
        """Note what came of a placement, while its members are still assumed there."""
        if attempt.placed > self.closest.placed or not self.closest.results:
            self.closest = attempt
        if not met or self._exact:
            return
        found, snapshot = self._found, self._context.world.cache.update_snapshot()
        # Nodes may have come or gone since the placements were found.
        rows = found.placements[index].rows(snapshot)
        of_row = np.where(snapshot.alive if rows is None else rows, 0, -1)
        here = Domains((found.placements[index],), of_row)
        placed = [each.assumed for each in attempt.results if each.assumed is not None]
        count = np.array([scheduled + len(placed)], np.int64)
        self._feasible.append(
            FeasiblePlacement(
                attempt.placement,
                [each.pod for each in attempt.results],
                {pod.uid: pod.node_name for pod in placed},
                placement_sums(snapshot, here, count, self._resources, {}),
            )
        )

    def best(self) -> FeasiblePlacement | None:
        """The placement of the highest score; None: none holds the group.

        Of equal ones the first that was tried: the nominated one (`_nominated_placement`), then by
        rank (`_rank`) if there are more than MAX_PLACEMENTS_TRIED, then by the labels' values.
        """
        if not self._feasible:
            return None
        return self._feasible[
            int(self._scores(joined_placements([each.sums for each in self._feasible])).argmax())
        ]

    def _scores(self, placements: PlacementSums) -> IntColumn:
        """(P,) int64, the weighted scores of the profile's PlacementScore plugins."""
        profile = self._context.profile
        weights, total = profile.loaded.plugins.weights, np.zeros(placements.count, np.int64)
        for plugin in PLACEMENT_SCORE.among(profile.framework.plugins):
            total += weights.get(plugin.name, 0) * plugin.score_placements(placements)
        return total

    def _rank(self, members: Sequence[PodInfo], needed: int) -> None:
        """Order the placements by what they could hold, and how full they were with that."""
        found, snapshot = self._found, self._context.world.cache.snapshot
        context = self._context
        of_rows = capacity(context.world, context.profile, members, context.moment_seconds)
        held = sums(found.of_row, len(found.placements), of_rows.per_row)
        counts = np.minimum(held, len(members))
        mean = {
            resource: sum(pod.amounts.requests.get(resource, 0) for pod in members) // len(members)
            for resource in self._resources
        }
        added = {resource: counts * amount for resource, amount in mean.items()}
        total = self._scores(placement_sums(snapshot, found, counts, self._resources, added))
        total[counts < needed] = -1
        ranked = np.argsort(-total, kind="stable")[:MAX_PLACEMENTS_TRIED]
        hopeful = ranked[total[ranked] >= 0]
        # Where none can hold the group, the roomiest says why.
        self.order = (hopeful if len(hopeful) else np.argsort(-counts, kind="stable")[:1]).tolist()
        self._exact = of_rows.exact


def _resources(context: GroupContext, members: Sequence[PodInfo]) -> Collection[str]:
    """The resources shown to PlacementScore plugins: those that members request or that score."""
    distinct = {id(pod.amounts): pod.amounts for pod in members}
    found = {resource for amounts in distinct.values() for resource in amounts.requests}
    for plugin in PLACEMENT_SCORE.among(context.profile.framework.plugins):
        found.update(plugin.scored_resources())
    return sorted(found)
