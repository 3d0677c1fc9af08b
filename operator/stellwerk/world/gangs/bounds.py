"""How many members a set of nodes could hold at most, by resources alone.

Group decisions ask before they try. Invariant: a bound is never below what filters would let pass,
whatever the order of the members; for members that are alike and filters that look at each row on
its own it is exact.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from stellwerk.framework.interface import Reuse
from stellwerk.framework.types import CycleState
from stellwerk.models.plugin_args import NodeResourcesFitArgs
from stellwerk.models.plugin_description import ExtensionPoint
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import PODS
from stellwerk.snapshot.columns import IntColumn, Mask
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk.world.gangs.attempt import Ground

_PLENTY: Final = 1 << 30
_FIT: Final = "NodeResourcesFit"


@dataclass(frozen=True, slots=True)
class Capacity:
    """What each row could hold of a group's members."""

    per_row: IntColumn
    """(N,) int64, members that fit on the row if they were all as small as the smallest."""
    exact: bool
    """Whether the members are alike, and only the node and its resources matter to filters."""


def capacity(ground: Ground, members: Sequence[PodInfo]) -> Capacity:
    """What each row of the snapshot as it is could hold."""
    world, profile, first = ground.world, ground.profile, members[0]
    resources = counted_resources(ground, members)
    per_row = _per_row(world.cache.snapshot, members, resources)
    asked = first.amounts.requests.keys() - {PODS}
    if profile.extenders is not None or not asked <= resources:
        return Capacity(per_row, exact=False)
    if not counts_exactly(ground, members):
        return Capacity(per_row, exact=False)
    return Capacity(np.where(rows_but_for_resources(ground, first), per_row, 0), exact=True)


def counts_exactly(ground: Ground, members: Sequence[PodInfo]) -> bool:
    """Whether members are alike, and nothing but the node and its resources matters to filters.

    On the snapshot as it is; with fewer pods in it, nothing else matters, either.
    """
    if not all_alike(members):
        return False
    framework, state = ground.profile.framework, CycleState()
    framework.filtering.find_feasible(members[0], state, sample=False)
    return framework.filters.is_row_local(state, members[0]) and all(
        plugin.name == _FIT or plugin.filter_reuse is Reuse.NODE
        for plugin, _ in framework.filters.active(state)
    )


def rows_but_for_resources(ground: Ground, pod: PodInfo) -> Mask:
    """(N,) bool, rows that take the pod if they have room: what every filter but one lets pass."""
    framework, state = ground.profile.framework, CycleState()
    snapshot, filters = ground.world.cache.snapshot, framework.filters
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


def holds(ground: Ground, members: Sequence[PodInfo], needed: int) -> bool:
    """Whether so many of the members could be placed at all, each resource taken by itself."""
    snapshot, resources = ground.world.cache.snapshot, counted_resources(ground, members)
    if int(_per_row(snapshot, members, resources).sum()) < needed:
        return False
    for resource in resources:
        requests = sorted(pod.amounts.requests.get(resource, 0) for pod in members)
        if sum(requests[:needed]) > int(free(snapshot, resource).sum()):
            return False
    return True


def all_alike(members: Sequence[PodInfo]) -> bool:
    """Whether what holds for one member holds for each."""
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


def counted_resources(ground: Ground, members: Iterable[PodInfo]) -> set[str]:
    """The resources whose room NodeResourcesFit alone decides; none if the profile lacks it."""
    filters = ground.profile.framework.plugins.get(ExtensionPoint.FILTER, ())
    if _FIT not in {plugin.name for plugin in filters}:
        return set()
    distinct = {id(pod.amounts): pod.amounts for pod in members}
    asked = {resource for amounts in distinct.values() for resource in amounts.requests} - {PODS}
    args = ground.profile.loaded.args.get(_FIT)
    if isinstance(args, NodeResourcesFitArgs):
        asked -= set(args.ignored_resources)
        groups = set(args.ignored_resource_groups)
        asked = {each for each in asked if each.partition("/")[0] not in groups}
    backed_by_devices = {
        (each.get("spec") or {}).get("extendedResourceName")
        for each in ground.world.objects.list("DeviceClass")
    }
    snapshot = ground.world.cache.snapshot
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
    """(N,) int64, what is left of a resource on each row."""
    index = snapshot.resource_index(resource)
    if index is None:
        return np.zeros(snapshot.size, np.int64)
    left = snapshot.allocatable[index] - snapshot.requested[index]
    return np.where(snapshot.alive, np.maximum(left, 0), 0)
