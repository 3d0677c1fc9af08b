"""NodeResourcesFit: enough of everything that the pod requests, and a score by how full nodes are.

Invariant: the filter counts what is requested; scoring counts 100m and 200 MiB for containers that
request nothing and ignores pod-level requests of the incoming pod (v1.36).
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
from stellwerk.plugins.resources.strategies import strategy_of
from stellwerk.plugins.shared.device_classes import DeviceClasses
from stellwerk.plugins.shared.hints import changed_node
from stellwerk.plugins.shared.victims import is_leaving_as_victim
from stellwerk.profiles.spec.plugin_args import NodeResourcesFitArgs
from stellwerk.snapshot.columns import IntColumn, Mask, VerdictColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import is_extended_resource
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_amounts import CPU, EPHEMERAL_STORAGE, MEMORY, PODS


class FreedRoom:
    """Room by now on the node that a pod has left; counted once for each change.

    kube-scheduler v1.36 tries every pod that was rejected for want of room when another ends; with
    hundreds of pods that preempt, each victim's end would cause an attempt of every other
    preemptor. A pod is spared only while victims of its own preemption are on their way out, so
    that it may not preempt others, and where it does not fit the node that was freed; what happens
    on its own node wakes it always.
    """

    def __init__(
        self,
        handle: Handle,
        lets_through: Callable[[PodInfo, NodeInfo, str], bool] = lambda _pod, _node, _name: False,
    ) -> None:
        """`lets_through`: whether the filter does not mind that a node lacks a resource."""
        self._handle = handle
        self._lets_through = lets_through
        self._asked: tuple[ClusterChange, int] | None = None
        """The change, and the position of nominations, for which the following holds."""
        self._free: dict[str, int] = {}
        self._fitting: dict[SchedulingSpec, bool] = {}
        """Whether pods of a spec fit: hundreds that preempt are mostly alike."""
        self._leaving: dict[str, PodInfo] = {}
        """By node, a victim that was found leaving it: it is until the node has another record."""

    def may_help(self, pod: PodInfo, change: ClusterChange) -> bool:
        """Whether a rejected pod may be schedulable after another one was deleted."""
        gone = change.old
        if not isinstance(gone, PodInfo):
            return True
        freed = gone.node_name or gone.nominated_node_name
        if not freed:
            return False
        nominated = self._handle.nominations.node_of(pod.uid)
        if nominated in {"", freed} or self._fits(pod, freed, change):
            return True
        return not self._waits_for_victims(pod, nominated)

    def _waits_for_victims(self, pod: PodInfo, node_name: str) -> bool:
        """Whether pods are leaving the nominated node, which still takes pods, for this one."""
        snapshot = self._handle.snapshot
        row = snapshot.row_of.get(node_name)
        if row is None or snapshot.unschedulable[row]:
            return False
        pods = self._handle.pods_on(node_name)
        known = self._leaving.get(node_name)
        if known is not None and pods.get(known.uid) is known and known.priority < pod.priority:
            return True
        if len(self._leaving) > 2 * len(self._handle.nominations.by_node):
            self._leaving.clear()  # most of those preemptors are on their nodes
        for other in pods.values():
            if other.priority < pod.priority and is_leaving_as_victim(other):
                self._leaving[node_name] = other
                return True
        return False

    def _fits(self, pod: PodInfo, node_name: str, change: ClusterChange) -> bool:
        """Whether the node has what the pod, nominated elsewhere, requests.

        That is beside those nominated to it, which are the same for all pods of a spec, mostly.
        """
        row = self._handle.snapshot.row_of.get(node_name)
        if row is None:
            return False
        node, nominations = self._handle.snapshot.node_at(row), self._handle.nominations
        position = nominations.changes.position
        if self._asked is None or self._asked[0] is not change or self._asked[1] != position:
            self._asked = change, position
            self._free = self._count_free(node)
            self._fitting.clear()
        if pod.amounts is not pod.spec.amounts or nominations.depends_on_deadline(pod):
            return self._has_room(pod, node)
        fits = self._fitting.get(pod.spec)
        if fits is None:
            fits = self._fitting[pod.spec] = self._has_room(pod, node)
        return fits

    def _has_room(self, pod: PodInfo, node: NodeInfo) -> bool:
        against = self._handle.nominations.against(pod, node.name)
        if self._free[PODS] <= len(against):
            return False
        for name, amount in pod.amounts.requests.items():
            if amount and is_counted(name):
                kept = sum(other.amounts.requests.get(name, 0) for other in against)
                short = amount > self._free.get(name, 0) - kept
                if short and not self._lets_through(pod, node, name):
                    return False
        return True

    def _count_free(self, node: NodeInfo) -> dict[str, int]:
        free = dict(node.allocatable)
        pods = self._handle.pods_on(node.name)
        for pod in pods.values():
            for name, amount in pod.amounts.requests.items():
                free[name] = free.get(name, 0) - amount
        free[PODS] = node.allocatable.get(PODS, 0) - len(pods)
        return free


Wanted: TypeAlias = tuple[tuple[str, int], ...]
"""(resource, amount above 0) in the order in which reasons are given."""

_NAME: Final = "NodeResourcesFit"
_NONE_BACKED: Final[frozenset[str]] = frozenset()
_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_ONLY_NATIVE: Final = ALWAYS_COUNTED.issuperset
"""Whether requests are for native resources alone, as most are."""
_TOO_MANY_PODS: Final = 1
_UNRESOLVABLE: Final = 1 << 30
_MOST_BITS: Final = 29
"""Resources that get a bit of their own between the two above."""


class NodeResourcesFit(
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
        if len(wanted) > _MOST_BITS:
            return _filter_many(nodes, wanted, backed)
        return FilterResult(_lacking(nodes, wanted, backed), lambda code: _status(wanted, code))

    @override
    def filter_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # With so many resources codes mean something in one answer only, and which classes back a
        # resource is no matter of the node.
        reusable = len(pod.spec.amounts.requests) <= _MOST_BITS and not self._backed(pod.spec)
        return pod.spec if reusable else None

    @override
    def counted_resources(self, resources: Collection[str]) -> Collection[str]:
        self._classes.refresh()
        return frozenset(
            resource
            for resource in resources
            if self._checks(resource, 1) and self._classes.backing(resource) is None
        )

    def _backed(self, spec: SchedulingSpec) -> frozenset[str]:
        """The resources that devices may provide where a node offers none: DynamicResources looks.

        Nothing is asked of pods that request cpu and memory alone.
        """
        requests = spec.amounts.requests
        if _ONLY_NATIVE(requests) or not any("/" in resource for resource in requests):
            return _NONE_BACKED
        self._classes.refresh()
        return frozenset(
            resource for resource in requests if self._classes.backing(resource) is not None
        )

    def _lets_through(self, pod: PodInfo, node: NodeInfo, resource: str) -> bool:
        """Whether the filter does not mind that the node lacks a resource of the pod."""
        if not self._checks(resource, 1):
            return True
        return not node.allocatable.get(resource, 0) and resource in self._backed(pod.spec)

    def _wanted(self, spec: SchedulingSpec) -> Wanted:
        """The requests that the filter checks: native resources first, the rest by name."""
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
        """The use of each placement: MostAllocated, whatever the strategy (v1.36)."""
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

    # --- queueing hints -------------------------------------------------------------------------

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
        """Whether the deleted pod had a node, or was nominated to one, and left room to this."""
        return queue_if(self._freed_room.may_help(pod, change))

    def _frees_something(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the pod itself shrank, or a pod on a node now requests less of what it wants."""
        old, new = change.old, change.new
        if not isinstance(old, PodInfo) or not isinstance(new, PodInfo) or new.uid == pod.uid:
            return QUEUE
        before, after = old.amounts.requests, new.amounts.requests
        return queue_if(
            bool(new.node_name)
            and any(before.get(name, 0) > after.get(name, 0) for name, _ in _everything_wanted(pod))
        )

    def _offers_more_of_enough(self, pod: PodInfo, change: ClusterChange) -> QueueingHint:
        """Whether the pod fits the empty node, and the node is new or offers more of its wants.

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
    """(n,) int32, the bits of what each node lacks; 0 fits."""
    room, pods = offered_and_used(nodes, PODS) or (0, 0)
    codes = (pods >= room) * _TOO_MANY_PODS
    for bit, (resource, amount) in enumerate(wanted, start=1):
        found = offered_and_used(nodes, resource)
        if found is None:
            # Pods may invent resources by the hundred: no column for what no node offers.
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
    """For more resources than a code has bits: codes number the combinations that occur."""
    parts = [wanted[start : start + _MOST_BITS] for start in range(0, len(wanted), _MOST_BITS)]
    columns = np.stack([_lacking(nodes, part, backed) for part in parts])
    # Sorting the combinations, as np.unique does, takes ten times as long.
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
    """The requests for the hint functions: ignored resources count too, as upstream."""
    return tuple(
        (name, amount)
        for name, amount in pod.amounts.requests.items()
        if amount > 0 and is_counted(name)
    )


def _backs_what_is_wanted(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether a class has come to back a resource that the pod requests."""
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
    """The request that the node with the most room could take, by resource."""
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
