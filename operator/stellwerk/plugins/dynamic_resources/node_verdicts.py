"""Filter of DynamicResources: a verdict for each row of a view.

`NodeAllocator` searches a node for devices once, and again only where something changed; nodes with
equal keys by `NodeEquivalence` have one answer; `NodeVerdicts` puts Filter together for the plugin.
Invariant: a verdict that is kept equals what a search on the node would find now; every change of a
slice, an allocation, a class or the node itself drops the verdicts that it may alter. Rows are
judged in kube-scheduler's order: extended resources, then the search, then the claims that are
allocated already.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.framework.types import (
    CycleState,
    FilterResult,
    Status,
    completes,
    error,
    unresolvable,
)
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.dynamic_resources.allocated import Allocated, InFlightAllocations
from stellwerk.plugins.dynamic_resources.allocating_state import AllocatingState
from stellwerk.plugins.dynamic_resources.allocator import (
    Allocator,
    FilterTimeout,
    FilterTimeoutError,
    Solution,
)
from stellwerk.plugins.dynamic_resources.claims import (
    AllocationError,
    AllocationRequest,
    ClaimToAllocate,
)
from stellwerk.plugins.dynamic_resources.extended_resources import (
    ExtendedClaim,
    extended_claim,
    is_offered,
    left_to_devices,
    spec_of,
)
from stellwerk.plugins.dynamic_resources.resource_pools import (
    EVERY_NODE,
    CommonPools,
    NodePools,
    Pool,
    ResourcePools,
)
from stellwerk.plugins.dynamic_resources.state_data import StateData
from stellwerk.plugins.shared.device_classes import DeviceClasses
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.snapshot.columns import (
    ChangeCursor,
    IntColumn,
    Mask,
    RowColumn,
    RowCursor,
    VerdictColumn,
)
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.cel.bounded_cache import MAX_KEPT_BYTES
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_claim import DeviceClaim, device_claim_of, is_available
from stellwerk_kube.resource_slice import DeviceKey, Slice
from stellwerk_kube.selectors import parse_node_selector

# --- equal nodes --------------------------------------------------------------------------------

EquivalenceKey: TypeAlias = tuple[Hashable, ...]
"""Everything that a search reads of a node: the order of pools and devices, what selectors and
constraints read of each, and what is in use."""

_ATTRIBUTES: Final = "attributes"
_MAX_NUMBERED_KEYS: Final = 1024
"""Keys of nodes that have a number of their own. Above it, all are forgotten; numbers are never
used again."""


class NodeEquivalence:
    """Keys of nodes for one request: nodes with equal keys give equal verdicts and positions."""

    def __init__(self, allocation_request: AllocationRequest, allocated: Allocated) -> None:
        """`allocated` says what is in use."""
        self._allocated = allocated
        self._attributes = attributes_read(allocation_request)
        self._columns: dict[str, tuple[str, ...]] = {}
        """By driver: the columns in which the attributes lie."""
        self._common: dict[CommonPools, Hashable] = {}
        """A number for each key of pools that nodes have alike, as of `_position`."""
        self._numbers: dict[EquivalenceKey, int] = {}
        self._last_number = 1  # unlike the keys of pools that are not usable
        self._position = -1

    def of(self, pools: NodePools) -> EquivalenceKey:
        """The key of a node."""
        if self._position != self._allocated.changes.position:
            self._position = self._allocated.changes.position
            self._common.clear()
        common, node = pools.common, pools.node
        if not pools.own:
            return (self._key_of_common(common, node),)
        if not common.pools and len(pools.own) == 1:
            return (self._pool(pools.own[0], node),)
        own = sorted(pools.own, key=Pool.order)
        placed = [(common.place(pool), self._pool(pool, node)) for pool in own]
        return (self._key_of_common(common, node), *placed)

    def _key_of_common(self, common: CommonPools, node: NodeInfo) -> Hashable:
        found = self._common.get(common)
        if found is None:
            key = tuple([self._pool(pool, node) for pool in common.pools])
            if any(each.per_device for pool in common.pools for each in pool.slices):
                return key
            if len(self._numbers) >= _MAX_NUMBERED_KEYS:
                self._numbers.clear()
            # Numbers are never used again: a kept answer may have the number of what is forgotten.
            found = self._numbers.get(key)
            if found is None:
                self._last_number += 1
                found = self._numbers[key] = self._last_number
            self._common[common] = found
        return found

    def _pool(self, pool: Pool, node: NodeInfo) -> Hashable:
        return self._seen(pool, node) if pool.usable else pool.invalid

    def _seen(self, pool: Pool, node: NodeInfo) -> Hashable:
        slices = [self._slice(each, node) for each in pool.slices]
        return pool.key[0], tuple(slices), self._counters(pool), self._use(pool)

    def _slice(self, each: Slice, node: NodeInfo) -> Hashable:
        columns = each.columns
        read: list[Hashable]
        if self._attributes is None:
            read = [(name, columns[name]) for name in sorted(columns)]
        else:
            read = [columns.get(name) for name in self._columns_of(each.pool[0])]
        if not each.per_device:
            return each.traits, *read
        included = [traits.reach.includes(node) for traits in each.traits.values]
        return each.traits, tuple(included), *read

    def _columns_of(self, driver: str) -> tuple[str, ...]:
        found = self._columns.get(driver)
        if found is None:
            found = self._columns[driver] = tuple(
                name
                for domain, short in self._attributes or ()
                for name in (f"{domain}/{short}" if domain else short, short)
                if name != short or not domain or domain == driver
            )
        return found

    def _counters(self, pool: Pool) -> Hashable:
        """The amount of each counter of the pool, less that of devices for other nodes."""
        if not pool.counter_sets:
            return None
        return tuple(
            [
                (counter_set, name, amount)
                for counter_set, counters in pool.counter_sets.items()
                for name, amount in counters.items()
            ]
        )

    def _use(self, pool: Pool) -> Hashable:
        """The devices of the pool that are in use, and the parts of them."""
        held = self._allocated.in_pool.get(pool.key)
        if not held:
            return None
        whole, consumed = self._allocated.devices, self._allocated.consumed
        used: list[Hashable] = []
        for position, device in enumerate(pool.devices()):
            key = device.key
            if key in held:
                claims = consumed.get(key)
                used.append((position, key in whole, claims and frozenset(claims.items())))
        if pool.counter_sets and pool.elsewhere:
            used += [
                (traits, held[key])
                for each in pool.elsewhere
                for name, traits in zip(each.names.values, each.traits.values, strict=True)
                if (key := (*pool.key, name)) in held
            ]
        return tuple(used)


def attributes_read(allocation_request: AllocationRequest) -> Sequence[tuple[str, str]] | None:
    """(domain, name) of every attribute that a search reads; None: perhaps any."""
    found: dict[tuple[str, str], None] = {}
    for claim in allocation_request.claims:
        for constraint in claim.spec.constraints:
            domain, slash, name = constraint.attribute.partition("/")
            found[(domain, name) if slash else ("", domain)] = None
        for wanted in (each for choices in claim.requests for each in choices):
            for selector in wanted.selectors:
                if selector.paths is None:
                    return None
                found |= {
                    (path[1], path[2]): None for path in selector.paths if path[0] == _ATTRIBUTES
                }
    return tuple(found)


# --- verdicts of the search ---------------------------------------------------------------------

RequestKey: TypeAlias = tuple[DeviceClaim, ...]

UNKNOWN: Final = 0
FOUND: Final = 1
NONE: Final = 2
"""Not all claims can be allocated."""
INVALID: Final = 3
"""Not all claims can be allocated, and a pool of the node contradicts itself."""
BROKEN: Final = 4
"""The search ended with an error, which `failures` has. No solution is NONE or INVALID."""
_KEPT_REQUESTS: Final = 64
_KEPT_KEYS: Final = 8192
_STEPS_OF_ONE_NODE: Final = 50_000
_STEPS_PER_NODE: Final = 200
"""Devices that all searches of one attempt may try: what a claim invents must not stop all."""
_LATE_SECONDS: Final = 0.5
"""The time after which a search that took too long may be tried again: in another attempt."""
BEST_ALTERNATIVE: Final = 8
"""The score of the first alternative of a request."""


@dataclass(frozen=True, slots=True)
class AllocationVerdict:
    """The outcome of a search on a node."""

    code: int
    score: int = 0
    """The better the alternatives taken, the higher."""
    failure: AllocationError | None = None


@dataclass(slots=True)
class AllocationVerdicts:
    """A verdict and a score for each row of the snapshot, as far as they are known."""

    allocation_request: AllocationRequest
    equivalence: NodeEquivalence
    rows: RowCursor
    pools: ChangeCursor[str]
    devices: ChangeCursor[DeviceKey]
    by_key: dict[EquivalenceKey, AllocationVerdict] = field(default_factory=dict)
    codes: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))
    """(N,) int64, UNKNOWN, FOUND, NONE, INVALID or BROKEN."""
    scores: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))
    """(N,) int64, at least 0: the better the alternatives taken, the higher."""
    failures: dict[int, AllocationError] = field(default_factory=dict)
    """By row, where the verdict is BROKEN."""
    late: set[int] = field(default_factory=set)
    """Rows whose search took too long; another attempt may try again."""
    late_seconds: float = 0.0
    """The time of the last of them."""
    selector_bytes: int = 0
    """Bytes of the selectors that it holds compiled."""

    def forget_all(self, size: int) -> None:
        """Set every row to UNKNOWN."""
        self.codes, self.scores = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.failures.clear()
        self.late.clear()

    def write(self, row: int, verdict: AllocationVerdict) -> None:
        """Keep the verdict of a row."""
        self.codes[row], self.scores[row] = verdict.code, verdict.score
        if verdict.failure is not None:
            self.failures[row] = verdict.failure


class NodeAllocator:
    """Slices, allocations and classes, and the verdicts that follow from them."""

    def __init__(
        self,
        snapshot: Snapshot,
        objects: ObjectStore,
        now_seconds: Callable[[], float],
        filter_seconds: float,
        rules: Compatibility = AS_RECORDED,
    ) -> None:
        """`filter_seconds`: how long an attempt may search; 0: as long as its steps allow."""
        self.rules = rules
        self._snapshot = snapshot
        self.now_seconds = now_seconds
        self._filter_seconds = filter_seconds
        self.in_flight = InFlightAllocations(objects)
        self.resource_pools = ResourcePools(objects, snapshot, rules)
        self.allocated = Allocated(objects)
        self.classes = DeviceClasses(objects, rules)
        self._known: OrderedDict[RequestKey, AllocationVerdicts] = OrderedDict()
        self._known_bytes = 0
        self._classes_version = 0

    def refresh(self) -> None:
        """Take over what the object store shows now."""
        self.in_flight.settle()
        self.resource_pools.refresh()
        self.allocated.refresh()
        self.classes.refresh()
        if self.classes.version != self._classes_version:
            self._classes_version = self.classes.version
            self._known.clear()
            self._known_bytes = 0

    def known(self, key: RequestKey) -> AllocationVerdicts:
        """The verdicts known for some claims, without those that a change may have altered.

        Raises:
            KeyError: a class does not exist.
        """
        found = self._known.get(key)
        if found is None:
            allocation_request = AllocationRequest(
                tuple(ClaimToAllocate.of(spec, self.classes, self.rules) for spec in key)
            )
            found = self._known[key] = AllocationVerdicts(
                allocation_request,
                NodeEquivalence(allocation_request, self.allocated),
                RowCursor(self._snapshot, self._snapshot.node_changes),
                ChangeCursor(self.resource_pools.changes),
                ChangeCursor(self.allocated.changes),
                selector_bytes=sum(len(each) for spec in key for each in spec.expressions),
            )
            self._known_bytes += found.selector_bytes
            while len(self._known) > 1 and (
                len(self._known) > _KEPT_REQUESTS or self._known_bytes > MAX_KEPT_BYTES
            ):
                self._known_bytes -= self._known.popitem(last=False)[1].selector_bytes
        else:
            self._known.move_to_end(key)
        self._drop_changed(found)
        if found.late and self.now_seconds() > found.late_seconds + _LATE_SECONDS:
            found.codes[list(found.late)] = UNKNOWN
            found.late.clear()
        return found

    def ask(
        self, known: AllocationVerdicts, names: Sequence[str], rows: RowColumn
    ) -> tuple[IntColumn, dict[int, Status]]:
        """(n,) codes of some rows, and what each failure means, by position in `rows`."""
        for _ in self.searched(known, rows):
            pass
        codes = known.codes[rows]
        failed = np.flatnonzero(codes == BROKEN).tolist()
        failures = {each: known.failures[int(rows[each])] for each in failed}
        return codes, {
            each: (unresolvable if failure.refuses_node else error)(NAME, failure.text(names))
            for each, failure in failures.items()
        }

    def searched(self, known: AllocationVerdicts, rows: RowColumn) -> Generator[None, None, None]:
        """Search the rows of which nothing is known; yields where it may be interrupted."""
        unknown = rows[known.codes[rows] == UNKNOWN]
        if not len(unknown):
            return
        timeout = self._timeout(len(unknown))
        for row in unknown.tolist():
            node = self._snapshot.nodes[row]
            if node is None:
                continue
            try:
                verdict = yield from self._verdict(known, self.resource_pools.pools(node), timeout)
            except FilterTimeoutError:
                text = f"node {node.name}: timed out trying to allocate devices"
                verdict = AllocationVerdict(BROKEN, failure=AllocationError(text, of_node=True))
                known.late.add(row)
                known.late_seconds = self.now_seconds()
            known.write(row, verdict)
            yield

    def node_at(self, row: int) -> NodeInfo | None:
        """The node of a row of the snapshot."""
        return self._snapshot.nodes[row]

    def solution(self, allocation_request: AllocationRequest, node: NodeInfo) -> Solution | None:
        """The devices of a node for the claims, as they are now.

        Raises:
            AllocationError, FilterTimeoutError: as the search does.
        """
        searching = self._searching(
            allocation_request, self.resource_pools.pools(node), self._timeout(1)
        )
        while True:
            try:
                next(searching)
            except StopIteration as ended:
                solution: Solution | None = ended.value
                return solution

    def _timeout(self, nodes: int) -> FilterTimeout:
        most_steps = _STEPS_OF_ONE_NODE + _STEPS_PER_NODE * nodes
        return FilterTimeout(self.now_seconds, self._filter_seconds, most_steps)

    def _verdict(
        self, known: AllocationVerdicts, pools: NodePools, timeout: FilterTimeout
    ) -> Generator[None, None, AllocationVerdict]:
        """The verdict of an equal node, or that of a search."""
        key = known.equivalence.of(pools)
        found = known.by_key.get(key)
        if found is not None:
            return found
        verdict = yield from self._search(known.allocation_request, pools, timeout)
        if verdict.failure is None or not verdict.failure.of_node:
            if len(known.by_key) >= _KEPT_KEYS:
                known.by_key.clear()
            known.by_key[key] = verdict
        return verdict

    def _search(
        self, allocation_request: AllocationRequest, pools: NodePools, timeout: FilterTimeout
    ) -> Generator[None, None, AllocationVerdict]:
        try:
            solution = yield from self._searching(allocation_request, pools, timeout)
        except AllocationError as error:
            return AllocationVerdict(BROKEN, failure=error)
        if solution is None:
            return AllocationVerdict(INVALID if pools.invalid else NONE)
        return AllocationVerdict(FOUND, sum(BEST_ALTERNATIVE - rank for rank in solution.ranks))

    def _searching(
        self, allocation_request: AllocationRequest, pools: NodePools, timeout: FilterTimeout
    ) -> Generator[None, None, Solution | None]:
        allocating = AllocatingState(self.allocated, self.rules)
        return Allocator(allocation_request, pools, allocating, timeout).search()

    def _drop_changed(self, known: AllocationVerdicts) -> None:
        size = self._snapshot.size
        rows, nodes = known.rows.advance(), known.pools.advance()
        devices = known.devices.advance()
        if rows is None or nodes is None or devices is None:
            known.forget_all(size)
            return
        pools = {device[:2] for device in devices}
        names = {*nodes, *(name for pool in pools for name in self.resource_pools.nodes_of(pool))}
        if EVERY_NODE in names:
            known.forget_all(size)
            return
        known.codes[[*rows, *self._rows_of(names)]] = UNKNOWN

    def _rows_of(self, names: Iterable[str]) -> list[int]:
        row_of = self._snapshot.row_of
        return [row_of[name] for name in names if name in row_of]


# --- Filter -------------------------------------------------------------------------------------

NAME: Final = "DynamicResources"
UNAVAILABLE: Final = unresolvable(NAME, "resourceclaim not available on the node")
NOT_ALLOCATED: Final = unresolvable(NAME, "cannot allocate all claims")
_STATUSES: Final = {
    1: unresolvable(NAME, "cannot schedule extended resource claim"),
    2: unresolvable(NAME, "cannot fit resource"),
    3: NOT_ALLOCATED,
    4: unresolvable(NAME, "invalid resource pools were encountered"),
    5: UNAVAILABLE,
    6: error(NAME, "devices are still being searched"),
}
_STALE, _NO_RESOURCE, _NOT_ALLOCATED, _INVALID_POOLS, _UNAVAILABLE, _UNFINISHED = _STATUSES
_FIRST_FAILURE: Final = 7


@dataclass(frozen=True, slots=True)
class NodeVerdicts:
    """The verdicts for one pod in one scheduling attempt."""

    node_allocator: NodeAllocator
    pod: PodInfo
    state_data: StateData
    now: datetime
    timeout_seconds: float

    def filter(self, nodes: NodeView, state: CycleState) -> FilterResult:
        """The verdicts of the rows of a view; without meaning if work is left undone."""
        rows = nodes.row_numbers()
        codes = np.zeros(len(rows), np.int32)
        failures: list[Status] = []
        if self.state_data.stale is not None:
            codes[:] = _STALE
        else:
            for resources, positions in self._by_resources(nodes, rows):
                self._search(resources, rows, positions, codes, failures, state)
                if state.unfinished is not None:
                    return FilterResult(np.full_like(codes, _UNFINISHED), _STATUSES.__getitem__)
        missing = np.logical_not(self._available(nodes))
        codes[missing & (codes == 0)] = _UNAVAILABLE
        statuses = _STATUSES | {
            _FIRST_FAILURE + number: status for number, status in enumerate(failures)
        }
        return FilterResult(codes, statuses.__getitem__)

    def scores(self, nodes: NodeView) -> IntColumn:
        """(n,) int64, the score of the alternatives that each row can have."""
        rows = nodes.row_numbers()
        scores = np.zeros(len(rows), np.int64)
        for resources, positions in self._by_resources(nodes, rows):
            known = self._known(resources)
            if known is not None:
                wanted = rows[positions]
                self.node_allocator.ask(known, self.state_data.names, wanted)
                scores[positions] = known.scores[wanted] + rank_score(self.state_data.allocated)
        return scores

    def unavailable(self, nodes: NodeView) -> list[JsonObject]:
        """The allocated claims that cannot be used on one of the nodes or another."""
        return [
            claim for claim in self.state_data.allocated if not self._usable(claim, nodes).all()
        ]

    # --- extended resources ---------------------------------------------------------------------

    def resources_on(self, node: NodeInfo) -> tuple[str, ...] | None:
        """The extended resources for which a claim is made on the node; None: no claim is.

        A pod with claims of its own gets one even where the node offers everything.
        """
        if not self.state_data.backed:
            return None
        left = left_to_devices(node, self.state_data.backed)
        return left if left or self.state_data.claims else None

    def extended_on(self, node: NodeInfo) -> ExtendedClaim | None:
        """The claim for extended resources on the node."""
        resources = self.resources_on(node)
        return None if resources is None else self._extended(resources)

    def _extended(self, resources: Sequence[str]) -> ExtendedClaim:
        return extended_claim(self.pod.extended_requests, resources, self.node_allocator.classes)

    def _by_resources(
        self, nodes: NodeView, rows: RowColumn
    ) -> Iterable[tuple[tuple[str, ...] | None, RowColumn]]:
        """The positions of nodes that leave the same resources to devices."""
        if not self.state_data.backed:
            return [(None, np.arange(len(rows)))]
        found: dict[tuple[str, ...] | None, list[int]] = {}
        for position, node in enumerate(nodes.nodes()):
            if node is not None:
                found.setdefault(self.resources_on(node), []).append(position)
        return [(key, np.array(positions, np.intp)) for key, positions in found.items()]

    def allocation_verdicts(self, nodes: NodeView) -> Iterator[tuple[int, AllocationVerdicts]]:
        """The verdicts for each set of claims that the nodes come to, and the number of nodes."""
        for resources, positions in self._by_resources(nodes, nodes.row_numbers()):
            known = self._known(resources)
            if known is not None:
                yield len(positions), known

    # --- the search -----------------------------------------------------------------------------

    def known_on(self, node: NodeInfo) -> AllocationVerdicts | None:
        """The verdicts for the claims that the pod has on a node; None: there are none."""
        return self._known(self.resources_on(node))

    def _known(self, resources: tuple[str, ...] | None) -> AllocationVerdicts | None:
        """The verdicts for the pod's claims where these resources are left to devices."""
        specs = self.state_data.specs
        if resources is not None:
            specs = (*specs, device_claim_of({"spec": spec_of(self._extended(resources))}))
        return self.node_allocator.known(specs) if specs else None

    def _search(
        self,
        resources: tuple[str, ...] | None,
        rows: RowColumn,
        positions: RowColumn,
        codes: VerdictColumn,
        failures: list[Status],
        state: CycleState,
    ) -> None:
        """Write the codes of nodes that leave the same resources to devices."""
        if self.state_data.backed:
            offered = [self._is_offered(int(row)) for row in rows[positions].tolist()]
            codes[positions[np.logical_not(offered)]] = _NO_RESOURCE
            positions = positions[np.array(offered, np.bool_)]
        known = self._known(resources)
        if known is None:
            return
        asked = rows[positions]
        if not completes(
            state, self.node_allocator.searched(known, asked), self.node_allocator.now_seconds
        ):
            return
        found, failed = self.node_allocator.ask(known, self.state_data.names, asked)
        codes[positions[found == NONE]] = _NOT_ALLOCATED
        codes[positions[found == INVALID]] = _INVALID_POOLS
        for position, status in failed.items():
            codes[positions[position]] = _FIRST_FAILURE + len(failures)
            failures.append(status)

    def _is_offered(self, row: int) -> bool:
        node = self.node_allocator.node_at(row)
        return node is None or is_offered(node, self.pod, self.state_data.backed)

    # --- allocated claims -----------------------------------------------------------------------

    def _available(self, nodes: NodeView) -> Mask:
        """(n,) bool, rows where all allocated claims can be used."""
        available: Mask = np.ones(len(nodes), np.bool_)
        for claim in self.state_data.allocated:
            available &= self._usable(claim, nodes)
        return available

    def _usable(self, claim: JsonObject, nodes: NodeView) -> Mask:
        if not is_available(claim, self.now, self.timeout_seconds):
            return np.zeros(len(nodes), np.bool_)
        selector = parse_node_selector(claim["status"]["allocation"].get("nodeSelector"))
        if selector is None:
            return np.ones(len(nodes), np.bool_)
        return matching_nodes(nodes, selector)


def rank_score(claims: Iterable[JsonObject]) -> int:
    """The score of the alternatives that allocated claims were given."""
    score = 0
    for claim in claims:
        results = (claim["status"]["allocation"].get("devices") or {}).get("results") or ()
        given = {result["request"] for result in results}
        for request in device_claim_of(claim).requests:
            if request.prioritized:
                ranks = enumerate(request.choices)
                score += next(
                    (BEST_ALTERNATIVE - rank for rank, each in ranks if each.full_name in given), 0
                )
    return score
