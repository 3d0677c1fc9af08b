"""The pools of devices that each node has, gathered from the slices of the cluster.

Each DynamicResources instance has one ResourcePools, which follows the object store. A `Pool` has
the slices that apply, and says whether they are complete. `SharedSlices` handles slices that name
no node: it finds the nodes that see each of them, for all nodes at once. Invariant: after
`refresh`, a node's pools depend only on the slices in the store and on the node's name and labels;
`changes` names every node whose pools may have changed. Source: GatherPools of the default
allocator in v1.36.
"""

import logging
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.plugins.shared.device_taint_rules import TaintRules
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.snapshot.columns import ChangeCursor, Changes, Mask, RowCursor
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_slice import (
    PARSED,
    Counters,
    Device,
    PoolKey,
    Reach,
    Slice,
    Traits,
)
from stellwerk_kube.selectors import NodeSelector

logger = logging.getLogger(__name__)

SliceGroup: TypeAlias = tuple[Slice, ...]
"""The slices that some nodes see."""
_ReachKey: TypeAlias = tuple[str, bool, NodeSelector | None]

_MAX_CHANGED_ROWS: Final = 64
"""Changed rows that are looked at one by one. If more have changed, all rows are."""


class SharedSlices:
    """The slices that name no node, and the group of those that each row sees.

    Pools of a thousand devices in the network are gathered once for a group, not once per node.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Follow the nodes of a snapshot."""
        self._snapshot = snapshot
        self._rows = RowCursor(snapshot, snapshot.node_changes)
        self._slices: dict[str, Slice] = {}
        self._groups: dict[SliceGroup, SliceGroup] = {}
        self._group_of: list[SliceGroup] = []

    def put(self, each: Slice) -> None:
        """A slice is there, or changed."""
        self._slices[each.name] = each
        self._group_of = []

    def remove(self, name: str) -> None:
        """A slice is gone; idempotent."""
        if self._slices.pop(name, None) is not None:
            self._group_of = []

    def seen_by(self, row: int) -> SliceGroup:
        """The slices for the node of a row; one object for all rows that see the same."""
        if not self._slices:
            return ()
        if not self._rows.current or not self._group_of:
            self._refresh()
        return self._group_of[row]

    def _refresh(self) -> None:
        changed = self._rows.changed(_MAX_CHANGED_ROWS)
        self._rows.catch_up()
        if changed is None or not self._group_of:
            self._divide()
            return
        for row in changed:
            node = self._snapshot.nodes[row]
            slices = () if node is None else self._slices.values()
            seen = tuple(each for each in slices if node is not None and each.includes(node))
            self._group_of[row] = self._groups.setdefault(seen, seen)

    def _divide(self) -> None:
        """Find the rows that see the same."""
        slices = list(self._slices.values())
        masks: dict[_ReachKey, Mask] = {}
        seen = np.array([self._seeing(each, masks) for each in slices])
        packed = np.ascontiguousarray(np.packbits(seen, axis=0).T)
        patterns = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
        _, first, group_of = np.unique(patterns, return_index=True, return_inverse=True)
        groups: list[SliceGroup] = [
            tuple([slices[number] for number in np.flatnonzero(seen[:, row]).tolist()])
            for row in first.tolist()
        ]
        self._groups = {group: group for group in groups}
        self._group_of = [groups[number] for number in group_of.ravel().tolist()]

    def _seeing(self, each: Slice, masks: dict[_ReachKey, Mask]) -> Mask:
        """(N,) bool, the rows that a slice is for."""
        seeing: Mask = np.zeros(self._snapshot.size, np.bool_)
        for reach in each.reaches:
            key = reach.node_name, reach.all_nodes, reach.selector
            found = masks.get(key)
            if found is None:
                found = masks[key] = self._included(reach)
            seeing |= found
        return seeing

    def _included(self, reach: Reach) -> Mask:
        """(N,) bool, the rows that are among the nodes."""
        included: Mask = np.zeros(self._snapshot.size, np.bool_)
        if reach.node_name:
            row = self._snapshot.row_of.get(reach.node_name)
            if row is not None:
                included[row] = True
        elif reach.all_nodes:
            included[:] = True
        elif reach.selector is not None:
            included = matching_nodes(NodeView(self._snapshot), reach.selector)
        return included


CounterSets: TypeAlias = Mapping[str, Counters]
"""The amount of each counter of a pool, by counter set and counter."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """The devices of a pool that a node may use."""

    key: PoolKey
    incomplete: bool = False
    """Slices of this generation are missing: it is being updated."""
    invalid: bool = False
    """It contradicts itself."""
    slices: tuple[Slice, ...] = ()
    """Those with devices for this node, by name."""
    elsewhere: tuple[Slice, ...] = ()
    """Slices for other nodes, whose devices share the pool's counters."""
    counter_sets: CounterSets | None = None

    @property
    def usable(self) -> bool:
        """Whether devices are taken from it."""
        return not self.incomplete and not self.invalid

    @property
    def name(self) -> str:
        """driver/pool."""
        return "/".join(self.key)

    def order(self) -> tuple[bool, PoolKey]:
        """Sorts pools: those with devices that have to become ready are searched last."""
        return any(traits.binding_conditions for traits in traits_of(self.slices)), self.key

    @property
    def size(self) -> int:
        """The number of devices for this node."""
        return sum(len(each.names.values) for each in self.slices)

    def devices(self) -> Iterator[Device]:
        """The devices for this node, in order."""
        for each in self.slices:
            yield from each.devices()


class CommonPools:
    """Pools that many nodes have alike, in the order in which they are searched."""

    def __init__(self, pools: Iterable[Pool], keys: Iterable[PoolKey] = ()) -> None:
        """`keys`: of everything that was looked at, also of pools that are out of date."""
        self.pools = tuple(sorted(pools, key=Pool.order))
        self.keys = frozenset((*keys, *(pool.key for pool in self.pools)))
        self.invalid = any(pool.invalid for pool in self.pools)
        self._order = [pool.order() for pool in self.pools]

    def place(self, pool: Pool) -> int:
        """The number of them that are searched before another pool."""
        return bisect_left(self._order, pool.order())


@dataclass(frozen=True, slots=True, eq=False)
class NodePools:
    """All pools of one node."""

    node: NodeInfo
    common: CommonPools
    own: tuple[Pool, ...]
    """Those that the node alone has, or has otherwise than others; none of them is common."""

    @property
    def pools(self) -> Sequence[Pool]:
        """In the order in which they are searched."""
        if not self.own:
            return self.common.pools
        return sorted((*self.common.pools, *self.own), key=Pool.order)

    @property
    def invalid(self) -> bool:
        """Whether any of them contradicts itself."""
        return self.common.invalid or any(pool.invalid for pool in self.own)


def traits_of(slices: Iterable[Slice]) -> Iterable[Traits]:
    """The traits of the devices of some slices, each once."""
    return dict.fromkeys(traits for each in slices for traits in each.traits.values)


def pool_of(
    key: PoolKey,
    slices: Collection[Slice],
    whole: Collection[Slice],
    *,
    others_count: bool = False,
) -> Pool | None:
    """The pool that these slices are for a node; None: they are out of date.

    Args:
        key: driver and name.
        slices: those for the node; all counters of the pool are among them, unless `others_count`.
        whole: every slice of the pool in the cluster.
        others_count: counters may be in slices for other nodes, as in v1.37.
    """
    newest = max(each.generation for each in slices)
    applying = sorted(
        (each for each in slices if each.generation == newest), key=lambda each: each.name
    )
    generation, expected = applying[0].generation, applying[0].slice_count
    others: list[Slice] = []
    if len(applying) != expected:
        if any(each.generation > generation for each in whole):
            return None
        current = [each for each in whole if each.generation == generation]
        if len(current) != expected:
            return Pool(key, incomplete=True)
        names = {each.name for each in applying}
        others = [each for each in current if each.name not in names]
    if any(each.grouped for each in (*applying, *others)):
        return Pool(key, incomplete=True)
    with_devices = [each for each in applying if not each.counter_sets]
    counter_sets = _counter_sets((*applying, *others) if others_count else applying)
    if (
        counter_sets is None
        or not _names_differ(with_devices)
        or not _counters_exist(counter_sets, traits_of((*with_devices, *others)))
    ):
        return Pool(key, invalid=True)
    return Pool(key, slices=tuple(with_devices), elsewhere=tuple(others), counter_sets=counter_sets)


def _names_differ(slices: Iterable[Slice]) -> bool:
    names = [name for each in slices for name in each.names.values]
    return len(set(names)) == len(names)


def _counter_sets(slices: Iterable[Slice]) -> CounterSets | None:
    """The counters of all sets; None: a set occurs twice."""
    found: dict[str, Counters] = {}
    for each in slices:
        for name, counters in each.counter_sets:
            if name in found:
                return None
            found[name] = counters
    return found


def _counters_exist(sets: CounterSets, devices: Iterable[Traits]) -> bool:
    return all(
        name in sets and sets[name].keys() >= counters.keys()
        for traits in devices
        for name, counters in traits.consumes
    )


Key = TypeVar("Key")

KIND: Final = "ResourceSlice"
EVERY_NODE: Final = ""
"""In place of a node's name: any node may be affected."""


class ResourcePools:
    """Slices by name, by pool and by node; pools by node, made when they are asked for."""

    def __init__(
        self, objects: ObjectStore, snapshot: Snapshot, rules: Compatibility = AS_RECORDED
    ) -> None:
        """Follow the slices of a store, and the rules that taint devices."""
        self._counters_on_their_nodes = ReleaseRule.COUNTERS_ON_THEIR_NODES in rules
        self._taint_rules = TaintRules(objects, rules)
        self._objects = objects
        self._snapshot = snapshot
        self._cursor = ChangeCursor(objects.changes(KIND))
        self._slices: dict[str, Slice] = {}
        self._by_pool: dict[PoolKey, dict[str, Slice]] = {}
        self._by_node: dict[str, dict[str, Slice]] = {}
        self._shared = SharedSlices(snapshot)
        self._counting: dict[PoolKey, dict[str, Slice]] = {}
        """Slices with counters, where every node takes them into account, as in v1.36."""
        self._strays: dict[PoolKey, Pool] = {}
        """Pools that are unusable wherever nothing but their counters is seen."""
        self._pools: dict[str, NodePools] = {}
        self._made: dict[PoolKey, dict[SliceGroup, Pool | None]] = {}
        """Pools with slices that name no node, by these: many nodes have the same."""
        self._of_group: dict[SliceGroup, CommonPools] = {}
        """The pools of nodes that no slice names."""
        self.changes: Changes[str] = Changes()
        """Nodes whose pools may have changed, by name."""

    def refresh(self) -> None:
        """Take over what the store shows now."""
        tainted = self._taint_rules.refresh()
        if tainted:
            for each in list(self._slices.values()):
                if any(rule.may_select(each.pool) for rule in tainted):
                    self._replace(each.name, self._objects.get(KIND, "", each.name))
        if self._cursor.current:
            return
        changed = self._cursor.advance()
        if changed is None:
            shown = {obj["metadata"]["name"]: obj for obj in self._objects.list(KIND)}
            names: Iterable[str] = {*self._slices, *shown}
        else:
            names = {name for _, name in changed}
        for name in names:
            self._replace(name, self._objects.get(KIND, "", name))

    def pools(self, node: NodeInfo) -> NodePools:
        """The pools of a node."""
        found = self._pools.get(node.name)
        if found is None or (found.node is not node and found.node.labels != node.labels):
            found = self._pools[node.name] = self._gathered(node)
        return found

    def _gathered(self, node: NodeInfo) -> NodePools:
        local = self._by_node.get(node.name)
        group = self._shared.seen_by(self._snapshot.row_of[node.name])
        common = self._of_group.get(group)
        if common is None:
            keys = {each.pool for each in group}
            found = (*self._found_in(group), *self._strays_beside(keys))
            common = self._of_group[group] = CommonPools(found, keys)
        if not local:
            return NodePools(node, common, ())
        keys = {each.pool for each in local.values()}
        if common.keys.isdisjoint(keys):
            return NodePools(node, common, tuple(self._found_in(local.values())))
        whole = (*local.values(), *group)
        beside = self._strays_beside({each.pool for each in whole})
        return NodePools(node, CommonPools((*self._found_in(whole), *beside)), ())

    def _strays_beside(self, keys: Collection[PoolKey]) -> list[Pool]:
        return [pool for key, pool in self._strays.items() if key not in keys]

    def _found_in(self, slices: Iterable[Slice]) -> list[Pool]:
        """The pools that a node sees in its slices."""
        by_pool: dict[PoolKey, dict[str, Slice]] = {}
        for each in slices:
            by_pool.setdefault(each.pool, {})[each.name] = each
        pools = [self._pool(key, of_pool) for key, of_pool in by_pool.items()]
        return [pool for pool in pools if pool is not None]

    def _pool(self, key: PoolKey, slices: dict[str, Slice]) -> Pool | None:
        slices.update(self._counting.get(key, {}))
        applying, whole = tuple(slices.values()), self._by_pool[key].values()
        if all(each.local for each in applying):
            return pool_of(key, applying, whole, others_count=self._counters_on_their_nodes)
        made = self._made.setdefault(key, {})
        if applying not in made:
            made[applying] = pool_of(
                key, applying, whole, others_count=self._counters_on_their_nodes
            )
        return made[applying]

    def nodes_of(self, pool: PoolKey) -> Iterable[str]:
        """The nodes that a pool is for, as far as its slices name them; else EVERY_NODE."""
        slices = self._by_pool.get(pool, {}).values()
        return {each.reach.node_name if each.local else EVERY_NODE for each in slices}

    def _replace(self, name: str, obj: JsonObject | None) -> None:
        before = self._slices.pop(name, None)
        after: Slice | None = None if obj is None else obj[PARSED]
        if after is not None:
            after = self._taint_rules.applied_to(after)
        for each in (before, after):
            if each is not None:
                self._forget_pools(self.nodes_of(each.pool))
        if before is not None:
            _remove(self._by_pool, before.pool, name)
            _remove(self._by_node, before.reach.node_name, name)
            _remove(self._counting, before.pool, name)
            self._shared.remove(name)
        if after is not None:
            self._slices[name] = after
            self._by_pool.setdefault(after.pool, {})[name] = after
            if after.counter_sets and not self._counters_on_their_nodes:
                self._counting.setdefault(after.pool, {})[name] = after
            if after.local:
                self._by_node.setdefault(after.reach.node_name, {})[name] = after
            else:
                self._shared.put(after)
            self._forget_pools(self.nodes_of(after.pool))
        for pool in {each.pool for each in (before, after) if each is not None}:
            self._made.pop(pool, None)
            self._of_group.clear()
            self._judge_stray(pool)

    def _judge_stray(self, key: PoolKey) -> None:
        """Look at what nodes see of a pool that has nothing but counters for them."""
        before = self._strays.pop(key, None)
        slices = self._counting.get(key)
        after = None if not slices else pool_of(key, slices.values(), self._by_pool[key].values())
        if after is not None and not after.usable:
            self._strays[key] = after
        if before is not None or key in self._strays:
            self._forget_pools((EVERY_NODE,))

    def _forget_pools(self, node_names: Iterable[str]) -> None:
        for node_name in node_names:
            if node_name == EVERY_NODE:
                self._pools.clear()
            else:
                self._pools.pop(node_name, None)
            self.changes.append(node_name)


def _remove(table: dict[Key, dict[str, Slice]], key: Key, name: str) -> None:
    entries = table.get(key)
    if entries is not None and entries.pop(name, None) is not None and not entries:
        del table[key]
