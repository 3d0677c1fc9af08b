"""Placing a group's members one by one, each seeing those before it, and counting what would fit.

Group decisions run `place` for one order of the members and one placement; its driver makes the
decision of each member (`MemberRequest`), so that extenders can answer and events be handled
between two of them. Before that they count by resources alone: `GroupCapacity` once, `FreeCapacity`
while victims of preemption return to their nodes. Invariants: a member that has a node is assumed
and reserved there until `undo_attempt`, and each was decided on columns written right before; a
count is never below what filters would let pass, whatever the order of the members, and for members
that are alike and filters that look at each row on its own it is exact.
"""

from collections.abc import Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import numpy as np

from stellwerk.framework.interface import APICall, Reuse
from stellwerk.framework.types import Code, CycleState, PluginFailure
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.default_preemption.plugin import LEFT_TO_GROUP
from stellwerk.plugins.gang_scheduling import placement_feasible
from stellwerk.plugins.volume_binding.plugin import SHARES_VOLUMES
from stellwerk.profiles.spec.plugin_args import NodeResourcesFitArgs
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.snapshot.columns import IntColumn, Mask
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk.world.decide import Decision, Failure, decide, release
from stellwerk.world.gangs.placements import EVERYWHERE, Placement
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.resource_amounts import PODS

PREEMPTED_BY_GROUP: Final = "not eligible due to workload aware preemption enabled"
HAS_CONSTRAINTS: Final = "not eligible due to placement-based pod group scheduling limitation"
_PLENTY: Final = 1 << 30
_FIT: Final = "NodeResourcesFit"


@dataclass(frozen=True, slots=True)
class GroupContext:
    """The World and the profile by which members are placed."""

    world: World
    profile: ServedProfile
    obstacle: str = ""
    """The reason why the members do not preempt by themselves."""
    quorum: "Quorum | None" = None
    """An attempt ends when this cannot be reached any more; None: every member is tried."""
    refusals: "Refusals | None" = None
    """Where refusals are noted; None: attempts on a fork, which wake no pod."""
    shares_volumes: bool = False
    """Whether members may go elsewhere than to the node that one of them, placed in the same
    attempt, has chosen for a claim which they share."""


@dataclass(frozen=True, slots=True)
class Quorum:
    """The number of members that a group needs on nodes, and those that it has there already."""

    min_count: int
    scheduled: int

    def is_missed(self, attempt: "GroupAttempt", placed: int, remaining: int) -> bool:
        """Whether it cannot be reached with those placed by an attempt and those that remain.

        The attempt then says so.
        """
        status = placement_feasible(self.min_count, self.scheduled + placed, remaining)
        if status.code is Code.UNSCHEDULABLE:
            attempt.in_vain = status.reasons[0]
        return bool(attempt.in_vain)


@dataclass(frozen=True, slots=True)
class MemberRequest:
    """A member to be decided on the World as it is when the question is answered.

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
    """As in the context."""

    def prepare(self) -> None:
        """Write the columns, and into the state which of their rows there are."""
        snapshot, state = self.world.cache.update_snapshot(), self.state
        state.among = (
            _only(snapshot, self.node_name) if self.node_name else self.placement.rows(snapshot)
        )
        state.group = self.pod.group
        state.write(LEFT_TO_GROUP, self.obstacle)
        if self.shares_volumes:
            state.write(SHARES_VOLUMES, True)  # noqa: FBT003 a value by its key


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
    """What PostFilter wants done in the cluster."""
    nominated_to: str = ""
    """The nomination that the assumption took the place of."""


@dataclass(slots=True)
class GroupAttempt:
    """The results on the members in one order, in one placement."""

    placement: Placement = EVERYWHERE
    results: list[MemberResult] = field(default_factory=list)
    broken: str = ""
    """The error that ended it before its time; empty: there was none."""
    in_vain: str = ""
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
                self._filters[uid] = frozenset(plugin.name for plugin, _ in active)

    def include_untried(self) -> None:
        """Add every plugin that may have refused members in the placements that were not tried.

        A group that is woken in vain costs an attempt; one that is not woken waits for the flush.
        """
        for uid, filters in self._filters.items():
            self.by_uid[uid] = self.by_uid.get(uid, frozenset()) | filters


Result = TypeVar("Result")
Steps: TypeAlias = Generator[MemberRequest | None, Decision, Result]
"""Asks for decisions, and where it yields None its driver may handle events; gives a result."""


def place(
    context: GroupContext,
    members: Sequence[PodInfo],
    placement: Placement = EVERYWHERE,
    nodes: Mapping[str, str] | None = None,
) -> Steps[GroupAttempt]:
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
) -> Steps[None]:
    refused: dict[Hashable, MemberResult] = {}
    placed, quorum = 0, context.quorum
    for number, pod in enumerate(members):
        if quorum is not None and quorum.is_missed(attempt, placed, len(members) - number):
            return
        state = CycleState()
        if pod.spec.too_complex:
            failure = Failure.too_complex(pod.spec)
            attempt.results.append(MemberResult(pod, state, failure=failure))
            continue
        key = None if nodes else likeness(pod)
        known = refused.get(key) if key is not None else None
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
        elif key is not None and is_about_spec(decision):
            refused[key] = result
    if quorum is not None:
        quorum.is_missed(attempt, placed, 0)


def answered(steps: Steps[Result]) -> Generator[None, None, Result]:
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


def _only(snapshot: Snapshot, node_name: str) -> Mask:
    among: Mask = np.zeros(snapshot.size, np.bool_)
    row = snapshot.row_of.get(node_name)
    if row is not None:
        among[row] = True
    return among


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


@dataclass(frozen=True, slots=True)
class GroupCapacity:
    """The number of a group's members that each row could hold."""

    per_row: IntColumn
    """(N,) int64, members that fit on the row if they were all as small as the smallest."""
    exact: bool
    """Whether the members are alike, and only the node and its resources matter to filters."""


def capacity(context: GroupContext, members: Sequence[PodInfo]) -> GroupCapacity:
    """Count what each row of the snapshot could hold, as it is now."""
    world, profile, first = context.world, context.profile, members[0]
    resources = counted_resources(context, members)
    per_row = _per_row(world.cache.snapshot, members, resources)
    asked = first.amounts.requests.keys() - {PODS}
    if profile.extenders is not None or not asked <= resources:
        return GroupCapacity(per_row, exact=False)
    if not counts_exactly(context, members):
        return GroupCapacity(per_row, exact=False)
    return GroupCapacity(np.where(rows_but_for_resources(context, first), per_row, 0), exact=True)


def counts_exactly(context: GroupContext, members: Sequence[PodInfo]) -> bool:
    """Whether members are alike, and nothing but the node and its resources matters to filters.

    On the snapshot as it is; with fewer pods in it, nothing else matters, either.
    """
    if not all_alike(members):
        return False
    framework, state = context.profile.framework, CycleState()
    framework.filtering.find_feasible(members[0], state, sample=False)
    return framework.filters.is_row_local(state, members[0]) and all(
        plugin.name == _FIT or plugin.filter_reuse is Reuse.NODE
        for plugin, _ in framework.filters.active(state)
    )


def rows_but_for_resources(context: GroupContext, pod: PodInfo) -> Mask:
    """(N,) bool, the rows that every filter but NodeResourcesFit lets pass for the pod."""
    framework, state = context.profile.framework, CycleState()
    snapshot, filters = context.world.cache.snapshot, framework.filters
    found = framework.filtering.find_feasible(pod, state, sample=False)
    if not found.pre_filter.ok:
        return np.zeros(snapshot.size, np.bool_)
    candidates = found.candidate_rows(snapshot)
    rows: Mask = snapshot.alive.copy()
    if candidates is not None:
        rows &= candidates
    for call in filters.active(state):
        if call[0].name != _FIT:
            rows &= filters.codes(call, state, pod, NodeView(snapshot)) == 0
    return rows


def could_hold(context: GroupContext, members: Sequence[PodInfo], needed: int) -> bool:
    """Whether so many of the members could be placed at all, each resource taken by itself."""
    snapshot, resources = context.world.cache.snapshot, counted_resources(context, members)
    if int(_per_row(snapshot, members, resources).sum()) < needed:
        return False
    for resource in resources:
        requests = sorted(pod.amounts.requests.get(resource, 0) for pod in members)
        if sum(requests[:needed]) > int(free(snapshot, resource).sum()):
            return False
    return True


def all_alike(members: Sequence[PodInfo]) -> bool:
    """Whether what could_hold for one member could_hold for each."""
    first = members[0]
    return all(
        pod.spec is first.spec
        and pod.label_set is first.label_set
        and pod.node_names is first.node_names
        and not pod.volumes
        and not pod.spec.resource_claims
        and not pod.nominated_node_name
        for pod in members
    )


def counted_resources(context: GroupContext, members: Iterable[PodInfo]) -> set[str]:
    """The resources that NodeResourcesFit alone decides about; none if the profile lacks it."""
    filters = context.profile.framework.plugins.get(ExtensionPoint.FILTER, ())
    if _FIT not in {plugin.name for plugin in filters}:
        return set()
    distinct = {id(pod.amounts): pod.amounts for pod in members}
    asked = {resource for amounts in distinct.values() for resource in amounts.requests} - {PODS}
    args = context.profile.loaded.args.get(_FIT)
    if isinstance(args, NodeResourcesFitArgs):
        asked -= set(args.ignored_resources)
        groups = set(args.ignored_resource_groups)
        asked = {each for each in asked if each.partition("/")[0] not in groups}
    backed_by_devices = {
        (each.get("spec") or {}).get("extendedResourceName")
        for each in context.world.objects.list("DeviceClass")
    }
    snapshot = context.world.cache.snapshot
    return {each for each in asked - backed_by_devices if snapshot.resource_index(each) is not None}


def _per_row(snapshot: Snapshot, members: Sequence[PodInfo], resources: Iterable[str]) -> IntColumn:
    held: IntColumn = np.where(snapshot.alive, _PLENTY, 0).astype(np.int64)
    for resource in resources:
        least = min(pod.amounts.requests.get(resource, 0) for pod in members)
        if least:
            np.minimum(held, free(snapshot, resource) // least, out=held)
    if resources:
        np.minimum(held, free(snapshot, PODS), out=held)
    return held


def free(snapshot: Snapshot, resource: str) -> IntColumn:
    """(N,) int64, the rest of a resource on each row."""
    index = snapshot.resource_index(resource)
    if index is None:
        return np.zeros(snapshot.size, np.int64)
    left = snapshot.allocatable[index] - snapshot.requested[index]
    return np.where(snapshot.alive, np.maximum(left, 0), 0)


class FreeCapacity:
    """Free resources of each row, in members as small as the smallest, in plain integers.

    Kept up to date while pods return to their nodes. `is_enough` is never False where members would
    fit; where `is_exact`, it is never True where they would not.
    """

    def __init__(
        self, context: GroupContext, members: Sequence[PodInfo], needed: int, *, alike: bool
    ) -> None:
        """Count what is free now, members not placed.

        `alike`: the members are, and nothing but the node and its resources matters to filters, as
        `counts_exactly` says while all pods are there.
        """
        snapshot = context.world.cache.update_snapshot()
        counted = sorted(counted_resources(context, members))
        asked = members[0].amounts.requests.keys() - {PODS}
        self.is_exact = alike and bool(counted) and asked <= set(counted)
        exact = self.is_exact
        is_open = rows_but_for_resources(context, members[0]) if exact else snapshot.alive
        self._row_of = snapshot.row_of
        self._needed = needed
        self._resources = [*counted, PODS] if counted else []
        self._least = [
            1 if each == PODS else min(pod.amounts.requests.get(each, 0) for pod in members)
            for each in self._resources
        ]
        self._free = [
            np.where(is_open, free(snapshot, each), -1).tolist() for each in self._resources
        ]
        self._open: list[bool] = is_open.tolist()
        self._wanted = [
            sum(sorted(pod.amounts.requests.get(each, 0) for pod in members)[:needed])
            for each in self._resources
        ]
        """What the smallest of them take, of each resource."""
        self._left = [sum(amount for amount in column if amount > 0) for column in self._free]
        self._most = needed if counted else 0
        self._held = [self._holds(row) for row in range(len(self._open))]
        self._total = sum(self._held)

    @property
    def is_enough(self) -> bool:
        """Whether enough members could be held."""
        return not self._resources or (
            self._total >= self._needed and all(map(int.__le__, self._wanted, self._left))
        )

    def try_return(self, pods: Sequence[PodInfo]) -> bool:
        """Count pods on their nodes again, unless too little would be free then."""
        self._change(pods, -1)
        if self.is_enough:
            return True
        self._change(pods, 1)
        return False

    def remove(self, pods: Sequence[PodInfo]) -> None:
        """Count pods no more that were returned."""
        self._change(pods, 1)

    def _change(self, pods: Sequence[PodInfo], change: int) -> None:
        for pod in pods:
            row = self._row_of.get(pod.node_name)
            if row is None or not self._open[row]:
                continue
            requests = pod.amounts.requests
            for index, resource in enumerate(self._resources):
                amount = 1 if resource == PODS else requests.get(resource, 0)
                if amount:
                    before = self._free[index][row]
                    after = self._free[index][row] = before + change * amount
                    self._left[index] += max(0, after) - max(0, before)
            held = self._holds(row)
            self._total += held - self._held[row]
            self._held[row] = held

    def _holds(self, row: int) -> int:
        """The number of the smallest that a row could hold, at most as many as are needed."""
        held = self._most if self._open[row] else 0
        for column, least in zip(self._free, self._least, strict=True):
            if least:
                held = min(held, max(0, column[row]) // least)
        return held
