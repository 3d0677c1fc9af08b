"""The number of a group's members that nodes could hold, counted by amounts before any is placed.

Group decisions rank placements by `capacity`, `group_attempt` tries other orders only if the
cluster `could_hold` enough members, and `group_preemption` keeps `FreeCapacity` up to date while
victims return to their nodes. The profile's CountsRoom plugins say which resources are counted: the
plugins are asked by that protocol, not by their names. A group's minResources are counted elsewhere
and without any plugin: `group_decision._lacking_min_resources`, before any member is tried.
Invariant: a count is never below what filters would let pass, whatever the order of the members. It
is exact if members are alike and every other filter looks at the node alone.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.framework.extension_points import COUNTS_ROOM
from stellwerk.framework.interface import Reuse
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.snapshot.columns import IntColumn, Mask
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.resource_amounts import PODS

UNCOUNTED: Final = 1 << 30
"""Members per node where no resource limits them: above any group, and sums over nodes stay below
2⁶³."""


@dataclass(frozen=True, slots=True)
class GroupCapacity:
    """The number of a group's members that each row could hold."""

    per_row: IntColumn
    """(N,) int64, members that fit on the row if they were all as small as the smallest."""
    exact: bool
    """Whether the members are alike, and only the node and its resources matter to filters."""


def capacity(
    world: World,
    profile: ServedProfile,
    members: Sequence[PodInfo],
    moment_seconds: float | None = None,
) -> GroupCapacity:
    """Count what each row of the snapshot could hold, as it is now.

    `moment_seconds`: as `GroupRequest.moment_seconds`, here and below.
    """
    first = members[0]
    resources = resources_counted_by_plugins(world, profile, members)
    per_row = _per_row(world.cache.snapshot, members, resources)
    asked = first.amounts.requests.keys() - {PODS}
    if profile.extenders is not None or not asked <= resources:
        return GroupCapacity(per_row, exact=False)
    if not counts_exactly(profile, members, moment_seconds):
        return GroupCapacity(per_row, exact=False)
    passing = rows_but_for_resources(world, profile, first, moment_seconds)
    return GroupCapacity(np.where(passing, per_row, 0), exact=True)


def counts_exactly(
    profile: ServedProfile, members: Sequence[PodInfo], moment_seconds: float | None = None
) -> bool:
    """Whether members are alike, and nothing but the node and its resources matters to filters.

    True for the snapshot as it is holds for the snapshot with fewer pods, too. Where filters read
    the time, only members that have waited for equally long are alike.
    """
    if not all_alike(members):
        return False
    framework, state = profile.framework, CycleState()
    state.moment_seconds = moment_seconds
    if framework.reads_time and len({pod.unscheduled_since_seconds for pod in members}) > 1:
        return False
    framework.filtering.find_feasible(members[0], state, sample=False)
    return framework.filters.is_row_local(state, members[0]) and all(
        COUNTS_ROOM.implemented_by(call.plugin) or call.plugin.filter_reuse is Reuse.NODE
        for call in framework.filters.active(state)
    )


def rows_but_for_resources(
    world: World, profile: ServedProfile, pod: PodInfo, moment_seconds: float | None = None
) -> Mask:
    """(N,) bool, the rows that every filter lets pass for the pod, those of CountsRoom aside."""
    framework, state = profile.framework, CycleState()
    state.moment_seconds = moment_seconds
    snapshot, filters = world.cache.snapshot, framework.filters
    found = framework.filtering.find_feasible(pod, state, sample=False)
    if not found.pre_filter.ok:
        return np.zeros(snapshot.size, np.bool_)
    candidates = found.candidate_rows(snapshot)
    rows: Mask = snapshot.alive.copy()
    if candidates is not None:
        rows &= candidates
    for call in filters.active(state):
        if not COUNTS_ROOM.implemented_by(call.plugin):
            rows &= filters.codes(call, state, pod, NodeView(snapshot)) == 0
    return rows


def could_hold(
    world: World, profile: ServedProfile, members: Sequence[PodInfo], needed: int
) -> bool:
    """Whether `needed` members could be placed at all, each resource taken by itself."""
    snapshot, resources = (
        world.cache.snapshot,
        resources_counted_by_plugins(world, profile, members),
    )
    if int(_per_row(snapshot, members, resources).sum()) < needed:
        return False
    for resource in resources:
        requests = sorted(pod.amounts.requests.get(resource, 0) for pod in members)
        if sum(requests[:needed]) > int(free(snapshot, resource).sum()):
            return False
    return True


def all_alike(members: Sequence[PodInfo]) -> bool:
    """Whether filters answer the same for each member: same spec, labels, and no claims."""
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


def resources_counted_by_plugins(
    world: World, profile: ServedProfile, members: Iterable[PodInfo]
) -> set[str]:
    """The requested resources that a CountsRoom plugin of the profile alone decides about.

    Resources without a column are left out: no node offers them.
    """
    filters = profile.framework.plugins.get(ExtensionPoint.FILTER, ())
    distinct = {id(pod.amounts): pod.amounts for pod in members}
    requested = {name for amounts in distinct.values() for name in amounts.requests} - {PODS}
    counted: set[str] = set()
    for plugin in COUNTS_ROOM.among(filters):
        counted.update(plugin.counted_resources(requested))
    snapshot = world.cache.snapshot
    return {each for each in counted & requested if snapshot.resource_index(each) is not None}


def _per_row(snapshot: Snapshot, members: Sequence[PodInfo], resources: Iterable[str]) -> IntColumn:
    held: IntColumn = np.where(snapshot.alive, UNCOUNTED, 0).astype(np.int64)
    for resource in resources:
        least = min(pod.amounts.requests.get(resource, 0) for pod in members)
        if least:
            np.minimum(held, free(snapshot, resource) // least, out=held)
    if resources:
        np.minimum(held, free(snapshot, PODS), out=held)
    return held


def free(snapshot: Snapshot, resource: str) -> IntColumn:
    """(N,) int64, the amount of a resource that is free on each row, at least 0."""
    index = snapshot.resource_index(resource)
    if index is None:
        return np.zeros(snapshot.size, np.int64)
    left = snapshot.allocatable[index] - snapshot.requested[index]
    return np.where(snapshot.alive, np.maximum(left, 0), 0)


class FreeCapacity:
    """Free resources of each row, in members as small as the smallest, in plain integers.

    Preemption keeps it up to date while pods return to their nodes. `is_enough` is never False if
    members would fit; if `is_exact`, it is never True if they would not. One pod changes one row,
    therefore it keeps lists of int: an element of a NumPy array costs several times as much.
    """

    def __init__(
        self,
        world: World,
        profile: ServedProfile,
        members: Sequence[PodInfo],
        needed: int,
        *,
        alike: bool,
        moment_seconds: float | None = None,
    ) -> None:
        """Count what is free now, members not placed.

        `alike`: the members are, and nothing but the node and its resources matters to filters, as
        `counts_exactly` says while all pods are there.
        """
        snapshot = world.cache.update_snapshot()
        counted = sorted(resources_counted_by_plugins(world, profile, members))
        asked = members[0].amounts.requests.keys() - {PODS}
        self.is_exact = alike and bool(counted) and asked <= set(counted)
        exact = self.is_exact
        is_open = snapshot.alive
        if exact:
            is_open = rows_but_for_resources(world, profile, members[0], moment_seconds)
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
        """Amount of each resource that the `needed` smallest requests for it add up to."""
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
