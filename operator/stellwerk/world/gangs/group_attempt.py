"""Placing a group's members one by one, in one order or in others; `group_cycle` decides each.

`place` yields a `MemberRequest` for each member, and its driver sends the Decision back, so that
extenders can answer and events are handled between two members. Two drivers exist: the operator's
`scheduler.gangs.group_cycle.GroupCycle`, and `answered` below, for explanations, shadows,
simulations and replays. Members are placed one after the other because each must see those before
it. `GroupRequest.is_met_by` judges an attempt: if four members are wanted and three fit, the group
is not placed. `EarlyEnd` only ends attempts that can no longer be met (since v1.37). Invariants: a
member that has a node is assumed and reserved there until `undo_attempt`, and each was decided on
columns written right before.
"""

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import numpy as np

from stellwerk.framework.interface import APICall
from stellwerk.framework.types import OK, Code, CycleState, PluginFailure, Status, unschedulable
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import ROLE_LABEL, PodGroup
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.world.decide import Decision, Failure, decide, release
from stellwerk.world.gangs.group_capacity import all_alike, could_hold
from stellwerk.world.gangs.placements import EVERYWHERE, Placement
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

PREEMPTED_BY_GROUP: Final = "not eligible due to workload aware preemption enabled"
HAS_CONSTRAINTS: Final = "not eligible due to placement-based pod group scheduling limitation"


# Made for each group or member: a frozen dataclass takes four times as long to make, 1 to 2 µs.
@dataclass(slots=True)
class GroupContext:
    """The World and the profile by which members are placed. Treat as immutable."""

    world: World
    profile: ServedProfile
    obstacle: str = ""
    """The reason why the members do not preempt by themselves."""
    early_end: "EarlyEnd | None" = None
    """Ends an attempt when too few members can be placed; None: every member is tried."""
    refusals: "Refusals | None" = None
    """The refusals that attempts note; None: attempts on a fork, which wake no pod."""
    shares_volumes: bool = False
    """Whether members may go elsewhere than to the node that one of them, placed in the same
    attempt, has chosen for a claim which they share."""
    moment_seconds: float | None = None
    """As `GroupRequest.moment_seconds`; None: each attempt for a member reads the clock."""


def placement_feasible(min_count: int, scheduled: int, remaining: int) -> Status:
    """Say whether a group can still get `min_count` members placed, asked between two members.

    Wait: it can, and has not yet. As `PlacementFeasible` of kube-scheduler v1.37. The result of an
    attempt is judged by `GroupRequest.is_met_by`.
    """
    counts = f"{scheduled} scheduled, {remaining} remaining"
    if scheduled + remaining < min_count:
        text = f"minCount ({min_count}) cannot be satisfied: {counts}"
        return unschedulable(GANG_SCHEDULING, text)
    if scheduled < min_count:
        text = f"minCount ({min_count}) is not yet satisfied: {counts}"
        return Status(Code.WAIT, (text,), GANG_SCHEDULING)
    return OK


@dataclass(frozen=True, slots=True)
class EarlyEnd:
    """Ends attempts early: the members that a group needs on nodes, and those already there."""

    min_count: int
    scheduled: int

    def is_due(self, attempt: "GroupAttempt", placed: int, remaining: int) -> bool:
        """Whether the members placed by an attempt and those that remain are too few.

        If so, the reason is noted in the attempt.
        """
        status = placement_feasible(self.min_count, self.scheduled + placed, remaining)
        if status.code is Code.UNSCHEDULABLE:
            attempt.gave_up = status.reasons[0]
        return bool(attempt.gave_up)


@dataclass(slots=True)
class MemberRequest:
    """A member to be decided on the World as it is when the question is answered. Immutable.

    Whatever makes the decision calls `prepare` before, without waiting for anything in between.
    """

    world: World
    profile: ServedProfile
    pod: PodInfo
    state: CycleState
    placement: Placement = EVERYWHERE
    node_name: str = ""
    """The only node that will do; empty: any of the placement's."""
    obstacle: str = ""
    """The reason why the member does not preempt by itself."""
    shares_volumes: bool = False
    """Whether the member may leave the node of a claim that it shares, as GroupContext says."""

    def prepare(self) -> None:
        """Write the columns, and into the state which of their rows there are."""
        snapshot, state = self.world.cache.update_snapshot(), self.state
        if self.node_name:
            among = np.zeros(snapshot.size, np.bool_)
            row = snapshot.row_of.get(self.node_name)
            if row is not None:
                among[row] = True
            state.among = among
        else:
            state.among = self.placement.rows(snapshot)
        state.group = self.pod.group
        state.preemption_obstacle = self.obstacle
        state.shares_volumes = self.shares_volumes


def decided_at_once(ask: MemberRequest) -> Decision:
    """The decision on a member, extenders aside.

    Raises:
        PluginFailure: a plugin raised.
    """
    ask.prepare()
    return decide(ask.world, ask.pod, ask.profile, ask.state)


@dataclass(slots=True)
class MemberResult:
    """A member's result, `algorithmResult` upstream: a node that it is assumed on, or a failure."""

    pod: PodInfo
    state: CycleState
    evaluated: int = 0
    """The number of nodes looked at; 0: none, as for a member that is like another."""
    feasible: int = 0
    """The number of them that took the pod."""
    assumed: PodInfo | None = None
    failure: Failure | None = None
    plugin_failures: tuple[PluginFailure, ...] = ()
    api_call: APICall | None = None
    """The write to the cluster that PostFilter asks for; None: it asks for none."""
    nominated_to: str = ""
    """The nomination that the assumption took the place of."""


@dataclass(slots=True)
class GroupAttempt:
    """The results on the members in one order, in one placement."""

    placement: Placement = EVERYWHERE
    results: list[MemberResult] = field(default_factory=list)
    broken: str = ""
    """The error that ended it before its time; empty: there was none."""
    gave_up: str = ""
    """The reason why members were left untried: too few could be placed; empty: none was."""

    @property
    def placed(self) -> int:
        """The number of members that have a node."""
        return sum(each.assumed is not None for each in self.results)


@dataclass(slots=True)
class Refusals:
    """The plugins that refused members in any attempt of a decision: their events may help.

    kube-scheduler remembers them for the group since 1.38 (#141253).
    """

    by_uid: dict[str, frozenset[str]] = field(default_factory=dict)
    _filters: dict[str, frozenset[str]] = field(default_factory=dict)
    """The Filter plugins that had something to say on a member."""

    def note(self, attempt: GroupAttempt, profile: ServedProfile) -> None:
        """Note which members have no node after an attempt, and which plugins looked at them."""
        for result in attempt.results:
            if result.failure is None or not result.failure.rejected:
                continue
            uid, plugins = result.pod.uid, result.failure.unschedulable_plugins
            known = self.by_uid.get(uid)
            self.by_uid[uid] = plugins if known is None else known | plugins
            if result.evaluated:
                active = profile.framework.filters.active(result.state)
                self._filters[uid] = frozenset(call.name for call in active)

    def include_untried(self) -> None:
        """Add every plugin that may have refused members in the placements that were not tried.

        A group that is woken in vain costs an attempt; one that is not woken waits for the flush.
        """
        for uid, filters in self._filters.items():
            self.by_uid[uid] = self.by_uid.get(uid, frozenset()) | filters


@dataclass(slots=True)
class GroupRequest:
    """A group that is to be decided, and the judge of its attempts. Treat as immutable.

    `group_request.request_for` makes it. It stays in this module, because what makes it imports the
    group's decision, which imports this module.
    """

    group: PodGroup
    members: Sequence[PodInfo]
    """The members to be placed, in the order in which they are tried; at least one."""
    scheduled: Sequence[PodInfo] = ()
    """The members that count as placed: bound or assumed, and not terminating."""
    finished: int = 0
    """Members that ran to their end and count."""
    finished_by_role: Mapping[str, int] = field(default_factory=dict)
    """The numbers of those that have each role."""
    budget_seconds: float = 0.05
    """The time in which other orders of the members are tried."""
    reserves_capacity: bool = False
    """Whether nodes are kept for it where it does not fit."""
    ending: frozenset[str] | None = None
    """Uids of the pods in whose place room is kept already; None: there is none."""
    goes_on: Callable[[bool], bool] = bool
    """Called with whether there is time for another order; returns whether that order is tried. A
    recording notes the answers and a replay repeats them, because clocks differ."""
    known_to_end: frozenset[str] | None = None
    """Uids of the pods in whose place room may be kept, beside terminating ones; None: of all."""
    keeps_part: bool = False
    """Whether the nodes that some members would get are kept though others get none: members are
    bound already."""
    moment_seconds: float | None = None
    """The wall-clock time as of which the whole group is decided, in seconds since the epoch, which
    a recording holds. None: no plugin of the profile reads it, or each attempt reads the clock."""

    def is_met_by(self, attempt: GroupAttempt) -> bool:
        """Decide whether an attempt placed enough members, with those that are scheduled already.

        All or nothing: with fewer than `minCount`, in all or of any role, the attempt is undone.
        """
        placed = [each.pod for each in attempt.results if each.assumed is not None]
        if not placed or attempt.broken:
            return False
        counted = [*self.scheduled, *placed]
        if len(counted) + self.finished < self.group.min_count:
            return False
        return all(
            sum(pod.labels.get(ROLE_LABEL) == role for pod in counted)
            >= wanted - self.finished_by_role.get(role, 0)
            for role, wanted in self.group.min_count_by_role.items()
        )

    @property
    def lacks_members(self) -> bool:
        """Whether it cannot be met, because members do not exist or cannot be tried."""
        counted = [*self.scheduled, *self.members]
        return len(counted) + self.finished < self.group.min_count or any(
            sum(pod.labels.get(ROLE_LABEL) == role for pod in counted)
            < wanted - self.finished_by_role.get(role, 0)
            for role, wanted in self.group.min_count_by_role.items()
        )

    @property
    def needed(self) -> int:
        """The number of further members that have to be placed, at least one."""
        return max(1, self.group.min_count - len(self.scheduled) - self.finished)


Result = TypeVar("Result")
GroupSteps: TypeAlias = Generator[MemberRequest | None, Decision, Result]
"""A generator that yields requests for decisions on members and is sent the Decisions, yields None
to let its driver handle events, and returns the result."""


def place(
    context: GroupContext,
    members: Sequence[PodInfo],
    placement: Placement = EVERYWHERE,
    nodes: Mapping[str, str] | None = None,
) -> GroupSteps[GroupAttempt]:
    """Place members in this order; one without a node does not keep the next from being tried.

    `nodes` are those that members may be placed on, by uid, where only one will do.
    """
    attempt = GroupAttempt(placement)
    try:
        yield from _place_each(context, members, attempt, nodes)
    except BaseException:
        undo_attempt(context, attempt)
        raise
    if context.refusals is not None:
        context.refusals.note(attempt, context.profile)
    return attempt


def _place_each(
    context: GroupContext,
    members: Sequence[PodInfo],
    attempt: GroupAttempt,
    nodes: Mapping[str, str] | None,
) -> GroupSteps[None]:
    refused: dict[Hashable, MemberResult] = {}
    placed, early_end = 0, context.early_end
    for number, pod in enumerate(members):
        if early_end is not None and early_end.is_due(attempt, placed, len(members) - number):
            return
        state = CycleState()
        state.moment_seconds = context.moment_seconds
        if pod.spec.too_complex:
            failure = Failure.too_complex(pod.spec)
            attempt.results.append(MemberResult(pod, state, failure=failure))
            continue
        # A member that is like a refused one gets its answer without a decision, until another
        # member is placed: that may change what affinity says.
        known = refused.get(likeness(pod)) if refused and not nodes else None
        if known is not None:
            attempt.results.append(MemberResult(pod, state, failure=known.failure))
            continue
        decision = yield MemberRequest(
            context.world,
            context.profile,
            pod,
            state,
            attempt.placement,
            nodes.get(pod.uid, "") if nodes else "",
            context.obstacle,
            context.shares_volumes,
        )
        evaluated = decision.search.found.evaluated
        result = MemberResult(pod, state, evaluated, decision.feasible, failure=decision.failure)
        if decision.post_filter is not None:
            result.api_call = decision.post_filter.api_call
        attempt.results.append(result)
        if decision.failure is None:
            _assume(context, result, decision)
            placed += result.assumed is not None
            refused.clear()
        elif not decision.failure.rejected:
            attempt.broken = decision.failure.message
            return
        elif not nodes and (key := likeness(pod)) is not None and is_about_spec(decision):
            refused[key] = result
    if early_end is not None:
        # It notes the reason in the attempt.
        early_end.is_due(attempt, placed, 0)


def answered(steps: GroupSteps[Result]) -> Generator[None, None, Result]:
    """The steps with each member decided at once; its driver may handle events between two."""
    try:
        ask = next(steps)
        while True:
            decision = None if ask is None else decided_at_once(ask)
            yield
            ask = next(steps) if decision is None else steps.send(decision)
    except StopIteration as ended:
        result: Result = ended.value
        return result
    finally:
        steps.close()


def undo_attempt(context: GroupContext, attempt: GroupAttempt) -> None:
    """Unreserve and forget the members that an attempt has assumed, the last first.

    Its results stay.
    """
    undo_results(context, attempt.results)


def undo_results(context: GroupContext, results: Sequence[MemberResult]) -> None:
    """Unreserve and forget the members that have a node by these results, the last first."""
    for result in reversed(results):
        if result.assumed is not None:
            framework = context.profile.framework
            _, failures = release(context.world, framework, result.state, result.assumed)
            result.plugin_failures += tuple(failures)
            if result.nominated_to:
                context.world.nominator.nominate(result.pod, result.nominated_to)


def nodes_of(attempt: GroupAttempt) -> dict[str, str]:
    """The node name of each member that has one, by uid."""
    return {
        each.pod.uid: each.assumed.node_name for each in attempt.results if each.assumed is not None
    }


def _assume(context: GroupContext, result: MemberResult, decision: Decision) -> None:
    world, framework = context.world, context.profile.framework
    assumed = result.pod.with_node(decision.node_name)
    try:
        world.cache.assume_pod(assumed)
    except ValueError as refused:
        result.failure = Failure.error(str(refused))
        return
    result.nominated_to = world.nominator.node_of(assumed.uid)
    if result.nominated_to:
        world.nominator.remove(assumed.uid)
    try:
        status = framework.binding.reserve(result.state, assumed, assumed.node_name)
        if status.ok:
            result.assumed = assumed
            return
        result.failure = Failure.not_permitted(status)
    except PluginFailure as raised:
        result.plugin_failures = (raised,)
        result.failure = Failure.error(str(raised))
    _, failures = release(world, framework, result.state, assumed)
    result.plugin_failures += tuple(failures)


def likeness(pod: PodInfo) -> Hashable | None:
    """A key shared by members that are rejected alike; None: nothing is known."""
    if pod.volumes or pod.spec.resource_claims:
        return None
    return pod.spec, pod.label_set, pod.node_names, pod.nominated_node_name


def is_about_spec(decision: Decision) -> bool:
    """Whether each row was refused for the pod's spec alone, and by no extender."""
    search = decision.search
    if search.profile.extenders is not None:
        return False
    return search.profile.framework.filters.is_row_local(search.found.state, search.pod)


# --- other orders ------------------------------------------------------------------------------

MAX_ORDERS: Final = 24
"""Orders of a group's members that are tried after the first one. The time that the profile gives
(`secondLookMilliseconds`) ends most searches before."""


def try_other_orders(
    context: GroupContext, request: GroupRequest, last: GroupAttempt, budget_seconds: float
) -> GroupSteps[tuple[GroupAttempt | None, int]]:
    """Try other orders after one that failed: (the attempt that meets the request, number tried).

    Attempts that do not meet it are undone; None: no order does.
    """
    orders, tried = MemberOrders(context, request, budget_seconds), 0
    if not orders.is_worth_it(request.needed):
        return None, tried
    while (order := orders.next(last)) is not None:
        last = yield from place(context, order, last.placement)
        tried += 1
        if request.is_met_by(last):
            return last, tried
        undo_attempt(context, last)
    return None, tried


class MemberOrders:
    """Orders by size, by affinity, and by what was refused in the last one."""

    def __init__(self, context: GroupContext, request: GroupRequest, budget_seconds: float) -> None:
        self._context = context
        self._now = context.world.clock.monotonic
        self._ends = self._now() + budget_seconds
        self._goes_on = request.goes_on
        self._snapshot = context.world.cache.snapshot
        self._members = members = request.members
        self._given = {_identity(members)}

    def is_worth_it(self, needed: int) -> bool:
        """Whether an order can matter: members differ, and `needed` could be held at all."""
        # What the last attempt assumed has been undone in the cache alone.
        self._context.world.cache.update_snapshot()
        members, world, profile = self._members, self._context.world, self._context.profile
        return not all_alike(members) and could_hold(world, profile, members, needed)

    def next(self, last: GroupAttempt) -> Sequence[PodInfo] | None:
        """The order to be tried after an attempt; None: there is none, or the time is over."""
        if not self._goes_on(self._now() < self._ends) or len(self._given) > MAX_ORDERS:
            return None
        for order in self._orders(last):
            identity = _identity(order)
            if identity not in self._given:
                self._given.add(identity)
                return order
        return None

    def _orders(self, last: GroupAttempt) -> Iterator[list[PodInfo]]:
        largest = sorted(self._members, key=self._size, reverse=True)
        yield sorted(largest, key=_needs_partner)
        yield sorted(self._members, key=_needs_partner)
        tried = [result.pod for result in last.results]
        refused = [result.pod for result in last.results if result.assumed is None]
        uids, seen = {pod.uid for pod in refused}, {pod.uid for pod in tried}
        # Of an attempt that was ended, some members have no result.
        untried = [pod for pod in self._members if pod.uid not in seen]
        others = [*(pod for pod in tried if pod.uid not in uids), *untried]
        yield [*refused, *others]
        yield [*others, *refused]

    def _size(self, pod: PodInfo) -> float:
        """The largest share of the cluster that a pod asks for, of any resource."""
        share = 0.0
        for resource, amount in pod.amounts.requests.items():
            index = self._snapshot.resource_index(resource)
            if index is not None:
                share = max(share, amount / max(1, int(self._snapshot.allocatable[index].sum())))
        return share


def _needs_partner(pod: PodInfo) -> bool:
    """Whether the pod can only be placed after another, as its affinity says."""
    return bool(pod.spec.pod_affinity.required)


def _identity(order: Sequence[PodInfo]) -> tuple[str, ...]:
    return tuple(pod.uid for pod in order)
