"""NodeResourcesFit: a node must have enough of each requested resource; usage gives its score.

The plugin also wakes rejected pods when resources become free (queueing hints; `FreedRoom` decides
for the end of other pods), and proposes smaller requests and larger nodes to explanations.
Invariant: the filter counts requests as they are. Scoring counts 100m and 200 MiB for containers
that request nothing, and ignores pod-level requests of the incoming pod (v1.36).
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import ClassVar, Final, TypeAlias

import numpy as np
from typing_extensions import override

from stellwerk.framework.changes import (
    Change,
    FreeResources,
    GrowNode,
    lacking,
    request_less,
    wanted_amounts,
)
from stellwerk.framework.events import (
    QUEUE,
    QUEUE_SKIP,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.framework.interface import (
    GO_ON,
    MAX_NODE_SCORE,
    CountsRoom,
    EnqueueExtensions,
    PlacementScorePlugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ProposePlugin,
    Reuse,
    ScorePlugin,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import (
    OK,
    CycleState,
    FilterResult,
    PlacementSums,
    Status,
    unresolvable,
    unschedulable,
)
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import CLASS_RESOURCE_PREFIX
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.plugins.resources.amounts import ALWAYS_COUNTED, is_counted, offered_and_used
from stellwerk.plugins.resources.freed_room import FreedRoom
from stellwerk.plugins.resources.strategies import strategy_of
from stellwerk.plugins.shared.device_classes import DeviceClasses
from stellwerk.plugins.shared.hints import changed_node
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.profiles.spec.plugin_args import NodeResourcesFitArgs
from stellwerk.snapshot.columns import IntColumn, Mask, VerdictColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import is_extended_resource
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_amounts import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

Wanted: TypeAlias = tuple[tuple[str, int], ...]
"""(resource, amount above 0) in the order in which reasons are given."""

_NAME: Final = "NodeResourcesFit"
_NONE_BACKED: Final[frozenset[str]] = frozenset()
_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_ONLY_NATIVE: Final = ALWAYS_COUNTED.issuperset
"""Returns whether requests name native resources only, as those of most pods do."""
_TOO_MANY_PODS: Final = 1
"""Bit 0 of a verdict's code: the node has no place for a further pod."""
_UNRESOLVABLE: Final = 1 << 30
"""Bit 30 of a verdict's code: the node is too small even without pods, so that no preemption helps.
It is the last bit of an int32 that is not its sign."""
MAX_RESOURCES_PER_CODE: Final = 29
"""Requested resources that have a bit of their own in a code, between the two bits above. For pods
that request more, codes number the combinations of lacking resources (`_filter_many`)."""


class NodeResourcesFit(
    RowByRow,
    PreFilterPlugin,
    CountsRoom,
    PreScorePlugin,
    ScorePlugin,
    PlacementScorePlugin,
    EnqueueExtensions,
    ProposePlugin,
):
    """The filter's code has a bit per resource that is lacking, and one for "not even if empty"."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[NodeResourcesFitArgs]] = NodeResourcesFitArgs
    filter_reuse: ClassVar[Reuse] = Reuse.USAGE
    needs_pre_filter: ClassVar[bool] = True
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, handle: Handle, args: NodeResourcesFitArgs) -> None:
        self._classes = DeviceClasses(handle.objects, handle.compatibility)
        self._ignored = frozenset(args.ignored_resources)
        self._ignored_groups = frozenset(args.ignored_resource_groups)
        self._strategy = strategy_of(args.scoring_strategy)
        self._scored = [(each.name, each.weight) for each in args.scoring_strategy.resources]
        self._freed_room = FreedRoom(handle, self._lets_through)

    # --- PreFilter and Filter -------------------------------------------------------------------

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        state.write(self.name, self._wanted(pod.spec))
        return GO_ON

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        wanted = state.get(self.name, tuple)
        if wanted is None:
            wanted = self._wanted(pod.spec)
        backed = self._backed(pod.spec)
        if len(wanted) > MAX_RESOURCES_PER_CODE:
            return _filter_many(nodes, wanted, backed)
        return FilterResult(_lacking(nodes, wanted, backed), lambda code: _status(wanted, code))

    @override
    def filter_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # Codes of `_filter_many` mean something in one answer only, and a change of device classes
        # is no change of a row.
        has_many = len(pod.spec.amounts.requests) > MAX_RESOURCES_PER_CODE
        return None if has_many or self._backed(pod.spec) else pod.spec

    @override
    def counted_resources(self, resources: Collection[str]) -> Collection[str]:
        self._classes.refresh()
        return frozenset(
            resource
            for resource in resources
            if self._checks(resource, 1) and self._classes.backing(resource) is None
        )

    def _backed(self, spec: SchedulingSpec) -> frozenset[str]:
        """Find the resources that devices may provide on nodes that offer none of them.

        DynamicResources decides about those.
        """
        requests = spec.amounts.requests
        # Most pods request cpu and memory only, and the classes need not be read for them.
        if _ONLY_NATIVE(requests) or not any("/" in resource for resource in requests):
            return _NONE_BACKED
        self._classes.refresh()
        return frozenset(
            resource for resource in requests if self._classes.backing(resource) is not None
        )

    def _lets_through(self, pod: PodInfo, node: NodeInfo, resource: str) -> bool:
        """Return whether the filter ignores that the node lacks a resource of the pod."""
        if not self._checks(resource, 1):
            return True
        return not node.allocatable.get(resource, 0) and resource in self._backed(pod.spec)

    def _wanted(self, spec: SchedulingSpec) -> Wanted:
        """List the requests that the filter checks: native resources first, the rest by name."""
        requests = spec.amounts.requests
        wanted = [(name, amount) for name in _NATIVE if (amount := requests.get(name, 0)) > 0]
        if not _ONLY_NATIVE(requests):
            others = sorted(requests.keys() - ALWAYS_COUNTED)
            wanted += [
                (name, requests[name]) for name in others if self._checks(name, requests[name])
            ]
        return tuple(wanted)

    def _checks(self, resource: str, amount: int) -> bool:
        if amount <= 0 or not is_counted(resource):
            return False
        if not (self._ignored or self._ignored_groups) or not is_extended_resource(resource):
            return True
        group = resource.partition("/")[0]
        return resource not in self._ignored and group not in self._ignored_groups

    # --- Score ----------------------------------------------------------------------------------

    @override
    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status:
        return OK

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        return self._strategy(nodes, pod.spec.amounts.scoring_requests)

    # --- PlacementScore -------------------------------------------------------------------------

    @override
    def score_placements(self, placements: PlacementSums) -> IntColumn:
        """(P,) the use of each placement: MostAllocated, whatever the strategy (v1.36)."""
        total: IntColumn = np.zeros(placements.count, np.int64)
        weights: IntColumn = np.zeros(placements.count, np.int64)
        for resource, weight in self._scored:
            offered = placements.allocatable.get(resource)
            if offered is None:
                continue
            share = placements.requested[resource] * MAX_NODE_SCORE // np.maximum(offered, 1)
            total += np.where(offered > 0, share * weight, 0)
            weights += np.where(offered > 0, weight, 0)
        full: IntColumn = total // np.maximum(weights, 1)
        return full

    @override
    def scored_resources(self) -> Collection[str]:
        return [resource for resource, _ in self._scored]

    # --- Propose ----------------------------------------------------------------------------------

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        snapshot = nodes.snapshot
        if row is None:
            yield from _smaller_requests(pod, nodes)
            return
        short, node = lacking(snapshot, row, pod), snapshot.node_at(row)
        if short:
            wanted, offered = wanted_amounts(pod), node.allocatable
            too_small = any(offered.get(resource, 0) < wanted[resource] for resource in short)
            kind = GrowNode if too_small else FreeResources
            yield kind(node.name, tuple(short.items()))

    # --- queueing hints -------------------------------------------------------------------------

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(Resource.POD, Action.DELETE, self._has_freed_room),
            ClusterEventWithHint(
                Resource.POD, Action.UPDATE_POD_SCALE_DOWN, self._frees_something, HintScope.POD
            ),
            ClusterEventWithHint(
                Resource.NODE,
                Action.ADD | Action.UPDATE_NODE_ALLOCATABLE,
                self._offers_more_of_enough,
            ),
            ClusterEventWithHint(
                Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE_OTHER, _backs_what_is_wanted
            ),
        )

    def _has_freed_room(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Queue if the deleted pod had a node, or a nomination, and left room for this pod."""
        return queue_if(self._freed_room.may_help(pod, change))

    def _frees_something(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Queue if the pod itself shrank, or a pod on a node now requests less of what it wants."""
        old, new = change.old, change.new
        if not isinstance(old, PodInfo) or not isinstance(new, PodInfo) or new.uid == pod.uid:
            return QUEUE
        before, after = old.amounts.requests, new.amounts.requests
        return queue_if(
            bool(new.node_name)
            and any(before.get(name, 0) > after.get(name, 0) for name, _ in _everything_wanted(pod))
        )

    def _offers_more_of_enough(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Queue if the pod fits the empty node, and the node is new or offers more of its wants.

        A node that offers a resource no longer leaves it to devices, and may offer more by that.
        """
        old, new = changed_node(change)
        if new is None:
            return QUEUE
        # Called for every rejected spec when a node grows: for most the first comparison decides.
        offered_amount = new.allocatable.get
        if offered_amount(PODS, 0) < 1:
            return QUEUE_SKIP
        for name, amount in pod.amounts.requests.items():
            if (
                amount > offered_amount(name, 0)
                and is_counted(name)
                and not self._lets_through(pod, new, name)
            ):
                return QUEUE_SKIP
        wanted = [name for name, _ in _everything_wanted(pod)]
        return queue_if(
            old is None
            or _grew(old, new, (PODS, *wanted))
            or any(
                old.allocatable.get(name, 0) and self._lets_through(pod, new, name)
                for name in wanted
            )
        )


def _lacking(
    nodes: NodeView, wanted: Wanted, backed: frozenset[str] = _NONE_BACKED
) -> VerdictColumn:
    """(n,) int32, the bits of the resources that each node lacks; 0 fits."""
    room, pods = offered_and_used(nodes, PODS) or (0, 0)
    codes = (pods >= room) * _TOO_MANY_PODS
    for bit, (resource, amount) in enumerate(wanted, start=1):
        found = offered_and_used(nodes, resource)
        if found is None:
            # No node offers it, and it has no column: pods may invent resources by the hundred.
            if resource not in backed:
                codes = codes | 1 << bit | _UNRESOLVABLE
            continue
        allocatable, present = found
        lacks = allocatable - present < amount
        if resource in backed:
            by_plugin = allocatable > 0
            codes = codes | ((lacks & by_plugin) << bit)
            codes = codes | ((allocatable < amount) & by_plugin) * _UNRESOLVABLE
        elif lacks if isinstance(lacks, bool) else lacks.any():
            codes = codes | (lacks << bit) | (allocatable < amount) * _UNRESOLVABLE
    if isinstance(codes, int):
        return np.array([codes], np.int32)
    return codes.astype(np.int32)


def _status(wanted: Wanted, code: int) -> Status:
    reasons = ["Too many pods"] if code & _TOO_MANY_PODS else []
    reasons += [
        f"Insufficient {resource}"
        for bit, (resource, _) in enumerate(wanted, start=1)
        if code >> bit & 1
    ]
    make: Callable[..., Status] = unresolvable if code & _UNRESOLVABLE else unschedulable
    return make(_NAME, *reasons)


def _filter_many(
    nodes: NodeView, wanted: Wanted, backed: frozenset[str] = _NONE_BACKED
) -> FilterResult:
    """Judge more resources than a code has bits: codes number the combinations that occur."""
    size = MAX_RESOURCES_PER_CODE
    parts = [wanted[start : start + size] for start in range(0, len(wanted), size)]
    columns = np.stack([_lacking(nodes, part, backed) for part in parts])
    # np.unique(axis=1) would sort the combinations, which takes ten times as long.
    number_of: dict[bytes, int] = {}
    numbers = np.array(
        [number_of.setdefault(bits.tobytes(), len(number_of)) for bits in columns.T.copy()], np.intp
    )
    first = np.unique(numbers, return_index=True)[1]
    combinations = columns[:, first]
    fits: Mask = np.logical_not(combinations.any(axis=0))

    def status(code: int) -> Status:
        found = [
            _status(part, int(bits) & (-1 if index == 0 else ~_TOO_MANY_PODS))
            for index, (part, bits) in enumerate(zip(parts, combinations[:, code - 1], strict=True))
        ]
        reasons = [reason for each in found for reason in each.reasons]
        hopeless = bool((combinations[:, code - 1] & _UNRESOLVABLE).any())
        return (unresolvable if hopeless else unschedulable)(_NAME, *reasons)

    codes = np.where(fits[numbers], 0, numbers + 1).astype(np.int32)
    return FilterResult(codes, status)


def _everything_wanted(pod: PodInfo) -> Wanted:
    """List the requests for the hint functions; ignored resources count, as upstream."""
    return tuple(
        (name, amount)
        for name, amount in pod.amounts.requests.items()
        if amount > 0 and is_counted(name)
    )


def _backs_what_is_wanted(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Queue if a device class now provides a resource that the pod requests."""
    if not isinstance(change.new, dict):
        return QUEUE
    names = {_extended_resource(change.new), f"{CLASS_RESOURCE_PREFIX}{_name(change.new)}"}
    if isinstance(change.old, dict):
        if _extended_resource(change.old) == _extended_resource(change.new):
            return QUEUE_SKIP
        names = {_extended_resource(change.new)}
    return queue_if(any(pod.amounts.requests.get(name, 0) > 0 for name in names))


def _extended_resource(device_class: JsonObject) -> str:
    return str((device_class.get("spec") or {}).get("extendedResourceName") or "")


def _name(device_class: JsonObject) -> str:
    return str(device_class["metadata"]["name"])


def _grew(old: NodeInfo, new: NodeInfo, resources: Sequence[str]) -> bool:
    return any(new.allocatable.get(name, 0) > old.allocatable.get(name, 0) for name in resources)


def _smaller_requests(pod: PodInfo, nodes: NodeView) -> Iterator[Change]:
    """Propose for each resource the largest request that some node could take."""
    wanted = wanted_amounts(pod)
    least: dict[str, int] = {}
    for row in nodes.row_numbers().tolist():
        short = lacking(nodes.snapshot, row, pod)
        for resource, amount in short.items() if len(short) == 1 else ():
            least[resource] = min(amount, least.get(resource, amount))
    for resource, amount in least.items():
        left = wanted[resource] - amount
        if resource != PODS and left > 0:
            yield request_less(resource, left, wanted[resource])
