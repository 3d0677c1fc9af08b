"""Every slice of the cluster, and the pools that each node has of them.

Each DynamicResources instance has one, which follows the object store. Invariant: after `refresh`,
the pools of a node are those of the slices that the store shows; `changed_nodes` names every node
whose pools may be others than before.
"""

from collections.abc import Collection, Iterable
from typing import Final, TypeVar

from stellwerk.framework.services import ObjectStore
from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import NodeInfo
from stellwerk.models.resource_slice import PARSED, PoolKey, Slice
from stellwerk.plugins.devices.pools import CommonPools, NodePools, Pool, pool_of
from stellwerk.plugins.devices.shared_slices import Group, SharedSlices
from stellwerk.snapshot.columns import ChangeCursor, Changes
from stellwerk.snapshot.snapshot import Snapshot

Key = TypeVar("Key")

KIND: Final = "ResourceSlice"
EVERY_NODE: Final = ""
"""In place of a node's name: any node may be affected."""


class Inventory:
    """Slices by name, by pool and by node; pools by node, made when they are asked for."""

    def __init__(self, objects: ObjectStore, snapshot: Snapshot) -> None:
        """Follow the slices of a store."""
        self._objects = objects
        self._snapshot = snapshot
        self._cursor = ChangeCursor(objects.changes(KIND))
        self._slices: dict[str, Slice] = {}
        self._by_pool: dict[PoolKey, dict[str, Slice]] = {}
        self._by_node: dict[str, dict[str, Slice]] = {}
        self._shared = SharedSlices(snapshot)
        self._counting: dict[PoolKey, dict[str, Slice]] = {}
        """Slices with counters, which every node takes into account."""
        self._strays: dict[PoolKey, Pool] = {}
        """Pools that are unusable wherever nothing but their counters is seen."""
        self._pools: dict[str, NodePools] = {}
        self._made: dict[PoolKey, dict[Group, Pool | None]] = {}
        """Pools with slices that name no node, by these: many nodes have the same."""
        self._of_group: dict[Group, CommonPools] = {}
        """What nodes have that no slice names."""
        self.changes: Changes[str] = Changes()
        """Nodes whose pools may have changed, by name."""

    def refresh(self) -> None:
        """Take over what the store shows now."""
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
            return pool_of(key, applying, whole)
        made = self._made.setdefault(key, {})
        if applying not in made:
            made[applying] = pool_of(key, applying, whole)
        return made[applying]

    def nodes_of(self, pool: PoolKey) -> Iterable[str]:
        """The nodes that a pool is for, as far as its slices name them; else EVERY_NODE."""
        slices = self._by_pool.get(pool, {}).values()
        return {each.reach.node_name if each.local else EVERY_NODE for each in slices}

    def _replace(self, name: str, obj: JsonObject | None) -> None:
        before = self._slices.pop(name, None)
        after: Slice | None = None if obj is None else obj[PARSED]
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
            if after.counter_sets:
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
